"""
The newest signers list that is available to a controller, and whether it is reliable.

It is never older than a list that this operator has seen on this machine (`seen_signers`). If the list has a maximum age, the
root or a timestamp must have confirmed it within that age. Otherwise, a broker that withholds a revocation could cause the
controller to sign documents of a revoked operator again.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.signatures.signing import MAX_TIME_MS
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, Timestamp, read_timestamp
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, SignedText, SignersList, read_signers
from ccm_agent.model.errors import (
    BusDeniedError,
    BusSetupError,
    CcmError,
    InputError,
    NotFoundError,
    ProtocolError,
)
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from ccm_agent.bus.signatures.trust import Trust
    from ccm_ctl.fleet.ports import Fleet

_ANY_TIME_MS = MAX_TIME_MS - 1
"""
The time for verifying lists. Lists do not expire, and a list that was just signed is valid even if this machine's clock is slow.
"""

NO_TRUST = (
    "these credentials have no trust block but their key is in the signers list, so ccmctl cannot verify what it would sign; "
    "an administrator issues new ones: `ccmctl operator add`"
)
"""The reason why data that were read with such credentials are not verified."""

_NOT_THERE = (BusDeniedError, BusSetupError, NotFoundError)


class NewestSigners(Struct, frozen=True, kw_only=True):
    """
    The newest list.

    Attributes:
        signers: The list, or None.
        doubt: The reason why data verified with the list are not reliable. "": they are reliable.
    """

    signers: SignersList | None = None
    doubt: str = ""


async def find_newest(fleet: Fleet) -> NewestSigners:
    """
    Return the newest list that is available to this controller. Commands of an administrator first confirm the list if that is
    due.

    Raises:
        InputError: The list in the credentials is not usable.
    """
    if fleet.trust is None:
        return NewestSigners(doubt=NO_TRUST if await _lacks_trust(fleet) else "")
    signers = await read_newest_signers(fleet, fleet.trust)
    if signers is None:
        return NewestSigners()
    doubt = await _doubt(fleet, fleet.trust, signers)
    if doubt and _may_confirm(fleet, signers) and fleet.confirm is not None:
        try:
            await fleet.confirm()
        except CcmError as err:
            return NewestSigners(signers=signers, doubt=f"{doubt}; it was not confirmed now: {err.message}")
        doubt = await _doubt(fleet, fleet.trust, signers)
    return NewestSigners(signers=signers, doubt=doubt)


async def read_newest_signers(fleet: Fleet, trust: Trust) -> SignersList | None:
    """Return the list with the highest number, from the credentials, from the broker, or seen before. None: there is no list."""
    seen = await asyncio.to_thread(fleet.seen.of, trust.root) if fleet.seen is not None else None
    published = await _published(fleet)
    own = _list_in(trust)
    remembered = _sound(seen.newest if seen is not None else None, trust.root)
    there = _sound(published, trust.root)
    newest = max(
        (one for one in (own, remembered, there) if one is not None), key=lambda one: one.number, default=None
    )
    if fleet.seen is not None and newest is not None and newest is not remembered:
        text = published if newest is there else trust.signers
        assert text is not None
        await asyncio.to_thread(fleet.seen.note_list, trust.root, newest.number, text)
    return newest


def keys_of(trust: Trust, name: str) -> frozenset[str]:
    """
    Return the keys of an operator in the list of these credentials, including expired ones. Empty if the list is not usable.
    """
    try:
        found = _list_in(trust)
    except InputError:
        return frozenset()
    return frozenset(one.key for one in found.signers if one.name == name) if found else frozenset()


async def _doubt(fleet: Fleet, trust: Trust, signers: SignersList) -> str:
    """Return why a list is not reliable, or "" if it is."""
    number = signers.number
    seen = await asyncio.to_thread(fleet.seen.of, trust.root) if fleet.seen is not None else None
    if seen is not None and seen.signers > number:
        return _withheld(seen.signers, number)
    if not signers.max_age_s:
        return ""
    now_ms = int(fleet.clock.now().timestamp() * 1000)
    timestamp = await _read_timestamp(fleet, signers, now_ms)
    if timestamp is not None and timestamp.signers > number:
        return _withheld(timestamp.signers, number)
    # a signature of the root confirms a list at its time, and timestamps confirm it later
    is_of_list = timestamp is not None and timestamp.signers == number
    age_ms = now_ms - max(signers.issued, timestamp.issued if timestamp is not None and is_of_list else 0)
    if age_ms <= signers.max_age_s * 1000:
        return ""
    return (
        f"the signers list is {format_duration(age_ms // 1000)} old and was not confirmed within "
        f"{format_duration(signers.max_age_s)}; an administrator confirms it with `ccmctl signers renew`"
    )


def _withheld(newest: int, number: int) -> str:
    return (
        f"signers list {newest} exists, but the broker delivers list {number}; was it restored from a backup? "
        "`ccmctl signers publish` publishes the newest list, from the folder with the fleet's keys"
    )


def _may_confirm(fleet: Fleet, signers: SignersList) -> bool:
    """Whether these credentials belong to an administrator. Commands of administrators confirm the list."""
    if fleet.signatory is None:
        return False
    signer = signers.by_key(fleet.signatory.public_key, int(fleet.clock.now().timestamp() * 1000))
    return signer is not None and signer.timestamp


async def _lacks_trust(fleet: Fleet) -> bool:
    """Whether these credentials cannot verify anything, although they sign with a key in the fleet's signers list."""
    try:
        published = await _published(fleet) if fleet.signatory is not None else None
    except NoRespondersError:
        return False  # a broker that was set up by an earlier version lacks the bucket
    if fleet.signatory is None or published is None:
        return False
    try:
        listed = decode_foreign(published.body.encode(), SignersList)
    except msgspec.MsgspecError:
        return True
    return any(one.key == fleet.signatory.public_key for one in listed.signers)


def _list_in(trust: Trust) -> SignersList | None:
    if trust.signers is None:
        return None
    try:
        return _read(trust.signers, trust.root)
    except ProtocolError as err:
        raise InputError(f"the signers list in these credentials cannot be used: {err.message}") from err


def _sound(signed: SignedText | None, root: str) -> SignersList | None:
    """Decode a list if the root signed it. Other lists are ignored, because the broker can store anything."""
    try:
        return _read(signed, root) if signed is not None else None
    except ProtocolError:
        return None


def _read(signed: SignedText, root: str) -> SignersList:
    return read_signers(signed.body.encode(), signed.signature, root, now_ms=_ANY_TIME_MS)


async def _published(fleet: Fleet) -> SignedText | None:
    return await _stored(fleet, SIGNERS_KEY)


async def _read_timestamp(fleet: Fleet, signers: SignersList, now_ms: int) -> Timestamp | None:
    """Return the published timestamp, if this list gives its signer the right to sign it."""
    signed = await _stored(fleet, TIMESTAMP_KEY)
    try:
        return read_timestamp(signed, signers, now_ms=now_ms) if signed is not None else None
    except ProtocolError:
        return None


async def _stored(fleet: Fleet, key: str) -> SignedText | None:
    """Return the entry of CCM_TRUST with a key. None: there is no such entry, or it cannot be read."""
    try:
        entry = await fleet.signers.get(key) if fleet.signers is not None else None
    except _NOT_THERE:
        return None
    if entry is None:
        return None
    return SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)
