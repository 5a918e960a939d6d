"""
The snapshot: the numbers of documents at the time of a timestamp, in pieces. The timestamp contains their digests.

A new node, or one that lost its state, has no record of the newest number of a document. It reads only the pieces for its own
keys, and refuses a document with a lower number. A piece is stored under `snapshot.<i>` in CCM_TRUST.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from ccm_agent.bus.signatures.timestamp import SNAPSHOT_PREFIX
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

PIECES = ((500, 1), (8_000, 16), (1_000_000_000, 256))
"""The number of pieces for up to this many documents. A piece contains a few hundred numbers and is one message."""


def piece_key(place: int) -> str:
    """Return the key of a piece in CCM_TRUST."""
    return f"{SNAPSHOT_PREFIX}{place}"


def place_of(name: str, pieces: int) -> int:
    """Return the index of the piece that contains the number of a document, `bucket/key`."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") % pieces


def digest_of(piece: bytes) -> str:
    """Return the digest of a piece, as in the timestamp."""
    return hashlib.sha256(piece).hexdigest()


def split(numbers: Mapping[str, int]) -> list[bytes]:
    """Split these numbers into pieces. The same numbers always produce the same bytes."""
    pieces = next(pieces for most, pieces in PIECES if len(numbers) <= most)
    parts: list[dict[str, int]] = [{} for _ in range(pieces)]
    for name in sorted(numbers):
        parts[place_of(name, pieces)][name] = numbers[name]
    return [msgspec.json.encode(part) for part in parts]


def read_piece(piece: bytes, digests: Sequence[str], place: int) -> dict[str, int]:
    """
    Return the numbers in a piece.

    Raises:
        ProtocolError: The piece does not match the timestamp.
    """
    key = piece_key(place)
    if digest_of(piece) != digests[place]:
        raise ProtocolError(f"{key}: this part of the snapshot does not match the newest timestamp")
    try:
        return decode_foreign(piece, dict[str, int])
    except msgspec.DecodeError as err:
        raise ProtocolError(f"{key}: the part of the snapshot cannot be read: {err}") from err
