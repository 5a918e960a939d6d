"""`ccmctl run`: what was started, seen by somebody else."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.ids import new_id
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import Desk, FakeNode, event


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


TABLE = """\
NODES  STATE    WHAT             TIME
web1   changed  file#/etc/motd  12 ms
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


def test_a_run_is_shown_with_what_no_stream_tells(desk: Desk) -> None:
    shown = desk.ccmctl("run", "show", "last")

    assert (shown.code, shown.screen) == (0, TABLE)
    assert desk.ccmctl("run", "show", "last").screen == TABLE
    assert desk.ccmctl("run", "show", "last", "--events").screen == (
        f"12:00:00 web1  file#/etc/motd changed (N ms)\n\n{TABLE}"
    )


def test_a_run_takes_no_less_than_the_longest_of_its_sessions(desk: Desk) -> None:
    """The clock of the desk stands still, as one may that lags behind those of the nodes."""
    assert " refused in 12 ms (run " in desk.ccmctl("run", "show", "last").out


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
def test_a_run_that_is_not_there_says_so(desk: Desk, words: str) -> None:
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
    forget_the_end(desk)

    said = desk.ccmctl("run", "stop", "last")

    assert (said.code, said.err) == (
        1,
        f'ccmctl: nobody is there to answer "stop run {newest(desk)} (apply motd by op) on 3 nodes?"; say --yes\n',
    )
    assert not [one.subject for one in desk.broker.sent if ".run.stop." in one.subject]


def test_nodes_that_refuse_to_stop_or_do_not_answer_are_named(desk: Desk) -> None:
    forget_the_end(desk)
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


def test_a_run_that_goes_on_is_stopped_where_it_was_sent(desk: Desk, tmp_path: Path) -> None:
    forget_the_end(desk)

    said = desk.ccmctl("run", "stop", "last", "--yes", "--kill")

    sent = [one for one in desk.broker.sent if ".run.stop." in one.subject]
    assert (said.code, [one.subject for one in sent]) == (0, ["io.choria.ccm.v1.run.stop.request.all"])
    assert [msgspec.json.decode(one.body)["kill"] for one in sent] == [True]
    assert said.screen == ("run RUN (apply motd by op): 2 nodes stopping\n  watch:  ccmctl run watch RUN\n")
    assert desk.ccmctl("run", "list", "--json").records[0]["state"] == "stopping"


def newest(desk: Desk) -> str:
    """The id of the newest run."""
    return str(desk.ccmctl("run", "list", "--json").records[0]["run"])


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
    assert (last.code, last.screen) == (0, TABLE)


def test_another_operators_word_for_the_end_is_shown_as_his_and_does_not_prevent_a_stop(
    desk: Desk, tmp_path: Path
) -> None:
    forget_the_end(desk)
    desk.operator = "bob"

    watched = desk.ccmctl("run", "watch", "last", "--offline", "ok")
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
