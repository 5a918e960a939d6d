"""
Pokes, limited: a message that names a key's new revision costs its reader one read.

A user who may read a bucket can have the broker send a stored message to the subject of a poke, again and again. Its headers are
genuine, so nothing tells it from a poke, except that the revision is not a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from ccm_agent.bus.streams import parse_sequence

PAUSE_S = 5.0
"""At least so long between two pokes of a key that name no new revision. A bucket that was made again starts at revision 1."""

KEYS_LIMIT = 10_000
"""Keys of one subscription that are remembered; the oldest is forgotten first."""


def poke_of(headers: Mapping[str, str], stream: str, subject: str) -> int:
    """The sequence of a message that a stream republishes for a subject; 0 when the headers say otherwise."""
    if headers.get("Nats-Stream") != stream or headers.get("Nats-Subject") != subject:
        return 0
    try:
        return parse_sequence(headers.get("Nats-Sequence", ""))
    except ValueError:
        return 0


class _Key(Struct):
    """What is known of one key: its newest revision, when its last poke was passed on, and one that waits."""

    newest: int = 0
    passed_at: float = 0.0
    waiting: asyncio.TimerHandle | None = None


class PokeLimit:
    """
    Passes each new revision of a key on at once, and others at most once in PAUSE_S.

    None is lost: the last of those that were held back is passed on when the pause is over.
    """

    def __init__(self, on_poke: Callable[[str, int], None]) -> None:
        self._on_poke = on_poke
        self._keys: dict[str, _Key] = {}

    def poked(self, key: str, revision: int) -> None:
        """A poke came. Called on the event loop."""
        known = self._known(key)
        loop = asyncio.get_running_loop()
        if revision > known.newest:
            known.newest = revision
            self._pass(key, known, revision)
        elif known.waiting is None:
            rest_s = known.passed_at + PAUSE_S - loop.time()
            if rest_s <= 0:
                self._pass(key, known, revision)
            else:
                known.waiting = loop.call_later(rest_s, partial(self._pass, key, known, revision))

    def close(self) -> None:
        """Pass nothing on any more."""
        for known in self._keys.values():
            if known.waiting is not None:
                known.waiting.cancel()
        self._keys.clear()

    def _known(self, key: str) -> _Key:
        known = self._keys.get(key)
        if known is None:
            if len(self._keys) >= KEYS_LIMIT:
                oldest = self._keys.pop(next(iter(self._keys)))
                if oldest.waiting is not None:
                    oldest.waiting.cancel()
            known = self._keys[key] = _Key()
        return known

    def _pass(self, key: str, known: _Key, revision: int) -> None:
        if known.waiting is not None:
            known.waiting.cancel()
            known.waiting = None
        known.passed_at = asyncio.get_running_loop().time()
        self._on_poke(key, revision)
