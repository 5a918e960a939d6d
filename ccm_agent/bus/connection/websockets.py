"""
Load websocket support only for ws:// and wss:// addresses.

aiohttp takes 0.1 s of each start and 11 MiB of each agent. `late_imports` hides it during the import of nats; `load_websockets`
provides it to nats-py before the first connection to a ws:// or wss:// address.
"""

from __future__ import annotations

import importlib

from ccm_agent.bus.connection.late_imports import AIOHTTP

SCHEMES = ("ws", "wss")


def load_websockets() -> None:
    """Enable websockets in nats-py. Call it in a thread, because it imports aiohttp."""
    transport = importlib.import_module("nats.aio.transport")
    for name in AIOHTTP:
        if getattr(transport, name) is None:
            setattr(transport, name, importlib.import_module(name))
