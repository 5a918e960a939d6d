"""
Records of rollouts in `CCM_RUNS`. Only controllers write and read them.

    running ──▶ baking ──▶ (gate) ──▶ running …  ──▶ done
       │           │          │
       └───────────┴──────────┴──▶ paused ──▶ running        and from each of them ──▶ aborted
"""

from __future__ import annotations

import math
from enum import StrEnum

from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Count, Moment


class Size(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A number of nodes.

    Attributes:
        count: The number; None if it is a percentage.
        percent: The percentage; None if it is a number.
    """

    count: int | None = None
    percent: float | None = None

    def of(self, total: int) -> int:
        """The number of nodes of `total` in a wave: a percentage is rounded up, to at least one node."""
        if self.percent is None:
            return min(self.count or 0, total)
        return min(total, max(1, math.ceil(total * self.percent / 100)))

    def limit(self, total: int) -> int:
        """The number of nodes of `total` that a budget allows: a percentage is rounded down, so it is never exceeded."""
        if self.percent is None:
            return self.count or 0
        return math.floor(total * self.percent / 100)

    def __str__(self) -> str:
        """As it is written on the command line."""
        return f"{self.percent:g}%" if self.percent is not None else str(self.count or 0)


class Budgets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    How many nodes may fail in each way before a rollout pauses. None: no limit.

    Attributes:
        failed: Nodes that failed or were stopped, or got a newer run of the same name instead (superseded).
        unreachable: Nodes that were present but did not run it: no answer, refused or expired.
        lost: Nodes that accepted and then stopped reporting.
    """

    failed: Size | None = None
    unreachable: Size | None = None
    lost: Size | None = None

    def items(self) -> list[tuple[str, Size]]:
        """The limited budgets by the kind of failure that they count."""
        all_of_them = (("failed", self.failed), ("unreachable", self.unreachable), ("lost", self.lost))
        return [(kind, size) for kind, size in all_of_them if size is not None]


CAREFUL = Budgets(failed=Size(count=0), lost=Size(count=0))
"""The budgets of a rollout for which the operator gave none: the first node that fails or is lost pauses it."""


class Wave(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Nodes that run before those of the next wave.

    Attributes:
        name: The operator's name for it.
        nodes: How many nodes are in it.
        slots: How many of them run at the same time; a slot is taken again as soon as its node ends.
        bake_s: How long to wait after the last of them has ended.
        gate: A condition that must then be true; "": none.
        budgets: How many of these nodes may end badly.
    """

    name: str
    nodes: int
    slots: int
    bake_s: float = 0.0
    gate: str = ""
    budgets: Budgets = Budgets()


class RolloutPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The waves, in order; the frozen list of targets has their nodes one after the other.

    Attributes:
        waves: At least one.
        budgets: How many nodes of the whole rollout may end badly.
        splay_s: Over how long the first requests of each wave are spread.
    """

    waves: tuple[Wave, ...]
    budgets: Budgets = CAREFUL
    splay_s: float = 0.0

    @property
    def total(self) -> int:
        """How many nodes are in waves."""
        return sum(wave.nodes for wave in self.waves)


class Phase(StrEnum):
    """Where a rollout is."""

    RUNNING = "running"
    """The nodes of a wave are running, or about to run."""
    BAKING = "baking"
    """The nodes of a wave have ended; the next wave waits."""
    PAUSED = "paused"
    """No further node starts until an operator resumes or promotes it."""
    ABORTED = "aborted"
    """No further node starts, ever."""
    DONE = "done"

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        return self in (Phase.ABORTED, Phase.DONE)


class Lease(Struct, frozen=True, kw_only=True):
    """
    The process that drives a rollout.

    Attributes:
        operator, host: Who, and where.
        process: A random text that identifies the process.
        until: When another process may take over.
    """

    operator: str
    host: str
    process: str
    until: Moment


class RolloutState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    `=rollout.<run>` in CCM_RUNS.

    Attributes:
        run: The run.
        plan: Its waves.
        phase: Where it is.
        wave: The index of the current wave.
        asked: How many nodes, in the plan's order, may have received the request.
        returned: Nodes that were offline at the start, came back, and received the request.
        bake_until: When the wait after the current wave ends.
        is_promoted: An operator skips the wait and the gate of the current wave.
        reason: Why it is paused or aborted; "" otherwise.
        by: The operator who paused, resumed, promoted or aborted it last; "": it paused by itself.
        wave_began: When the first node of the current wave was asked.
        start_at: When the first wave may begin; None: at once.
        forgiven: Failures in the whole rollout before the last `resume`, by kind; its budgets do not count them.
        wave_forgiven: The same for the current wave.
        deadline_s: How long after its request a node may still start.
        is_detached: A rollout server is to drive it.
        signature: Of the operator who handed it to the rollout servers (`ccm_ctl.fleet.rollout.handover`); "": not signed.
        record_digest: SHA-256 of the run's record, whose request is sent to the nodes (`ccm_ctl.fleet.runs.run_request`);
            "": not known, in a rollout of an older controller.
        is_completing: All waves have ended, and the driver makes the new revision of an assignment the current one.
        lease: The process that drives it; None: no process.
        time: When this was written.
        serial: How often it was written, so that a driver knows an earlier state that was put back.
        orders: The number of the last order that this state contains, by the token of the operator who gave it.
        missing: Earlier numbers that were not there then, by the same token. Their halts still count.
        halts: How many pauses and aborts it contains.
    """

    run: str
    plan: RolloutPlan
    phase: Phase = Phase.RUNNING
    wave: Count = 0
    asked: Count = 0
    returned: tuple[str, ...] = ()
    bake_until: Moment | None = None
    is_promoted: bool = False
    reason: str = ""
    by: str = ""
    wave_began: Moment | None = None
    start_at: Moment | None = None
    forgiven: dict[str, Count] = {}
    wave_forgiven: dict[str, Count] = {}
    deadline_s: float = 3600.0
    is_detached: bool = False
    signature: str = ""
    record_digest: str = ""
    is_completing: bool = False
    lease: Lease | None = None
    time: Moment | None = None
    serial: Count = 0
    orders: dict[str, Count] = {}
    missing: dict[str, tuple[Count, ...]] = {}
    halts: Count = 0

    @property
    def current(self) -> Wave:
        """The current wave."""
        return self.plan.waves[min(self.wave, len(self.plan.waves) - 1)]

    @property
    def wave_start(self) -> int:
        """The index of the current wave's first node."""
        return sum(wave.nodes for wave in self.plan.waves[: self.wave])

    @property
    def wave_end(self) -> int:
        """The index after the current wave's last node."""
        return self.wave_start + self.current.nodes


class OrderKind(StrEnum):
    """What an operator orders."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ABORT = "abort"

    @property
    def is_halt(self) -> bool:
        """Whether no further node starts: who may stop the run may order it."""
        return self in (OrderKind.PAUSE, OrderKind.ABORT)


class RolloutOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.order.<number>` in CCM_RUNS: what an operator ordered about a rollout, signed.

    Attributes:
        run: The run.
        order: What.
        wave: The index of the wave that was current then. A promotion does not hold for a later one.
        why: The reason; "": none was given.
        user: The user of a dashboard for whom the operator gave it; "": the operator did.
        time: When.
        halts: How many pauses the operator saw. A resume or a promotion does not undo a later one. None: not known, in an
            order of an older controller.
    """

    run: str
    order: OrderKind
    wave: Count = 0
    why: str = ""
    user: str = ""
    time: Moment | None = None
    halts: Count | None = None


class GivenOrder(Struct, frozen=True, kw_only=True):
    """
    An order as it is stored.

    Attributes:
        token, number: Whose key it is under, and its number there.
        order: The order.
        by: Who gave it.
        reason: Why it does not count; "": it does.
    """

    token: str
    number: int
    order: RolloutOrder
    by: str
    reason: str = ""


class ScheduledStart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The result of one start of a scheduled rollout.

    Attributes:
        due: When the broker stored that it was due.
        run: The run that was started; "": none.
        reason: Why none was started; "" otherwise.
        by: The operator and host of the rollout server that decided.
    """

    due: Moment
    run: str = ""
    reason: str = ""
    by: str = ""


class ScheduleStarts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    `=schedule.<name>.starts` in CCM_RUNS: the results of the starts of a scheduled rollout.

    Attributes:
        name: The schedule.
        starts: The newest first, a limited number.
        run: The newest run that was started; "": none yet.
        handover: The rollout of that run, as long as it may not be stored yet. Any server stores it.
    """

    name: str
    starts: tuple[ScheduledStart, ...] = ()
    run: str = ""
    handover: RolloutState | None = None


class RolloutServer(Struct, frozen=True, kw_only=True):
    """
    `=server.<operator@host>` in CCM_RUNS: a rollout server that is running.

    Attributes:
        operator, host: Who runs it, and where.
        until: When it is no longer there, unless it writes again.
    """

    operator: str
    host: str
    until: Moment
