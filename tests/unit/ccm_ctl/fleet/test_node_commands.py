"""Commands to nodes: who converges, who is asked again, and who is lost."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.wire import SESSION_ANSWER, SESSION_PROGRESS, Answer, Progress
from ccm_ctl.fleet.nodes.node_commands import TURN_S, Convergences, NodeConvergence
from ccm_ctl.fleet.runs.run import ANSWER_WITHIN_S, LOST_AFTER_S

PROGRESS = Progress(protocol=SESSION_PROGRESS)


def answer(state: str, **fields: Any) -> Answer:
    return Answer(protocol=SESSION_ANSWER, state=state, **fields)


def done(*results: dict[str, Any]) -> Answer:
    return answer("done", body={"ended": list(results), "count": len(results)})


def state_of(found: Convergences, node: str) -> tuple[str, str]:
    return found.ended[node].state, found.ended[node].reason


def test_the_worst_result_is_the_state_of_the_node() -> None:
    found = Convergences(["web1", "web2", "web3"], 0)
    for node in ("web1", "web2", "web3"):
        found.heard(node, answer("accepted"), 0.1)
    working = found.working

    found.heard("web1", done({"name": "site", "state": "stable"}, {"name": "db", "state": "failed"}), 1)
    found.heard("web2", done(), 1)
    found.heard("web3", answer("refused", reason="disabled"), 1)

    assert working == ["web1", "web2", "web3"]
    assert [one.state for one in found.ended.values()] == ["failed", "nothing", "refused"]
    assert found.is_done


def test_silent_node_is_asked_five_times_and_then_given_up() -> None:
    found = Convergences(["web1", "web2"], 0)
    found.heard("web2", answer("accepted"), 0.1)

    asked = [found.tick(at, is_connected=True) for at in (0.5, 1.0, 2.0, 3.0, 4.0, 8.0, ANSWER_WITHIN_S)]

    assert asked == [[], ["web1"], ["web1"], [], ["web1"], ["web1"], []]
    assert state_of(found, "web1") == ("unreachable", "no answer in 10s")


def test_node_that_falls_silent_is_asked_once_more_before_it_is_lost() -> None:
    found = Convergences(["web1"], 0)
    found.heard("web1", answer("accepted"), 0)
    for at in (1.0, 2.0, 4.0, 8.0):
        found.tick(at, is_connected=True)

    again = found.tick(LOST_AFTER_S, is_connected=True)
    found.heard("web1", PROGRESS, LOST_AFTER_S + 1)
    quiet = found.tick(2 * LOST_AFTER_S, is_connected=True)
    later = found.tick(2 * LOST_AFTER_S + 1, is_connected=True)
    found.tick(3 * LOST_AFTER_S + 1, is_connected=True)

    assert (again, quiet, later) == (["web1"], [], ["web1"])
    assert found.ended["web1"].state == "lost"


def test_node_whose_answer_was_lost_repeats_that_the_run_is_done() -> None:
    found = Convergences(["web1"], 0)

    found.heard("web1", answer("done", outcome="done"), 1)

    assert state_of(found, "web1") == ("done", "its results were lost; see `ccmctl why web1`")


def test_no_time_runs_out_while_the_broker_is_away() -> None:
    found = Convergences(["web1", "web2"], 0)
    found.heard("web1", answer("accepted"), 0)

    for turn in range(200):
        assert found.tick(turn * TURN_S, is_connected=False) == []

    assert not found.ended


def test_texts_of_an_answer_are_not_trusted() -> None:
    found = Convergences(["web1", "web2"], 0)
    found.heard("web1", answer("done", body={"ended": [{"name": 7}]}), 1)
    found.heard("web3", done(), 1)
    found.give_up(5)

    assert found.ended == {
        "web1": NodeConvergence(node="web1", state="nothing"),
        "web2": NodeConvergence(node="web2", state="lost", reason="not finished after 5s"),
    }
