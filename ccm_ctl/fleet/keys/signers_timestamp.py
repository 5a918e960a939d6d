"""
Renew the signers list's timestamp (`ccm_agent.bus.signatures.timestamp`) and its snapshot.

Every `ccmctl` command of an operator who may sign timestamps also renews the timestamp if half of the list's maximum age has
passed. It confirms a list only if the root signed it and this operator has not seen a newer one. It does not sign a snapshot with
lower numbers than the previous one. Otherwise, a broker that was restored from a backup could get older lists and documents
confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.snapshot import digest_of
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, TIMESTAMP_SUBJECT, Timestamp, read_timestamp
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, SignedText, SignersList, Trust, read_signers
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.streams import store
from ccm_agent.model.errors import CcmError, ProtocolError
from ccm_ctl.fleet.keys.signers import published
from ccm_ctl.fleet.trust.seen_signers import KnownSnapshot, SeenSigners
from ccm_ctl.fleet.trust.snapshot import write_snapshot
from ccm_ctl.fleet.trust.stored_snapshot import find_timestamp, signed_here

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import KeyReader
    from ccm_ctl.fleet.ports import Fleet

log = logging.getLogger(__name__)

LOOK_S = 600
"""The minimum interval, in seconds, between two checks on one machine, because a check makes two requests."""

LEAST_MAX_AGE_S = 3600
"""The minimum value, in seconds, of the maximum age. A lower maximum age could pass between two checks."""

RENEW_WITHIN_S = 60.0
"""The maximum time, in seconds, that a finished command waits for the renewal, which reads all documents."""


class RenewalState(StrEnum):
    """The result of a renewal."""

    RENEWED = "renewed"
    CURRENT = "current"
    """It does not have to be renewed yet."""
    NOT_ALLOWED = "not allowed"
    """This operator may not sign timestamps, or the list has no maximum age."""


async def read_newest(
    bucket: KeyReader, trust: Trust, least: int, *, now_ms: int, at_least: int = 0
) -> SignersList | None:
    """
    Return the published signers list, or None if there is none.

    Args:
        bucket: `CCM_TRUST`.
        trust: The trust block of the operator's credentials.
        least: The highest number seen so far.
        now_ms: The time.
        at_least: A revision that has been stored.

    Raises:
        ProtocolError: The root has not signed the list, or a newer list has been seen.
    """
    there = await published(bucket, at_least)
    if there is None:
        return None
    newest = read_signers(there.body.encode(), there.signature, trust.root, now_ms=now_ms)
    if trust.signers is not None:
        own = read_signers(trust.signers.body.encode(), trust.signers.signature, trust.root, now_ms=now_ms)
        least = max(least, own.number)
    if newest.number < least:
        raise ProtocolError(
            f"the broker has signers list {newest.number}, but list {least} was seen before; was the broker restored from a "
            "backup? `ccmctl signers publish` publishes the newest one, from the folder with the fleet's keys"
        )
    return newest


async def read_confirmed(bucket: KeyReader, signers: SignersList, *, now_ms: int) -> Timestamp | None:
    """
    Return the published timestamp, or None if there is none.

    Raises:
        ProtocolError: It is not signed by an operator with this right in the list.
    """
    entry = await bucket.get(TIMESTAMP_KEY)
    if entry is None:
        return None
    signed = SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)
    return read_timestamp(signed, signers, now_ms=now_ms)


async def renew(
    fleet: Fleet,
    connection: Connection,
    seen: SeenSigners | None = None,
    *,
    at_least: int = 0,
    is_forced: bool = False,
    begins_anew: bool = False,
) -> RenewalState:
    """
    Renew the timestamp if this operator may sign it, and half of the list's maximum age has passed.

    Args:
        fleet: The fleet.
        connection: The connection.
        seen: The newest lists and documents that this operator has seen of the fleet.
        at_least: A revision of the list that has been stored.
        is_forced: Whether to renew it even if it is not due.
        begins_anew: Whether to build the snapshot only from the stored documents, and ignore what was seen before.

    Raises:
        BusError: The broker is unreachable or refuses the write, or its signers list, timestamp or snapshot is older than one
            seen before.
    """
    trust, signatory, bucket = fleet.trust, fleet.signatory, fleet.signers
    if trust is None or signatory is None or bucket is None:
        return RenewalState.NOT_ALLOWED
    seen = seen or fleet.seen or SeenSigners()
    now_ms = int(fleet.clock.now().timestamp() * 1000)
    known = await asyncio.to_thread(seen.of, trust.root)
    newest = await read_newest(bucket, trust, known.signers, now_ms=now_ms, at_least=at_least)
    if newest is None:
        return RenewalState.NOT_ALLOWED
    await asyncio.to_thread(seen.note, trust.root, newest.number, now_ms / 1000)
    signer = newest.by_key(signatory.public_key, now_ms)
    if not newest.max_age_s or signer is None or not signer.timestamp:
        return RenewalState.NOT_ALLOWED
    fleet = msgspec.structs.replace(fleet, seen=seen)
    before = None if begins_anew else await find_timestamp(fleet, newest)
    is_recent = before is not None and now_ms - before.issued < newest.max_age_s * 1000 // 2
    if before is not None and is_recent and before.signers == newest.number and not is_forced:
        return RenewalState.CURRENT
    issued = max(now_ms, known.timestamp + 1, before.issued + 1 if before is not None else 0)
    timestamp = Timestamp(
        issued=issued,
        signers=newest.number,
        pieces=before.pieces if before is not None else (),
        restarted=issued if begins_anew else before.restarted if before is not None else 0,
    )
    # the documents, of which there may be many, do not change with a new list
    bases: list[Base] = [Authored.confirmation()]
    numbers: dict[str, int] | None = None
    if is_forced or begins_anew or not is_recent or not timestamp.pieces:
        own = KnownSnapshot() if begins_anew else await signed_here(fleet, before)
        written = await write_snapshot(fleet, connection, newest, before, own.numbers)
        timestamp = msgspec.structs.replace(timestamp, pieces=written.pieces)
        bases += written.bases
        numbers = written.numbers
    body = msgspec.json.encode(timestamp)
    headers = {
        SIGNATURE_HEADER: signatory.timestamp(TIMESTAMP_SUBJECT, body, bases, issued_ms=issued),
        "Nats-Expected-Stream": f"KV_{TRUST_BUCKET}",
    }
    await store(connection, TIMESTAMP_SUBJECT, body, headers)
    await asyncio.to_thread(_remember, seen, trust.root, issued, body, numbers)
    return RenewalState.RENEWED


def _remember(seen: SeenSigners, root: str, issued: int, body: bytes, numbers: dict[str, int] | None) -> None:
    """Store the signed timestamp. Without numbers, the snapshot has not changed."""
    seen.note_timestamp(root, issued, digest_of(body))
    if numbers is not None:
        seen.note_snapshot(root, KnownSnapshot(timestamp=issued, numbers=numbers))


@contextlib.asynccontextmanager
async def renewing(fleet: Fleet, connection: Connection) -> AsyncIterator[None]:
    """Renew the timestamp at the end of the block, and at intervals during a long block. Errors of the renewal are not raised."""
    if fleet.trust is None or fleet.signatory is None:
        yield
        return
    task = asyncio.create_task(_renew_now_and_then(fleet, connection), name="ccmctl:timestamp")
    try:
        yield
    finally:
        task.cancel()
    await _renew_quietly(fleet, connection)


async def _renew_now_and_then(fleet: Fleet, connection: Connection) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        await _renew_quietly(fleet, connection)


async def _renew_quietly(fleet: Fleet, connection: Connection) -> None:
    assert fleet.trust is not None
    seen = fleet.seen or SeenSigners()
    known = await asyncio.to_thread(seen.of, fleet.trust.root)
    age_s = fleet.clock.now().timestamp() - known.looked
    if 0 <= age_s < LOOK_S:
        return
    try:
        async with asyncio.timeout(RENEW_WITHIN_S):
            await renew(fleet, connection, seen)
    except (CcmError, TimeoutError) as err:
        log.warning("the timestamp of the signers list is not renewed", extra={"reason": str(err)})
