"""A rollout's steps, one by one and against a model."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccm_agent.model.errors import RunError
from ccm_agent.model.records.rollout_records import Budgets, Phase, RolloutPlan, RolloutState, Size, Wave
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.rollout.state import KINDS, abort, bad_ends, gated, pause, promote, resume, step

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"
NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
NONE = Budgets(failed=Size(count=0), lost=Size(count=0))
OK = NodeState.CHANGED


def nodes(count: int) -> list[str]:
    return [f"n{number}" for number in range(1, count + 1)]


def a_state(*waves: Wave, budgets: Budgets = NONE, splay_s: float = 0.0) -> RolloutState:
    return RolloutState(run=RUN, plan=RolloutPlan(waves=waves, budgets=budgets, splay_s=splay_s))


def a_wave(
    count: int, slots: int = 0, *, bake_s: float = 0, gate: str = "", budgets: Budgets | None = None
) -> Wave:
    return Wave(
        name="one", nodes=count, slots=slots or count, bake_s=bake_s, gate=gate, budgets=budgets or Budgets()
    )


def test_a_slot_is_taken_again_when_its_node_ends() -> None:
    state, order = a_state(a_wave(4, 2)), nodes(4)

    first = step(state, order, {}, [], NOW)
    waiting = step(first.state, order, {"n1": NodeState.RUNNING}, [], NOW)
    second = step(first.state, order, {"n1": OK}, [], NOW)

    assert first.ask == ("n1", "n2")
    assert waiting.ask == ()
    assert second.ask == ("n3",)
    assert second.state.asked == 3


def test_the_next_wave_waits_until_all_nodes_of_the_first_have_ended() -> None:
    state, order = a_state(a_wave(2), a_wave(1)), nodes(3)
    state = step(state, order, {}, [], NOW).state

    half = step(state, order, {"n1": OK}, [], NOW)
    ended = step(state, order, {"n1": OK, "n2": OK}, [], NOW)

    assert (half.ask, half.state.wave) == ((), 0)
    assert (ended.ask, ended.state.wave) == ((), 1)
    assert step(ended.state, order, {"n1": OK, "n2": OK}, [], NOW).ask == ("n3",)


def test_a_rollout_is_done_when_its_last_wave_has_ended() -> None:
    state, order = a_state(a_wave(1)), nodes(1)
    state = step(state, order, {}, [], NOW).state

    assert step(state, order, {"n1": OK}, [], NOW).state.phase is Phase.DONE


def test_a_wave_bakes_before_its_gate() -> None:
    state, order = a_state(a_wave(1, bake_s=600, gate="failed == 0"), a_wave(1)), nodes(2)
    ends = {"n1": OK}
    state = step(state, order, {}, [], NOW).state

    baking = step(state, order, ends, [], NOW).state
    early = step(baking, order, ends, [], NOW + timedelta(seconds=599))
    late = step(baking, order, ends, [], NOW + timedelta(seconds=600))

    assert (baking.phase, early.state, early.gate) == (Phase.BAKING, baking, "")
    assert late.gate == "failed == 0"
    assert (gated(late.state, True, "").wave, gated(late.state, True, "").phase) == (1, Phase.RUNNING)
    assert gated(late.state, False, "failed 1").reason == "gate failed == 0: false (failed 1)"


def test_a_node_that_fails_while_a_wave_bakes_pauses_it() -> None:
    state, order = a_state(a_wave(1, bake_s=600), a_wave(1)), nodes(2)
    state = step(state, order, {}, [], NOW).state
    baking = step(state, order, {"n1": OK}, [], NOW).state

    paused = step(baking, order, {"n1": NodeState.FAILED}, [], NOW).state

    assert (paused.phase, paused.reason) == (Phase.PAUSED, "1 node failed; the limit is 0")


@pytest.mark.parametrize(
    ("end", "budgets", "reason"),
    [
        (NodeState.FAILED, NONE, "2 nodes failed; the limit is 0"),
        (NodeState.SUPERSEDED, NONE, "2 nodes were superseded; the limit is 0"),
        (NodeState.SUPERSEDED, Budgets(failed=Size(count=2), unreachable=Size(count=0)), ""),
        (NodeState.LOST, NONE, "2 nodes are lost; the limit is 0"),
        (NodeState.UNREACHABLE, NONE, ""),
        (NodeState.REFUSED, NONE, ""),
        (NodeState.REFUSED, Budgets(unreachable=Size(count=1)), "2 nodes did not run it; the limit is 1"),
        (NodeState.EXPIRED, Budgets(unreachable=Size(percent=50)), ""),
        (NodeState.FAILED, Budgets(failed=Size(percent=49)), "2 nodes failed; the limit is 1"),
        (NodeState.FAILED, Budgets(failed=Size(percent=100)), ""),
        (NodeState.OFFLINE, Budgets(unreachable=Size(count=0)), ""),
    ],
)
def test_each_end_counts_in_its_own_budget(end: NodeState, budgets: Budgets, reason: str) -> None:
    state, order = a_state(a_wave(4, 2), budgets=budgets), nodes(4)
    state = step(state, order, {}, [], NOW).state

    after = step(state, order, {"n1": end, "n2": end}, [], NOW)

    assert after.state.reason == reason
    assert (after.state.phase is Phase.PAUSED) is bool(reason)
    assert bool(after.ask) is not bool(reason)


def test_the_reason_of_a_pause_tells_superseded_nodes_from_failed_ones() -> None:
    state, order = a_state(a_wave(4, 2)), nodes(4)
    state = step(state, order, {}, [], NOW).state

    one = step(state, order, {"n1": NodeState.SUPERSEDED}, [], NOW).state
    both = step(state, order, {"n1": NodeState.SUPERSEDED, "n2": NodeState.FAILED}, [], NOW).state

    assert one.reason == "1 node was superseded; the limit is 0"
    assert both.reason == "2 nodes failed or were superseded; the limit is 0"


def test_a_wave_has_budgets_of_its_own() -> None:
    wave = a_wave(4, 4, budgets=Budgets(failed=Size(count=1)))
    state, order = a_state(wave, wave, budgets=Budgets(failed=Size(count=6))), nodes(8)
    state = step(state, order, {}, [], NOW).state
    ends = dict.fromkeys(nodes(4), OK) | {"n1": NodeState.FAILED}
    state = step(state, order, ends, [], NOW).state
    state = step(state, order, ends, [], NOW).state

    one = step(state, order, ends | {"n5": NodeState.FAILED}, [], NOW).state
    two = step(state, order, ends | {"n5": NodeState.FAILED, "n6": NodeState.FAILED}, [], NOW).state

    assert (one.phase, one.wave) == (Phase.RUNNING, 1)
    assert two.reason == "2 nodes of one failed; the limit is 1"


def test_resume_ignores_earlier_failures() -> None:
    state, order = a_state(a_wave(4, 1)), nodes(4)
    state = step(state, order, {}, [], NOW).state
    paused = step(state, order, {"n1": NodeState.FAILED}, [], NOW).state

    resumed = resume(paused, order, {"n1": NodeState.FAILED}, "ana")
    going = step(resumed, order, {"n1": NodeState.FAILED}, [], NOW)
    again = step(going.state, order, {"n1": NodeState.FAILED, "n2": NodeState.FAILED}, [], NOW)

    assert going.ask == ("n2",)
    assert (again.state.phase, again.state.reason) == (Phase.PAUSED, "2 nodes failed; the limit is 0")


def test_promote_skips_the_wait_and_the_gate_of_one_wave() -> None:
    wave = a_wave(1, bake_s=600, gate="failed == 0")
    state, order = a_state(wave, wave), nodes(2)
    ends = {"n1": OK}
    state = step(state, order, {}, [], NOW).state
    baking = step(state, order, ends, [], NOW).state

    promoted = step(promote(baking, order, ends, "ana"), order, ends, [], NOW)
    second = step(promoted.state, order, ends, [], NOW)
    ended = step(second.state, order, ends | {"n2": OK}, [], NOW)

    assert (promoted.gate, promoted.state.wave, promoted.state.is_promoted) == ("", 1, False)
    assert second.ask == ("n2",)
    assert ended.state.phase is Phase.BAKING


def test_nodes_that_come_back_run_in_free_slots_of_the_current_wave() -> None:
    state, order = a_state(a_wave(2, 2)), nodes(2)
    state = step(state, order, {}, ["off1"], NOW).state

    full = step(state, order, {"n1": NodeState.RUNNING}, ["off1", "off2"], NOW)
    freed = step(state, order, {"n1": OK}, ["off1", "off2"], NOW)
    after = step(freed.state, order, {"n1": OK, "n2": OK}, ["off1", "off2"], NOW)
    ended = step(after.state, order, {"n1": OK, "n2": OK, "off1": OK, "off2": OK}, ["off1", "off2"], NOW)

    assert full.ask == ()
    assert (freed.ask, freed.state.returned) == (("off1",), ("off1",))
    assert after.ask == ("off2",)
    assert ended.state.phase is Phase.DONE


def test_splay_spreads_the_requests_of_a_wave() -> None:
    state, order, asked = a_state(a_wave(5), splay_s=100), nodes(5), []
    for second in (0, 10, 25, 26, 60, 100):
        turn = step(state, order, {}, [], NOW + timedelta(seconds=second))
        state = turn.state
        asked.append(turn.ask)

    assert asked == [("n1",), (), ("n2",), (), ("n3",), ("n4", "n5")]


def test_nothing_starts_before_its_time() -> None:
    state, order = replace(a_state(a_wave(1)), start_at=NOW + timedelta(hours=1)), nodes(1)

    assert step(state, order, {}, [], NOW).ask == ()
    assert step(state, order, {}, [], NOW + timedelta(hours=1)).ask == ("n1",)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: pause(state, "ana", ""),
        lambda state: abort(state, "ana", ""),
        lambda state: resume(state, nodes(1), {}, "ana"),
        lambda state: promote(state, nodes(1), {}, "ana"),
    ],
    ids=["pause", "abort", "resume", "promote"],
)
def test_a_rollout_that_is_over_does_not_change(change: Callable[[RolloutState], RolloutState]) -> None:
    state = a_state(a_wave(1))

    assert change(state).by == "ana"
    with pytest.raises(RunError, match="this rollout is done"):
        change(replace(state, phase=Phase.DONE))


ENDS = st.sampled_from(
    [OK, OK, OK, NodeState.STABLE, NodeState.FAILED, NodeState.LOST, NodeState.UNREACHABLE, NodeState.REFUSED]
)
SIZES = st.one_of(
    st.none(),
    st.integers(0, 3).map(lambda n: Size(count=n)),
    st.integers(0, 50).map(lambda n: Size(percent=n)),
)
BUDGETS = st.builds(lambda f, u, lo: Budgets(failed=f, unreachable=u, lost=lo), SIZES, SIZES, SIZES)
WAVES = st.lists(
    st.builds(
        lambda count, slots, bake, gate, budgets: a_wave(
            count, min(slots, count), bake_s=bake, gate="gate" if gate else "", budgets=budgets
        ),
        st.integers(1, 6),
        st.integers(1, 6),
        st.sampled_from([0, 0, 30]),
        st.booleans(),
        BUDGETS,
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300, deadline=None)
@given(waves=WAVES, budgets=BUDGETS, data=st.data())
def test_a_rollout_keeps_its_promises(waves: list[Wave], budgets: Budgets, data: st.DataObject) -> None:
    """
    What holds at each request, whatever nodes and operators do.

    The driver is killed and begins again from the stored state at any step: it has nothing else.
    """
    state = a_state(*waves, budgets=budgets)
    order = nodes(state.plan.total)
    ends: dict[str, NodeState] = {}
    asked: list[str] = []
    now, is_aborted = NOW, False
    for _ in range(200):
        if state.phase.is_over:
            break
        known = dict(ends)
        turn = step(state, order, known, [], now)
        if turn.gate:
            turn = replace(turn, state=gated(turn.state, data.draw(st.booleans(), "gate"), "why"))
        if turn.ask:
            assert not is_aborted
            assert state.phase is Phase.RUNNING
            begin, end = turn.state.wave_start, turn.state.wave_end
            assert all(begin <= order.index(node) < end for node in turn.ask)
            assert all(known[node].is_final for node in order[:begin])
            busy = [node for node in [*asked, *turn.ask] if not known.get(node, NodeState.EXPECTED).is_final]
            assert len(busy) <= turn.state.current.slots
            over = {
                kind: count - state.forgiven.get(kind, 0) for kind, count in bad_ends(asked, known).items()
            }
            for kind, size in budgets.items():
                assert over.get(kind, 0) <= size.limit(len(order))
            asked += turn.ask
        state = turn.state
        for node in [node for node in asked if node not in ends]:
            if data.draw(st.booleans(), "ends"):
                ends[node] = data.draw(ENDS, node)
        move = data.draw(st.sampled_from(["", "", "", "", "pause", "resume", "promote", "abort"]), "operator")
        if state.phase is Phase.PAUSED and move == "":
            move = "resume"
        if not state.phase.is_over:
            if move == "pause":
                state = pause(state, "ana", "")
            elif move in ("resume", "promote"):
                state = (resume if move == "resume" else promote)(state, order, ends, "ana")
            elif move == "abort":
                state, is_aborted = abort(state, "ana", ""), True
        now += timedelta(seconds=10)

    assert asked == order[: state.asked]
    assert len(set(asked)) == len(asked)
    if state.phase is Phase.DONE:
        assert asked == order
        assert all(ends[node].is_final for node in order)


def test_every_bad_end_has_a_budget() -> None:
    good = {NodeState.STABLE, NodeState.CHANGED, NodeState.OFFLINE, NodeState.SKIPPED}

    assert set(KINDS) == {state for state in NodeState if state.is_final} - good


def test_rollout_that_is_completing_cannot_be_aborted() -> None:
    state = replace(a_state(a_wave(1)), is_completing=True)

    with pytest.raises(RunError, match="all waves of this rollout have ended; `ccmctl run resume"):
        abort(state, "anna", "")
