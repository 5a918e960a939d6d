"""`ccmctl assignment list` and `ccmctl assignment status|history`: what stands, and how every node stands to it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.wire import AGENT_SHUTDOWN, AgentEvent, AssignmentState, Disabled
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments import convergence
from tests.support.controller import BEFORE, NOW, Desk, FakeNode, reached

MOTD = """\
ccm:
  resources:
    - file:
        - /etc/motd: {ensure: present, content: hello, owner: root, group: root, mode: "0644"}
"""
KEY = "fact.role.web.web"
WEB = {"role": "web"}
OLD = hashlib.sha256(b"old").hexdigest()


def says(state: str, revision: int = 1, digest: str = "", **fields: Any) -> dict[str, Any]:
    """What a node's record says of the assignment."""
    since = NOW - timedelta(minutes=3)
    number = BEFORE + revision if revision else 0
    told = AssignmentState(
        key=KEY, revision=number, count=revision, digest=digest, state=state, since=since, **fields
    )
    return {"assignments": {"web": told}}


@pytest.fixture
def motd(tmp_path: Path) -> str:
    path = tmp_path / "motd.yaml"
    path.write_text(MOTD)
    return str(path)


def assigned(motd: str, *nodes: FakeNode, options: tuple[str, ...] = ()) -> tuple[Desk, str]:
    """A desk at which the nodes were assigned a manifest, and its digest."""
    desk = Desk(*nodes)
    said = desk.ccmctl("assign", "web", motd, "-t", "role=web", *options, "--yes")
    assert said.code == 0, said.err
    [digest] = desk.broker.objects["CCM_MANIFESTS"]
    return desk, digest


def test_every_node_is_shown_with_why_it_lags(motd: str) -> None:
    names = [f"web{number}" for number in range(1, 8)]
    nodes = {name: FakeNode(name, WEB, is_present=name != "web2") for name in names}
    desk, digest = assigned(motd, *nodes.values(), FakeNode("db1", {"role": "db"}))
    soon = NOW + timedelta(minutes=5)
    nodes["web1"].record = says("changed", digest=digest)
    nodes["web2"].record = says("stable", 0, OLD, data_revision=7) | {"last_time": NOW - timedelta(hours=2)}
    nodes["web3"].record = says("failed", digest=digest, reason="exec#true: ended with 1", next_time=soon)
    nodes["web4"].record = says("refused", code="assignment.conflict", reason="web and base both manage it")
    nodes["web5"].record = says("waiting", digest=OLD)
    nodes["web6"].record = says("disabled", digest=OLD) | {
        "disabled": Disabled(since=NOW, until=NOW + timedelta(hours=4), why="debugging", by="ann")
    }

    said = desk.ccmctl("assignment", "status", "web")

    mine, old = digest[:12], OLD[:12]
    assert (said.code, said.out) == (
        2,
        f"web 1: apply motd on role=web (bundle {mine}, data newest, by op just now)\n"
        "NODE  STATE      DIGEST          DATA  SINCE   WHY\n"
        f"web1  converged  {mine}  newest  3m ago\n"
        f"web2  offline    {old}       7          offline, last seen 2026-11-21 12:00:00Z; last reported revision 0\n"
        f"web5  waiting    {old}  newest  3m ago  not its turn yet\n"
        f"web6  disabled   {old}  newest  3m ago  disabled until 2026-11-21 16:00:00Z: debugging (by ann)\n"
        "web7  waiting                                  has not started\n"
        f"web3  failed     {mine}  newest  3m ago  exec#true: ended with 1; again in 5m\n"
        "web4  refused                          3m ago  web and base both manage it\n"
        "7 nodes: 1 converged, 2 waiting, 1 disabled, 1 failed, 1 offline, 1 refused\n",
    )


COMMON = "kv://CCM_DATA/common"


def follows(motd: str, tmp_path: Path, *nodes: FakeNode) -> tuple[Desk, str]:
    """The nodes were assigned a manifest that follows a document of two revisions, and its digest."""
    desk = Desk(*nodes)
    path = tmp_path / "common.yaml"
    for word in ("old", "new"):
        path.write_text(f"data: {{word: {word}}}")
        assert desk.ccmctl("data", "put", "common", str(path)).code == 0
    said = desk.ccmctl("assign", "web", motd, "-t", "role=web", "--data", COMMON, "--follow-data", "--yes")
    assert said.code == 0, said.err
    [digest] = desk.broker.objects["CCM_MANIFESTS"]
    return desk, digest


def test_node_that_has_older_data_has_not_converged(motd: str, tmp_path: Path) -> None:
    nodes = {
        name: FakeNode(name, WEB, is_present=name != "web4")
        for name in ("web1", "web2", "web3", "web4", "web5")
    }
    desk, digest = follows(motd, tmp_path, *nodes.values())
    old, new = {COMMON: 1}, {COMMON: 2}
    nodes["web1"].record = says("stable", digest=digest, data_revisions=new)
    nodes["web2"].record = says("changed", digest=digest, data_revisions=old)
    nodes["web3"].record = says("failed", digest=digest, data_revisions=old, reason="exec#true: ended with 1")
    nodes["web4"].record = says("stable", digest=digest, data_revisions=old) | {
        "last_time": NOW - timedelta(hours=2)
    }
    nodes["web5"].record = says("stable", digest=digest)

    said = desk.ccmctl("assignment", "status", "web", "--json")
    shown = desk.ccmctl("assignment", "status", "web")
    [listed] = desk.ccmctl("assignment", "list", "--json").records

    has = "has revision 1 of common, not 2"
    assert (
        said.code,
        {one["node"]: (one["state"], one.get("reason", "")) for one in said.named("standing")},
    ) == (
        2,
        {
            "web1": ("converged", ""),
            "web2": ("waiting", has),
            "web3": ("failed", f"exec#true: ended with 1; {has}"),
            "web4": ("offline", f"offline, last seen 2026-11-21 12:00:00Z; {has}"),
            "web5": ("converged", "its agent is too old to report its data revisions"),
        },
    )
    assert {one["node"]: one.get("older_data") for one in said.named("standing")} == {
        "web1": None, "web2": ["common"], "web3": ["common"], "web4": ["common"], "web5": None,
    }  # fmt: skip
    assert "older" in next(line for line in shown.out.splitlines() if line.startswith("web2"))
    assert (listed["converged"], listed["nodes"]) == (2, 5)


def test_removed_document_leaves_its_nodes_converged_on_the_last_one_that_they_had(
    motd: str, tmp_path: Path
) -> None:
    node = FakeNode("web1", WEB)
    desk, digest = follows(motd, tmp_path, node)
    node.record = says(
        "stable", digest=digest, data_revisions={COMMON: 2, "kv://OTHER/x": 9, "kv://CCM_DATA/a b": 3}
    )

    async def remove(broker: MemoryBroker) -> None:
        await MemoryBus(broker, "op").bucket("CCM_DATA").delete("common")

    desk.hooks.append(remove)
    said = desk.ccmctl("assignment", "status", "web", "--json")

    assert (said.code, said.named("standing")[0]["data_revisions"]) == (0, {"common": 2})


async def goodbye(broker: MemoryBroker) -> None:
    """web1 says that it stops, ten minutes ago."""
    said = AgentEvent(
        protocol=AGENT_SHUTDOWN, event_id=new_id(), timestamp=NOW - timedelta(minutes=10), node="web1"
    )
    events = MemoryBus(broker, "web1").events
    await events.publish(event_subject(AGENT_SHUTDOWN, "web1"), said.event_id, msgspec.json.encode(said))


def test_node_that_stopped_properly_is_absent_since_then(motd: str) -> None:
    node = FakeNode("web1", WEB, is_present=False)
    desk, digest = assigned(motd, node)
    desk.hooks.append(goodbye)

    waits = desk.ccmctl("assignment", "status", "web", "--json")
    node.record = says("stable", digest=digest) | {
        "assignments": {
            "web": AssignmentState(
                key=KEY, revision=BEFORE + 1, digest=digest, state="stable", since=NOW - timedelta(hours=1)
            )
        }
    }
    done = desk.ccmctl("assignment", "status", "web", "--json")

    node.record = {"started": NOW - timedelta(minutes=5)}
    again = desk.ccmctl("assignment", "status", "web", "--json")

    assert again.records[1]["reason"] == "offline, last seen 2026-11-21 12:00:00Z"
    assert (waits.code, waits.records[1]) == (
        3,
        {
            "record": "standing",
            "name": "web",
            "scope": "fact.role.web",
            "wanted": 1,
            "node": "web1",
            "state": "offline",
            "reason": "offline since 2026-11-21 11:50:00Z",
            "offline": True,
            "offline_since": "2026-11-21T11:50:00Z",
        },
    )
    assert (done.code, done.records[1]["state"], done.records[1]["reason"]) == (
        0,
        "converged",
        "offline since 2026-11-21 11:50:00Z",
    )


def test_a_node_that_is_expected_and_one_that_is_too_late_are_reported(motd: str) -> None:
    desk = Desk(FakeNode("web1", WEB, is_present=False))
    desk.ccmctl("facts", "set", "web9", "role=web", "--new")
    desk.ccmctl("assign", "web", motd, "-t", "role=web", "--deadline", "1h", "--yes")
    [write] = desk.broker.buckets["CCM_ASSIGNMENTS"]

    before = desk.ccmctl("assignment", "status", "web", "--json").records[1:]
    write.body = write.body.replace(b"2026-11-21T13:00:00Z", b"2026-11-21T11:00:00Z")
    after = desk.ccmctl("assignment", "status", "web", "--json").records[1:]

    assert [(one["node"], one["state"], one["reason"]) for one in before] == [
        ("web1", "offline", "offline, last seen 2026-11-21 12:00:00Z"),
        ("web9", "offline", "never seen"),
    ]
    assert [(one["node"], one["state"], one["reason"]) for one in after] == [
        (
            "web1",
            "expired",
            "the deadline 2026-11-21 11:00:00Z has passed; offline, last seen 2026-11-21 12:00:00Z",
        ),
        ("web9", "expired", "the deadline 2026-11-21 11:00:00Z has passed; never seen"),
    ]


def test_message_of_an_assignment_is_kept_with_its_revision(motd: str) -> None:
    desk, _ = assigned(motd, FakeNode("web1", WEB), options=("--message", "for the audit"))
    again = desk.ccmctl("assign", "web", motd, "-t", "role=web", "--mode", "plan", "--yes")

    shown = desk.ccmctl("assignment", "history", "web").out.splitlines()
    told = desk.ccmctl("assignment", "history", "web", "--json").records

    assert (again.code, [one.get("message") for one in told]) == (0, [None, "for the audit"])
    assert (shown[0].endswith("MESSAGE"), shown[2].endswith("for the audit")) == (True, True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_git_commit_of_the_directory_is_kept_with_the_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    site = tmp_path / "site"
    site.mkdir()
    path = site / "motd.yaml"
    path.write_text("ccm: {resources: [{exec: [{uptime: {}}]}]}\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=site, check=True)
    commit = (
        (site / ".git/refs/heads" / (site / ".git/HEAD").read_text().strip().rpartition("/")[2])
        .read_text()
        .strip()
    )
    desk = Desk(FakeNode("web1", {"role": "web"}))

    first = desk.ccmctl("assign", "web", str(path), "--all", "--yes")
    path.write_text("ccm: {resources: [{exec: [{uptime: {}}, {w: {}}]}]}\n")
    desk.ccmctl("assign", "web", str(path), "--all", "--yes")
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qam", "two"], cwd=site, check=True
    )
    same = desk.ccmctl("assign", "web", str(path), "--all", "--yes")
    history = desk.ccmctl("assignment", "history", "web", "--json").named("assignment")
    screen = desk.ccmctl("assignment", "history", "web").out
    status = desk.ccmctl("assignment", "status", "web").out

    assert first.code == 0, first.err
    assert same.out == "web: unchanged, revision 2\n"
    assert [(one["commit"], one.get("commit_dirty")) for one in history] == [(commit, True), (commit, None)]
    assert [f"  {commit[:12]} dirty  " in screen, f"  {commit[:12]}        " in screen] == [True, True]
    assert f", commit {commit[:12]} dirty, by op" in status


def test_only_those_that_lag_are_shown_when_asked_for(motd: str) -> None:
    good, bad = FakeNode("web1", WEB), FakeNode("web2", WEB)
    desk, digest = assigned(motd, good, bad)
    good.record = says("stable", digest=digest)
    bad.record = {"conflict": "another agent uses this identity"}

    said = desk.ccmctl("assignment", "status", "web", "--lagging")

    assert (said.code, said.out.splitlines()[1:]) == (
        2,
        [
            "NODE  STATE    WHY",
            "web2  refused  another agent uses this identity",
            "2 nodes: 1 converged, 1 refused",
        ],
    )


def test_waiting_ends_when_no_node_is_converging(motd: str) -> None:
    here, gone = FakeNode("web1", WEB), FakeNode("web2", WEB, is_present=False)
    desk, digest = assigned(motd, here, gone)

    async def converge(broker: MemoryBroker) -> None:
        here.record = says("changed", digest=digest)
        await here.begin(broker)

    desk.hooks.append(converge)
    said = desk.ccmctl("assignment", "status", "web", "--wait", "1h", "--json")

    assert (said.code, [one["state"] for one in said.records[1:]]) == (3, ["converged", "offline"])


@pytest.mark.parametrize("is_terminal", [True, False])
def test_waiting_names_failures_as_they_happen_and_shows_progress_on_a_terminal(
    motd: str, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool
) -> None:
    monkeypatch.setattr(convergence, "LOOK_AGAIN_S", 0.0)
    fails, late = FakeNode("web1", WEB), FakeNode("web2", WEB)
    desk, digest = assigned(motd, fails, late)
    fails.record = says("failed", digest=digest, reason="file#/etc/motd: \x1b[2Jno space")
    tasks: list[asyncio.Task[None]] = []

    async def converge(broker: MemoryBroker) -> None:
        await reached(lambda: "web1: failed" in desk.err.getvalue())
        late.record = says("changed", digest=digest)
        await late.begin(broker)

    async def begin(broker: MemoryBroker) -> None:
        tasks.append(asyncio.get_running_loop().create_task(converge(broker), name="converge"))

    desk.hooks.append(begin)
    said = desk.ccmctl(
        "assignment", "status", "web", "--wait", "1h", is_terminal=is_terminal, environ={"NO_COLOR": "1"}
    )

    frames = [frame for frame in said.err.replace("\n", "\n\r\x1b[2K").split("\r\x1b[2K") if frame]
    live = [frame for frame in frames if frame.startswith("web  ")]
    assert said.code == 2
    assert frames[0] == "web1: failed: file#/etc/motd: \\x1b[2Jno space\n"
    assert said.err.count("web1: failed") == 1
    assert {frame.rpartition(" · ")[0] for frame in live} == {"web  2 nodes · 1 failed, 1 waiting"}
    assert is_terminal or len(live) == 1


def test_waiting_without_a_terminal_prints_each_change_of_the_numbers_up_to_a_limit(
    motd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convergence, "LOOK_AGAIN_S", 0.0)
    monkeypatch.setattr("ccm_ctl.commands.assignments.assignment.WAIT_LINES_MOST", 2)
    nodes = [FakeNode(f"web{number}", WEB) for number in range(1, 5)]
    desk, digest = assigned(motd, *nodes)
    tasks: list[asyncio.Task[None]] = []

    async def converge(broker: MemoryBroker) -> None:
        for count, node in enumerate(nodes):
            await reached(lambda: f"{4 - min(count, 1)} waiting" in desk.err.getvalue())  # noqa: B023
            node.record = says("changed", digest=digest)
            await node.begin(broker)

    async def begin(broker: MemoryBroker) -> None:
        tasks.append(asyncio.get_running_loop().create_task(converge(broker), name="converge"))

    desk.hooks.append(begin)
    said = desk.ccmctl("assignment", "status", "web", "--wait", "1h", environ={"NO_COLOR": "1"})

    assert said.code == 0
    assert said.err.splitlines() == [
        "web  4 nodes · 4 waiting · 1h left",
        "web  4 nodes · 1 converged, 3 waiting · 1h left; further changes are not shown",
    ]


def test_each_scope_of_a_name_is_shown_with_the_state_of_its_nodes(motd: str) -> None:
    nodes = FakeNode("web1", WEB), FakeNode("web2", WEB)
    desk, digest = assigned(motd, *nodes)
    desk.ccmctl("assign", "web", motd, "-t", "node=web2", "--yes")
    for node in nodes:
        node.record = says("stable", digest=digest)

    said = desk.ccmctl("assignment", "status", "web", "--json")

    assert [(one["scope"], one["revision"]) for one in said.records[:2]] == [
        ("node.web2", 2),
        ("fact.role.web", 1),
    ]
    assert [(one["node"], one["wanted"], one["state"]) for one in said.records[2:]] == [
        ("web1", 1, "converged"),
        ("web2", 2, "waiting"),
    ]


def test_a_misspelled_name_suggests_similar_ones(motd: str) -> None:
    desk, _ = assigned(motd, FakeNode("web1", WEB))

    slips = [
        desk.ccmctl(*words, "wbe").err for words in (["assignment", "status"], ["unassign"], ["rollback"])
    ]

    sentence = "ccmctl: wbe: there is no such assignment, did you mean `web`?"
    rest = " For a removed one, add --scope"
    assert slips == [f"{sentence}\n", f"{sentence}\n", f"{sentence}{rest}\n"]


def test_an_assignment_that_vanished_from_the_bucket_is_deleted_for_the_nodes_that_kept_it() -> None:
    kept = {"assignments": {"web": AssignmentState(key="fact.role.web.web", revision=7)}}
    forged = {"assignments": {"web": AssignmentState(key="a node may write anything", revision=7)}}
    desk = Desk(
        FakeNode("web1", WEB, record=kept), FakeNode("web2", WEB, record=forged), FakeNode("web3", WEB)
    )

    elsewhere = desk.ccmctl("unassign", "web", "--scope", "node=web9")
    said = desk.ccmctl("unassign", "web")

    assert "there is no such assignment" in elsewhere.err
    assert (said.code, said.out) == (
        0,
        "web: unassigned for role=web; it was missing on the broker, but web1 still had it\n",
    )
    [deletion] = desk.broker.buckets["CCM_ASSIGNMENTS"]
    assert (deletion.subject, deletion.body) == ("fact.role.web.web", b"")


def test_an_unknown_assignment_is_reported_as_missing() -> None:
    desk = Desk(FakeNode("web1"))
    sentence = "ccmctl: web: there is no such assignment; see `ccmctl assignment list`"

    assert desk.ccmctl("assignment", "status", "web").err == f"{sentence}\n"
    assert desk.ccmctl("assignment", "history", "web").err == (
        f"{sentence}; for a removed one, add --scope\n"
    )
    assert (
        desk.ccmctl("assignment", "list").out == "nothing is assigned yet; `ccmctl assign --help` shows how\n"
    )


def test_assignments_are_listed_with_how_many_have_converged(motd: str, tmp_path: Path) -> None:
    first, second = FakeNode("web1", WEB | {"env": "prod"}), FakeNode("web2", WEB, is_present=False)
    desk, digest = assigned(motd, first, second, options=("--interval", "30m"))
    (tmp_path / "issue.yaml").write_text(MOTD.replace("motd", "issue"))
    desk.ccmctl(
        "assign", "issue", str(tmp_path / "issue.yaml"), "-t", "role=web,env=prod", "--mode", "plan", "--yes"
    )
    first.record = says("stable", digest=digest)
    other = next(one for one in desk.broker.objects["CCM_MANIFESTS"] if one != digest)

    async def intrude(broker: MemoryBroker) -> None:
        bucket = MemoryBus(broker, "nats").bucket("CCM_ASSIGNMENTS")
        await bucket.put("all.x", b"hello")

    desk.hooks.append(intrude)
    said = desk.ccmctl("assignment", "list")
    records = desk.ccmctl("assignment", "list", "--json").records

    assert said.out == (
        "NAME   REV  TARGETS            SCOPE     MODE  DIGEST          DATA  EVERY  CONVERGED  BY  SINCE\n"
        f"issue    1  role=web,env=prod  role=web  plan  {other[:12]}  newest         0 of 1     op  just now\n"
        f"web      1  role=web                           {digest[:12]}  newest    30m  1 of 2     op  just now\n"
    )
    assert said.err == "all.x: the assignment is damaged or was made for another key; agents refuse it\n"
    assert [(one["name"], one["nodes"], one["converged"], one["states"]) for one in records] == [
        ("issue", 1, 0, {"waiting": 1}),
        ("web", 2, 1, {"converged": 1, "offline": 1}),
    ]


def test_a_plan_shows_changes_and_a_failed_node_that_left_shows_both(motd: str) -> None:
    here, gone = FakeNode("web1", WEB), FakeNode("web2", WEB, is_present=False)
    desk, digest = assigned(motd, here, gone, options=("--mode", "plan"))
    here.record = says("changed", digest=digest)
    gone.record = says("failed", digest=digest, reason="file#/etc/motd: no such owner")

    said = desk.ccmctl("assignment", "status", "web", "--json").records[1:]

    assert [(one["state"], one["reason"]) for one in said] == [
        ("converged", "would change"),
        ("failed", "file#/etc/motd: no such owner; offline, last seen 2026-11-21 12:00:00Z"),
    ]


@pytest.mark.parametrize(
    ("fields", "is_present", "state", "reason"),
    [
        pytest.param(
            {}, True, "waiting", "a refresh is pending: exec#reload", id="of a run that said changed"
        ),
        pytest.param(
            {"refresh_pending": ["a#1", "a#2", "a#3", "a#4", "a#5"]},
            True,
            "waiting",
            "a refresh is pending: a#1, a#2, a#3 and 2 more",
            id="of several the first are named",
        ),
        pytest.param(
            {},
            False,
            "offline",
            "offline since 10:00; a refresh is pending: exec#reload",
            id="of a node that is off",
        ),
    ],
)
def test_node_with_a_pending_refresh_has_not_converged(
    motd: str, fields: dict[str, Any], is_present: bool, state: str, reason: str
) -> None:
    node = FakeNode("web1", WEB, is_present=is_present)
    desk, digest = assigned(motd, node)
    pending = {"refresh_pending": ["exec#reload"], **fields}
    node.record = says("changed", digest=digest, **pending) | {"last_time": NOW - timedelta(hours=2)}

    said = desk.ccmctl("assignment", "status", "web", "--json")

    one = said.records[1]
    assert (said.code, one["state"]) == (3, state)
    assert one["reason"].endswith(reason.partition("; ")[2] or reason)
