"""
Header blocks of messages, read strictly: a block that is not whole is refused, and nothing in it is mended.

A NATS server stores and forwards a publisher's header block without looking at it, and appends its own lines to it. A reader that
guesses what a broken block means can be made to miss those lines, so this one does not guess. It accepts exactly

    NATS/1.0[ status[ description]]\\r\\n
    (name: value\\r\\n)*
    \\r\\n
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from ccm_agent.bus.messages import COPIED
from ccm_agent.model.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK_LIMIT_BYTES = 64 << 10
"""A larger block is refused unread: ours have less than 2 KiB, and a long one costs every reader time."""

STATUS = "Status"
DESCRIPTION = "Description"
"""Where the first line's status is put, as nats-py does. A header that has one of these names is refused."""

_TAIL_BYTES = 16 << 10
"""What a broker appends to a stored message is shorter: a subject and some numbers."""

_VALUE = r"[^\x00-\x08\x0a-\x1f\x7f]*"
_NAME = r"[!-9;-~]+"
_BLOCK = re.compile(rf"NATS/1\.0(?: (\d{{3}})(?: ({_VALUE}))?)?\r\n((?:{_NAME}:{_VALUE}\r\n)*)\r\n")
_LINE = re.compile(rf"({_NAME}):[ \t]*({_VALUE})\r\n")

STORED = frozenset(("nats-stream", "nats-subject", "nats-sequence", "nats-time-stamp"))
"""What a broker adds to a stored message that it sends to a reader, in lower case; no program sends any of it."""

_ONCE = ("nats-", "kv-", "ccm-")
"""Names that mean something to the broker or to us begin so; a block that has one of them twice has two meanings."""

_REPEATABLE = frozenset(("nats-request-info",))
"""Added by the broker once for each account that a message passes on its way."""


class MalformedHeadersError(ProtocolError):
    """A header block is not whole, or says two things at once."""


def parse_headers(block: bytes) -> dict[str, str]:
    """
    The headers of a message; of a name that is there twice the last value.

    A message that was stored, copied by a direct get, and stored again has a second `Nats-Stream`, `Nats-Subject`,
    `Nats-Sequence` or `Nats-Time-Stamp`. Its `Nats-Stream` is given as `COPIED`. All four are looked for, because the first line
    that the broker appends can be hidden: it cuts the last two bytes of the publisher's block without looking at them.

    Args:
        block: Everything before the body, from `NATS/1.0` to the empty line.

    Raises:
        MalformedHeadersError: The block is not whole, is not UTF-8, is too long, or repeats a name that may stand there once.
    """
    if len(block) > BLOCK_LIMIT_BYTES:
        raise MalformedHeadersError(f"a header block of {len(block)} bytes; {BLOCK_LIMIT_BYTES} are taken")
    try:
        found = _BLOCK.fullmatch(block.decode())
    except UnicodeDecodeError as err:
        raise MalformedHeadersError("a header block that is not UTF-8") from err
    if found is None:
        raise MalformedHeadersError("a header block that is not whole")
    pairs = [(name, value.rstrip(" \t")) for name, value in _LINE.findall(found[3])]
    headers = dict(pairs)
    lowered = {name.lower() for name in headers}
    if not lowered.isdisjoint(("status", "description")):
        raise MalformedHeadersError(
            "a header named `Status` or `Description`, which only the broker's first line says"
        )
    if len(lowered) != len(pairs):
        _judge_repeated([name.lower() for name, _ in pairs], headers)
    if found[1]:
        headers[STATUS] = found[1]
    if found[2]:
        headers[DESCRIPTION] = found[2].strip(" \t")
    return headers


def _judge_repeated(names: list[str], headers: dict[str, str]) -> None:
    repeated = {name for name, count in Counter(names).items() if count > 1}
    bad = [name for name in repeated - STORED - _REPEATABLE if name.startswith(_ONCE)]
    if bad:
        raise MalformedHeadersError(f"a header block with two headers `{min(bad)}`")
    if repeated & STORED:
        headers["Nats-Stream"] = COPIED


def was_stored(headers: Mapping[str, str]) -> bool:
    """A broker read the message from a stream: its publisher did not send it to where it arrived."""
    return any(name.lower() in STORED for name in headers)


def broker_headers(block: bytes) -> dict[str, str]:
    """
    What the broker appended to a block that `parse_headers` refuses, marked as `COPIED`.

    For the reader of a stream, who must know where the message is to go on behind it. The lines are read from the end, so the
    publisher's bytes cannot replace them.
    """
    tail = block[-_TAIL_BYTES:].decode("utf-8", "replace")
    headers = {"Nats-Stream": COPIED}
    for line in reversed(tail.removesuffix("\r\n\r\n").split("\r\n")):
        found = _LINE.fullmatch(f"{line}\r\n")
        if found is None or not found[1].startswith("Nats-"):
            break
        headers.setdefault(found[1], found[2])
    return headers
