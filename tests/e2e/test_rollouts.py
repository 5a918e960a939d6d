"""Rollouts on real agents: waves, limits, orders of operators, and drivers that die."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.subjects import ROLLOUTS
from tests.support.fleet import Controller, Done, Fleet, a_file, a_gate, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2", "web3", "web4")
GATED = manifest(a_file("begun"), a_gate(), a_file("done"))
FILES = {
    "EMPTY": "waves: [{name: none, selector: node=db9}, {name: rest}]",
    "OVERLAP": "waves: [{name: a, selector: node=web1}, {name: b, selector: node=web*}]",
}
FAILS = manifest(("exec", "fails", {"command": "sh -c 'exit 3'"}))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("rollouts")) as made:
        made.add(*NODES)
        yield made


@pytest.fixture(autouse=True)
def _clean(four: Fleet) -> Iterator[None]:
    yield
    four.open_gates()
    for agent in four.agents.values():
        if agent.process is None or agent.process.poll() is not None:
            agent.start()
    four.wait_present(NODES)
    four.forget_files()


def begun(fleet: Fleet) -> set[str]:
    return {name for name, agent in fleet.agents.items() if (agent.files / "begun").exists()}


def ended(fleet: Fleet) -> set[str]:
    return {name for name, agent in fleet.agents.items() if (agent.files / "done").exists()}


def start(fleet: Fleet, *options: str, text: str = GATED) -> Controller:
    return fleet.begin("apply", fleet.write("site.yaml", text), "--all", "--yes", "--json", *options)


def run_id(controller: Controller) -> str:
    return controller.so_far.run


def phases(done: Done) -> list[tuple[str, str]]:
    return [(record["phase"], record["wave"]) for record in done.named("rollout")]


def test_a_slot_is_taken_again_as_soon_as_its_node_has_ended(four: Fleet) -> None:
    controller = start(four, "--batch", "2")
    four.wait_for(lambda: len(begun(four)) == 2, "two nodes to begin")

    [first, second] = sorted(begun(four))
    four.open_gates(first)
    four.wait_for(lambda: len(begun(four)) == 3, "a third node to begin")
    assert second not in ended(four)
    four.open_gates()
    done = controller.end()

    assert done.code == 0, done.err
    assert done.states == dict.fromkeys(NODES, "changed")


def test_a_canary_that_fails_stops_the_rollout_before_the_next_wave(four: Fleet) -> None:
    done = start(four, "--canary", "1", text=FAILS).end()

    assert done.code == 2
    assert phases(done) == [("running", "canary"), ("paused", "canary")]
    assert done.states == {"web1": "failed"}
    assert "paused: 1 node failed; the limit is 0" in done.err
    aborted = four.ctl("run", "abort", done.run, "--why", "wrong command", "--json")
    shown = four.ctl("run", "show", done.run, "--json")
    assert (aborted.code, aborted.named("rollout")[0]["phase"]) == (0, "aborted")
    assert shown.states == {"web1": "failed", **dict.fromkeys(NODES[1:], "skipped")}


def test_a_retry_of_an_aborted_rollout_is_a_rollout_and_leaves_out_what_the_abort_protected(
    four: Fleet,
) -> None:
    failed = start(four, "--batch", "1", text=FAILS).end()
    four.ctl("run", "abort", failed.run)

    retried = four.ctl("run", "retry", failed.run, "--yes", "--json")
    four.ctl("run", "abort", retried.run)
    named = four.ctl("run", "retry", failed.run, "--only", "failed,skipped", "--yes", "--json")
    shown = four.ctl("run", "show", named.run, "--json")
    four.ctl("run", "abort", named.run)

    assert (retried.code, retried.states) == (2, {"web1": "failed"})
    assert "this manifest failed on 1 node" in retried.err
    assert "3 nodes were not reached by the rollout; not included now" in retried.err
    # one at a time, as the run before: the first that fails pauses it
    assert phases(named)[-1] == ("paused", "wave 1")
    assert (named.code, named.states) == (2, {"web1": "failed"})
    assert {node for node, state in shown.states.items() if state == "failed"} == {"web1"}


def test_a_retry_takes_other_waves_than_the_run_before(four: Fleet) -> None:
    failed = start(four, "--canary", "1", text=FAILS).end()
    four.ctl("run", "abort", failed.run)

    retried = four.ctl("run", "retry", failed.run, "--only", "skipped", "--canary", "1", "--yes", "--json")
    four.ctl("run", "abort", retried.run)

    assert (retried.code, retried.states) == (2, {"web2": "failed"})
    assert phases(retried)[-1] == ("paused", "canary")


def test_a_rollout_that_paused_continues_where_it_stopped(four: Fleet) -> None:
    text = manifest(
        a_file("begun"),
        ("exec", "fails", {"command": "sh -c '[ {{ Facts.host.info.hostname }} ] && exit 3'"}),
    )
    paused = start(four, "--batch", "1", text=text).end()
    assert paused.code == 2

    resumed = four.ctl("run", "resume", paused.run, "--json")

    assert resumed.code == 2
    assert begun(four) == {"web1", "web2"}
    assert resumed.states == {"web1": "failed", "web2": "failed"}


def test_a_driver_that_is_killed_leaves_a_rollout_that_another_continues(four: Fleet) -> None:
    controller = start(four, "--batch", "2")
    four.wait_for(lambda: len(begun(four)) == 2, "two nodes to begin")
    run = run_id(controller)
    controller.kill()
    four.open_gates()
    four.wait_for(lambda: len(ended(four)) == 2, "two nodes to end")

    held = four.ctl("run", "resume", run, "--no-wait")
    shown = four.ctl("run", "show", run, "--json")
    assert begun(four) == ended(four) == {"web1", "web2"}
    resumed = four.ctl("run", "resume", run, "--json")

    assert (held.code, resumed.code) == (1, 0), resumed.err
    assert "has the lease of this rollout; waiting until it expires, in " in resumed.err
    assert f"{run[:8]}: tester drives this rollout on " in held.err
    assert shown.states == {"web1": "changed", "web2": "changed", "web3": "planned", "web4": "planned"}
    assert ended(four) == set(NODES)
    for agent in four.agents.values():
        assert four.stored(run)[agent.name] == sorted(set(four.stored(run)[agent.name]))


def test_a_resume_does_not_take_a_rollout_from_a_driver_that_is_alive(four: Fleet) -> None:
    controller = start(four, "--batch", "2")
    four.wait_for(lambda: len(begun(four)) == 2, "two nodes to begin")

    refused = four.ctl("run", "resume", run_id(controller))
    four.open_gates()
    done = controller.end()

    assert refused.code == 1
    assert f"{done.run[:8]}: tester drives this rollout on " in refused.err
    assert (done.code, done.states) == (0, dict.fromkeys(NODES, "changed"))


def test_a_change_of_nodes_of_an_open_rollout_names_it_before_it_asks(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")
    command = ("exec", "-t", "node=web4", "--", "true")

    refused = four.ctl(*command)
    agreed = four.ctl(command[0], "--yes", *command[1:])
    four.open_gates()
    done = controller.end()
    after = four.ctl(*command)

    named = (
        f"web4: run {done.run[:8]} (apply site by tester) is an open rollout on this node, too: "
        "wave 1 (1/1): 4 nodes, 1 at once\n"
    )
    assert (refused.code, named in refused.err, "cannot ask" in refused.err) == (1, True, True), refused.err
    assert (agreed.code, named in agreed.err) == (0, True), agreed.err
    assert (done.code, done.run[:8] in after.err) == (0, False), after.err


def test_no_node_starts_after_a_pause_from_another_machine(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")
    run = run_id(controller)

    paused = four.ctl("run", "pause", run, "--why", "lunch")
    four.open_gates()
    four.wait_for(lambda: len(ended(four)) == 1, "the node to end")
    four.wait_for(lambda: ("paused", "wave 1") in phases(controller.so_far), "the driver to obey")
    assert (begun(four), paused.code) == ({"web1"}, 0)
    resumed = four.ctl("run", "resume", run)
    done = controller.end()

    assert resumed.out == f"run {run[:8]}: resumed after 1 of 4 nodes had started\n"
    assert (done.code, ended(four)) == (0, set(NODES))


def test_no_node_is_changed_after_an_abort(four: Fleet) -> None:
    controller = start(four, "--batch", "2")
    four.wait_for(lambda: len(begun(four)) == 2, "two nodes to begin")

    four.ctl("run", "abort", run_id(controller))
    four.open_gates()
    done = controller.end()

    assert ended(four) == set()
    assert done.states == {"web1": "stopped", "web2": "stopped", "web3": "skipped", "web4": "skipped"}


def test_a_node_that_comes_back_gets_its_turn(four: Fleet) -> None:
    four.agents["web4"].stop()
    four.wait_for(
        lambda: (
            {one["node"]: one["state"] for one in four.ctl("nodes", "--json").named("node")}["web4"]
            == "offline"
        ),
        "web4 to be offline",
    )
    controller = start(four, "--batch", "3")
    four.wait_for(lambda: len(begun(four)) == 3, "three nodes to begin")

    four.agents["web4"].start()
    four.open_gates("web1")
    four.wait_for(lambda: "web4" in begun(four), "the fourth node to begin")
    four.open_gates()
    done = controller.end()

    assert done.states == dict.fromkeys(NODES, "changed")


def test_a_gate_that_is_false_pauses(four: Fleet) -> None:
    text = manifest(a_file("begun"))
    done = start(four, "--batch", "1,100%", "--gate", "changed == 0", text=text).end()

    assert done.code == 2
    assert "gate changed == 0: false (changed 1)" in done.err
    promoted = four.ctl("run", "promote", done.run, "--json")
    assert (promoted.code, begun(four)) == (2, set(NODES))


def test_a_rollout_file_defines_the_first_wave(four: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "waves.yaml"
    path.write_text(
        json.dumps({"waves": [{"name": "last comes first", "selector": "node=web4"}, {"name": "rest"}]})
    )

    done = start(four, "--rollout", str(path), text=manifest(a_file("begun"))).end()

    assert phases(done) == [("running", "last comes first"), ("running", "rest"), ("done", "rest")]
    assert done.states == dict.fromkeys(NODES, "changed")


def test_two_drivers_cannot_drive_one_rollout(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")

    second = four.ctl("run", "resume", run_id(controller))
    four.open_gates()

    assert second.code == 1
    assert "or take over when the lease expires, in " in second.err
    assert controller.end().code == 0


def test_a_server_drives_a_rollout_that_was_handed_over(four: Fleet) -> None:
    handed = four.ctl(
        "apply",
        four.write("site.yaml", manifest(a_file("begun"))),
        "--all",
        "--yes",
        "--json",
        "--batch",
        "2",
        "--detach",
    )
    assert (handed.code, begun(four)) == (0, set())
    listed = four.ctl("rollout", "list")

    served = four.ctl("rollout", "serve", "--once")

    assert "warning: no rollout server is running, so nothing drives this" in handed.err
    assert "waits for a server" in listed.out
    assert served.code == 0
    assert begun(four) == set(NODES)
    assert f"run {handed.run[:8]}: all waves have ended" in served.err
    assert four.ctl("run", "show", handed.run, "--json").states == dict.fromkeys(NODES, "changed")
    assert handed.run not in four.ctl("rollout", "list").out


def test_a_run_that_is_stopped_ends_its_rollout(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")

    four.ctl("run", "stop", run_id(controller))
    four.open_gates()
    done = controller.end()

    assert ended(four) == set()
    assert done.states == {"web1": "stopped", **dict.fromkeys(NODES[1:], "skipped")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "--batch 0: no node would ever run"),
        (["--gate", "failed"], "a condition must return a boolean"),
        (["--gate", "false"], "--gate false: uses no result, so it is always the same"),
        (["--rollout", "EMPTY"], "none: no node that is present is in this wave"),
        (["--rollout", "OVERLAP"], "a and b overlap: both match web1"),
        (["--canary", "4"], "nothing would be left for the next wave"),
        (["--batch", "1", "--max-failures", "4"], "this could never stop it"),
        (["--batch", "1", "--data", "https://user:secret@host/x"], "a URL must not contain credentials"),
        (["--at", "2020-01-01T00:00Z"], "this time has passed"),
    ],
)
def test_options_that_make_no_sense_send_nothing(four: Fleet, options: list[str], message: str) -> None:
    options = [four.write(f"{one}.yaml", FILES[one]) if one in FILES else one for one in options]

    done = four.ctl("apply", four.write("site.yaml", manifest(a_file("begun"))), "--all", "--yes", *options)

    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert "secret" not in done.err
    assert begun(four) == set()


def test_command_in_batches_stops_at_a_failure_and_another_driver_continues(four: Fleet) -> None:
    words = ["sh", "-c", "exit 3"]

    paused = four.begin("exec", "--all", "--yes", "--json", "--batch", "1", "--", *words).end()
    shown = four.ctl("run", "show", paused.run, "--json")
    served = four.ctl("run", "resume", paused.run, "--detach")
    resumed = four.ctl("run", "resume", paused.run, "--json")

    assert (paused.code, paused.states) == (2, {"web1": "failed"}), paused.err
    assert shown.states == {"web1": "failed", **dict.fromkeys(NODES[1:], "planned")}
    assert (served.code, "rollout servers run commands only for operators who sign" in served.err) == (
        1,
        True,
    )
    assert (resumed.code, resumed.states) == (2, {"web1": "failed", "web2": "failed"}), resumed.err
    assert [one["node"] for one in resumed.named("output")] == ["web1", "web2"]


def test_command_on_all_nodes_two_at_a_time_ends_well(four: Fleet) -> None:
    done = four.begin("exec", "--all", "--yes", "--json", "--batch", "2", "--", "true").end()

    assert (done.code, done.states) == (0, dict.fromkeys(NODES, "changed")), done.err
    assert sorted(one["node"] for one in done.named("output")) == sorted(NODES)


def test_rollout_of_a_command_with_a_password_in_a_url_sends_nothing(four: Fleet) -> None:
    done = four.ctl("exec", "--all", "--yes", "--batch", "1", "--", "curl", "https://anna:secret@host/x")

    assert (done.code, done.out) == (1, "")
    assert "a URL must not contain credentials" in done.err
    assert "secret" not in done.err


def test_watching_a_rollout_without_a_driver_for_a_time_changes_nothing(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")
    run = run_id(controller)
    controller.kill()
    before = four.ctl("run", "show", run, "--json")

    watched = four.ctl("run", "watch", run, "--timeout", "2s", "--json")
    watched_by_people = four.ctl("run", "watch", run, "--timeout", "1s")
    after = four.ctl("run", "show", run, "--json")
    listed = four.ctl("run", "list", "--state", "open", "--json")

    assert before.states == {"web1": "running", **dict.fromkeys(NODES[1:], "planned")}
    assert (watched.code, watched_by_people.code) == (3, 3)
    assert "stopped watching; web[1-4] have not ended\n" in watched_by_people.err
    assert (after.states, after.reasons) == (before.states, before.reasons)
    assert [one["state"] for one in listed.named("run") if one["run"] == run] == ["running"]
    four.open_gates()
    assert four.ctl("run", "abort", run).code == 0


def test_an_abort_ends_a_run_whose_driver_died_before_a_node_answered(four: Fleet) -> None:
    four.agents["web1"].suspend()
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: controller.so_far.named("rollout"), "the driver to ask a node")
    run = run_id(controller)
    four.wait_for(lambda: asked(four, run) == 1, "the driver to note that it asks a node")
    controller.kill()

    aborted = four.ctl("run", "abort", run, "--json")
    shown = four.ctl("run", "show", run, "--json")
    is_open = [one["run"] for one in four.ctl("run", "list", "--state", "open", "--json").named("run")]
    four.agents["web1"].go_on()

    assert aborted.code == 0, aborted.err
    assert shown.states == {"web1": "unreachable", **dict.fromkeys(NODES[1:], "skipped")}
    assert shown.reasons["web1"] == "no answer when the rollout was aborted"
    assert shown.named("run")[0]["state"] == "done"
    assert run not in is_open


def test_a_run_whose_rollout_was_aborted_long_ago_is_closed_by_who_lists_runs(four: Fleet) -> None:
    four.agents["web1"].suspend()
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: controller.so_far.named("rollout"), "the driver to ask a node")
    run = run_id(controller)
    four.wait_for(lambda: asked(four, run) == 1, "the driver to note that it asks a node")
    controller.kill()
    # as an earlier ccmctl aborted it
    asyncio.run(abort_in_the_past(four, run))

    listed = four.ctl("run", "list", "--json")
    shown = four.ctl("run", "show", run, "--json")
    four.agents["web1"].go_on()

    [one] = [one for one in listed.named("run") if one["run"] == run]
    assert (one["state"], one["counts"]) == ("done", {"unreachable": 1, "skipped": 3})
    assert shown.states == {"web1": "unreachable", **dict.fromkeys(NODES[1:], "skipped")}


def asked(fleet: Fleet, run: str) -> int:
    """How many nodes a rollout has asked, as its document has it."""
    listed = fleet.ctl("rollout", "list", "--json").named("rollout")
    return next((one["asked"] for one in listed if one["run"] == run), 0)


async def abort_in_the_past(fleet: Fleet, run: str) -> None:
    async with Connection(settings_for(fleet.url)) as connection:
        await connection.connect_now()
        bucket = NatsKeyValue(connection, "CCM_RUNS")
        entry = await bucket.get(f"{ROLLOUTS}.{run}")
        assert entry is not None
        state = msgspec.json.decode(entry.value)
        past = {"phase": "aborted", "by": "ann", "reason": "wrong version", "lease": None}
        body = state | past | {"time": "2020-01-01T00:00:00Z"}
        await bucket.put(f"{ROLLOUTS}.{run}", msgspec.json.encode(body))


def test_a_paused_rollout_and_an_aborted_one_are_named_so_everywhere(four: Fleet) -> None:
    run = start(four, "--batch", "1", text=FAILS).end().run
    short = run[:8]
    status = "paused in wave 1 (1/1): 1 node failed; the limit is 0\n"
    commands = (
        f"  continue:  ccmctl run resume {short}   (nodes that failed so far no longer count)\n"
        f"  abort:     ccmctl run abort {short}\n"
    )

    shown, in_json = four.ctl("run", "show", run), four.ctl("run", "show", run, "--json")
    listed = four.ctl("run", "list", "--state", "paused", "--json").named("run")
    rows = four.ctl("run", "list", "--limit", "1").out
    watched = four.ctl("run", "watch", run)
    [planned] = four.ctl("why", "web4", "--json").named("why")
    screen = " ".join(four.ctl("why", "web4").out.split())
    aborted = four.ctl("run", "abort", run, "--why", "wrong version")
    shown_aborted, aborted_json = four.ctl("run", "show", run), four.ctl("run", "show", run, "--json")
    listed_aborted = four.ctl("run", "list", "--state", "aborted", "--json").named("run")
    rows_aborted = four.ctl("run", "list", "--limit", "1").out

    assert (shown.code, in_json.code, watched.code) == (2, 2, 2)
    assert f"\n{status}{commands}\n" in shown.out
    assert watched.err.endswith(f"{status}{commands}")
    [one] = in_json.named("run")
    assert (one["state"], one["phase"], one["reason"]) == (
        "running",
        "paused",
        "1 node failed; the limit is 0",
    )
    assert [one["phase"] for one in listed if one["run"] == run] == ["paused"]
    assert {one["phase"] for one in listed} == {"paused"}
    assert "  paused: 1 failed so far\n" in rows
    assert [one["planned"] for one in planned["rollouts"] if one["run"] == run] == [True]
    assert (
        f"rollout {short} (apply site by tester) is paused: 1 node failed; the limit is 0; "
        f"this node has not started; `ccmctl run resume {short}` continues it" in screen
    )
    assert aborted.code == 0
    assert "\naborted by tester in wave 1 (1/1): wrong version\n\n" in shown_aborted.out
    assert "stopped by" not in shown_aborted.out
    [one] = aborted_json.named("run")
    assert (shown_aborted.code, one["state"], one["phase"], one["by"]) == (0, "done", "aborted", "tester")
    assert run in [one["run"] for one in listed_aborted]
    assert "  3 skipped, 1 failed (aborted by tester)\n" in rows_aborted


def test_a_run_can_be_retried_as_soon_as_its_abort_returns(four: Fleet) -> None:
    slow = manifest(a_file("begun"), ("exec", "works", {"command": "sleep 2"}), a_file("after"))
    path = four.write("slow.yaml", slow)
    controller = four.begin("apply", path, "--name", "slow", "--all", "--batch", "2", "--yes", "--json")
    four.wait_for(lambda: len(begun(four)) == 2, "two nodes to begin")

    aborted = four.ctl("run", "abort", run_id(controller))
    retried = four.ctl("run", "retry", run_id(controller), "--yes", "--only", "stopped", "--json")

    assert (aborted.code, "still running" in aborted.err) == (0, False)
    assert retried.code == 0, retried.err
    assert set(retried.states.values()) == {"changed"}
    assert len(retried.states) == 2


def test_a_rollout_whose_driver_is_gone_says_so(four: Fleet) -> None:
    controller = start(four, "--batch", "1")
    four.wait_for(lambda: len(begun(four)) == 1, "a node to begin")
    driven = four.ctl("run", "show", run_id(controller))
    controller.process.send_signal(signal.SIGINT)
    controller.end()

    left = four.ctl("run", "show", run_id(controller))
    aborted = four.ctl("run", "abort", run_id(controller))

    assert "; driven by tester on " in driven.out
    assert "; no process drives it, so no further node starts\n  continue:  ccmctl run resume " in left.out
    assert "still running: web1 is in a resource, and will end after it\n" in aborted.err


def test_a_hanging_command_is_named_with_the_command_that_ends_it(four: Fleet) -> None:
    path = four.write("hangs.yaml", manifest(a_gate("never"), a_file("after")))
    controller = four.begin("apply", path, "-t", "node=web1", "--yes", "--json")
    four.wait_for(lambda: (four.agents["web1"].files / "at-never").exists(), "the command to begin")
    run = run_id(controller)
    kill = f"ccmctl run stop {run[:8]} --kill"

    why = four.ctl("why", "web1", "--json").named("why")[0]
    stopped = four.ctl("run", "stop", run)
    shown = four.ctl("run", "show", run)
    after = four.ctl("why", "web1", "--json").named("why")[0]
    killed = four.ctl("run", "stop", run, "--kill")
    done = controller.end()

    assert kill in [one["command"] for one in why["next"]]
    assert stopped.out.endswith(f"  kill:   {kill}   (ends the command of the current resource, too)\n")
    assert shown.err == (
        f"still running: web1 is in a resource, and will end after it\n  end its command now:  {kill}\n"
    )
    assert "; tester (unverified) stopped it, and it ends after this resource" in after["reason"]
    assert (killed.code, done.states) == (0, {"web1": "stopped"})
