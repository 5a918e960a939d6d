"""
Begin scheduled rollouts that are due. Every rollout server does this, but only one of them begins each start.

A server creates the run and records it under an ID that no other operator can know yet. It then claims the start by writing the
document of the schedule's starts, on the condition that no other server has written it in the meantime. The claim contains the
whole state of the rollout, so any server can store it as a rollout (ADR 49).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.verified import Base, Unverified, Verified
from ccm_agent.bus.subjects import rollout_start_subject
from ccm_agent.model.errors import (
    BusDeniedError,
    BusError,
    BusUnavailableError,
    CcmError,
    FleetError,
    InputError,
    ProtocolError,
    RevisionError,
    RunError,
)
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState, ScheduledStart, ScheduleStarts
from ccm_agent.model.records.schedule_slots import least_pause_s, schedule_slot
from ccm_agent.model.wire import MANIFEST_PLAN, ManifestRequest
from ccm_ctl.fleet.nodes.discovery import requested_targets, resolve
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.begun import BegunStart, find_begun, run_of_start
from ccm_ctl.fleet.rollout.concurrent import ConcurrentRolloutError, refuse_concurrent
from ccm_ctl.fleet.rollout.handover import check_handover, hand_over, handed_part
from ccm_ctl.fleet.rollout.plan import make_plan
from ccm_ctl.fleet.rollout.scheduled import DueRollout
from ccm_ctl.fleet.rollout.starts import StartsStore, StoredStarts, add_start, place_of
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_again import base_of, build_request, find_author
from ccm_ctl.fleet.runs.run_request import Launch, prepare, put_on_record
from ccm_ctl.fleet.trust.verified_reader import open_reader

log = logging.getLogger(__name__)

_NO_TIME = (CcmError, ValueError, LookupError, OSError, OverflowError, TypeError)
"""The errors that `schedule_slot` raises."""

CLAIMED_WITHIN_S = 10.0
"""The time in seconds within which a server claims a start that it has recorded."""

AHEAD_S = 300.0
"""A start that is due further in the future than this is not begun, because the broker's clock or the local clock is wrong."""


class RolloutStarter:
    """Begins due starts in one rollout server."""

    def __init__(self, fleet: Fleet, note: Callable[[str], None]) -> None:
        """
        Args:
            fleet: The bus.
            note: Shows a message to the operator of the server.
        """
        self._fleet = fleet
        self._note = note
        self._store = StartsStore(fleet)
        self._refused: dict[str, datetime] = {}
        self._decided: dict[str, datetime] = {}
        self._said = ""

    async def look(self) -> None:
        """
        Begin the due starts once. Starts that cannot begin are noted, or recorded as skipped.

        Raises:
            BusUnavailableError: The broker cannot be reached.
        """
        if self._fleet.due_rollouts is None:
            return
        try:
            due = await self._fleet.due_rollouts()
            known = await self._store.all({one.name: one.rollout for one in due})
        except BusUnavailableError:
            raise
        except BusError as err:
            self._say(f"scheduled rollouts are not started: {err}")
            return
        for stored in known.values():
            if stored.starts.handover is not None:
                await self._attempt(stored.name, self._hand_over(stored))
        for one in due:
            stored = known.get(one.name, StoredStarts(name=one.name))
            if stored.starts.handover is None and self._is_new(one, stored.starts):
                await self._attempt(one.name, self._begin(one, stored))

    def _is_new(self, one: DueRollout, starts: ScheduleStarts) -> bool:
        """Whether the start is still undecided: no server has recorded a result, and this server has not refused it."""
        decided = [start.due for start in starts.starts[:1]]
        decided += [moments[one.name] for moments in (self._refused, self._decided) if one.name in moments]
        return all(one.due > moment for moment in decided)

    async def _attempt(self, name: str, work: Awaitable[None]) -> None:
        """Run a task for a schedule. A failure is noted, and the task is repeated later."""
        try:
            await work
        except BusUnavailableError:
            raise
        except RevisionError:
            pass  # another server was first
        except BusDeniedError as err:
            self._say(
                f"schedule {name}: not started: {err.message}; "
                "scheduled rollouts need credentials with --apply that were issued by this version"
            )
        except CcmError as err:
            self._say(f"schedule {name}: not started: {err}")
        except Exception as err:  # content that an operator stored must not end the server
            log.exception("a scheduled rollout", extra={"schedule": name})
            self._say(f"schedule {name}: not started: {type(err).__name__}; --debug shows more")

    async def _begin(self, one: DueRollout, stored: StoredStarts) -> None:
        """Begin a due start, unless there is a reason to skip it."""
        if stored.unverified:
            self._say(f"schedule {one.name}: the stored starts are ignored: {stored.unverified}")
        try:
            signed, slot = await self._check_author(one, stored.starts)
        except (SignatureError, ProtocolError) as err:
            self._refused[one.name] = one.due
            self._note(f"schedule {one.name}: refused: {err}")
            return
        begun = await find_begun(self._fleet, one, slot) if signed.signer else None
        if begun is not None:
            await self._restore(one, stored, begun, signed)
            return
        reason = await self._reason_to_skip(one, stored.starts)
        launch = None
        if not reason:
            try:
                launch, state = await self._prepare(one, signed, slot)
                await refuse_concurrent(self._fleet, launch.resolved.nodes)
            except (InputError, FleetError, ConcurrentRolloutError) as err:
                launch, reason = None, str(err)
        if launch is None:
            await self._decide(one, stored, self._start(one, reason=reason), signed)
            self._note(f"schedule {one.name}: the start due {format_moment(one.due)} is skipped: {reason}")
        else:
            await self._claim(one, stored, launch, state)
            self._decided[one.name] = one.due

    async def _decide(
        self, one: DueRollout, stored: StoredStarts, start: ScheduledStart, signed: Verified[ManifestRequest]
    ) -> None:
        await self._store.write(add_start(stored.starts, start), stored.revision, base=[signed, *stored.base])
        self._decided[one.name] = one.due

    async def _restore(
        self, one: DueRollout, stored: StoredStarts, begun: BegunStart, signed: Verified[ManifestRequest]
    ) -> None:
        """Store the result of a start that is recorded as a run but missing in the stored starts."""
        now = self._fleet.clock.now()
        if (now - begun.created).total_seconds() < CLAIMED_WITHIN_S:
            return  # another server is about to claim it
        there = await RolloutStore(self._fleet).look(begun.run) is not None
        lost = f"run {short_id(begun.run)} of {begun.by} is on record, but its rollout is not stored"
        start = ScheduledStart(
            due=one.due, run=begun.run if there else "", reason="" if there else lost, by=begun.by
        )
        await self._decide(one, stored, start, signed)
        self._note(
            f"schedule {one.name}: the start due {format_moment(one.due)} is not repeated: "
            f"{begun.by} has begun it as run {short_id(begun.run)}"
        )

    async def _check_author(
        self, one: DueRollout, starts: ScheduleStarts
    ) -> tuple[Verified[ManifestRequest], datetime]:
        """
        Check that an operator who may add schedules signed this start for this time, and that no earlier start used the time.

        Returns:
            The signed request, and the time in the schedule for which the start is due.

        Raises:
            SignatureError, ProtocolError: No such operator signed it, or the time differs.
        """
        now = self._fleet.clock.now()
        if (one.due - now).total_seconds() > AHEAD_S:
            raise ProtocolError(
                f"it is due {format_moment(one.due)}, which is in the future; check the clocks"
            )
        reader = await open_reader(self._fleet)
        judged = reader.due_rollout(one)
        if isinstance(judged, Unverified):
            raise SignatureError(f"{rollout_start_subject(one.name)}: {judged.reason}")
        if not judged.signer:
            return judged, one.due
        taken = [start.due for start in starts.starts[:1]]
        taken += [self._decided[one.name]] if one.name in self._decided else []
        try:
            return judged, await asyncio.to_thread(_check_time, judged.details, one, taken)
        except SignatureError:
            if not reader.verifier.accepts_unsigned:
                raise
            return judged, one.due

    async def _reason_to_skip(self, one: DueRollout, starts: ScheduleStarts) -> str:
        """Return why a start is not begun. "": it is begun."""
        late_s = (self._fleet.clock.now() - one.due).total_seconds()
        limit_s = one.rollout.start_within_s
        if late_s > limit_s:
            return f"no rollout server started it within {format_duration(limit_s)}"
        if not starts.run:
            return ""
        found = await RolloutStore(self._fleet).read(starts.run)
        if found is None or found[0].phase.is_over:
            return ""
        state = found[0]
        why = f": {state.phase}: {state.reason}" if state.phase is Phase.PAUSED else ""
        return f"run {short_id(state.run)} of this schedule is still open{why}"

    async def _prepare(
        self, one: DueRollout, signed: Verified[ManifestRequest], slot: datetime
    ) -> tuple[Launch, RolloutState]:
        """
        Return a run with the nodes that match now, and its rollout. Nothing is stored.

        Raises:
            InputError, FleetError: No node matches, or the waves cannot be applied to these nodes.
        """
        fleet, rollout = self._fleet, one.rollout
        inventory, resolved = await resolve(fleet, requested_targets(rollout.request))
        plan, order = make_plan(rollout.definition, inventory, resolved)
        resolved = resolved.in_order(order)
        request = replace(rollout.request, cause="request", deadline=None, deadline_s=0, catch_up=False)
        action = "plan" if request.protocol == MANIFEST_PLAN else "apply"
        run = run_of_start(fleet, one.name, slot) if signed.signer else ""
        launch = prepare(fleet, request, resolved, action, request.name, base=[signed], run=run)
        launch = replace(launch, record=replace(launch.record, schedule=one.name))
        state = RolloutState(run=launch.record.run, plan=plan, deadline_s=rollout.deadline_s)
        return launch, hand_over(fleet, state, launch.record, resolved.nodes, base=[signed])

    async def _claim(
        self, one: DueRollout, stored: StoredStarts, launch: Launch, state: RolloutState
    ) -> None:
        """
        Record the run, claim the start and store the rollout.

        Raises:
            RevisionError: Another server claimed the start. Nothing is recorded.
        """
        # Record the run first. Other operators cannot know the ID before this, so they cannot store a different request under it.
        await put_on_record(self._fleet, launch)
        claimed = replace(add_start(stored.starts, self._start(one, run=state.run)), handover=state)
        base = [*launch.base, *stored.base]
        try:
            revision = await self._store.write(claimed, stored.revision, base=base)
        except BusUnavailableError:
            raise  # it may have been stored
        except BusError:
            await History(self._fleet).forget(state.run)
            raise
        self._note(
            f"schedule {one.name}: the start due {format_moment(one.due)} is run {short_id(state.run)}"
        )
        await self._store_claimed(claimed, revision, base)

    async def _hand_over(self, stored: StoredStarts) -> None:
        """Store the rollout of a start that another server claimed, if no server has stored it yet."""
        await self._store_claimed(stored.starts, stored.revision, stored.base)

    async def _store_claimed(self, starts: ScheduleStarts, revision: int, base: Sequence[Base]) -> None:
        assert starts.handover is not None
        try:
            with contextlib.suppress(RevisionError):
                await self._store_rollout(starts.handover)
        except (SignatureError, ProtocolError, RunError) as err:
            self._note(f"schedule {starts.name}: run {short_id(starts.handover.run)} is not driven: {err}")
        await self._store.write(replace(starts, handover=None), revision, base=base)

    async def _store_rollout(self, claimed: RolloutState) -> None:
        """
        Store the rollout of a claim. Only the part that the claiming server signed is used.

        Raises:
            SignatureError, ProtocolError, RunError: It is not signed by an operator who may send the request.
            RevisionError: Another server has stored it.
        """
        recorded = await History(self._fleet).load(claimed.run)
        await find_author(self._fleet, recorded)
        await check_handover(self._fleet, claimed, recorded, build_request(self._fleet, recorded))
        await RolloutStore(self._fleet).write(handed_part(claimed), 0, base=[base_of(recorded)])

    def _start(self, one: DueRollout, *, run: str = "", reason: str = "") -> ScheduledStart:
        return ScheduledStart(due=one.due, run=run, reason=reason, by=place_of(self._fleet))

    def _say(self, sentence: str) -> None:
        """Note a message once."""
        if sentence != self._said:
            self._said = sentence
            self._note(sentence)


def _check_time(details: Mapping[str, str], one: DueRollout, taken: Sequence[datetime]) -> datetime:
    """
    Check that a start is at one of the signed times and later than the previous starts, and return this time. Blocking.

    Raises:
        SignatureError: It is not at such a time.
    """
    when, zone = details.get("when", ""), details.get("zone", "")
    try:
        slot = schedule_slot(when, zone, one.due)
        pause_s = least_pause_s(when)
    except _NO_TIME as err:
        raise SignatureError(
            f"it was due at {format_moment(one.due)}, which does not fit {when!r}: {err}"
        ) from err
    for due in taken:
        try:
            last = schedule_slot(when, zone, due)
        except _NO_TIME:
            continue  # the schedule had other times then
        if (slot - last).total_seconds() < pause_s:
            raise SignatureError(
                f"it was due at {format_moment(one.due)}; a start for this time of {when!r} is already stored"
            )
    return slot
