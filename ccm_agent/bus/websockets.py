"""
Websockets only where an address asks for them: nats-py imports aiohttp for them always, and does without if it is missing.

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
    """Finds nothing, and ends the search, for one thread: another may import aiohttp for itself at the same time."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Raise ModuleNotFoundError for what is left out, and leave all else to the finders after this one."""
        if name in _NEEDED and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{name} is imported when a websocket is needed", name=name)


@contextlib.contextmanager
def without_aiohttp() -> Iterator[None]:
    """Within, and in this thread alone, aiohttp cannot be imported unless it was before."""
    missing = _Missing()
    sys.meta_path.insert(0, missing)
    try:
        yield
    finally:
        sys.meta_path.remove(missing)


def load_websockets() -> None:
    """Give nats-py what it needs for websockets; imports aiohttp, so it belongs into a thread."""
    transport = importlib.import_module("nats.aio.transport")
    for name in _NEEDED:
        if getattr(transport, name) is None:
            setattr(transport, name, importlib.import_module(name))
