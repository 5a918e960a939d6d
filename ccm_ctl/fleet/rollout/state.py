"""
The steps of a rollout, as pure functions. They compute the nodes that run next from the results of nodes and the time.

The state is a document in CCM_RUNS that every driver reads and writes with compare-and-set. A driver stores the document before
it sends a request. A pause by another operator therefore takes effect before the next node, and a driver that replaces a dead one
can read which nodes may have the request. Requests can be repeated, because an agent applies a run once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Budgets, Phase, RolloutState, Wave
from ccm_agent.model.wire import NodeState


class RolloutStep(Struct, frozen=True, kw_only=True):
    """
    The next step of a driver.

    Attributes:
        state: The state to store before anything else, if it differs.
        ask: Nodes to which the request is sent after the state is stored.
        gate: A condition to evaluate. Its result is passed to `gated`. "": there is no gate.
    """

    state: RolloutState
    ask: tuple[str, ...] = ()
    gate: str = ""


KINDS: dict[NodeState, str] = {
    NodeState.FAILED: "failed",
    NodeState.STOPPED: "failed",
    NodeState.SUPERSEDED: "failed",
    NodeState.REFUSED: "unreachable",
    NodeState.EXPIRED: "unreachable",
    NodeState.UNREACHABLE: "unreachable",
    NodeState.LOST: "lost",
}
"""The budget for each end state."""


def bad_ends(nodes: Iterable[str], ends: Mapping[str, NodeState]) -> dict[str, int]:
    """Return the number of nodes that ended badly, by budget."""
    counts: dict[str, int] = {}
    for node in nodes:
        kind = KINDS.get(ends.get(node, NodeState.EXPECTED))
        if kind is not None:
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def step(
    state: RolloutState,
    order: Sequence[str],
    ends: Mapping[str, NodeState],
    back: Sequence[str],
    now: datetime,
) -> RolloutStep:
    """
    Return the next step of a rollout.

    Args:
        state: The stored state.
        order: The nodes of all waves, in the plan's order.
        ends: The state of each node in the run.
        back: Nodes that were offline at the start and are present now.
        now: The time, from the same clock as the times in the state.
    """
    if state.phase.is_over or state.phase is Phase.PAUSED:
        return RolloutStep(state=state)
    if state.start_at is not None and now < state.start_at:
        return RolloutStep(state=state)
    if reason := exceeded(state, order, ends):
        return RolloutStep(state=replace(state, phase=Phase.PAUSED, reason=reason, by="", bake_until=None))
    if state.phase is Phase.BAKING:
        is_waiting = state.bake_until is not None and now < state.bake_until
        return RolloutStep(state=state) if is_waiting and not state.is_promoted else _end_wave(state)
    return _fill(state, order, ends, back, now)


def exceeded(state: RolloutState, order: Sequence[str], ends: Mapping[str, NodeState]) -> str:
    """Return which budget is exceeded, as a sentence, or ""."""
    wave, plan = state.current, state.plan
    of_wave, asked = _asked_of_wave(state, order), _asked(state, order)
    return _over(wave.budgets, of_wave, ends, wave.nodes, state.wave_forgiven, f" of {wave.name}") or _over(
        plan.budgets, asked, ends, plan.total, state.forgiven, ""
    )


def _asked(state: RolloutState, order: Sequence[str]) -> list[str]:
    return [*order[: state.asked], *state.returned]


def _asked_of_wave(state: RolloutState, order: Sequence[str]) -> Sequence[str]:
    return order[state.wave_start : min(state.asked, state.wave_end)]


def _over(
    budgets: Budgets,
    nodes: Sequence[str],
    ends: Mapping[str, NodeState],
    total: int,
    forgiven: Mapping[str, int],
    whose: str,
) -> str:
    counts = bad_ends(nodes, ends)
    for kind, size in budgets.items():
        limit = size.limit(total)
        found = counts.get(kind, 0)
        if found - forgiven.get(kind, 0) > limit:
            count = "1 node" if found == 1 else f"{found} nodes"
            verb = {
                "failed": _failed(nodes, ends, found),
                "unreachable": "did not run it",
                "lost": "is lost" if found == 1 else "are lost",
            }[kind]
            return f"{count}{whose} {verb}; the limit is {limit}"
    return ""


def _failed(nodes: Iterable[str], ends: Mapping[str, NodeState], found: int) -> str:
    superseded = sum(ends.get(node) is NodeState.SUPERSEDED for node in nodes)
    if not superseded:
        return "failed"
    was = "was" if found == 1 else "were"
    return f"{was} superseded" if superseded == found else f"failed or {was} superseded"


def _fill(
    state: RolloutState,
    order: Sequence[str],
    ends: Mapping[str, NodeState],
    back: Sequence[str],
    now: datetime,
) -> RolloutStep:
    """Assign free slots to the next nodes of the wave. When all nodes have ended, the wave ends."""
    wave = state.current
    busy = sum(not ends.get(node, NodeState.EXPECTED).is_final for node in _asked(state, order))
    free = max(0, wave.slots - busy)
    began = state.wave_began or now
    due = _paced(state, wave, began, now)
    count = max(0, min(free, state.wave_end - state.asked, due))
    ask = list(order[state.asked : state.asked + count])
    new = [node for node in back if node not in state.returned][: max(0, free - count)]
    if ask or new:
        state = replace(
            state, asked=state.asked + count, returned=(*state.returned, *new), wave_began=began, reason=""
        )
        return RolloutStep(state=state, ask=(*ask, *new))
    if busy or state.asked < state.wave_end:
        return RolloutStep(state=state)
    bakes = wave.bake_s > 0 and not state.is_promoted
    if not bakes:
        return _end_wave(state)
    until = now + timedelta(seconds=wave.bake_s)
    return RolloutStep(state=replace(state, phase=Phase.BAKING, bake_until=until))


def _paced(state: RolloutState, wave: Wave, began: datetime, now: datetime) -> int:
    """Return how many more nodes of the wave may get the request now, if the wave's requests are spread over a period."""
    left = state.wave_end - state.asked
    if state.plan.splay_s <= 0:
        return left
    share = min(1.0, (now - began).total_seconds() / state.plan.splay_s)
    return max(0, 1 + int((wave.nodes - 1) * share) - (state.asked - state.wave_start))


def _end_wave(state: RolloutState) -> RolloutStep:
    if state.current.gate and not state.is_promoted:
        return RolloutStep(state=state, gate=state.current.gate)
    return RolloutStep(state=_next_wave(state))


def _next_wave(state: RolloutState) -> RolloutState:
    is_last = state.wave + 1 >= len(state.plan.waves)
    return replace(
        state,
        phase=Phase.DONE if is_last else Phase.RUNNING,
        wave=state.wave if is_last else state.wave + 1,
        bake_until=None,
        is_promoted=False,
        wave_began=None,
        wave_forgiven={},
        reason="",
    )


def gated(state: RolloutState, is_true: bool, why: str) -> RolloutState:
    """
    Return the state after the gate of the current wave was evaluated.

    Args:
        state: The state that required the gate.
        is_true: Its result.
        why: The values that the gate used, for the operator.
    """
    if is_true:
        return _next_wave(state)
    gate = state.current.gate
    return replace(state, phase=Phase.PAUSED, by="", bake_until=None, reason=f"gate {gate}: false ({why})")


def pause(state: RolloutState, by: str, why: str) -> RolloutState:
    """
    Pause a rollout: no further node starts.

    Raises:
        RunError: The rollout has ended.
    """
    _check_open(state, "paused")
    return replace(state, phase=Phase.PAUSED, by=by, reason=why or "paused by an operator", bake_until=None)


def resume(state: RolloutState, order: Sequence[str], ends: Mapping[str, NodeState], by: str) -> RolloutState:
    """
    Continue a rollout. Nodes that ended badly before are no longer counted in the budgets.

    Raises:
        RunError: The rollout has ended.
    """
    _check_open(state, "resumed")
    return replace(
        state,
        phase=Phase.RUNNING,
        by=by,
        reason="",
        bake_until=None,
        forgiven=bad_ends(_asked(state, order), ends),
        wave_forgiven=bad_ends(_asked_of_wave(state, order), ends),
    )


def promote(
    state: RolloutState, order: Sequence[str], ends: Mapping[str, NodeState], by: str
) -> RolloutState:
    """
    Continue a rollout without the wait and the gate of the current wave.

    Raises:
        RunError: The rollout has ended.
    """
    return replace(resume(state, order, ends, by), is_promoted=True)


def abort(state: RolloutState, by: str, why: str) -> RolloutState:
    """
    End a rollout: no further node starts. This cannot be undone.

    Raises:
        RunError: The rollout has ended.
    """
    _check_open(state, "aborted")
    if state.is_completing:
        raise RunError(
            f"{short_id(state.run)}: all waves of this rollout have ended; `ccmctl run resume {short_id(state.run)}` completes it"
        )
    return replace(
        state,
        phase=Phase.ABORTED,
        by=by,
        reason=why or "aborted by an operator",
        bake_until=None,
        lease=None,
    )


def _check_open(state: RolloutState, what: str) -> None:
    if state.phase.is_over:
        raise RunError(f"{short_id(state.run)}: this rollout is {state.phase} and cannot be {what}")
