"""Records of runs that another operator made up, to have an operator with more rights sign something else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import encode_token, request_subject
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.records.rollout_records import RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import NodeEnd, RunEnds, RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, NodeState
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from tests.support.controller import NOW, Desk, FakeNode, fleet_on
from tests.support.signing import OWN

UNDO: dict[str, Any] = {"protocol": MANIFEST_APPLY, "name": "site", "undo": new_id(NOW)}
STAGE: dict[str, Any] = {
    "protocol": MANIFEST_APPLY,
    "name": "site",
    "stage": {"key": "all.site", "number": 7},
}


BUNDLE: dict[str, Any] = {
    "protocol": MANIFEST_APPLY,
    "name": "site",
    "digest": "0" * 64,
    "bundle": {"digest": "0" * 64, "size_bytes": 1},
}


def forge(
    desk: Desk,
    action: str,
    request: dict[str, Any],
    *,
    is_rollout: bool = False,
    returned: tuple[str, ...] = (),
) -> str:
    """The operator eve records a run that did not reach web1; its id."""
    run = new_id(NOW)

    async def write(broker: MemoryBroker) -> None:
        desk.hooks.remove(write)
        bus = MemoryBus(broker, "eve")
        fleet = fleet_on(bus)
        subjects = [request_subject(MANIFEST_PLAN, "all")]
        record = RunRecord(
            run=run, action=action, name="site", time=NOW, nodes=1, subjects=subjects, request=request
        )
        await History(fleet).begin(record, ["web1"], [], OWN)
        if is_rollout:
            plan = RolloutPlan(waves=(Wave(name="1", nodes=1, slots=1),))
            state = RolloutState(run=run, plan=plan, is_detached=True, returned=returned)
            await RolloutStore(fleet).write(state, 0, base=OWN)
        else:
            ends = RunEnds(run=run, nodes={"web1": NodeEnd(state=str(NodeState.UNREACHABLE))})
            await bus.bucket("CCM_RUNS").put(f"{encode_token('eve')}.{run}.ends.0", msgspec.json.encode(ends))

    desk.hooks.append(write)
    return run


@pytest.mark.parametrize(("action", "request_"), [("plan", UNDO), ("check", UNDO)])
def test_a_run_that_is_listed_as_a_plan_does_not_apply_when_it_is_retried(
    action: str, request_: dict[str, Any]
) -> None:
    desk = Desk(FakeNode("web1", {}, [], record={"undo": True, "staged_assignments": True}))
    run = forge(desk, action, request_)

    said = desk.ccmctl("run", "retry", run, typed="n\n")

    assert (said.code, desk.nodes[0].heard) == (1, [])
    assert f"the record of eve names the action `{action}`, which its request does not match" in said.err


def test_a_rollout_of_an_assignment_that_is_listed_as_an_apply_is_not_driven_by_a_server() -> None:
    desk = Desk(FakeNode("web1", {}, [], record={"staged_assignments": True}))
    forge(desk, "apply", STAGE, is_rollout=True)

    said = desk.ccmctl("rollout", "serve", "--once")

    assert desk.nodes[0].heard == []
    assert "the record of eve names the action `apply`, which its request does not match" in said.err


def test_a_rollout_with_a_node_that_is_not_in_its_record_is_not_driven() -> None:
    desk = Desk(FakeNode("web1", {}, []))
    run = forge(desk, "apply", BUNDLE, is_rollout=True, returned=("web9",))

    said = desk.ccmctl("rollout", "serve", "--once")

    assert (said.code, desk.nodes[0].heard) == (0, [])
    assert (
        f"run {run[:8]}: not driven: {run[:8]}: its rollout contains web9, which is not in its record"
        in said.err
    )


def test_a_rollout_that_cannot_be_driven_for_any_reason_leaves_the_server_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk(FakeNode("web1", {}, []))
    run = forge(desk, "apply", BUNDLE, is_rollout=True)

    async def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("ccm_ctl.commands.rollouts.rollout_drive.resume_driving", fail)
    said = desk.ccmctl("rollout", "serve", "--once")

    assert said.code == 0
    assert said.err.count(f"run {run[:8]}: not driven: ZeroDivisionError; --debug shows more") == 1


@pytest.mark.parametrize(
    ("action", "request_", "prompt"),
    [
        pytest.param(
            "apply", BUNDLE, f"apply site again (bundle {'0' * 12}, run RUN by eve) to", id="a bundle"
        ),
        pytest.param("undo", UNDO, f"undo {short_id(UNDO['undo'])} again (run RUN by eve) on", id="an undo"),
        pytest.param(
            "apply", UNDO, f"undo {short_id(UNDO['undo'])} again (run RUN by eve) on", id="an undo of before"
        ),
    ],
)
def test_the_prompt_of_a_retry_names_action_author_and_bundle(
    action: str, request_: dict[str, Any], prompt: str
) -> None:
    desk = Desk(FakeNode("web1", {}, [], record={"undo": True}))
    run = forge(desk, action, request_)

    said = desk.ccmctl("run", "retry", run, typed="n\n")

    assert prompt.replace("RUN", short_id(run)) in " ".join((said.out + said.err).split())
    assert desk.nodes[0].heard == []
