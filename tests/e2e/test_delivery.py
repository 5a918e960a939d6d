"""Delivery, row by row: whatever happens to an agent, the broker or the controller, every node ends in the right named state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.subjects import run_pattern
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.wire import MANIFEST_APPLY, SESSION_ANSWER, ManifestRequest
from ccm_ctl.app import connected
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.ports import Fleet as Ports
from ccm_ctl.fleet.runs.follow import Follower
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.joining import Joining
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch, prepare, send, send_again
from tests.support.fleet import (
    FILES,
    AgentProcess,
    Controller,
    Fleet,
    a_file,
    a_gate,
    assert_told_once,
    manifest,
)
from tests.support.signing import OWN

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

GATED = manifest(a_file("before"), a_gate(), a_file("after"))
"""A run that changes a file, waits until the test says so, and changes another."""


def begin(fleet: Fleet, *targets: str, at: set[str] | None = None) -> Controller:
    """Start a gated run, and return when the nodes stand at the gate."""
    path = fleet.write("gated.yaml", GATED)
    words = [word for target in targets for word in ("--targets", target)] or ["--all"]
    controller = fleet.begin("apply", path, *words, "--yes", "--json")
    wanted = at if at is not None else set(fleet.agents)
    fleet.wait_for(lambda: controller.so_far.changed("before") >= wanted, f"{wanted} to stand at the gate")
    return controller


def test_an_agent_killed_and_restarted_reports_the_run_as_failed_with_its_outcomes(trio: Fleet) -> None:
    controller = begin(trio)

    trio.agents["web1"].kill()
    trio.agents["web1"].start()
    trio.open_gates("web2", "db1")
    done = controller.end()

    assert done.code == 2
    assert done.states == {"web1": "failed", "web2": "changed", "db1": "changed"}
    assert done.reasons["web1"] == "interrupted"
    assert done.named("result")[-1]["summary"]["changed_resources"] >= 1
    assert_told_once(trio, done)
    trio.open_gates("web1")


def test_an_agent_killed_for_good_is_lost_with_the_resource_it_reported_last(trio: Fleet) -> None:
    controller = begin(trio)

    trio.agents["web1"].kill()
    trio.open_gates("web2", "db1")
    done = controller.end()
    trio.agents["web1"].start()

    files = trio.agents["web1"].files
    assert done.code == 3
    assert done.states == {"web1": "lost", "web2": "changed", "db1": "changed"}
    assert done.reasons["web1"] in (
        f"silent for 16s; it last reported file#{files}/before",
        "silent for 16s; it was last at exec#gate-go (2 of 3)",
    )
    # It came back after the controller had gone: the stream knows better now than the record.
    trio.wait_for(lambda: trio.ctl("run", "show", done.run, "--json").states["web1"] == "failed", "its spool")
    trio.open_gates("web1")


def test_a_broker_away_in_mid_run_is_waited_for(trio: Fleet) -> None:
    controller = begin(trio)

    trio.broker.stop()
    trio.open_gates()
    trio.wait_for(
        lambda: all((agent.files / "after").exists() for agent in trio.agents.values()), "agents to go on"
    )
    trio.wait_for(lambda: "broker connection lost" in controller.so_far.err, "the controller to say so")
    still_running = controller.process.poll()
    trio.broker.start()
    done = controller.end()

    assert still_running is None
    assert (done.code, done.states) == (0, dict.fromkeys(trio.agents, "changed"))
    assert done.err.splitlines()[1:] == [
        "broker connection lost; nodes keep running, waiting to reconnect",
        "broker connection restored; reading missed events",
    ]
    assert_told_once(trio, done)


def test_unreachable_broker_is_reported_with_its_address(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))
    nowhere = "nats://127.0.0.1:1"

    done = trio.ctl("apply", path, "--all", "--yes", "--server", nowhere)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"ccmctl: {nowhere}: cannot connect to the broker: ")


def test_a_controller_killed_is_picked_up_where_it_was(trio: Fleet) -> None:
    controller = begin(trio)
    run = controller.so_far.run

    controller.kill()
    watcher = trio.begin("run", "watch", run, "--json")
    trio.wait_for(lambda: watcher.so_far.changed("before") == set(trio.agents), "what had happened before")
    trio.open_gates()
    done = watcher.end()
    afterwards = trio.ctl("run", "watch", run, "--json")

    assert (done.code, done.states) == (0, dict.fromkeys(trio.agents, "changed"))
    assert_told_once(trio, done)
    assert afterwards.states == done.states
    assert afterwards.numbers == done.numbers


def test_ctrl_c_stops_watching_and_names_the_commands_to_watch_and_to_stop(trio: Fleet) -> None:
    controller = begin(trio)
    run = controller.so_far.run

    controller.process.send_signal(signal.SIGINT)
    done = controller.end()
    trio.open_gates()
    watched = trio.ctl("run", "watch", run, "--json")

    assert done.code == 1
    assert done.err.splitlines()[1:] == [
        "stopped watching; the nodes keep running",
        f"  watch:  ccmctl run watch {run[:8]}",
        f"  stop:   ccmctl run stop {run[:8]}",
    ]
    assert watched.states == dict.fromkeys(trio.agents, "changed")


def test_a_second_ctrl_c_ends_at_once_whatever_the_broker_does(trio: Fleet) -> None:
    controller = begin(trio, "node=web1", at={"web1"})

    trio.broker.pause()
    controller.process.send_signal(signal.SIGINT)
    trio.wait_for(
        lambda: "stopped watching" in controller.so_far.err or is_closing(controller), "the first to be heard"
    )
    controller.process.send_signal(signal.SIGINT)
    code = controller.process.wait(5)
    trio.broker.resume()
    trio.open_gates("web1")
    watched = trio.ctl("run", "watch", controller.so_far.run, "--json")

    assert code in (1, -signal.SIGINT)
    assert watched.states == {"web1": "changed"}


def is_closing(controller: Controller) -> bool:
    """The first Ctrl-C was taken: the next one is the system's own."""
    status = Path(f"/proc/{controller.process.pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return not caught & (1 << (signal.SIGINT - 1))


def test_killed_run_ends_the_current_command_and_skips_the_rest(trio: Fleet) -> None:
    controller = begin(trio)

    killed = trio.ctl("run", "stop", controller.so_far.run, "--kill", "--json")
    done = controller.end()
    again = trio.ctl("run", "stop", done.run)

    assert (killed.code, killed.named("run")[0]["stopping"]) == (0, 3), killed.err
    assert (done.code, done.states) == (2, dict.fromkeys(trio.agents, "stopped"))
    failed = {tuple(event["error"]) for event in done.resources if event["failed"]}
    assert failed == {("sh: ended: stopped by tester (unverified)",)}
    assert not any((agent.files / "after").exists() for agent in trio.agents.values())
    assert (again.code, "has ended already: 3 stopped" in again.out) == (0, True), again.err
    assert_told_once(trio, done)


def test_a_stopped_run_finishes_the_current_resource_and_skips_the_rest(trio: Fleet) -> None:
    controller = begin(trio)

    stopped = trio.ctl("run", "stop", controller.so_far.run)
    trio.open_gates()
    done = controller.end()

    assert stopped.code == 0
    assert (done.code, done.states) == (2, dict.fromkeys(trio.agents, "stopped"))
    assert done.reasons == dict.fromkeys(trio.agents, "stopped by tester (unverified)")
    skipped = {(event["node"], event["name"]) for event in done.resources if event["skipped"]}
    assert skipped == {(name, f"{agent.files}/after") for name, agent in trio.agents.items()}
    assert not any((agent.files / "after").exists() for agent in trio.agents.values())
    assert_told_once(trio, done)


def test_a_second_run_waits_for_the_first_and_a_newer_one_takes_its_place(trio: Fleet) -> None:
    first = begin(trio, "node=web1", at={"web1"})
    path = trio.write("queued.yaml", manifest(a_file("queued")))
    waits = trio.begin("apply", path, "--targets", "node=web1", "--yes", "--json")
    trio.wait_for(lambda: waits.so_far.records, "the second run to begin")
    trio.wait_for(lambda: waiting(trio, "web1") == 1, "the second run to be queued")
    newer = trio.begin("apply", path, "--targets", "node=web1", "--yes", "--json")
    superseded = waits.end()
    trio.open_gates("web1")

    assert (superseded.code, superseded.states) == (3, {"web1": "superseded"})
    assert first.end().states == {"web1": "changed"}
    assert newer.end().states == {"web1": "changed"}


def test_two_agents_of_one_identity_are_named_and_refused_until_one_is_gone(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))
    twin = AgentProcess("web1", trio.directory / "twin", trio.environ)
    twin.configure(trio.url)
    twin.start()
    try:
        trio.wait_for(lambda: len(node_of(trio, "web1").get("agents", [])) == 2, "both to see the conflict")
        listed = trio.ctl("nodes", "--targets", "node=web1").out
        refused = trio.ctl("apply", path, "--targets", "node=web1", "--yes", "--json")
    finally:
        twin.stop()
    trio.wait_for(lambda: not node_of(trio, "web1").get("conflict"), "the conflict to be over")
    done = trio.ctl("apply", path, "--targets", "node=web1", "--yes", "--json")

    assert listed.count("started ") == 2, listed
    assert (refused.code, refused.states) == (2, {"web1": "refused"})
    assert refused.reasons == {"web1": "another agent uses this identity; remove one of them"}
    assert (done.code, done.states) == (0, {"web1": "changed"})


def node_of(fleet: Fleet, name: str) -> dict[str, Any]:
    """A node as `ccmctl node list` has it."""
    found = fleet.ctl("nodes", "--targets", f"node={name}", "--json").named("node")
    return found[0] if found else {}


def waiting(fleet: Fleet, node: str) -> int:
    """How many runs wait on a node: two requests stand in its ledger, one of them has begun."""
    ledger = (fleet.agents[node].directory / "state/ledger.log").read_bytes()
    return 1 if b"queued" in ledger else 0


def test_a_request_that_waits_past_its_deadline_is_expired(trio: Fleet) -> None:
    first = begin(trio, "node=web1", at={"web1"})
    path = trio.write("late.yaml", manifest(a_file("late")))
    waits = trio.begin("apply", path, "--targets", "node=web1", "--yes", "--json", "--deadline", "1s")
    trio.wait_for(lambda: waits.so_far.records, "the second run to begin")
    time.sleep(1.5)  # its deadline passes
    trio.open_gates("web1")
    done = waits.end()

    assert first.end().states == {"web1": "changed"}
    assert (done.code, done.states) == (3, {"web1": "expired"})
    assert not (trio.agents["web1"].files / "late").exists()


def test_a_request_that_comes_after_its_deadline_is_expired_and_stays_so(trio: Fleet) -> None:
    text = (trio.directory / trio.write("held-up.yaml", manifest(a_file("held-up")))).read_text()

    async def held_up() -> tuple[str, dict[str, str]]:
        """A request that something on its way held up for an hour."""
        async with a_bus(trio) as fleet:
            _, resolved = await resolve(fleet, TargetSpec(targets=("node=web1",)))
            deadline = fleet.clock.now() - timedelta(hours=1)
            request = ManifestRequest(
                protocol=MANIFEST_APPLY, name="held-up", manifest=text, deadline=deadline
            )
            launch = prepare(fleet, request, resolved, "apply", "held-up", base=OWN)
            await History(fleet).begin(launch.record, resolved.nodes, resolved.offline, OWN)
            run = Run(launch.record.run, resolved.nodes, resolved.offline, now(), asked=True)

            async def nothing(_news: object) -> None:
                return

            async def again(names: list[str]) -> None:
                await send_again(fleet, launch, names)

            may_join = Joining(fleet, resolved.targets, resolved.where).may_join
            await Follower(fleet, run, ask=again, may_join=may_join, on_turn=nothing).follow(
                lambda: send(fleet, launch)
            )
            return launch.record.run, {name: node.state.value for name, node in run.nodes.items()}

    run, states = asyncio.run(held_up())
    answers = asyncio.run(deliver_again(trio, run, {"web1"}))

    assert states == {"web1": "expired"}
    assert {name: answer["state"] for name, answer in answers.items()} == {"web1": "expired"}
    assert not (trio.agents["web1"].files / "held-up").exists()


def test_a_node_that_is_off_is_offline_and_can_be_forgiven(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))
    trio.agents["db1"].stop()

    done = trio.ctl("apply", path, "--all", "--yes", "--json")
    forgiven = trio.ctl("apply", path, "--all", "--yes", "--json", "--offline=ok")
    ping = trio.ctl("ping", "--json")
    trio.agents["db1"].start()
    trio.wait_present(["db1"])

    assert (done.code, done.states) == (3, {"db1": "offline", "web1": "changed", "web2": "changed"})
    assert (forgiven.code, forgiven.states) == (0, {"db1": "offline", "web1": "stable", "web2": "stable"})
    assert (ping.code, [one["node"] for one in ping.named("reply") if one["state"] == "offline"]) == (
        3,
        ["db1"],
    )


def test_a_node_that_exists_and_does_not_answer_is_unreachable(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))
    agent = trio.agents["db1"].process
    assert agent is not None

    agent.send_signal(signal.SIGSTOP)
    done = trio.ctl("apply", path, "--all", "--yes", "--json")
    agent.send_signal(signal.SIGCONT)
    trio.wait_present(["db1"])

    assert (done.code, done.states) == (3, {"db1": "unreachable", "web1": "changed", "web2": "changed"})


def test_a_request_that_is_delivered_again_is_applied_once(trio: Fleet) -> None:
    path = trio.write("counts.yaml", manifest(counting()))
    done = trio.ctl("apply", path, "--targets", "role=web", "--yes", "--json")

    answers = asyncio.run(deliver_again(trio, done.run, {"web1", "web2"}))

    assert done.states == {"web1": "changed", "web2": "changed"}
    assert {name: (answer["state"], answer["outcome"]) for name, answer in answers.items()} == {
        "web1": ("done", "changed"),
        "web2": ("done", "changed"),
    }
    assert [(trio.agents[name].files / "count").read_text() for name in ("web1", "web2")] == ["x\n", "x\n"]
    assert_told_once(trio, done)


def test_node_that_stops_matching_refuses_and_new_match_joins(trio: Fleet) -> None:
    path = trio.write("motd.yaml", manifest(a_file("motd")))

    async def change_under_way() -> dict[str, str]:
        """What the controller would resolve now, sent after web2 has left the role and db1 has come."""
        async with a_bus(trio) as fleet:
            wish = TargetSpec(targets=("role=web",))
            _, resolved = await resolve(fleet, wish)
            await asyncio.to_thread(trio.ctl, "facts", "set", "web2", "role=none")
            await asyncio.to_thread(trio.ctl, "facts", "set", "db1", "role=web")
            text = (trio.directory / path).read_text()
            request = ManifestRequest(protocol=MANIFEST_APPLY, name="motd", manifest=text)
            launch = prepare(fleet, request, resolved, "apply", "motd", base=OWN)
            run = Run(launch.record.run, resolved.nodes, resolved.offline, now(), asked=True)

            async def nothing(_news: object) -> None:
                return

            async def named(names: list[str]) -> None:
                # on everybody's subject: web2 no longer listens to the role's, and must say so when it is named
                await send_again(fleet, everybodys(launch), names)

            may_join = Joining(fleet, resolved.targets, resolved.where).may_join
            await Follower(fleet, run, ask=named, may_join=may_join, on_turn=nothing).follow(
                lambda: send(fleet, launch)
            )
            return {name: f"{node.state} {node.reason}".strip() for name, node in run.nodes.items()} | {
                "joined": ",".join(run.joined)
            }

    states = asyncio.run(change_under_way())
    trio.ctl("facts", "set", "web2", "role=web")
    trio.ctl("facts", "set", "db1", "role=db")

    assert states == {
        "web1": "changed",
        "web2": "refused no longer matches",
        "db1": "changed",
        "joined": "db1",
    }
    assert not (trio.agents["web2"].files / "motd").exists()


def counting() -> tuple[str, str, dict[str, object]]:
    """A command that leaves a line each time it is run."""
    return "exec", "count", {"command": f"sh -c 'echo x >> {FILES}/count'"}


async def deliver_again(fleet: Fleet, run: str, names: set[str]) -> dict[str, dict[str, Any]]:
    """Publish a request of a run once more, on the subjects that are on record; the answers of these nodes."""
    answers: dict[str, dict[str, Any]] = {}
    all_in = asyncio.Event()

    def hear(message: StoredEvent) -> None:
        if SESSION_ANSWER in message.subject:
            answer = json.loads(message.body)
            answers[answer["node"]] = answer
        if set(answers) >= names:
            all_in.set()

    async with a_bus(fleet) as bus:
        recorded = await History(bus).load(run)
        stop = await bus.events.follow(run_pattern(run), hear)
        again = ManifestRequest(
            protocol=MANIFEST_APPLY, run=run, name="counts", manifest=manifest(counting())
        )
        for subject in recorded.record.subjects:
            await bus.requests.publish(subject, msgspec.json.encode(again), base=OWN)
        async with asyncio.timeout(20):
            await all_in.wait()
        await stop()
    return answers


def everybodys(launch: Launch) -> Launch:
    """The same launch on the subject that everybody listens to."""
    record = msgspec.structs.replace(launch.record, subjects=[f"{MANIFEST_APPLY}.all"])
    return msgspec.structs.replace(launch, record=record)


@contextlib.asynccontextmanager
async def a_bus(fleet: Fleet) -> AsyncIterator[Ports]:
    """The controller's own connection."""
    async with connected(settings_for(fleet.url)) as broker:
        yield broker.fleet


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_node_that_comes_back_during_its_run_is_asked_again(trio: Fleet) -> None:
    trio.agents["web2"].stop()
    path = trio.write("gated.yaml", GATED)
    controller = trio.begin("apply", path, "--all", "--yes", "--json")
    trio.wait_for(
        lambda: controller.so_far.changed("before") >= {"web1", "db1"}, "the others to stand at the gate"
    )

    trio.agents["web2"].start()
    trio.wait_for(lambda: "web2" in controller.so_far.changed("before"), "the node to be asked")
    trio.open_gates()
    done = controller.end()

    assert done.code == 0
    assert done.states == dict.fromkeys(["web1", "web2", "db1"], "changed")


def test_a_retry_asks_only_the_nodes_on_which_a_run_did_not_succeed(trio: Fleet) -> None:
    flag = f"{FILES}/well"
    text = manifest(a_file("tried"), ("exec", "picky", {"command": f"sh -c 'test -e {flag}'"}))
    path = trio.write("picky.yaml", text)
    (trio.agents["web1"].files / "well").touch()
    first = trio.ctl("apply", path, "--all", "--yes", "--json")
    assert first.states == {"web1": "changed", "web2": "failed", "db1": "failed"}
    (trio.agents["web2"].files / "well").touch()

    other = trio.ctl("run", "retry", first.run, trio.write("other.yaml", manifest(a_file("x"))), "--yes")
    without = trio.ctl("run", "retry", first.run, "--yes")
    second = trio.ctl("run", "retry", first.run, path, "--yes", "--json")
    third = trio.ctl("run", "retry", second.run, path, "--only", "lost", "--yes")

    assert (other.code, without.code, third.code) == (1, 1, 1)
    assert "differs from what was applied" in other.err
    assert "name the file again" in without.err
    assert "no node ended in that state" in third.err
    assert second.states == {"web2": "changed", "db1": "failed"}


def test_a_retry_of_a_directory_needs_no_file(trio: Fleet) -> None:
    text = manifest(a_file("tried"), ("exec", "fails", {"command": "sh -c 'exit 1'"}))
    trio.write("site/manifest.yaml", text)
    first = trio.ctl("apply", str(trio.directory / "site"), "-t", "node=db1", "--yes", "--json")

    second = trio.ctl("run", "retry", first.run, "--yes", "--json")

    assert (first.states, second.states) == ({"db1": "failed"}, {"db1": "failed"})
