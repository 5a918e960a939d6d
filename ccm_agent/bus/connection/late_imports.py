"""
Import nats-py without modules that few or none of our connections need.

nats-py tries to import aiohttp for websockets, and works without it. It also imports its own JetStream client of about 500
lines, which takes as long as the rest of nats-py. Only methods that we do not call use that client.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

AIOHTTP = ("aiohttp", "multidict")
_JETSTREAM = "nats.js"


class _Finder:
    """An import finder for one thread; other threads may import the same modules as usual at the same time."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Any = None, _target: Any = None) -> ModuleSpec | None:
        """
        Hide aiohttp, and load nats-py's JetStream client only at its first use.

        Raises:
            ModuleNotFoundError: The module is hidden.
        """
        if threading.get_ident() != self._thread:
            return None
        if name in AIOHTTP:
            raise ModuleNotFoundError(f"{name} is imported when a websocket is needed", name=name)
        spec = PathFinder.find_spec(name, path) if name == _JETSTREAM else None
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


@contextlib.contextmanager
def late_imports() -> Iterator[None]:
    """While the block runs, this thread imports nats-py without aiohttp and JetStream, unless they are already imported."""
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
