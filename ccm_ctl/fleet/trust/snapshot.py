"""
The current numbers of a fleet's documents, for the snapshot of a timestamp (`ccm_agent.bus.signatures.snapshot`).

Only documents and deletions with a verified signature are included, together with the numbers of the previous snapshot. A
document that is missing on the broker keeps its number in the snapshot, so an old revision of it cannot be restored. No snapshot
contains a lower number than the previous one, unless an administrator accepts that. Numbers more than a day ahead of the clock
are left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.signatures.sealing import SEALING_KEY, SECRETS
from ccm_agent.bus.signatures.snapshot import digest_of, piece_key, split
from ccm_agent.bus.signatures.timestamp import AHEAD_MS
from ccm_agent.bus.signatures.trust import GROUP_PREFIX, TRUST_BUCKET
from ccm_agent.bus.signatures.verified import Verified
from ccm_agent.bus.streams import store
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusError, ProtocolError
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.fleet.trust.stored_snapshot import WAY_OUT, read_pieces
from ccm_ctl.fleet.trust.verified_reader import VerifiedReader, number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.timestamp import Timestamp
    from ccm_agent.bus.signatures.trust import SignersList
    from ccm_ctl.fleet.ports import DocumentBucket, Fleet


class WrittenSnapshot(Struct, frozen=True, kw_only=True):
    """
    A snapshot whose pieces are stored.

    Attributes:
        pieces: Their digests, by position.
        numbers: The numbers in them, by `bucket/key`.
        bases: The documents on which they are based.
    """

    pieces: tuple[str, ...]
    numbers: dict[str, int]
    bases: list[Verified[KeyValueEntry]]


async def write_snapshot(
    fleet: Fleet,
    connection: Connection,
    signers: SignersList,
    before: Timestamp | None,
    known: Mapping[str, int],
) -> WrittenSnapshot:
    """
    Write the pieces of the snapshot that have changed.

    Args:
        fleet, connection: The fleet.
        signers: The newest signers list.
        before: The previous verified timestamp. None: there is none, or its snapshot is not used.
        known: The numbers of the snapshot that was previously signed here, if it is used.

    Raises:
        ProtocolError: A part of the previous snapshot is missing, or has a lower number than `known`.
        BusError: The broker is unreachable or refuses the write.
    """
    assert fleet.signers is not None
    had = before.pieces if before is not None else ()
    numbers = await read_pieces(fleet.signers, had, range(len(had)))
    stored, bases = await _stored_numbers(fleet, fleet.signers, signers)
    for name, number in stored.items():
        numbers[name] = max(number, numbers.get(name, 0))
    _check_none_lower(numbers, known)
    latest = int(fleet.clock.now().timestamp() * 1000) + AHEAD_MS
    numbers = {name: number for name, number in numbers.items() if number <= latest}
    pieces = split(numbers)
    headers = {"Nats-Expected-Stream": f"KV_{TRUST_BUCKET}"}
    for place, piece in enumerate(pieces):
        # an interrupted renewal may have stored another piece after the timestamp
        newest = await fleet.signers.get(piece_key(place))
        if newest is None or newest.value != piece:
            await store(connection, key_subject(TRUST_BUCKET, piece_key(place)), piece, headers)
    return WrittenSnapshot(pieces=tuple(map(digest_of, pieces)), numbers=numbers, bases=bases)


async def _stored_numbers(
    fleet: Fleet, trust: DocumentBucket, signers: SignersList
) -> tuple[dict[str, int], list[Verified[KeyValueEntry]]]:
    """Return the verified documents and deletions, and their numbers."""
    reader = VerifiedReader(signers, fleet.clock, is_demanded=True)
    numbers: dict[str, int] = {}
    bases: list[Verified[KeyValueEntry]] = []
    for name, bucket, patterns in (
        ("CCM_FACTS", fleet.facts, [">"]),
        ("CCM_ASSIGNMENTS", fleet.assignments, [">"]),
        ("CCM_DATA", fleet.data, [">"]),
        (TRUST_BUCKET, trust, [f"{GROUP_PREFIX}*"]),
        # data keys are left out because there are too many, and the deletion of an old value is sufficient
        (SECRETS, fleet.secrets, [SEALING_KEY, "head.*", "value.>"]),
    ):
        if bucket is None:
            continue
        try:
            entries = await bucket.matching(patterns, deletions=True)
        except BusError:
            if name != SECRETS:
                raise
            # a broker that was set up by an earlier version lacks the bucket, but its numbers in the previous snapshot are kept
            continue
        for judged in await asyncio.to_thread(_verified, reader, name, entries):
            numbers[f"{name}/{judged.value.key}"] = number_of(judged.value)
            bases.append(judged)
    return numbers, bases


def _check_none_lower(numbers: Mapping[str, int], known: Mapping[str, int]) -> None:
    """Raise ProtocolError if a number is lower than the one that was signed here before."""
    lower = sorted(name for name, number in known.items() if numbers.get(name, 0) < number)
    if lower:
        raise ProtocolError(
            f"the broker has lower numbers for {len(lower)} documents than the last snapshot signed here, "
            f"such as {lower[0]}: {numbers.get(lower[0], 0)} instead of {known[lower[0]]}; {WAY_OUT}"
        )


def _verified(
    reader: VerifiedReader, bucket: str, entries: Iterable[KeyValueEntry]
) -> list[Verified[KeyValueEntry]]:
    """Return the documents and deletions that are signed by an operator with the right to write them."""
    judged = [reader.document(bucket, entry) for entry in entries]
    return [one for one in judged if isinstance(one, Verified) and one.signer]
