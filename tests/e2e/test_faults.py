"""Faults around an agent, cell by cell: after each it converges again by itself, and the stream tells all of it, once."""

from __future__ import annotations

import grp
import json
import os
import pwd
import re
import signal
from pathlib import Path

import pytest

from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.wire import AGENT_DRIFT, AGENT_LOST_EVENTS
from tests.support.buckets import put_object
from tests.support.bundles import packed
from tests.support.faults import (
    FaultyAgent,
    add_faulty,
    assert_converges,
    by_run,
    corrected,
    said,
    told,
    why_no_disks,
)
from tests.support.fleet import WAIT_S, Fleet, a_file, a_gate, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

HOUR = 3600.0
DAY = 86_400.0
SITE = "obj://CCM_MANIFESTS/{}.tar.gz"


# -- the broker


def test_the_broker_is_down_at_the_start(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, interval="5m")
    agent.wants("1")
    site.broker.stop()

    agent.start()
    site.wait_for(lambda: agent.has("1"), "the node to converge without a broker")
    corrected(site, agent, "1")
    site.broker.start()

    assert_converges(site, agent, "1")
    agent.wants("2")
    assert_converges(site, agent, "2")
    assert len(by_run(told(site, agent.name))) >= 3


def test_the_broker_is_down_for_two_hours(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, interval="5m", watch_interval="2h")
    agent.wants("1")
    agent.start()
    assert_converges(site, agent, "1")

    site.broker.stop()
    for _ in range(24):
        corrected(site, agent, "1")
    site.broker.start()
    agent.pass_time(30)  # the longest pause between two attempts to connect

    assert_converges(site, agent, "1")
    changes = [event for event in told(site, agent.name) if event["protocol"] == TRANSACTION_EVENT]
    assert [event["corrective"] for event in changes] == [False, *[True] * 24]


def test_the_broker_is_down_for_good(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, interval="24h", watch_interval="24h", spool_limit_mib=1)
    loud = [
        ("exec", f"loud{n}", {"command": "sh -c 'head -c 9000 /dev/zero | tr \\\\0 x; exit 1'"})
        for n in range(40)
    ]
    agent.wants("1", *loud)
    site.broker.stop()
    agent.start()
    site.wait_for(lambda: agent.ended, "the first run")

    while not agent.logged("the spool is full: events are dropped"):
        corrected(site, agent, "1", interval_s=DAY)
    corrected(site, agent, "1", interval_s=DAY)
    site.wait_for(lambda: agent.ended[-1] in drifted(agent), "the last drift to be told")
    spool = sum(path.stat().st_size for path in (agent.directory / "state/spool").iterdir())
    process = agent.process
    assert process is not None
    process.send_signal(signal.SIGTERM)
    code = process.wait(WAIT_S)

    # The spool is bounded, and a stop does not wait for who never comes. Of what was given up the next broker is told the number.
    assert (code, spool <= 1 << 20) == (0, True)
    runs = len(agent.ended)
    site.broker.start()
    agent.wants("2")
    agent.start()
    site.wait_for(lambda: len(agent.ended) > runs, "a run of the next process")
    of_runs = runs * (len(loud) + 3) + 3
    of_itself = 2 + 1 + runs - 1  # started twice, stopped once, drifted in all runs but the first
    site.wait_for(lambda: accounted(site, name) >= of_runs + of_itself, "the spool to be sent")
    numbers = [(event["run"], event["number"]) for event in told(site, name)]
    assert agent.has("2")
    assert len(numbers) == len(set(numbers))
    assert accounted(site, name) == of_runs + of_itself


def drifted(agent: FaultyAgent) -> set[str]:
    """The runs whose corrections the agent has told, or is about to tell."""
    told = [json.loads(one.body) for one in agent.spooled if one.subject.startswith(f"{AGENT_DRIFT}.")]
    return {event["details"]["run"] for event in told}


def accounted(fleet: Fleet, node: str) -> int:
    """How many events of a node stand in the stream or were told to be lost."""
    of_itself = said(fleet, node)
    losses = [event for event in of_itself if event["protocol"] == AGENT_LOST_EVENTS]
    lost = sum(event["details"]["events"] for event in losses)
    return len(told(fleet, node)) + len(of_itself) - len(losses) + int(lost)


# -- disks


OWNED = (
    "--owner",
    pwd.getpwuid(os.getuid()).pw_name,
    "--group",
    grp.getgrgid(os.getgid()).gr_name,
    "--mode",
    "0644",
)


@pytest.fixture
def small_disks(tmp_path: Path) -> None:
    if why := why_no_disks(tmp_path):
        pytest.skip(f"no small disks without mount namespaces: {why}")


@pytest.mark.usefixtures("small_disks")
@pytest.mark.parametrize("folder", ["state/spool", "state"], ids=["the spool", "all of its state"])
def test_the_disk_is_full_under(site: Fleet, name: str, folder: str) -> None:
    agent = add_faulty(site, name, disks=[folder])
    agent.wants("1")
    agent.start()
    assert_converges(site, agent, "1")
    site.broker.stop()

    agent.fill(agent.disks[0])
    agent.wants("2", *(a_file(f"more{n}") for n in range(10)))
    site.wait_for(lambda: agent.has("2") and len(agent.ended) > 1, "the run to go on")
    site.broker.start()
    assert_converges(site, agent, "2")
    agent.make_room(agent.disks[0])
    agent.wants("3")

    assert_converges(site, agent, "3")
    assert agent.logged("the spool keeps events in memory")
    assert agent.ended[-1] in agent.begun, "the spool is used again"


@pytest.mark.usefixtures("small_disks")
def test_a_full_disk_is_named_by_the_run_the_list_and_the_doctor(site: Fleet, name: str) -> None:
    agent = add_faulty(site, name, disks=["state"], manifests=[])
    agent.start()
    site.wait_present([name])
    agent.fill(agent.disks[0])

    def listed() -> str:
        nodes = {node["node"]: node for node in site.ctl("node", "list", "--json").named("node")}
        return str(nodes[name].get("disk", ""))

    def is_named(text: str, *words: str) -> bool:
        # an event that the stream has acknowledged leaves the disk and so makes room, until the next one is written
        agent.fill(agent.disks[0])
        site.ctl("exec", "-t", f"node={name}", "--yes", "--", "sh", "-c", "yes | head -c 8000")
        return bool(re.search(text, " ".join(site.ctl(*words).out.split())))

    # a few bytes still fit in the last pages of open files
    large = site.ctl("exec", "-t", f"node={name}", "--yes", "--", "sh", "-c", "yes | head -c 8000")
    file = ("file", str(agent.files / "a"), "present", "--content", "x", *OWNED)
    done = site.ctl("ensure", *file, "-t", f"node={name}", "--yes")
    shown = site.ctl("run", "show", "last")
    # other tests leave nodes whose disk was full when their agent was killed
    problem = rf"The state cannot be written to disk on \d+ of \d+ nodes \([^)]*\b{name}\b"
    site.wait_for(
        lambda: is_named("No space left on device", "node", "list", "--json"), "node list to name it"
    )
    site.wait_for(lambda: is_named(problem, "doctor"), "doctor to name it")
    site.wait_for(lambda: is_named(f"{name} cannot write its state: ", "why", name), "why to name it")
    agent.make_room(agent.disks[0])
    site.wait_for(lambda: not listed(), "the disk to take data again")

    assert (large.code, done.code) == (0, 0), done.err
    for one in (done, shown):
        assert f"{name}: events are only in memory, and a restart would lose them: " in one.err
        assert "the run cannot be undone: " in one.err
    assert not re.search(problem, " ".join(site.ctl("doctor").out.split()))


@pytest.mark.usefixtures("small_disks")
def test_the_disk_is_full_under_the_cache(site: Fleet, name: str) -> None:
    put_object(site, f"{name}.tar.gz", packed(manifest(a_file("object", "1"))))
    cache = str(site.directory / name / "cache")
    agent = add_faulty(
        site, name, disks=["cache"], interval="5m", manifests=[SITE.format(name)], cache_dir=cache
    )
    agent.start()
    assert_converges(site, agent, "1", "object")

    agent.fill(agent.disks[0])
    put_object(
        site,
        f"{name}.tar.gz",
        packed(manifest(a_file("object", "2"), *(a_file(f"{n}", os.urandom(500).hex()) for n in range(20)))),
    )
    site.wait_for(lambda: agent.logged("a manifest cannot be fetched"), "the node to have no room")
    corrected(site, agent, "1", "object")
    agent.make_room(agent.disks[0])

    assert_converges(site, agent, "2", "object")


# -- the clock


@pytest.mark.parametrize("wall_s", [DAY * 400, -DAY], ids=["forward by more than a year", "back by a day"])
def test_the_wall_clock_jumps_in_the_middle_of_a_run(site: Fleet, name: str, wall_s: float) -> None:
    agent = add_faulty(site, name, interval="5m", watch_interval="2h")
    agent.wants("1", a_gate(), a_file("after"))
    agent.start()
    site.wait_for(lambda: (agent.files / "at-go").exists(), "the run to stand at the gate")

    agent.turn(wall_s=wall_s)
    site.open_gates(agent.name)
    assert_converges(site, agent, "x", "after")
    corrected(site, agent, "x", "after")
    agent.kill()
    agent.start()
    corrected(site, agent, "x", "after")

    assert_converges(site, agent, "x", "after")
    ends = [event for event in told(site, agent.name) if "total_duration" in event]
    assert all(0 <= event["total_duration"] < HOUR * 1e9 for event in ends)
