"""
The numbers that the documents of a fleet have now, for the snapshot that a timestamp names (`ccm_agent.bus.snapshot`).

Only documents and deletions whose signature was verified count, and numbers of the snapshot before. What is gone from the broker
keeps its number there, so it cannot come back. Numbers further ahead of the clock than a day are left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ccm_agent.bus.snapshot import digest_of, piece_key, read_piece, split
from ccm_agent.bus.streams import store
from ccm_agent.bus.subjects import key_subject
from ccm_agent.bus.timestamp import AHEAD_MS
from ccm_agent.bus.trust import TRUST_BUCKET
from ccm_agent.bus.verified import Verified
from ccm_agent.model.errors import ProtocolError
from ccm_ctl.fleet.verified_reader import VerifiedReader, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ccm_agent.bus.connection import Connection
    from ccm_agent.bus.timestamp import Timestamp
    from ccm_agent.bus.trust import SignersList
    from ccm_agent.model.ports import KeyReader, KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet


async def write_snapshot(
    fleet: Fleet, connection: Connection, signers: SignersList, before: Timestamp | None
) -> tuple[tuple[str, ...], list[Verified[KeyValueEntry]]]:
    """
    Write the pieces of the snapshot that have changed; the digests of all of them, and the documents that they rest on.

    Args:
        fleet, connection: The fleet.
        signers: The newest signers list.
        before: The timestamp before, verified; None: there is none.

    Raises:
        BusError: The broker is away or refuses.
    """
    assert fleet.signers is not None
    had = before.pieces if before is not None else ()
    numbers = await _read_before(fleet.signers, had)
    reader = VerifiedReader(signers, fleet.clock, is_demanded=True)
    bases: list[Verified[KeyValueEntry]] = []
    for name, bucket in (
        ("CCM_FACTS", fleet.facts),
        ("CCM_ASSIGNMENTS", fleet.assignments),
        ("CCM_DATA", fleet.data),
    ):
        entries = await bucket.matching([">"], deletions=True)
        for judged in await asyncio.to_thread(_verified, reader, name, entries):
            key = f"{name}/{judged.value.key}"
            numbers[key] = max(number_of(judged.value), numbers.get(key, 0))
            bases.append(judged)
    latest = int(fleet.clock.now().timestamp() * 1000) + AHEAD_MS
    pieces = split({name: number for name, number in numbers.items() if number <= latest})
    digests = tuple(digest_of(piece) for piece in pieces)
    headers = {"Nats-Expected-Stream": f"KV_{TRUST_BUCKET}"}
    for place, piece in enumerate(pieces):
        if len(had) != len(digests) or had[place] != digests[place]:
            await store(connection, key_subject(TRUST_BUCKET, piece_key(place)), piece, headers)
    return digests, bases


def _verified(
    reader: VerifiedReader, bucket: str, entries: Iterable[KeyValueEntry]
) -> list[Verified[KeyValueEntry]]:
    """The documents and deletions that an operator signed who may write them."""
    judged = [reader.document(bucket, entry) for entry in entries]
    return [one for one in judged if isinstance(one, Verified) and one.signer]


async def _read_before(bucket: KeyReader, digests: tuple[str, ...]) -> dict[str, int]:
    """The numbers in the pieces of the snapshot before; a piece that is not the one that was signed says nothing."""
    numbers: dict[str, int] = {}
    for place in range(len(digests)):
        entry = await bucket.get(piece_key(place))
        try:
            numbers |= read_piece(entry.value if entry is not None else b"", digests, place)
        except ProtocolError:
            continue
    return numbers
