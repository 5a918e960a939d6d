"""
The results of the starts of scheduled rollouts, and the running rollout servers: `=schedule.*` and `=server.*` in CCM_RUNS.

Operators with `--apply` may write these keys, as well as those of rollouts. Therefore servers sign the starts. Only starts signed
by an operator who may send the schedule's request are used.
"""

from __future__ import annotations

import contextlib
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import SERVERS, STARTS, decode_token, encode_token, key_subject, starts_key
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.rollout_records import RolloutServer, ScheduledStart, ScheduleStarts
from ccm_ctl.fleet.runs.run_signatures import read_verifier

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ccm_agent.bus.signatures.trust import Signer
    from ccm_agent.bus.signatures.verified import Base, Verifier
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.rollout.scheduled import ScheduledRollout

KEPT = 20
"""The number of a schedule's starts that are kept."""

SERVER_S = 30.0
"""A server that has written nothing for this many seconds is considered stopped."""


class StoredStarts(Struct, frozen=True, kw_only=True):
    """
    The stored starts of a schedule.

    Attributes:
        name: The name of the schedule.
        judged: The starts and the result of checking their signature. Unreadable starts are treated as empty. None: no starts are
            stored.
        revision: Their revision. 0: no starts are stored.
    """

    name: str
    judged: Verified[ScheduleStarts] | Unverified[ScheduleStarts] | None = None
    revision: int = 0

    @property
    def starts(self) -> ScheduleStarts:
        """The verified starts."""
        judged = self.judged
        return judged.value if isinstance(judged, Verified) else ScheduleStarts(name=self.name)

    @property
    def unverified(self) -> str:
        """The reason why the stored starts are not used. "": they are used, or no starts are stored."""
        return self.judged.reason if self.judged is not None else ""

    @property
    def base(self) -> list[Base]:
        """The starts as the base of a signature. Empty if they are not valid."""
        return [self.judged] if isinstance(self.judged, Verified) else []


class StartsStore:
    """The starts of all scheduled rollouts."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._bucket = fleet.runs

    async def look(self, name: str, rollout: ScheduledRollout) -> StoredStarts:
        """Return the starts of a schedule. Empty if none are stored."""
        entry = await self._bucket.get(starts_key(name))
        if entry is None:
            return StoredStarts(name=name)
        return _judge(await read_verifier(self._fleet), entry, name, rollout)

    async def all(self, due: Mapping[str, ScheduledRollout]) -> dict[str, StoredStarts]:
        """
        Return the starts of each schedule, by the name of the schedule.

        Args:
            due: The known scheduled rollouts. For other schedules, starts from any signer are accepted.
        """
        entries = await self._bucket.matching([f"{STARTS}.*.starts"])
        verifier, found = await read_verifier(self._fleet), {}
        for entry in entries:
            if name := _name_of(entry):
                found[name] = _judge(verifier, entry, name, due.get(name))
        return found

    async def write(self, starts: ScheduleStarts, revision: int, *, base: Sequence[Base]) -> int:
        """
        Sign the starts of a schedule, store them in place of a revision (0: there is none), and return the new revision.

        Raises:
            RevisionError: Another server has stored starts in the meantime.
            BusDeniedError: These credentials lack the right.
        """
        key, body, signatory = starts_key(starts.name), msgspec.json.encode(starts), self._fleet.signatory
        if signatory is None:
            return await self._bucket.update(key, body, revision)
        signature = signatory.record(key_subject(RUNS, key), body, base)
        return await self._bucket.update(key, body, revision, signature=signature)


def refuse_server(signer: Signer, rollout: ScheduledRollout) -> str:
    """
    Return why an operator may not start a scheduled rollout, as the rest of a sentence that begins with the name. "": it is
    allowed.
    """
    may = signer.may_request(rollout.request.protocol, rollout.scope)
    return "" if may else f"may not start a rollout on {rollout.scope}"


def add_start(starts: ScheduleStarts, start: ScheduledStart) -> ScheduleStarts:
    """Return the starts with one more start."""
    return replace(starts, starts=(start, *starts.starts)[:KEPT], run=start.run or starts.run)


def place_of(fleet: Fleet) -> str:
    """Return the name of this operator and host."""
    return f"{fleet.operator}@{socket.gethostname()}"


async def announce(fleet: Fleet, *, is_leaving: bool = False) -> None:
    """
    Store that a rollout server of this operator runs on this host, or has stopped.

    Raises:
        BusError: It cannot be stored.
    """
    until = fleet.clock.now() + timedelta(seconds=0 if is_leaving else SERVER_S)
    server = RolloutServer(operator=fleet.operator, host=socket.gethostname(), until=until)
    await fleet.runs.put(f"{SERVERS}.{encode_token(place_of(fleet))}", msgspec.json.encode(server))


async def read_servers(fleet: Fleet) -> list[RolloutServer]:
    """Return the active rollout servers, by name."""
    now, found = fleet.clock.now(), []
    for entry in await fleet.runs.matching([f"{SERVERS}.*"]):
        with contextlib.suppress(msgspec.MsgspecError):
            server = decode_foreign(entry.value, RolloutServer)
            # the time is from the writer's clock, so an entry with a time far in the future would never expire
            if now < server.until <= now + timedelta(seconds=2 * SERVER_S):
                found.append(server)
    return sorted(found, key=lambda server: (server.operator, server.host))


def _judge(
    verifier: Verifier, entry: KeyValueEntry, name: str, rollout: ScheduledRollout | None
) -> StoredStarts:
    """Judge the starts of a schedule."""
    try:
        starts = _decode(entry, name)
    except ProtocolError as err:
        unreadable = Unverified(value=ScheduleStarts(name=name), reason=err.message)
        return StoredStarts(name=name, judged=unreadable, revision=entry.revision)

    def refusal(signer: Signer, _claims: object) -> str:
        reason = refuse_server(signer, rollout) if rollout is not None else ""
        return f"{signer.name} signed it, but {reason}" if reason else ""

    subject = key_subject(RUNS, entry.key)
    judged = verifier.read(starts, SignatureKind.RECORD, subject, entry.value, entry.signature, refusal)
    return StoredStarts(name=name, judged=judged, revision=entry.revision)


def _name_of(entry: KeyValueEntry) -> str:
    """Return the schedule of an entry with starts, or "" if unknown. For a long name, the key contains only the digest."""
    with contextlib.suppress(msgspec.MsgspecError):
        starts = decode_foreign(entry.value, ScheduleStarts)
        if starts_key(starts.name) == entry.key:
            return starts.name
    with contextlib.suppress(ProtocolError):
        return decode_token(entry.key.split(".")[1]) or ""
    return ""


def _decode(entry: KeyValueEntry, name: str) -> ScheduleStarts:
    try:
        starts = decode_foreign(entry.value, ScheduleStarts)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"it is not a record of a rollout server: {err}") from err
    if starts.name != name:
        raise ProtocolError("it is for another schedule")
    return starts
