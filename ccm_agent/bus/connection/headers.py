"""
Strict parsing of header blocks: an incomplete block is refused, and nothing in it is repaired.

A NATS server stores and forwards a publisher's header block unparsed, and appends its own lines to it. If a parser guesses the
meaning of a malformed block, an attacker can make it miss those lines. This parser does not guess. It accepts exactly

    NATS/1.0[ status[ description]]\\r\\n
    (name: value\\r\\n)*
    \\r\\n
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from ccm_agent.bus.connection.messages import COPIED
from ccm_agent.model.errors import ProtocolError

BLOCK_LIMIT_BYTES = 64 << 10
"""
A larger block is refused without parsing. Blocks of this project have less than 2 KiB, and long ones cost every reader time.
"""

STATUS = "Status"
DESCRIPTION = "Description"
"""Headers that contain the status of the first line, as in nats-py. A header with one of these names is refused."""

_TAIL_BYTES = 16 << 10
"""More than the length of the headers that a broker appends to a stored message: a subject and some numbers."""

_VALUE = r"[^\x00-\x08\x0a-\x1f\x7f]*"
_NAME = r"[!-9;-~]+"
_BLOCK = re.compile(rf"NATS/1\.0(?: (\d{{3}})(?: ({_VALUE}))?)?\r\n((?:{_NAME}:{_VALUE}\r\n)*)\r\n")
_LINE = re.compile(rf"({_NAME}):[ \t]*({_VALUE})\r\n")
_SENT = re.compile(rf"(?:{_NAME}: [^\r\n\0]*\r\n)*")

STORED = frozenset(("nats-stream", "nats-subject", "nats-sequence", "nats-time-stamp"))
"""Lowercase names of headers that only a broker adds, when it sends a stored message to a reader."""

_ONCE = ("nats-", "kv-", "ccm-")
"""Prefixes of names with a meaning for the broker or for this project. A block that repeats such a name is ambiguous."""

_REPEATABLE = frozenset(("nats-request-info",))
"""Added by the broker once for each account that a message crosses."""


class MalformedHeadersError(ProtocolError):
    """A header block is incomplete or ambiguous."""


def format_headers(headers: Mapping[str, str]) -> bytes:
    """
    Format the headers of a message that is sent.

    Raises:
        MalformedHeadersError: A name is not valid, or a value contains a line break.
    """
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    # a value with a line break adds a line, even if that line has the form of a header
    if lines.count("\n") != len(headers) or _SENT.fullmatch(lines) is None:
        raise MalformedHeadersError("a header contains a line break or has a name that is not valid")
    return f"NATS/1.0\r\n{lines}\r\n".encode()


def parse_headers(block: bytes) -> dict[str, str]:
    """
    Parse the headers of a message; for a repeated name, the last value is used.

    A message that was stored, copied by a direct get, and stored again has a second `Nats-Stream`, `Nats-Subject`,
    `Nats-Sequence` or `Nats-Time-Stamp`. Its `Nats-Stream` is returned as `COPIED`. All four are checked, because the publisher
    can hide the first line that the broker appends: the broker cuts the last two bytes of the publisher's block without
    parsing it.

    Args:
        block: Everything before the body, from `NATS/1.0` to the empty line.

    Raises:
        MalformedHeadersError: The block is incomplete, not UTF-8, too long, or repeats a name that must be unique.
    """
    if len(block) > BLOCK_LIMIT_BYTES:
        raise MalformedHeadersError(
            f"the headers have {len(block)} bytes; at most {BLOCK_LIMIT_BYTES} are accepted"
        )
    try:
        found = _BLOCK.fullmatch(block.decode())
    except UnicodeDecodeError as err:
        raise MalformedHeadersError("the headers are not UTF-8") from err
    if found is None:
        raise MalformedHeadersError("the headers are malformed")
    pairs = [(name, value.rstrip(" \t")) for name, value in _LINE.findall(found[3])]
    headers = dict(pairs)
    lowered = {name.lower() for name in headers}
    if not lowered.isdisjoint(("status", "description")):
        raise MalformedHeadersError(
            "a header is named `Status` or `Description`, which are reserved for the broker"
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
        raise MalformedHeadersError(f"the header `{min(bad)}` occurs twice")
    if repeated & STORED:
        headers["Nats-Stream"] = COPIED


def was_stored(headers: Mapping[str, str]) -> bool:
    """Whether the broker read the message from a stream. If so, its publisher did not send it to this subject."""
    return any(name.lower() in STORED for name in headers)


def broker_headers(block: bytes) -> dict[str, str]:
    """
    Return the headers that the broker appended to a block that `parse_headers` refuses, marked as `COPIED`.

    A reader of a stream needs the sequence to continue after such a message. The lines are read from the end, so that the
    publisher cannot replace them.
    """
    tail = block[-_TAIL_BYTES:].decode("utf-8", "replace")
    headers = {"Nats-Stream": COPIED}
    for line in reversed(tail.removesuffix("\r\n\r\n").split("\r\n")):
        found = _LINE.fullmatch(f"{line}\r\n")
        if found is None or not found[1].startswith("Nats-"):
            break
        headers.setdefault(found[1], found[2])
    return headers
