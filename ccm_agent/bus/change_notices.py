"""
Limit the rate of notices about changed keys, because each notice costs the agent one read.

A user who may read a bucket can make the broker send a stored message to the subject of a notice, again and again. Its headers
are genuine, and only its old revision distinguishes it from a notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from ccm_agent.bus.streams import parse_sequence

PAUSE_S = 5.0
"""The pause between notices of a key without a new revision. They are not dropped: a recreated bucket restarts at revision 1."""

KEYS_LIMIT = 10_000
"""The number of keys of one subscription that are remembered. The oldest key is forgotten first."""


def notice_revision(headers: Mapping[str, str], stream: str, subject: str) -> int:
    """Return the revision in the headers of a notice; 0 if the message is not a notice from this stream and subject."""
    if headers.get("Nats-Stream") != stream or headers.get("Nats-Subject") != subject:
        return 0
    try:
        return parse_sequence(headers.get("Nats-Sequence", ""))
    except ValueError:
        return 0


class _Key(Struct):
    """One key: its newest revision, the time of its last notice, and the timer of a waiting notice."""

    newest: int = 0
    passed_at: float = 0.0
    waiting: asyncio.TimerHandle | None = None


class NoticeLimit:
    """
    Passes on each new revision of a key immediately, and other notices at most once in PAUSE_S.

    No change is lost: after the pause, a notice that was held back is passed on.
    """

    def __init__(self, on_change: Callable[[str, int], None]) -> None:
        self._on_change = on_change
        self._keys: dict[str, _Key] = {}

    def receive(self, key: str, revision: int) -> None:
        """Handle a notice. Called on the event loop."""
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
        """Stop passing on notices."""
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
        self._on_change(key, revision)
