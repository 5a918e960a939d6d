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
    from ccm_ctl.fleet.keys.keys import Keys

    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="bench-keys-") as folder:
        keys = Path(folder, "keys")
        os.environ.update(CCM_KEYS=str(keys), CCM_OPERATOR="bench")
        try:
            seconds([str(BIN / "ccmctl"), "init", "--security"], env=os.environ)
            os.environ["CCM_CREDS"] = str(keys / "bench.creds")
            made = Keys(keys)
            for node in nodes:
                path = Path(folder, f"{node}.creds")
                path.write_text(made.add_node(node, node_permissions(node)).text.reveal())
                path.chmod(0o600)
            os.environ[CREDENTIALS] = folder
            with temporary_server(f"{made.configuration.read_text()}\n{more}") as server:
                seconds([str(BIN / "ccmctl"), "--server", server.url, "init", "--security"], env=os.environ)
                yield server
        finally:
            os.environ.clear()
            os.environ.update(before)
