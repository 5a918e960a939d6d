"""`ccmctl apply` on a broker in memory: what is sent, what is shown, and how it ends."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import ALL, event_subject, fact_scope
from ccm_agent.model.errors import BusUnavailableError, UsageError
from ccm_agent.model.formats.moments import parse_moment
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import SESSION_ANSWER, SESSION_PROGRESS, Answer, Progress
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus, MemoryRequests
from ccm_ctl.commands.runs.targets import parse_deadline
from ccm_ctl.fleet.runs import run as run_module
from tests.support.controller import NOW, Desk, FakeNode, event

MANIFEST = "ccm:\n  resources:\n    - exec: [{'true': {}}]\n"


@pytest.fixture
def motd(tmp_path: Path) -> str:
    path = tmp_path / "motd.yaml"
    path.write_text(MANIFEST)
    return str(path)


def three() -> list[FakeNode]:
    return [
        FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)]),
        FakeNode("web2", {"role": "web"}, [event("/etc/motd", 2)]),
        FakeNode("db1", {"role": "db"}, []),
    ]


def test_each_node_gets_the_request_and_its_outcome_is_shown(motd: str) -> None:
    desk = Desk(*three(), FakeNode("db2", {"role": "db"}, is_present=False))

    said = desk.ccmctl("apply", motd, "--all", "--yes")

    assert (said.code, said.screen) == (
        3,
        "run RUN: apply motd on 4 nodes (1 offline)\n"
        "offline: db2; to apply this when it returns, assign it:\n"
        f"  ccmctl assign motd {motd} --all\n"
        "NODES     STATE    WHAT            TIME\n"
        "db1       stable   3 resources     12ms\n"
        "web[1-2]  changed  file#/etc/motd  12ms\n"
        "db2       offline\n"
        "\n"
        "apply motd: 4 nodes: 1 stable, 2 changed, 1 offline in T (run RUN)\n",
    )


def test_a_request_goes_only_to_the_role(motd: str) -> None:
    desk = Desk(*three())

    said = desk.ccmctl(
        "apply", motd, "-t", "role=web", "--yes", "--deadline", "5m", "--data", "kv://CCM_DATA/common"
    )

    sent = [one for one in desk.broker.sent if ".request." in one.subject]
    assert [one.subject for one in sent] == ["io.choria.ccm.v1.manifest.apply.request.fact.role.web"]
    assert [len(node.heard) for node in desk.nodes] == [1, 1, 0]
    assert desk.nodes[0].heard[0] == {
        "protocol": "io.choria.ccm.v1.manifest.apply.request",
        "run": desk.nodes[0].heard[0]["run"],
        "time": "2026-11-21T12:00:00Z",
        "targets": ["role=web"],
        "requester": "op",
        "deadline": "2026-11-21T12:05:00Z",
        "name": "motd",
        "manifest": MANIFEST,
        "digest": hashlib.sha256(MANIFEST.encode()).hexdigest(),
        "data": ["kv://CCM_DATA/common"],
    }
    assert said.code == 0


def test_several_targets_mean_any_of_them(motd: str) -> None:
    desk = Desk(*three())

    said = desk.ccmctl("apply", motd, "-t", "role=db", "-t", "node=web2", "--yes", "--json")

    sent = sorted(
        one.subject.partition("request.")[2] for one in desk.broker.sent if ".request." in one.subject
    )
    assert sent == ["fact.role.db", "node.web2"]
    assert {one["node"]: one["state"] for one in said.records if one["record"] == "result"} == {
        "db1": "stable",
        "web2": "changed",
    }


def test_a_limit_takes_present_nodes_first_and_stays_on_the_roles_subject(motd: str) -> None:
    desk = Desk(FakeNode("web0", {"role": "web"}, is_present=False), *three())

    said = desk.ccmctl("apply", motd, "-t", "role=web", "--limit", "1", "--yes", "--json")

    sent = [one.subject.partition("request.")[2] for one in desk.broker.sent if ".request." in one.subject]
    assert sent == ["fact.role.web"]
    assert [one["node"] for one in said.records if one["record"] == "result"] == ["web1"]
    assert desk.nodes[1].heard[0]["targets"] == ["role=web,node in (web1)"]
    assert desk.nodes[2].heard == []


def test_a_plan_needs_no_confirmation_and_shows_the_changes(motd: str) -> None:
    note = event("/etc/motd", 2, noop_message="Would have created the file")
    desk = Desk(FakeNode("web1", {}, [note]))

    said = desk.ccmctl("apply", motd, "--all", "--noop")

    assert (said.code, said.screen) == (
        0,
        "run RUN: plan motd on 1 node\n"
        "NODES  STATE         WHAT                                         TIME\n"
        "web1   would change  file#/etc/motd: Would have created the file  12ms\n"
        "\n"
        "plan motd: 1 node: 1 would change in T (run RUN)\n",
    )


def test_resources_that_a_restricted_plan_cannot_judge_are_named(motd: str) -> None:
    why = "unknown until applied: the guards are not run in a plan by pat, who may only plan here"
    guarded = event("deploy", 2, type="exec", changed=False, skipped=True, noop=True, unknown=why)
    checked = event("/etc/motd", 3, noop_message="Would have created the file", unknown=why)
    stable = event("/etc/issue", 4, changed=False, noop=True, unknown=why)
    desk = Desk(FakeNode("web1", {}, [guarded, checked, stable]))

    said = desk.ccmctl("apply", motd, "--all", "--noop")

    assert "exec#deploy unknown until applied" in said.screen
    shown = " ".join(said.screen.split())
    for words in ("Would have created the file", "stable"):
        assert f"{words}; its health checks are unknown until applied" in shown


@pytest.mark.parametrize(
    ("does", "code", "row"),
    [
        ("refused: no longer matches", 2, "web1   refused  no longer matches"),
        ("superseded: a newer request came", 3, "web1   superseded  a newer request came"),
        ("expired: its deadline passed", 3, "web1   expired  its deadline passed"),
    ],
)
def test_an_answer_can_be_the_end(motd: str, does: str, code: int, row: str) -> None:
    said = Desk(FakeNode("web1", {}, does)).ccmctl("apply", motd, "--all", "--yes")

    assert (said.code, said.out.splitlines()[1]) == (code, row)


def test_a_failure_is_shown_last_with_the_tail_of_its_output(motd: str) -> None:
    output = "\n".join(f"line {number}" for number in range(30))
    fails = event("migrate", 2, type="exec", failed=True, error=["exit code 3"], output=output)
    desk = Desk(FakeNode("db1", {}, [fails]), FakeNode("db2", {}, [fails]), FakeNode("web1", {}, []))

    said = desk.ccmctl("apply", motd, "--all", "--yes")

    assert (said.code, said.screen) == (
        2,
        "run RUN: apply motd on 3 nodes\n"
        "NODES    STATE   WHAT                 TIME\n"
        "web1     stable  3 resources          12ms\n"
        "db[1-2]  failed  exec#migrate failed  12ms\n"
        "\n"
        "db[1-2]: exec#migrate failed\n"
        "  exit code 3\n  │ … 18 lines above\n"
        + "".join(f"  │ line {number}\n" for number in range(18, 30))
        + "\n"
        "apply motd: 3 nodes: 1 stable, 2 failed in T (run RUN)\n",
    )


def test_output_is_shown_with_logoutput_and_all_of_it_by_run_show(motd: str) -> None:
    quiet = event("migrate", 2, type="exec", output="10 tables\n")
    loud = event("version", 3, type="exec", output="PostgreSQL 17\n", properties={"logoutput": True})
    desk = Desk(FakeNode("db1", {"role": "db"}, [quiet, loud]))

    applied = desk.ccmctl("apply", motd, "--targets", "role=db", "--yes").out
    shown = desk.ccmctl("run", "show", "last").out

    assert ("  │ PostgreSQL 17\n" in applied, "  │ 10 tables\n" in applied) == (True, False)
    assert "db1: exec#migrate\n  │ 10 tables\n\ndb1: exec#version\n  │ PostgreSQL 17\n" in shown


def test_offline_nodes_are_forgiven_when_that_is_said(motd: str) -> None:
    desk = Desk(FakeNode("web1", {}, []), FakeNode("web2", {}, is_present=False))

    assert desk.ccmctl("apply", motd, "--all", "--yes").code == 3
    assert desk.ccmctl("apply", motd, "--all", "--yes", "--offline=ok").code == 0


def test_programs_are_reported_each_result_as_it_comes(motd: str) -> None:
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2)]), FakeNode("web2", {}, is_present=False))

    records = desk.ccmctl("apply", motd, "--all", "--yes", "--json").records

    run = records[0]["run"]
    assert [one["record"] for one in records] == ["run", "result", "event", "event", "event", "result", "end"]
    assert records[0] == {
        "record": "run", "run": run, "action": "apply", "name": "motd", "requester": "op",
        "time": "2026-11-21T12:00:00Z", "targets": [], "nodes": 2, "offline": 1,
    }  # fmt: skip
    assert [one["event"]["number"] for one in records[2:5]] == [1, 2, 3]
    results = [records[1], records[5]]
    assert [(one["node"], one["state"], "summary" in one) for one in results] == [
        ("web2", "offline", False),
        ("web1", "changed", True),
    ]
    assert records[6] == {"record": "end", "run": run, "counts": {"changed": 1, "offline": 1}, "exit": 3}


def test_a_directory_is_stored_by_its_digest_and_pinned(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "files").mkdir(parents=True)
    (site / "manifest.yaml").write_text(MANIFEST)
    (site / "files/motd").write_text("hello")
    desk = Desk(FakeNode("web1", {}, []))

    said = desk.ccmctl("apply", str(site), "--all", "--yes")

    request = desk.nodes[0].heard[0]
    stored = desk.broker.objects["CCM_MANIFESTS"]
    digest = request["bundle"]["digest"]
    assert said.code == 0
    assert request["name"] == "site"
    assert request["bundle"]["size_bytes"] == len(stored[digest])
    assert hashlib.sha256(stored[digest]).hexdigest() == digest == request["digest"]
    assert "manifest" not in request


HELP = "; see `ccmctl apply --help`"
ROLE = "write it like role=web,env!=dev or env in (a,b)"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("PATH", "no nodes selected; use --targets role=web, --where or --all"),
        ("PATH --all", 'cannot ask "apply motd to 3 nodes?" without a terminal; use --yes'),
        ("PATH --yes -t role=wbe", "no node matches role=wbe, did you mean role=web?"),
        ("PATH --yes -t role=web,env=x", "role=web,env=x: no node matches env=x: no node has a fact env"),
        ("PATH --yes -t role=", 'no node matches role=""; role is db, web'),
        ("PATH --yes -t role=web -t node=w1", "no node matches node=w1, did you mean node=web1?"),
        (
            "PATH --yes -w Facts.role=='x'",
            "--where Facts.role=='x': not true for any of the 3 nodes that were checked",
        ),
        (
            "PATH --yes -t role=(",
            f"selector 'role=(': at `(` expected a comma between two terms; {ROLE}",
        ),
        (
            "PATH --all --noop --monitor-only",
            "--noop and --monitor-only cannot be combined",
        ),
        ("PATH --all --yes --deadline -5m", "--deadline -5m: this time has passed"),
        ("PATH --all --limit 0", f"invalid value for '--limit': 0 is less than 1{HELP}"),
        ("", f"missing argument 'FILE|DIR', or --plan FILE{HELP}"),
        ("/nonexistent.yaml --all", "/nonexistent.yaml: cannot be read: No such file or directory"),
    ],
)
def test_an_impossible_command_reports_why_and_sends_nothing(motd: str, argv: str, said: str) -> None:
    desk = Desk(*three())

    done = desk.ccmctl("apply", *(motd if word == "PATH" else word for word in argv.split()))

    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[-1] == f"ccmctl: {said}"
    assert not any(".request." in one.subject for one in desk.broker.sent)
    assert desk.ccmctl("run", "list").out == "no runs yet\n"


def test_a_denied_request_leaves_no_run_behind(motd: str) -> None:
    desk = Desk(*three())
    desk.broker.deny("op", "io.choria.ccm.v1.manifest.apply.request.>")

    said = desk.ccmctl("apply", motd, "--all", "--yes", "--json")

    assert said.code == 1
    assert [(one["record"], one["code"]) for one in said.records] == [("error", "bus.denied")]
    assert desk.ccmctl("run", "list").out == "no runs yet\n"


def test_an_empty_fleet_is_reported(motd: str) -> None:
    said = Desk().ccmctl("apply", motd, "--all", "--yes")

    assert (said.code, said.err) == (
        1,
        "ccmctl: no node has ever connected to this broker; check that an agent is running and that it uses this broker\n",
    )


def test_the_live_line_shows_progress_and_disappears_at_the_end(motd: str) -> None:
    busy = Progress(
        protocol="io.choria.ccm.v1.session.progress", resource="exec#long", resource_s=9, position=2, total=3
    )
    desk = Desk(FakeNode("web1", {}, [event("/etc/motd", 2)], progress=busy))

    said = desk.ccmctl("apply", motd, "--all", "--yes", is_terminal=True, environ={"NO_COLOR": "1"})

    frames = said.err.split("\r\x1b[2K")
    assert frames[0].startswith("run ")
    assert frames[-1] == ""
    assert all(frame.startswith("apply motd  ") for frame in frames[1:-1] if frame)


def failing_while_one_works() -> Desk:
    """A node that fails, one that refuses, and one that goes on when both have been named on standard error."""
    error = ["E: no package \x1b[2Jjq\nsecond line"]
    failed = [
        event("jq", 2, type="package", failed=True, error=error),
        event("/etc/a", 3, failed=True, error=["no"]),
    ]
    late = FakeNode("web3", {}, [event("/etc/motd", 2)])
    desk = Desk(FakeNode("web1", {}, failed), FakeNode("web2", {}, "refused: its policy forbids it"), late)
    late.may_go_on = lambda: all(f"{name}: " in desk.err.getvalue() for name in ("web1", "web2"))
    return desk


def test_a_failure_is_named_on_standard_error_while_other_nodes_are_at_work(motd: str) -> None:
    said = failing_while_one_works().ccmctl("apply", motd, "--all", "--yes")

    assert said.code == 2
    assert sorted(line for line in said.err.splitlines() if line.startswith("web")) == [
        r"web1: failed: package#jq: E: no package \x1b[2Jjq (and 1 more)",
        "web2: refused: its policy forbids it",
    ]


def test_a_failure_that_ends_the_run_is_named_if_others_were(motd: str) -> None:
    desk = failing_while_one_works()
    desk.nodes[2].does = [event("/etc/motd", 2, failed=True, error=["no"])]

    said = desk.ccmctl("apply", motd, "--all", "--yes")

    named = sorted(line.partition(":")[0] for line in said.err.splitlines() if line.startswith("web"))
    assert named == ["web1", "web2", "web3"]


def test_a_failure_is_named_above_the_live_line(motd: str) -> None:
    environ = {"NO_COLOR": "1", "COLUMNS": "40"}

    said = failing_while_one_works().ccmctl(
        "apply", motd, "--all", "--yes", is_terminal=True, environ=environ
    )

    frames = said.err.split("\r\x1b[2K")
    [first] = [number for number, frame in enumerate(frames) if frame.startswith("web1: failed")]
    assert frames[first].splitlines()[0] == r"web1: failed: package#jq: E: no …"
    assert any(frame.startswith("apply motd  ") for frame in frames[first:])


def test_programs_get_no_line_for_a_failure_but_its_record(motd: str) -> None:
    desk = failing_while_one_works()
    desk.nodes[2].may_go_on = lambda: True

    said = desk.ccmctl("apply", motd, "--all", "--yes", "--json")

    assert "web1" not in said.err
    assert {one["node"]: one["state"] for one in said.named("result")}["web1"] == "failed"


@pytest.mark.parametrize("text", ["0", "-5m", "2020-01-01T00:00Z"])
def test_deadline_that_has_passed_is_refused(text: str) -> None:
    assert parse_deadline(parse_moment("30m"), NOW) == NOW + timedelta(minutes=30)
    with pytest.raises(UsageError, match=r"^--deadline .*: this time has passed$"):
        parse_deadline(parse_moment(text), NOW)


def test_a_broker_that_disconnects_during_a_request_is_asked_again(
    motd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "RESEND_AFTER_S", 0.0)
    desk = Desk(FakeNode("web1", {}, []))
    failures = iter([True])
    publish = MemoryRequests.publish

    async def fails_once(
        self: MemoryRequests, subject: str, body: bytes, headers: None = None, **named: object
    ) -> None:
        for _ in failures:
            raise BusUnavailableError("memory: the connection was lost")
        await publish(self, subject, body, headers, **named)

    monkeypatch.setattr(MemoryRequests, "publish", fails_once)

    said = desk.ccmctl("apply", motd, "--all", "--yes")

    assert said.code == 0
    assert [request.get("named") for request in desk.nodes[0].heard] == [["web1"]]


def test_offline_nodes_are_listed_with_a_command_for_the_shell(tmp_path: Path) -> None:
    site = tmp_path / "my site"
    site.mkdir()
    (site / "web.yaml").write_text(MANIFEST)
    desk = Desk(
        FakeNode("web1", {"role": "web"}, []),
        FakeNode("web2", {"role": "web"}, is_present=False),
        FakeNode("web3", {"role": "web"}, is_present=False),
    )
    options = ("--manifest", "web.yaml", "--data", "kv://CCM_DATA/common", "--yes")

    applied = desk.ccmctl("apply", str(site), "-t", "role=web", *options)
    planned = desk.ccmctl("apply", str(site), "-t", "role=web", *options, "--noop")

    assert applied.err.splitlines()[1:] == [
        "offline: web[2-3]; to apply this when they return, assign it:",
        f"  ccmctl assign my-site '{site}' --targets role=web --manifest web.yaml --data kv://CCM_DATA/common",
    ]
    assert len(planned.err.splitlines()) == 1


def test_a_run_over_an_assignment_warns_that_nodes_revert_to_it(tmp_path: Path) -> None:
    assigned, path = tmp_path / "base.yaml", tmp_path / "fix.yaml"
    start = "ccm: {resources: [{file: [{defaults: {ensure: absent}}, {/etc/motd: {}}, {/etc/issue: {}}"
    assigned.write_text(f"{start}, {{/etc/hosts: {{}}}}]}}]}}")
    path.write_text(f"{start}, {{/srv/x: {{}}}}]}}]}}")
    desk = Desk(*three())
    said = desk.ccmctl("assign", "base", str(assigned), "-t", "role=web", "--yes")
    assert said.code == 0, said.err

    warned = [
        desk.ccmctl(*words, "--all", "--yes", "--json").err.splitlines()[0]
        for words in (["apply", str(path)], ["ensure", "file", "/etc/hosts", "absent"])
    ]
    quiet = [
        desk.ccmctl(*words, "--yes", "--json").err.count("the assignment base")
        for words in (["apply", str(path), "--all", "--noop"], ["apply", str(path), "-t", "role=db"])
    ]

    again = "the assignment base applies this again on web[1-2] at the next interval"
    tail = f"{again}; to change it permanently, `ccmctl assign base ...`"
    assert warned == [
        f"file#/etc/motd and 1 more resource: {tail}",
        f"file#/etc/hosts: {tail}",
    ]
    assert quiet == [0, 0]


def test_a_run_does_not_fail_because_assignments_cannot_be_read(motd: str) -> None:
    desk = Desk(*three())
    desk.broker.deny("op", "$KV.CCM_ASSIGNMENTS.>")

    assert desk.ccmctl("apply", motd, "--all", "--yes").code == 0


async def overhear(broker: MemoryBroker) -> None:
    """A node of another role hears the request, and says that it failed there, and that it goes on and on."""
    bus = MemoryBus(broker, "evil")
    tasks = set[asyncio.Task[None]]()

    async def speak(incoming: IncomingRequest) -> None:
        run = msgspec.json.decode(incoming.body)["run"]
        failed = SessionSummary(
            protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=NOW, node="evil", run=run, number=1 << 40, state="failed"
        )  # fmt: skip
        for said in (
            Answer(protocol=SESSION_ANSWER, run=run, node="evil"),
            failed,
            msgspec.structs.replace(failed, number=2),
            Progress(protocol=SESSION_PROGRESS, run=run, node="evil"),
        ):
            await bus.events.announce(event_subject(said.protocol, "evil", run), msgspec.json.encode(said))

    def hear(incoming: IncomingRequest) -> None:
        task = asyncio.get_running_loop().create_task(speak(incoming), name="evil")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await bus.requests.subscribe([fact_scope("role", "web"), ALL], hear)


def test_a_node_that_overhears_a_request_neither_fails_the_run_nor_holds_it_up(motd: str) -> None:
    desk = Desk(*three())
    desk.hooks.append(overhear)

    said = desk.ccmctl("apply", motd, "-t", "role=web", "--yes")

    assert (said.code, said.screen) == (
        0,
        "run RUN: apply motd on 2 nodes\n"
        "ignored: evil answered, but their assigned facts do not match this run\n"
        "NODES     STATE    WHAT            TIME\n"
        "web[1-2]  changed  file#/etc/motd  12ms\n"
        "\n"
        "apply motd: 2 nodes: 2 changed in T (run RUN)\n",
    )


def test_a_node_that_joins_is_shown_and_its_failure_is_not_the_runs(motd: str) -> None:
    desk = Desk(*three(), FakeNode("web3", {"role": "web"}, "refused: disk is full"))
    facts = Stamped(bucket="CCM_FACTS", key="web3", number=1, body={"role": "web"})

    async def assign_late(broker: MemoryBroker) -> None:
        """The node comes between the resolving of names and the request, so it is not on the list."""
        bus = MemoryBus(broker, "op")
        for key in ("node.web3", "facts.web3", "presence.web3"):
            await bus.bucket("CCM_NODES").delete(key)

        async def assign() -> None:
            await bus.bucket("CCM_FACTS").put("web3", msgspec.json.encode(facts))

        def hear(incoming: IncomingRequest) -> None:
            desk.task = asyncio.get_running_loop().create_task(assign(), name="assign")  # type: ignore[attr-defined]

        await bus.requests.subscribe([fact_scope("role", "web"), ALL], hear)

    desk.hooks.append(assign_late)

    said = desk.ccmctl("apply", motd, "-t", "role=web", "--yes", "--json")

    results = {
        one["node"]: (one["state"], one.get("joined")) for one in said.records if one["record"] == "result"
    }
    assert said.code == 0
    assert results == {"web1": ("changed", None), "web2": ("changed", None), "web3": ("refused", True)}
    assert said.records[-1]["counts"] == {"changed": 2}


def test_a_run_is_watched_no_longer_than_its_timeout(motd: str) -> None:
    desk = Desk(FakeNode("web1", {}, "accepted"), FakeNode("web2", {}, []))

    said = desk.ccmctl("apply", motd, "--all", "--yes", "--timeout", "1s", "--json")

    results = {
        one["node"]: (one["state"], one.get("reason")) for one in said.records if one["record"] == "result"
    }
    assert said.code == 3
    assert results == {
        "web1": ("lost", "not finished after 1s; ccmctl stopped watching it"),
        "web2": ("stable", None),
    }


def test_a_part_of_a_manifest_is_sent_so_that_older_agents_find_no_manifest(motd: str) -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)], record={"partial_runs": True}))

    said = desk.ccmctl(
        "apply", motd, "--all", "--yes", "--only", "exec#true", "--tags", "a,b", "--skip-tags", "c"
    )

    heard = desk.nodes[0].heard[0]
    assert (said.code, heard["part"]) == (
        0,
        {"only": ["exec#true"], "tags": ["a", "b"], "skip_tags": ["c"], "manifest": MANIFEST},
    )
    assert not {"manifest", "bundle"} & set(heard)


def test_nodes_whose_agents_do_not_know_parts_are_named_and_nothing_is_sent(motd: str) -> None:
    desk = Desk(
        FakeNode("web1", {"role": "web"}, record={"partial_runs": True}), FakeNode("web2", {"role": "web"})
    )

    said = desk.ccmctl("apply", motd, "--all", "--yes", "--only", "exec#true")

    assert (said.code, said.err) == (
        1,
        "ccmctl: web2: the agent is too old for --only and --tags; upgrade it, or select other nodes\n",
    )
    assert [node.heard for node in desk.nodes] == [[], []]


def test_the_record_of_a_partial_run_names_the_part_without_the_text(motd: str) -> None:
    desk = Desk(FakeNode("web1", {"role": "web"}, [event("/etc/motd", 2)], record={"partial_runs": True}))
    desk.ccmctl("apply", motd, "--all", "--yes", "--only", "exec#true")
    stored = [one.body for one in desk.broker.buckets["CCM_RUNS"] if one.subject.endswith(".request")]

    assert [msgspec.json.decode(one)["request"]["part"] for one in stored] == [{"only": ["exec#true"]}]


def test_older_agents_get_the_names_of_the_nodes_instead_of_a_pattern(motd: str) -> None:
    older, newer = FakeNode("db1", {"role": "db"}), FakeNode("web1", {"role": "web"})

    said = Desk(older, newer).ccmctl("apply", motd, "-t", "role!=d*", "--yes")

    assert said.code == 0
    assert (older.heard, [one["targets"] for one in newer.heard]) == ([], [["node in (web1)"]])


def test_template_error_on_nodes_is_shown_once_as_lint_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec:\n        - 'true': {cwd: '{{ Facts.a.b.c }}'}\n")
    reason = "motd:4:20: there is no c in nil; use ?. where it may be missing"
    desk = Desk(*(FakeNode(name, {"role": "web"}, reason=reason) for name in ("web1", "web2")))

    said = desk.ccmctl("apply", str(path), "--all", "--yes", environ={"COLUMNS": "80"})

    assert said.code == 2
    assert said.out.partition("\napply motd: ")[0] == (
        "NODES     STATE   WHAT       TIME\n"
        "web[1-2]  failed  motd:4:20  12ms\n"
        "\n"
        "web[1-2]: the session failed\n"
        "  motd:4:20: error: there is no c in nil; use ?. where it may be missing [session]\n"
        "    4 |         - 'true': {cwd: '{{ Facts.a.b.c }}'}\n"
        "      |                    ^^^\n"
    )
