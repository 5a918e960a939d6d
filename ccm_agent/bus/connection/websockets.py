"""
Load websocket support only for ws:// and wss:// addresses: nats-py always tries to import aiohttp for it, and works without.

aiohttp takes 0.1 s of each start and 11 MiB of each agent. `without_aiohttp` makes it missing for the import of nats;
`load_websockets` puts it where nats-py looks before the first connection to a ws:// or wss:// address.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMES = ("ws", "wss")

_NEEDED = ("aiohttp", "multidict")


class _Missing:
    """An import finder that hides a module from one thread; other threads may import aiohttp at the same time."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise ModuleNotFoundError for hidden modules, and leave others to the next finders."""
        if name in _NEEDED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is imported when a websocket is needed", name=name)


@contextlib.contextmanager
def without_aiohttp() -> Iterator[None]:
    """Hide aiohttp from imports of this thread inside the block, unless it is already imported."""
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        yield
    finally:
        sys.meta_path.remove(missing)


def load_websockets() -> None:
    """Enable websockets in nats-py. Call it in a thread, because it imports aiohttp."""
    transport = importlib.import_module("nats.aio.transport")
    for name in _NEEDED:
        if getattr(transport, name) is None:
            setattr(transport, name, importlib.import_module(name))
