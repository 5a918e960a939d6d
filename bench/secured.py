"""
A server with all security features: three accounts, credentials for each node, a signers list. Children find it by environment.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.measure import BIN, seconds
from ccm_agent.testing.nats_server import NatsServer, temporary_server

CREDENTIALS = "BENCH_CREDS"
"""The variable with the folder that contains `NODE.creds`. It is not set for servers without security."""

WITH_TLS = os.environ.get("BENCH_TLS", "") not in ("", "0")
"""Whether secured servers have a certificate, and require TLS."""


def credentials_of(node: str) -> str:
    """Return the credentials file of a node, or "" without security."""
    folder = os.environ.get(CREDENTIALS)
    return f"{folder}/{node}.creds" if folder else ""


@contextmanager
def secured_server(nodes: Sequence[str], more: str = "") -> Iterator[NatsServer]:
    """
    Start a server with streams and with credentials for these nodes and one operator, whose credentials this environment uses.

    Args:
        nodes: The nodes.
        more: Additional lines of its configuration.
    """
    from ccm_agent.bus.access.permissions import node_permissions
    from ccm_ctl.fleet.keys.certificates import Certificates
    from ccm_ctl.fleet.keys.keys import Keys

    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-keys-") as folder:
        keys = Path(folder, "keys")
        os.environ.update(CCM_KEYS=str(keys), CCM_OPERATOR="bench")
        try:
            names = ("--server-name", "localhost") if WITH_TLS else ()
            seconds([str(BIN / "ccmctl"), "init", "--security", *names], env=os.environ)
            os.environ["CCM_CREDS"] = str(keys / "bench.creds")
            made = Keys(keys)
            parts = [made.configuration.read_text(), more]
            if WITH_TLS:
                tls = Certificates(keys)
                os.environ["CCM_CA"] = str(tls.authority)
                parts.append(tls.configuration.read_text())
            for node in nodes:
                path = Path(folder, f"{node}.creds")
                path.write_text(made.add_node(node, node_permissions(node)).text.reveal())
                path.chmod(0o600)
            os.environ[CREDENTIALS] = folder
            with temporary_server("\n".join(parts)) as server:
                seconds([str(BIN / "ccmctl"), "--server", server.url, "init", "--security"], env=os.environ)
                yield server
        finally:
            os.environ.clear()
            os.environ.update(before)
