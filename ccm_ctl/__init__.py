"""
The controller of a fleet. Programs use it through `client`; people use `ccmctl`.

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
        server: URLs of the broker, separated by commas; "": CCM_SERVER, NATS_URL, the selected context, or this host.
        context: Name of a NATS context.
        creds: Credentials file; "": CCM_CREDS or the context's.
        ca: Certificate authority of the broker's certificate.
        operator: Name to send requests as; "": the name in the credentials, or the user's.
        insecure: Accept a broker without authentication or TLS.
        environ: Environment variables; None: those of this process.

    Returns:
        A context manager that gives a `FleetClient`, connected as long as the context lasts.

    Raises:
        CcmError: On entry: there is no broker, or the settings are not usable.
    """
    from ccm_ctl.python_client import connect

    return connect(
        server, context=context, creds=creds, ca=ca, operator=operator, insecure=insecure, environ=environ
    )
