"""
The slots of this node. A slot is acquired before a resource is changed, renewed during the change, and then released.

Slots require the broker. Without a connection the resource fails, and nothing is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import BusError, ProtocolError, RevisionError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.ports import Clock, KeyValueEntry
from ccm_agent.model.records.slots import (
    HOLD_S,
    RENEW_S,
    Slot,
    SlotDecision,
    SlotEntry,
    SlotError,
    SlotState,
    decode_entry,
    judge_turn,
    parse_slot,
)
from ccm_agent.model.resource import Control

if TYPE_CHECKING:
    from ccm_agent.model.outcome import TransactionEvent
    from ccm_agent.model.secret import Masker
    from ccm_agent.resources.contract import ResolvedResource

log = logging.getLogger(__name__)

NAME_LIMIT = 300
"""The maximum length of a resource's name in an entry."""

POLL_S = 2.0
"""The interval at which the first waiting node checks for a free slot."""

POLL_AT_MOST_S = 10.0
"""The interval at which the last waiting node checks. Each waiter must renew its entry within `model.records.slots.WAITER_S`."""

WATCH_S = 5.0
"""The interval at which held slots are checked."""

DEFAULT_WAIT = "10m"
"""The default maximum time that a resource waits for its slot."""

_NAMED = 3
"""The maximum number of holders that an error names."""


class SlotBucket(Protocol):
    """The operations on the bucket CCM_SLOTS that a node uses."""

    async def matching(self, patterns: list[str], *, deletions: bool = False) -> list[KeyValueEntry]:
        """See `KeyValue.matching`."""
        ...

    async def put(self, key: str, value: bytes) -> int:
        """See `KeyValue.put`."""
        ...

    async def update(self, key: str, value: bytes, revision: int) -> int:
        """See `KeyValue.update`."""
        ...

    async def update_among(self, key: str, value: bytes, pattern: str, revision: int) -> int:
        """Write a key if `revision` is the newest among all keys that match the pattern. Otherwise raise RevisionError."""
        ...


class SlotClaim(Struct, frozen=True, kw_only=True):
    """
    A resource's request for a slot.

    Attributes:
        slot: The requested slot.
        resource, run: The resource and its run, for display.
        wait_s: The maximum waiting time.
        is_stopped: Returns whether the run was stopped, which ends the wait.
    """

    slot: Slot
    resource: str
    run: str
    wait_s: float
    is_stopped: Callable[[], bool] = lambda: False


class _Held(Struct, kw_only=True):
    """
    A slot that this node holds for `depth` nested resources. `until` (monotonic) is only set after a failure of its resource.
    """

    entry: SlotEntry
    revision: int
    renewed_at: float
    depth: int = 1
    until: float | None = None


class NodeSlots:
    """
    The slots of one node.

    Args:
        node: The node's identity.
        bucket: The bucket CCM_SLOTS.
        clock: Returns the current time.
        renew_s: The interval of renewals.
        hold_s: The time that a slot is kept after its resource failed.
        find_forgery: Returns the reason why an entry is not from its node, and is therefore ignored; "" if it is valid.
    """

    def __init__(
        self,
        node: str,
        bucket: SlotBucket,
        clock: Clock,
        *,
        renew_s: float = RENEW_S,
        hold_s: float = HOLD_S,
        find_forgery: Callable[[KeyValueEntry], str] = lambda _entry: "",
    ) -> None:
        self._node = node
        self._bucket = bucket
        self._clock = clock
        self._renew_s = renew_s
        self._hold_s = hold_s
        self._find_forgery = find_forgery
        self._held: dict[str, _Held] = {}

    async def take(self, claim: SlotClaim) -> bool:
        """
        Acquire a slot and hold it until `leave`. Return whether there was a wait. After a wait, the host may have changed.

        Raises:
            SlotError: No slot became free in time, the run was stopped, or the broker cannot be reached.
        """
        name = claim.slot.name
        held = self._held.get(name)
        if held is not None and held.until is None:
            held.depth += 1
            return False
        try:
            return await self._wait(claim)
        except (BusError, ProtocolError) as err:
            raise SlotError(
                f"the slot {name} cannot be taken, so nothing was changed: {err}; slots need the broker"
            ) from err

    async def leave(self, name: str) -> None:
        """Release the slot of a resource that succeeded. Without the broker, the slot becomes free when it expires."""
        held = self._held.get(name)
        if held is None:
            return
        held.depth -= 1
        if held.depth <= 0 and held.until is None:
            await self._give_back(name)

    def fail(self, name: str) -> None:
        """Keep the slot of a failed resource for some time, so that the next nodes do not fail in the same way."""
        held = self._held.get(name)
        if held is not None:
            held.depth -= 1
            held.until = self._clock.monotonic() + self._hold_s
            held.entry = replace(held.entry, has_failed=True)
            held.renewed_at = float("-inf")

    async def recover(self, name: str) -> None:
        """Release a slot that was kept after a failure, because the resource has now succeeded."""
        held = self._held.get(name)
        if held is not None and held.until is not None and held.depth <= 0:
            await self._give_back(name)

    async def run(self) -> None:
        """Renew held slots, until cancelled."""
        while True:
            await self._clock.sleep(min(self._renew_s / 4, WATCH_S))
            await self.renew()

    async def renew(self) -> None:
        """Renew the slots that are due, and drop the slots of failed resources when their time is over."""
        now = self._clock.monotonic()
        for name, held in list(self._held.items()):
            if held.until is not None and now >= held.until:
                await self._give_back(name)
            elif now - held.renewed_at >= self._renew_s:
                await self._renew(name, held)

    async def _wait(self, claim: SlotClaim) -> bool:
        ends, has_waited = self._clock.monotonic() + claim.wait_s, False
        since = self._clock.now()
        while True:
            states, newest = await self._read(claim.slot.name)
            turn = judge_turn(states, self._node, claim.slot.count)
            if turn.is_free and await self._take(claim, newest, since):
                return has_waited
            if claim.is_stopped() or self._clock.monotonic() >= ends:
                await self._give_back(claim.slot.name)
                raise _refusal(claim, turn)
            has_waited = True
            if turn.is_free:  # another node wrote concurrently
                import random

                await self._clock.sleep(random.uniform(0.05, 0.3))
                continue
            await self._queue(claim, states, since)
            await self._clock.sleep(min(POLL_S + turn.ahead / 2, POLL_AT_MOST_S))

    async def _take(self, claim: SlotClaim, newest: int, since: datetime) -> bool:
        """Try to acquire the slot. Return False if another node wrote concurrently."""
        name = claim.slot.name
        entry = SlotEntry(
            is_held=True, count=claim.slot.count, since=since, resource=claim.resource, run=claim.run
        )
        try:
            revision = await self._bucket.update_among(
                self._key(name), msgspec.json.encode(entry), f"{name}.>", newest
            )
        except RevisionError:
            return False
        self._held[name] = _Held(entry=entry, revision=revision, renewed_at=self._clock.monotonic())
        return True

    async def _queue(self, claim: SlotClaim, states: list[SlotState], since: datetime) -> None:
        """Write this node's place in the queue."""
        own = next((one for one in states if one.node == self._node and not one.entry.is_held), None)
        entry = SlotEntry(
            count=claim.slot.count,
            place=own.place if own is not None else 0,
            since=since,
            resource=claim.resource,
            run=claim.run,
        )
        await self._bucket.put(self._key(claim.slot.name), msgspec.json.encode(entry))

    async def _give_back(self, name: str) -> None:
        """Remove this node's entry for a slot that it holds or waits for."""
        self._held.pop(name, None)
        try:
            await self._bucket.put(self._key(name), b"")
        except (BusError, ProtocolError) as err:
            log.warning("a slot is free once it expires", extra={"slot": name, "reason": str(err)})

    async def _renew(self, name: str, held: _Held) -> None:
        try:
            held.revision = await self._bucket.update(
                self._key(name), msgspec.json.encode(held.entry), held.revision
            )
            held.renewed_at = self._clock.monotonic()
        except RevisionError:
            self._held.pop(name, None)
            log.warning("a slot expired or was released while it was held", extra={"slot": name})
        except (BusError, ProtocolError) as err:
            log.warning("a slot could not be renewed", extra={"slot": name, "reason": str(err)})

    async def _read(self, name: str) -> tuple[list[SlotState], int]:
        """Return the entries of a slot, and the newest revision among them. This includes released entries."""
        found = await self._bucket.matching([f"{name}.>"], deletions=True)
        states = [
            SlotState(
                node=one.key.partition(".")[2],
                revision=one.revision,
                written=one.created,
                entry=decode_entry(one.value),
            )
            for one in found
            if one.value and self._is_genuine(one)
        ]
        return states, max((one.revision for one in found), default=0)

    def _is_genuine(self, entry: KeyValueEntry) -> bool:
        reason = self._find_forgery(entry)
        if reason:
            log.warning("an entry of a slot is ignored", extra={"entry": entry.key, "reason": reason})
        return not reason

    def _key(self, name: str) -> str:
        return f"{name}.{self._node}"


def _refusal(claim: SlotClaim, turn: SlotDecision) -> SlotError:
    name, holders = claim.slot.name, ", ".join(turn.holders[:_NAMED])
    more = f" and {len(turn.holders) - _NAMED} more" if len(turn.holders) > _NAMED else ""
    held = f"held by {holders}{more}" if holders else "not free"
    ahead = f"; {turn.ahead} nodes wait before this one" if turn.ahead else ""
    why = "the run was stopped" if claim.is_stopped() else f"no slot was free for {claim.wait_s:g} s"
    release = ""
    if turn.holders:
        first = turn.holders[0]
        release = f"; if {first} keeps it after a failure: `ccmctl slots release {name} {first}`"
    return SlotError(
        f"the slot {name} is {held}{ahead}: {why}, so nothing was changed; see `ccmctl slots`{release}"
    )


class ManifestSlots:
    """
    The slot of the current resource of one manifest; implements `resources.run_context.ResourceSlots`.

    Args:
        keeper: Acquires slots. With None, this program does not use slots.
        run: The id of the run, for display.
        masker: Masks secrets in the names of resources.
        is_stopped: Returns whether the run was stopped.
        noop: Whether the manifest is applied under noop.
    """

    def __init__(
        self,
        keeper: NodeSlots | None,
        run: str,
        masker: Masker,
        is_stopped: Callable[[], bool],
        *,
        noop: bool,
    ) -> None:
        self._keeper = keeper
        self._run = run
        self._masker = masker
        self._is_stopped = is_stopped
        self._noop = noop
        self._taken = ""

    async def take(self, declared: ResolvedResource) -> bool:
        """See `resources.run_context.ResourceSlots.take`."""
        if self._noop or self._taken:
            return False
        claim = self._claim(declared)
        if self._keeper is None:
            raise SlotError(
                f"the slot {claim.slot.name} cannot be taken, so nothing was changed: only the agent takes slots; "
                "use `ccmctl apply` or an assignment"
            )
        has_waited = await self._keeper.take(claim)
        self._taken = claim.slot.name
        return has_waited

    async def give_back(self, declared: ResolvedResource, event: TransactionEvent) -> None:
        """See `resources.run_context.ResourceSlots.give_back`."""
        taken, self._taken = self._taken, ""
        if self._keeper is None or self._noop:
            return
        if taken and event.failed:
            self._keeper.fail(taken)
        elif taken:
            await self._keeper.leave(taken)
        elif not event.failed:
            await self._keeper.recover(self._claim(declared).slot.name)

    def fail(self) -> None:
        """See `resources.run_context.ResourceSlots.fail`."""
        if self._keeper is not None and self._taken:
            self._keeper.fail(self._taken)
        self._taken = ""

    def _claim(self, declared: ResolvedResource) -> SlotClaim:
        """Return the claim of the resource. Other nodes and operators can read the resource's name in it."""
        control = declared.wanted.control or Control()
        return SlotClaim(
            slot=parse_slot(control.slots),
            resource=self._masker.name(declared.reference)[:NAME_LIMIT],
            run=self._run,
            wait_s=parse_duration(control.slots_wait or DEFAULT_WAIT),
            is_stopped=self._is_stopped,
        )
