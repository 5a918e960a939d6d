"""
The controller of a fleet. Programs use `client`, and people use `ccmctl`.

    async with ccm_ctl.client("nats://127.0.0.1:4222") as fleet:
        async for result in fleet.apply("site/", targets="role=web", batch="10%"):
            print(result.node, result.state)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

    from ccm_ctl.python_client import FleetClient


def client(
    server: str = "",
    *,
    context: str = "",
    creds: str = "",
    ca: str = "",
    operator: str = "",
    insecure: bool = False,
    environ: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[FleetClient]:
    """
    Connect to the broker of a fleet, as `ccmctl` does.

    Args:
        server: URLs of the broker, separated by commas; "" for CCM_SERVER, NATS_URL, the selected context, or this host.
        context: The name of a NATS context.
        creds: The credentials file; "" for CCM_CREDS or the context's.
        ca: The certificate authority of the broker's certificate.
        operator: The name in requests; "" for the name in the credentials, or the user's.
        insecure: Whether to accept a broker without authentication or TLS.
        environ: Environment variables; None for those of this process.

    Returns:
        A context manager that yields a `FleetClient`, which is connected within the context.

    Raises:
        CcmError: On entry, if the connection fails or the settings are not valid.
    """
    from ccm_ctl.python_client import connect

    return connect(
        server, context=context, creds=creds, ca=ca, operator=operator, insecure=insecure, environ=environ
    )
