"""`ccmctl run`: runs that another operator started."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.ids import new_id
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import RunAhead
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.runs.history import History
from tests.support.controller import NOW, Desk, FakeNode, event, fleet_on
from tests.support.signing import OWN


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """Two runs have been: a plan, then an apply that one node refused."""
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    desk = Desk(
        FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]),
        FakeNode("web2", {"role": "web"}, "refused: disabled"),
        FakeNode("web3", {"role": "web"}, is_present=False),
    )
    desk.ccmctl("apply", str(path), "--targets", "node=web1", "--noop")
    desk.ccmctl("apply", str(path), "--all", "--yes")
    return desk


HEADING = """\
run RUN: apply motd by op, 2026-11-21 12:00:00Z (just now)
for all nodes: 3 nodes, 1 of them offline then
"""

TABLE = """\
NODES  STATE    WHAT            TIME
web1   changed  file#/etc/motd  12ms
web3   offline
web2   refused  disabled

apply motd: 3 nodes: 1 changed, 1 offline, 1 refused in T (run RUN)
"""


def test_runs_are_listed_newest_first(desk: Desk) -> None:
    # ids are as long as it takes to tell them apart, and so is the gap behind them
    assert re.sub(" {2,}", "  ", desk.ccmctl("run", "list").screen) == (
        "RUN  WHEN  BY  WHAT  NODES  OUTCOME\n"
        "RUN  just now  op  apply motd  3  1 changed, 1 offline, 1 refused\n"
        "RUN  just now  op  plan motd  1  1 would change\n"
    )
    assert len(desk.ccmctl("run", "list", "--limit", "1", "--json").records) == 1


def test_a_run_is_shown_with_end_states_that_no_stream_stores(desk: Desk) -> None:
    shown = desk.ccmctl("run", "show", "last")

    assert (shown.code, shown.screen) == (0, f"{HEADING}\n{TABLE}")
    assert desk.ccmctl("run", "show", "last").screen == f"{HEADING}\n{TABLE}"
    assert desk.ccmctl("run", "show", "last", "--events").screen == (
        f"{HEADING}\n12:00:00 web1  file#/etc/motd changed (Nms)\n\n{TABLE}"
    )


def test_a_run_takes_no_less_than_the_longest_of_its_sessions(desk: Desk) -> None:
    """The clock of the desk stands still, as one may that lags behind those of the nodes."""
    assert " refused in 12ms (run " in desk.ccmctl("run", "show", "last").out


def test_a_run_that_has_ended_is_watched_to_its_end_at_once(desk: Desk) -> None:
    watched = desk.ccmctl("run", "watch", "last")

    assert watched.code == 2
    assert watched.screen == f"run RUN: apply motd on 3 nodes (1 offline)\n{TABLE}"


def test_a_run_is_found_by_the_beginning_of_its_id(desk: Desk) -> None:
    run = desk.ccmctl("run", "list", "--json").records[0]["run"]

    assert desk.ccmctl("run", "show", run).code == 0
    assert desk.ccmctl("run", "show", run[:3]).err.startswith(
        f"ccmctl: run `{run[:3]}` is ambiguous: 2 runs begin with it, such as {run} and "
    )


@pytest.mark.parametrize("words", ["show nope", "watch nope", "stop nope", f"show {'z' * 27}"])
def test_a_missing_run_is_reported(desk: Desk, words: str) -> None:
    said = desk.ccmctl("run", *words.split())

    assert (said.code, said.err) == (
        1,
        f"ccmctl: there is no run `{words.split()[1]}`; `ccmctl run list` lists the newest runs\n",
    )


def test_a_run_that_has_ended_is_not_stopped(desk: Desk) -> None:
    said = desk.ccmctl("run", "stop", "last")

    ended = "run RUN (apply motd by op) has ended already: 1 changed, 1 offline, 1 refused\n"
    assert (said.code, said.screen) == (0, ended)
    assert not [one.subject for one in desk.broker.sent if ".run.stop." in one.subject]


def test_last_run_is_stopped_only_when_that_is_confirmed(desk: Desk) -> None:
    reopen(desk)

    said = desk.ccmctl("run", "stop", "last")

    assert (said.code, said.err) == (
        1,
        f'ccmctl: cannot ask "stop run {newest(desk)[:8]} (apply motd by op) on 3 nodes?" without a terminal; use --yes\n',
    )
    assert not [one.subject for one in desk.broker.sent if ".run.stop." in one.subject]


def test_nodes_that_refuse_to_stop_or_do_not_answer_are_named(desk: Desk) -> None:
    reopen(desk)
    desk.nodes[0].stop = ""
    desk.nodes[1].stop = "refused: operators of web only"

    said = desk.ccmctl("run", "stop", newest(desk))

    assert (said.code, said.screen) == (
        2,
        "run RUN (apply motd by op): 0 nodes stopping\n"
        "web2 refuses to stop: operators of web only\n"
        "no answer: web1\n"
        "  watch:  ccmctl run watch RUN\n",
    )


def test_a_run_that_continues_is_stopped_where_it_was_sent(desk: Desk, tmp_path: Path) -> None:
    reopen(desk)

    said = desk.ccmctl("run", "stop", "last", "--yes", "--kill")

    sent = [one for one in desk.broker.sent if ".run.stop." in one.subject]
    assert (said.code, [one.subject for one in sent]) == (0, ["io.choria.ccm.v1.run.stop.request.all"])
    assert [msgspec.json.decode(one.body)["kill"] for one in sent] == [True]
    assert said.screen == ("run RUN (apply motd by op): 2 nodes stopping\n  watch:  ccmctl run watch RUN\n")
    [listed, _] = desk.ccmctl("run", "list", "--json").records
    assert (listed["state"], listed["stopped_by"]) == ("stopping", "op")
    assert desk.ccmctl("run", "show", "last").out.splitlines()[2] == "stopped by op"
    assert "stopping: 1 changed, 1 offline so far\n" in desk.ccmctl("run", "list").out


def test_nodes_that_a_dead_controller_has_not_reached_end_with_the_stop(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_ctl.fleet.runs.open_runs.STOP_LOOKS", 1)
    reopen(desk)
    desk.nodes[1].stop, desk.nodes[1].outcome = "done", "stopped: stopped by op before it came"

    said = desk.ccmctl("run", "stop", newest(desk))
    shown = {one["node"]: one for one in desk.ccmctl("run", "show", "last", "--json").named("result")}

    assert (said.code, said.screen) == (
        0,
        "run RUN (apply motd by op): 1 node stopping\n"
        "the request had not reached web2, and will be refused there\n"
        "  watch:  ccmctl run watch RUN\n"
        "  kill:   ccmctl run stop RUN --kill   (ends the command of the current resource, too)\n",
    )
    assert (shown["web1"]["state"], shown["web2"]["state"]) == ("changed", "unreachable")
    assert shown["web2"]["reason"] == "the request had not reached it when the run was stopped"


def test_operator_is_reported_whose_run_theirs_is_queued_behind(desk: Desk, tmp_path: Path) -> None:
    ahead = RunAhead(run=new_id(), action="apply", name="site\x1b[2J", requester="anna")
    desk.nodes[0].ahead = desk.nodes[1].ahead = ahead

    said = desk.ccmctl("apply", str(tmp_path / "motd.yaml"), "--all", "--yes")

    assert said.err.count("queued behind") == 1
    assert "web1: queued behind run RUN (apply site\\x1b[2J by anna)\n  watch:  ccmctl run watch RUN\n" in (
        said.screen
    )


@pytest.mark.parametrize("words", [("list",), ("show", "last")])
def test_open_run_whose_nodes_have_all_ended_is_closed_by_its_readers(
    desk: Desk, words: tuple[str, ...]
) -> None:
    forget_the_end(desk)

    shown = desk.ccmctl("run", *words, "--json").named("run")[0]

    assert shown["state"] == "done"
    assert '"state":"done"' in newest_state(desk)
    assert "  1 changed, 1 offline, 1 refused\n" in desk.ccmctl("run", "list").out


def test_operator_without_permission_to_write_the_record_sees_the_end_anyway(desk: Desk) -> None:
    forget_the_end(desk)
    before = newest_state(desk)

    async def deny(broker: MemoryBroker) -> None:
        broker.deny("eve", "$KV.CCM_RUNS.eve.>")

    desk.hooks.append(deny)
    desk.operator = "eve"
    [listed, _] = desk.ccmctl("run", "list", "--json").records

    assert (listed["state"], listed["counts"]) == ("done", {"changed": 1, "refused": 1, "offline": 1})
    assert newest_state(desk) == before


def test_open_run_with_a_node_that_has_not_ended_stays_open(desk: Desk) -> None:
    reopen(desk)

    assert desk.ccmctl("run", "list", "--json").records[0]["state"] == "running"
    assert "open: 1 changed, 1 offline so far\n" in desk.ccmctl("run", "list").out
    assert '"state":"running"' in newest_state(desk)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        pytest.param(["--node", "web2"], ["apply"], id="node"),
        pytest.param(["--node", "web9"], [], id="node of no run"),
        pytest.param(["--name", "mo*"], ["apply", "plan"], id="name"),
        pytest.param(["--name", "site"], [], id="other name"),
        pytest.param(["--by", "op"], ["apply", "plan"], id="operator"),
        pytest.param(["--by", "bob"], [], id="other operator"),
        pytest.param(["--state", "refused"], ["apply"], id="end state of a node"),
        pytest.param(["--state", "done"], ["apply", "plan"], id="state of the run"),
        pytest.param(["--state", "open"], [], id="no open run"),
        pytest.param(["--since", "1h"], ["apply", "plan"], id="since"),
        pytest.param(["--since", "2026-11-21T12:30Z"], [], id="since a time"),
        pytest.param(["--until", "1h"], [], id="until"),
    ],
)
def test_list_of_runs_is_filtered(desk: Desk, options: list[str], found: list[str]) -> None:
    said = desk.ccmctl("run", "list", "--json", *options)

    assert (said.code, [record["action"] for record in said.records]) == (0, found)
    assert found or desk.ccmctl("run", "list", *options).out == "no runs match\n"


def newest(desk: Desk) -> str:
    """The id of the newest run."""
    return str(desk.ccmctl("run", "list", "--json").records[0]["run"])


def newest_state(desk: Desk) -> str:
    """What the operators' records say of the newest run's state, the last word last."""
    bucket = desk.broker.buckets["CCM_RUNS"]
    return max(bucket, key=lambda one: one.sequence if one.subject.endswith(".state") else 0).body.decode()


def reopen(desk: Desk) -> None:
    """The newest run is open, and nothing on record says how the node that refused it ended."""
    forget_the_end(desk)
    bucket = desk.broker.buckets["CCM_RUNS"]
    bucket[:] = [one for one in bucket if ".ends." not in one.subject]


def forget_the_end(desk: Desk) -> None:
    """The newest run is still open, as if its controller had been killed."""
    bucket = desk.broker.buckets["CCM_RUNS"]
    newest = max(one.sequence for one in bucket if one.subject.endswith(".state"))
    write = next(one for one in bucket if one.sequence == newest)
    write.body = write.body.replace(b'"done"', b'"running"')


def test_a_record_that_cannot_be_read_is_left_out_of_the_list(desk: Desk) -> None:
    async def spoil(broker: MemoryBroker) -> None:
        runs = MemoryBus(broker, "mallory").bucket("CCM_RUNS")
        await runs.put(f"mallory.{new_id()}.state", b'{"counts":"x"}')
        await runs.put(f"mallory.{new_id()}.request", b"{}")

    desk.hooks.append(spoil)

    listed, last = desk.ccmctl("run", "list"), desk.ccmctl("run", "show", "last")

    assert listed.code == 0
    assert listed.out.count("\n") == 3
    assert listed.err.startswith("left out: 2 keys of CCM_RUNS that cannot be read, such as mallory.")
    assert (last.code, last.screen) == (0, f"{HEADING}\n{TABLE}")


def test_end_recorded_by_another_operator_is_attributed_and_does_not_prevent_a_stop(
    desk: Desk, tmp_path: Path
) -> None:
    forget_the_end(desk)
    desk.operator = "bob"

    run = desk.ccmctl("run", "list", "--json").records[0]["run"]
    watched = desk.ccmctl("run", "watch", run, "--offline", "ok")
    [newest, _] = desk.ccmctl("run", "list", "--json").records
    shown = desk.ccmctl("run", "list").out
    desk.operator = "op"
    stopped = desk.ccmctl("run", "stop", "last", "--yes")

    assert watched.code == 2
    assert (newest["requester"], newest["state"], newest["closed_by"]) == ("op", "done", "bob")
    assert "1 changed, 1 offline, 1 refused (seen by bob)\n" in shown
    assert stopped.code == 0


SECRET = "hunter2-S3CRET"


def test_no_secret_of_a_request_is_kept_on_record(tmp_path: Path) -> None:
    """The record is kept for months, and every operator may read it."""
    desk = Desk(FakeNode("web1", {}, []))
    path = tmp_path / "db.yaml"
    path.write_text(
        f"ccm:\n  resources:\n    - exec:\n        - db:\n            environment: [PW={SECRET}]\n"
    )

    applied = desk.ccmctl(
        "apply", str(path), "--all", "--yes", "--data", f"https://op:{SECRET}@data.example.com/x.yaml"
    )
    ensured = desk.ccmctl(
        "ensure", "exec", "true", "-t", "node=web1", "--yes", f"environment:=[\"PW={SECRET}\"]"
    )  # fmt: skip

    assert (applied.code, ensured.code) == (0, 0)
    assert all(SECRET in str(request) for request in desk.nodes[0].heard)
    stored = {write.subject: write.body for write in desk.broker.buckets["CCM_RUNS"]}
    assert len(stored) > 4
    assert [key for key, body in stored.items() if SECRET.encode() in body] == []
    told = [msgspec.json.decode(body)["request"] for key, body in stored.items() if key.endswith(".request")]
    assert [sorted(request) for request in told] == [
        ["data", "deadline", "digest", "name", "protocol"],
        ["deadline", "properties", "protocol", "type"],
    ]
    assert told[1]["properties"] == ["environment", "name"]


@pytest.mark.parametrize(
    ("action", "way_out"),
    [
        (
            "assign",
            "rollouts of the assignment web cannot be retried: its nodes apply the revision again on their interval, or now with "
            "`ccmctl run-now`; `ccmctl run resume RUN` continues a rollout that paused",
        ),
        (
            "exec",
            "only runs of manifests can be retried; repeat `ccmctl exec` for the nodes that `ccmctl run show RUN` names",
        ),
    ],
)
def test_a_run_that_is_not_retried_names_the_way_out(action: str, way_out: str) -> None:
    desk, run = Desk(FakeNode("web1")), new_id()

    async def record(broker: MemoryBroker) -> None:
        one = RunRecord(run=run, action=action, name="web", nodes=1)
        await History(fleet_on(MemoryBus(broker, "op"))).begin(one, ["web1"], [], OWN)

    desk.hooks.append(record)
    said = desk.ccmctl("run", "retry", run, "--yes")

    assert (said.code, said.err) == (1, f"ccmctl: {run[:8]}: {way_out.replace('RUN', run[:8])}\n")
    assert desk.nodes[0].heard == []


def test_a_run_of_a_scheduled_rollout_is_listed_with_its_schedule_and_the_operator_of_the_server() -> None:
    desk, run = Desk(FakeNode("web1")), new_id()

    async def record(broker: MemoryBroker) -> None:
        one = RunRecord(run=run, action="apply", name="site", nodes=1, schedule="patch", time=NOW)
        await History(fleet_on(MemoryBus(broker, "server"))).begin(one, ["web1"], [], OWN)

    desk.hooks.append(record)

    def listed(*words: str) -> list[tuple[str, str, str]]:
        found = desk.ccmctl("run", "list", *words, "--json").named("run")
        return [(one["cause"], one["origin"], one["requester"]) for one in found]

    mine = [("schedule", "patch", "server")]
    assert listed() == listed("--schedule", "patch") == listed("--by", "server") == mine
    assert listed("--schedule", "other") == listed("--cause", "request") == listed("--by", "op") == []
    shown = desk.ccmctl("run", "show", run).out.splitlines()[0]
    assert " by schedule patch (started by server), " in shown


HOSTILE = "CHG-7\n\x1b[2Jgone \u202ereversed"
CLEAN = "CHG-7 \\x1b[2Jgone \\u202ereversed"


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["apply", "motd.yaml", "--all"], id="apply"),
        pytest.param(["apply", "motd.yaml", "--all", "--canary", "1"], id="rollout"),
        pytest.param(["plan", "motd.yaml", "--all"], id="plan"),
        pytest.param(["ensure", "file", "/etc/motd", "absent", "--all"], id="ensure"),
        pytest.param(["exec", "--all", "true"], id="exec"),
    ],
)
def test_message_of_a_run_is_shown_wherever_the_run_is_and_no_terminal_obeys_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("motd.yaml").write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    desk = Desk(*(FakeNode(name, {"role": "web"}, [event("/etc/motd", 2)]) for name in ("web1", "web2")))

    yes = [] if words[0] == "plan" else ["--yes"]
    begun = desk.ccmctl(words[0], "-m", HOSTILE, *yes, *words[1:])

    assert begun.code == 0, begun.err
    assert {request["message"] for request in desk.nodes[0].heard} == {HOSTILE}
    screens = {
        "list": desk.ccmctl("run", "list").screen,
        "show": desk.ccmctl("run", "show", "last").screen,
        "watch": desk.ccmctl("run", "watch", "last").screen,
        "history": desk.ccmctl("history", "web1", "--all").screen,
        "events": desk.ccmctl("events", "--run", "last", "--no-follow").screen,
    }
    assert [name for name, screen in screens.items() if CLEAN not in screen] == []
    assert [name for name, screen in screens.items() if "\x1b" in screen or "\u202e" in screen] == []
    for record in (
        desk.ccmctl("run", "list", "--json").records[0],
        desk.ccmctl("run", "show", "last", "--json").records[0],
        desk.ccmctl("history", "web1", "--all", "--json").records[0],
    ):
        assert record["message"] == HOSTILE


def test_message_that_is_too_long_is_refused_before_anything_is_sent() -> None:
    desk = Desk(FakeNode("web1"))

    said = desk.ccmctl("exec", "--all", "--yes", "-m", "x" * 1001, "true")

    assert (said.code, said.err) == (1, "ccmctl: --message: 1001 characters; at most 1000 are allowed\n")
    assert not desk.nodes[0].heard


def test_run_without_a_message_has_no_field_that_earlier_versions_do_not_write(desk: Desk) -> None:
    bucket = desk.broker.buckets["CCM_RUNS"]

    stored = msgspec.json.decode(next(one.body for one in bucket if one.subject.endswith(".request")))

    assert "message" not in {*stored, *stored["request"], *desk.nodes[0].heard[-1]}
