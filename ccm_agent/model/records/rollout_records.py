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
        """Return the number of nodes of `total` in a wave: a percentage is rounded up, to at least one node."""
        if self.percent is None:
            return min(self.count or 0, total)
        return min(total, max(1, math.ceil(total * self.percent / 100)))

    def limit(self, total: int) -> int:
        """
        Return the number of nodes of `total` that a budget allows: a percentage is rounded down, so it is
        never exceeded.
        """
        if self.percent is None:
            return self.count or 0
        return math.floor(total * self.percent / 100)

    def __str__(self) -> str:
        """Format the size as on the command line."""
        return f"{self.percent:g}%" if self.percent is not None else str(self.count or 0)


class Budgets(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The number of nodes that may fail in each way before a rollout pauses. None means no limit.

    Attributes:
        failed: Nodes that failed or were stopped, or received a newer run with the same name instead (superseded).
        unreachable: Nodes that were present but did not start: no answer, refused or expired.
        lost: Nodes that accepted the request and then stopped reporting.
    """

    failed: Size | None = None
    unreachable: Size | None = None
    lost: Size | None = None

    def items(self) -> list[tuple[str, Size]]:
        """Return the limited budgets, by the kind of failure."""
        all_of_them = (("failed", self.failed), ("unreachable", self.unreachable), ("lost", self.lost))
        return [(kind, size) for kind, size in all_of_them if size is not None]


CAREFUL = Budgets(failed=Size(count=0), lost=Size(count=0))
"""
The budgets of a rollout without budgets from the operator: the first failed or lost node pauses the
rollout.
"""


class Wave(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A group of nodes. The next group starts after it.

    Attributes:
        name: The operator's name for the wave.
        nodes: The number of nodes in the wave.
        slots: The number of nodes that run at the same time. A slot is reused as soon as its node ends.
        bake_s: The waiting time, in seconds, after the last node has ended.
        gate: A condition that must be true after the wait; "" for none.
        budgets: The number of these nodes that may fail.
    """

    name: str
    nodes: int
    slots: int
    bake_s: float = 0.0
    gate: str = ""
    budgets: Budgets = Budgets()


class RolloutPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The waves, in order. The frozen list of targets contains their nodes in the same order.

    Attributes:
        waves: The waves; at least one.
        budgets: The number of nodes in the whole rollout that may fail.
        splay_s: The time over which the first requests of each wave are spread.
    """

    waves: tuple[Wave, ...]
    budgets: Budgets = CAREFUL
    splay_s: float = 0.0

    @property
    def total(self) -> int:
        """Return the number of nodes in all waves."""
        return sum(wave.nodes for wave in self.waves)


class Phase(StrEnum):
    """The phase of a rollout."""

    RUNNING = "running"
    """The nodes of a wave are running, or are about to run."""
    BAKING = "baking"
    """All nodes of a wave have ended, and the next wave waits."""
    PAUSED = "paused"
    """No further node starts until an operator resumes or promotes the rollout."""
    ABORTED = "aborted"
    """No further node will start."""
    DONE = "done"

    @property
    def is_over(self) -> bool:
        """Whether the rollout has ended."""
        return self in (Phase.ABORTED, Phase.DONE)


class Lease(Struct, frozen=True, kw_only=True):
    """
    The process that drives a rollout.

    Attributes:
        operator, host: The operator and host of the process.
        process: A random text that identifies the process.
        until: The time after which another process may take over.
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
        plan: The waves of the rollout.
        phase: The current phase.
        wave: The index of the current wave.
        asked: The number of nodes, in the plan's order, that may have received the request.
        returned: Nodes that were offline at the start, came back online, and received the request.
        bake_until: The end of the wait after the current wave.
        is_promoted: Whether an operator skipped the wait and the gate of the current wave.
        reason: Why the rollout is paused or aborted; "" otherwise.
        by: The operator who last paused, resumed, promoted or aborted the rollout; "" if it paused automatically.
        wave_began: When the request was sent to the first node of the current wave.
        start_at: The earliest start of the first wave; None to start immediately.
        forgiven: Failures in the whole rollout before the last `resume`, by kind. They are excluded from its budgets.
        wave_forgiven: The same for the current wave.
        deadline_s: The time after its request within which a node may still start.
        is_detached: Whether a rollout server should drive the rollout.
        signature: The signature of the operator who handed the rollout to the rollout servers
            (`ccm_ctl.fleet.rollout.handover`); "" if it is not signed.
        record_digest: SHA-256 of the run's record with the request that is sent to the nodes
            (`ccm_ctl.fleet.runs.run_request`); "" if unknown, in a rollout of an older controller.
        is_completing: Whether all waves have ended and the driver is making the new revision of an assignment
            current.
        lease: The process that drives the rollout; None if there is none.
        time: When this state was written.
        serial: The number of writes of this state. A driver uses it to detect that an earlier state was restored.
        orders: The number of the last order that this state contains, by the token of the operator who gave it.
        missing: Earlier order numbers that were not stored yet at that time, by the same token. Halts among
            them still apply.
        halts: The number of pauses and aborts that this state contains.
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
        """Return the current wave."""
        return self.plan.waves[min(self.wave, len(self.plan.waves) - 1)]

    @property
    def wave_start(self) -> int:
        """Return the index of the current wave's first node."""
        return sum(wave.nodes for wave in self.plan.waves[: self.wave])

    @property
    def wave_end(self) -> int:
        """Return the index after the current wave's last node."""
        return self.wave_start + self.current.nodes


class OrderKind(StrEnum):
    """The kind of an order."""

    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    ABORT = "abort"

    @property
    def is_halt(self) -> bool:
        """
        Whether no further node starts after the order. Any operator who may stop the run may give such an
        order.
        """
        return self in (OrderKind.PAUSE, OrderKind.ABORT)


class RolloutOrder(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    `<operator>.<run>.order.<number>` in CCM_RUNS: a signed order of an operator for a rollout.

    Attributes:
        run: The run.
        order: The kind of the order.
        wave: The index of the wave that was current at that time. A promotion does not apply to later waves.
        why: The reason; "" if none was given.
        user: The user of a dashboard on whose behalf the operator gave the order; "" without a dashboard.
        time: When the order was given.
        halts: The number of pauses that the operator saw. A resume or a promotion does not undo later pauses.
            None if unknown, in an order of an older controller.
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
    An order as stored.

    Attributes:
        token, number: The operator's token and the number in the key of the order.
        order: The order.
        by: The operator who gave the order.
        reason: Why the order does not apply; "" if it applies.
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
        due: When the broker stored the due message.
        run: The run that was started; "" for none.
        reason: Why no run was started; "" otherwise.
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
        starts: A limited number of results, newest first.
        run: The newest run that was started; "" if there is none yet.
        handover: The rollout of that run, as long as it may not be stored yet. Any server can store it.
    """

    name: str
    starts: tuple[ScheduledStart, ...] = ()
    run: str = ""
    handover: RolloutState | None = None


class RolloutServer(Struct, frozen=True, kw_only=True):
    """
    `=server.<operator@host>` in CCM_RUNS: a rollout server that is running.

    Attributes:
        operator, host: The operator who runs the server, and its host.
        until: The time after which the server is considered stopped, unless it writes again.
    """

    operator: str
    host: str
    until: Moment
