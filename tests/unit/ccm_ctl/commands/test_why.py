"""`ccmctl why`: the true reason first, on one screen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.subjects import assignment_key, event_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    FailedResource,
    SessionStart,
    SessionSummary,
)
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.records.slots import SlotEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import (
    AGENT_DUPLICATE,
    AGENT_REFUSED,
    AGENT_SHUTDOWN,
    AGENT_STARTUP,
    DUPLICATE_IDENTITY,
    SESSION_PROGRESS,
    AgentEvent,
    Assignment,
    AssignmentState,
    Disabled,
    NodeRecord,
)
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import NOW, Desk, FakeNode

RUN = "3Gb1YlnzjY5hvvqJBrE4G7Yv5Qe"
DIGEST = "0123456789abcdef" * 4


def before(**ago: float) -> Any:
    return NOW - timedelta(**ago)


def a_record(**fields: Any) -> NodeRecord:
    values: dict[str, Any] = {
        "node": "web1", "machine": "m-1", "started": before(hours=2), "version": "1.2.3", "facts": {"role": "web"},
    }  # fmt: skip
    return NodeRecord(**(values | fields))


def the_base(**fields: Any) -> AssignmentState:
    """How web1 stands to the assignment `base`."""
    values: dict[str, Any] = {
        "key": "fact.role.web.base", "revision": 3, "digest": DIGEST, "data_revision": 41, "state": "stable",
        "since": before(minutes=12), "run": RUN,
    }  # fmt: skip
    return AssignmentState(**(values | fields))


def a_summary(**fields: Any) -> SessionSummary:
    values: dict[str, Any] = {
        "protocol": SESSION_SUMMARY, "event_id": new_id(), "timestamp": before(minutes=12), "node": "web1", "run": RUN,
        "number": 5, "events_sent": 5, "state": "stable", "manifest": "base", "total_duration": 2_100_000_000,
        "stable_resources": 3,
    }  # fmt: skip
    return SessionSummary(**(values | fields))


def said(protocol: str, message: str, minutes: float, **details: Any) -> AgentEvent:
    moment = before(minutes=minutes)
    return AgentEvent(
        protocol=protocol, event_id=new_id(), timestamp=moment, node="web1", message=message, details=details
    )


def a_desk(
    record: NodeRecord | None,
    *told: AgentEvent | SessionStart | SessionSummary,
    is_present: bool = True,
    assigned: bool = True,
    **node: Any,
) -> Desk:
    """An operator's desk with web1 at the other end, as its record says, and `base` assigned to the web nodes."""
    web1 = FakeNode("web1", {"role": "web"}, is_present=is_present, **node)
    desk = Desk(web1)
    desk.broker = MemoryBroker(lambda: before(minutes=48))

    async def tell(broker: MemoryBroker) -> None:
        bus = MemoryBus(broker, "web1")
        if record is not None:
            await bus.bucket("CCM_NODES").put("node.web1", msgspec.json.encode(record))
        for one in told:
            run = one.run if not isinstance(one, AgentEvent) else ""
            await bus.events.publish(
                event_subject(one.protocol, "web1", run), one.event_id, msgspec.json.encode(one)
            )
        if assigned:
            await assign(broker)

    desk.hooks.append(tell)
    return desk


async def assign(broker: MemoryBroker, revision: int = 3) -> None:
    scope = "fact.role.web"
    key = assignment_key(scope, "base")
    body = Assignment(
        name="base", scope=scope, bundle=Bundle(digest=DIGEST, size_bytes=1), targets=["role=web"]
    )
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=revision, body=body, time=before(hours=1))
    await MemoryBus(broker, "op").bucket("CCM_ASSIGNMENTS").put(key, msgspec.json.encode(stamped))


OUTPUT = "".join(f"line {number}\n" for number in range(20)) + 'ERROR: relation "users" does not exist\n'
FAILED = FailedResource(
    resource="exec#migrate",
    error=["exit status 1: the command failed", "more"],
    code="host.command",
    output=OUTPUT,
)


def a_failing_node() -> Desk:
    record = a_record(
        last_run=RUN, last_state="failed", last_time=before(minutes=12),
        assignments={"base": the_base(state="failed", reason="1 resource failed", next_time=NOW + timedelta(minutes=18))},
    )  # fmt: skip
    summary = a_summary(
        state="failed", failed_resources=1, skipped_resources=1, failed=[FAILED], data_revisions={"kv://CCM_DATA/common": 41}
    )  # fmt: skip
    return a_desk(record, summary, said(AGENT_STARTUP, "agent 1.2.3 started", 120))


def test_a_failing_node_shows_the_resource_the_reason_and_the_output() -> None:
    done = a_failing_node().ccmctl("why", "web1")

    assert (done.code, done.out) == (
        0,
        "web1 has failed for 12m: exec#migrate failed in the assignment base: exit status 1: the command failed.\n"
        "\n"
        "  │ line 13\n"
        "  │ line 14\n"
        "  │ line 15\n"
        "  │ line 16\n"
        "  │ line 17\n"
        "  │ line 18\n"
        "  │ line 19\n"
        '  │ ERROR: relation "users" does not exist\n'
        "\n"
        "assignment  base 3 of role=web: failed for 12m; it has bundle 0123456789ab, data 41; "
        "next attempt in 18m\n"
        f"last run    {RUN[:8]} failed 12m ago: base: 1 failed, 1 skipped, 3 stable in 2.1s, data CCM_DATA/common 41\n"
        "present     last heartbeat 5.0s ago; its agent answers\n"
        "agent       1.2.3, started 2026-11-21 10:00:00Z (2h ago), on machine m-1\n"
        "\n"
        f"here:  ccmctl events --no-follow -n web1 -r {RUN[:8]}  its events of that run\n"
        f"here:  {'ccmctl run-now -t node=web1':<47}to try again when the cause is fixed\n",
    )


def an_adhoc_failure(cause: str, error: str = "no") -> Desk:
    """A node that converges on nothing, and whose last run failed."""
    start = SessionStart(
        protocol=SESSION_START, event_id=new_id(), timestamp=before(minutes=12), node="web1", run=RUN, number=1, cause=cause
    )  # fmt: skip
    failed = FailedResource(resource="exec#migrate", error=[error])
    summary = a_summary(state="failed", failed_resources=1, failed=[failed])
    record = a_record(last_run=RUN, last_state="failed", last_time=before(minutes=12))
    return a_desk(record, start, summary, assigned=False)


@pytest.mark.parametrize(
    ("cause", "command"),
    [
        ("request", f"ccmctl run show {RUN[:8]}"),
        ("schedule", "ccmctl schedule list"),
        ("interval", "ccmctl run-now -t node=web1"),
        ("", "ccmctl run-now -t node=web1"),
    ],
)
def test_advice_after_a_failed_run_names_the_command_to_repeat_it(cause: str, command: str) -> None:
    [record] = an_adhoc_failure(cause).ccmctl("why", "web1", "--json").records

    assert [step["command"] for step in record["next"]][1:] == [command]


@pytest.mark.parametrize(
    ("is_on_record", "command"), [(True, f"ccmctl run show {RUN[:8]}"), (False, "ccmctl history web1")]
)
def test_advice_holds_when_the_start_of_the_failed_run_has_left_the_stream(
    *, is_on_record: bool, command: str
) -> None:
    summary = a_summary(
        state="failed", failed_resources=1, failed=[FailedResource(resource="exec#migrate", error=["no"])]
    )
    record = a_record(last_run=RUN, last_state="failed", last_time=before(minutes=12))
    desk = a_desk(record, summary, assigned=False)

    async def put_on_record(broker: MemoryBroker) -> None:
        request = RunRecord(
            run=RUN, action="apply", name="motd", requester="anna", time=before(minutes=13), nodes=1
        )
        await (
            MemoryBus(broker, "anna")
            .bucket("CCM_RUNS")
            .put(f"anna.{RUN}.request", msgspec.json.encode(request))
        )

    if is_on_record:
        desk.hooks.append(put_on_record)
    [said] = desk.ccmctl("why", "web1", "--json").records

    assert [step["command"] for step in said["next"]][1:] == [command]


def test_a_long_error_is_shortened_after_a_word() -> None:
    error = "cannot write the file: " + "no space is left on the device " * 10

    done = an_adhoc_failure("request", error).ccmctl("why", "web1")

    [sentence, *_] = done.out.splitlines()
    assert sentence.endswith("is left on the device no space is …")


def test_an_assignment_that_failed_a_moment_ago_has_no_duration() -> None:
    state = the_base(state="failed", since=NOW)

    done = a_desk(a_record(assignments={"base": state})).ccmctl("why", "web1")

    assert "assignment  base 3 of role=web: failed; it has bundle" in done.out


def test_json_output_has_the_whole_diagnosis() -> None:
    [record] = a_failing_node().ccmctl("why", "web1", "--json").records

    assert {key: record[key] for key in ("record", "node", "state", "present", "answered", "heard_of")} == {
        "record": "why", "node": "web1", "state": "failed", "present": True, "answered": "answered",
        "heard_of": "2026-11-21T11:59:55Z",
    }  # fmt: skip
    assert record["failed"] == [msgspec.to_builtins(FAILED)]
    assert record["assignments"][0]["state"] == "failed"
    assert record["summary"]["run"] == RUN
    assert [step["command"] for step in record["next"]][1:] == ["ccmctl run-now -t node=web1"]


def test_disabled_node_shows_start_end_operator_and_reason() -> None:
    disabled = Disabled(since=before(hours=1), until=NOW + timedelta(hours=3), why="disk swap", by="maria")
    record = a_record(disabled=disabled, assignments={"base": the_base(state="disabled")})

    done = a_desk(record).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 was disabled 1h ago by maria until 2026-11-21 15:00:00Z (in 3h): disk swap."
    )
    assert "here:  ccmctl enable -t node=web1  to let it converge again\n" in done.out


def test_a_node_that_was_disabled_a_moment_ago_says_so() -> None:
    record = a_record(disabled=Disabled(since=NOW, why="We swap a disk."))

    done = a_desk(record).ccmctl("why", "web1")

    [sentence, *_] = done.out.splitlines()
    assert sentence == "web1 was disabled just now until an operator enables it: We swap a disk."


def test_a_stopped_node_shows_when() -> None:
    told = [said(AGENT_STARTUP, "agent 1.2.3 started", 120), said(AGENT_SHUTDOWN, "agent 1.2.3 stopped", 30)]

    done = a_desk(a_record(), *told, is_present=False).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == "web1 is off: its agent was stopped at 2026-11-21 11:30:00Z (30m ago)."


def test_silent_node_shows_when_it_was_last_seen() -> None:
    told = [said(AGENT_SHUTDOWN, "agent 1.2.3 stopped", 121), said(AGENT_STARTUP, "agent 1.2.3 started", 120)]

    done = a_desk(a_record(), *told, is_present=False).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 is off: last heartbeat at 2026-11-21 11:12:00Z (48m ago), and it did not sign off: "
        "the machine, its network or its agent is down."
    )


def test_a_node_that_is_off_is_not_called_failing_though_its_last_run_failed() -> None:
    record = a_record(last_run=RUN, last_state="failed", last_time=before(minutes=50))

    [told] = (
        a_desk(record, a_summary(state="failed"), is_present=False).ccmctl("why", "web1", "--json").records
    )

    assert (told["state"], told["answered"], told["last_state"]) == ("offline", "not asked", "failed")


def test_a_waiting_node_shows_the_assignment_and_the_reason() -> None:
    waits = the_base(
        revision=3, state="waiting", reason="not its turn yet", next_time=NOW + timedelta(seconds=40)
    )

    done = a_desk(a_record(assignments={"base": waits})).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 waits to apply the assignment base, revision 3: not its turn yet; it tries in 40s."
    )


def test_a_node_that_has_not_taken_the_newest_revision_waits() -> None:
    older = the_base(revision=2)

    done = a_desk(a_record(assignments={"base": older})).ccmctl("why", "web1")

    assert done.out.startswith("web1 waits to apply the assignment base, revision 3: has not started")


def test_a_node_past_the_deadline_is_shown_as_expired() -> None:
    late = the_base(state="expired", reason="the deadline 2026-11-21 11:00:00Z has passed", digest="")

    done = a_desk(a_record(assignments={"base": late})).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 did not start the assignment base, revision 3 in time: the deadline 2026-11-21 11:00:00Z has passed."
    )


def a_duplicate() -> Desk:
    told = [
        said(
            AGENT_DUPLICATE,
            DUPLICATE_IDENTITY,
            10,
            machine=machine,
            started="2026-11-21T11:00:00Z",
            duplicate=True,
        )
        for machine in ("m-0", "m-1")
    ]
    return a_desk(a_record(conflict=DUPLICATE_IDENTITY), *told)


def test_two_agents_of_one_identity_are_distinguished_by_machine_and_start() -> None:
    done = a_duplicate().ccmctl("why", "web1")

    assert done.out.splitlines()[:4] == [
        "web1 is the identity of two agents, so both refuse all work until one of them is stopped.",
        "",
        "one agent   machine m-0, started 2026-11-21T11:00:00Z",
        "one agent   machine m-1, started 2026-11-21T11:00:00Z",
    ]


def test_a_resolved_duplicate_is_no_longer_a_reason() -> None:
    told = [
        said(AGENT_DUPLICATE, DUPLICATE_IDENTITY, 10, machine="m-0", started="a", duplicate=True),
        said(AGENT_DUPLICATE, "this identity is no longer used by another agent", 5, machine="m-0", started="a", duplicate=False),
    ]  # fmt: skip

    [record] = a_desk(a_record(), *told, assigned=False).ccmctl("why", "web1", "--json").records

    assert record["state"] == "unassigned"


@pytest.mark.parametrize(
    ("what", "state", "is_shown"),
    [
        ("CCM_ASSIGNMENTS/fact.role.web.base", the_base(), False),
        ("fact.role.web.base", the_base(), False),
        ("fact.role.web.base", the_base(revision=2), True),
        ("fact.role.web.base", the_base(state="failed"), True),
        ("CCM_ASSIGNMENTS/fact.role.web.other", the_base(), True),
        ("CCM_FACTS/web1", the_base(), False),
        ("CCM_FACTS/web2", the_base(), True),
        ("choria.ccm.request.x", the_base(), True),
        (["\x1b[2J"], the_base(), True),
    ],
)
def test_refusal_is_shown_until_a_newer_document_is_applied(
    what: Any, state: AssignmentState, is_shown: bool
) -> None:
    refused = said(AGENT_REFUSED, "the signature is wrong", 3, refused=what)

    done = a_desk(a_record(assignments={"base": state}), refused).ccmctl("why", "web1")

    assert ("refused     3m ago: the signature is wrong\n" in done.out) == is_shown


def test_refused_facts_and_refused_requests_are_reported() -> None:
    status = {"refused_facts": "CCM_FACTS/web1: number 1 is older than 7, which was seen before"}
    refused = said(AGENT_REFUSED, "CCM_FACTS/web1: number 1 is older than 7, which was seen before", 3)

    done = a_desk(a_record(assignments={"base": the_base()}), refused, status=status).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 refuses its assigned facts and keeps the earlier ones: "
        "CCM_FACTS/web1: number 1 is older than 7, which was seen before."
    )
    assert "refused     3m ago: CCM_FACTS/web1: number 1 is older than 7, which was seen before\n" in done.out


def test_a_busy_node_shows_its_progress_and_the_lock_it_waits_for() -> None:
    status = {
        "run": RUN, "name": "base",
        "progress": {
            "protocol": SESSION_PROGRESS, "run": RUN, "resource": "package#nginx", "position": 2, "total": 9, "resource_s": 240.0,
        },
        "waits_for": {"package": "ccm apply (pid 99) since 2026-11-21T11:56:00Z"},
    }  # fmt: skip

    done = a_desk(a_record(assignments={"base": the_base(state="waiting")}), status=status).ccmctl(
        "why", "web1"
    )

    assert done.out.splitlines()[0] == (
        f"web1 is busy: run {RUN[:8]} of base, at package#nginx (2 of 9) for 4m; "
        "it waits for the package lock, which ccm apply (pid 99) since 2026-11-21T11:56:00Z holds."
    )
    assert "assignment  base 3 of role=web: waiting" in done.out


def test_a_node_that_waits_for_another_run_names_it() -> None:
    status = {"run": RUN, "name": "other", "waiting": [{"run": "x", "name": "base"}]}

    done = a_desk(a_record(assignments={"base": the_base(state="waiting")}), status=status).ccmctl(
        "why", "web1"
    )

    assert (
        done.out.splitlines()[0]
        == f"web1 cannot start the assignment base until this run ends: run {RUN[:8]} of other."
    )
    assert "queue       1 run: base\n" in done.out


def test_a_node_without_permission_to_ask_reports_it() -> None:
    status = {"trouble": "the stream is full", "spool": {"events": 12, "bytes": 4096, "lost": 0}}

    done = a_desk(a_record(assignments={"base": the_base()}), status=status).ccmctl("why", "web1")

    assert (
        done.out.splitlines()[0]
        == "web1 cannot report its results (12 events in its spool): the stream is full."
    )


def test_an_agent_that_does_not_answer_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm_ctl.fleet.runs.gather.ASK_AGAIN_S", 0.01)

    [record] = (
        a_desk(a_record(assignments={"base": the_base()}), status=None)
        .ccmctl("why", "web1", "--json")
        .records
    )

    assert (record["state"], record["answered"]) == ("silent", "silent")


@pytest.mark.parametrize(
    ("minutes", "state"),
    [
        pytest.param(1, "refused", id="lately"),
        pytest.param(-120, "refused", id="by a clock that is ahead"),
        pytest.param(60, "silent", id="long ago"),
    ],
)
def test_a_refusal_is_why_an_agent_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, minutes: float, state: str
) -> None:
    monkeypatch.setattr("ccm_ctl.fleet.runs.gather.ASK_AGAIN_S", 0.01)
    why = "status: the signature has expired; check the clocks"

    [record] = (
        a_desk(a_record(), said(AGENT_REFUSED, why, minutes), status=None, assigned=False)
        .ccmctl("why", "web1", "--json")
        .records
    )

    assert record["state"] == state
    assert (record["reason"] == f"web1 refuses requests: {why}.") is (state == "refused")


def test_an_operator_who_may_not_ask_still_sees_the_rest() -> None:
    desk = a_failing_node()
    desk.broker.deny("op", "io.choria.ccm.v1.node.status.>")

    [record] = desk.ccmctl("why", "web1", "--json").records

    assert (record["state"], record["answered"]) == ("failed", "denied")


def test_an_unreadable_answer_is_ignored() -> None:
    done = a_desk(a_record(assignments={"base": the_base()}), status={"spool": 7, "waiting": "x"}).ccmctl(
        "why", "web1"
    )

    assert (done.code, done.out.splitlines()[0].partition(":")[0]) == (0, "web1 is in the desired state")


def test_manifests_of_the_nodes_own_configuration_are_reported_with_their_next_turn() -> None:
    own = {
        "name": "/etc/choria/ccm/base.yaml",
        "digest": DIGEST,
        "trouble": "",
        "next": "2026-11-21T12:40:00Z",
    }
    away = {"name": "obj://CCM_MANIFESTS/app.tar.gz", "digest": "", "trouble": "no such object", "next": None}

    done = a_desk(a_record(), assigned=False, status={"manifests": [own, away]}).ccmctl("why", "web1")

    assert "manifest    /etc/choria/ccm/base.yaml: digest 0123456789ab; next attempt in 40m\n" in done.out
    assert "manifest    obj://CCM_MANIFESTS/app.tar.gz; cannot be fetched: no such object\n" in done.out


@pytest.mark.parametrize(
    ("policy", "line"),
    [
        ({"path": "/p", "digest": DIGEST, "rules": 3}, "policy      3 rules, digest 0123456789ab\n"),
        (
            {"path": "/p", "trouble": "/p:2: unknown key"},
            "policy      cannot be used, so the agent runs nothing: /p:2: unknown key\n",
        ),
    ],
)
def test_the_policy_of_the_node_is_reported(policy: dict[str, Any], line: str) -> None:
    done = a_desk(a_record(), assigned=False, status={"policy": policy}).ccmctl("why", "web1")

    assert line in done.out


def test_node_with_a_pending_refresh_is_not_well() -> None:
    record = a_record(
        refresh_pending=["exec#reload (request web.yaml)", "service#app (source a)"],
        last_run=RUN,
        last_state="changed",
        last_time=before(minutes=12),
    )
    desk = a_desk(record, assigned=False)

    said = desk.ccmctl("why", "web1").out
    found = desk.ccmctl("why", "web1", "--json").records[0]

    assert (
        "web1 has not refreshed exec#reload (request web.yaml) and 1 more: an earlier run ended"
        in " ".join(said.split())
    )
    assert said.count("refresh pending") == 2
    assert found["state"] == "refresh pending"


def test_a_healthy_node_is_reported_as_such() -> None:
    record = a_record(
        last_run=RUN, last_state="stable", last_time=before(minutes=4), assignments={"base": the_base()}
    )

    done = a_desk(record, a_summary()).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 is in the desired state: 1 assignment converged, its last run ended stable 4m ago."
    )


def test_a_node_that_never_connected_shows_what_is_known_about_it() -> None:
    desk = Desk()
    desk.ccmctl("facts", "set", "web9", "role=web", "--new")

    done = desk.ccmctl("why", "web9")

    assert done.out.splitlines()[0] == (
        "web9 was never seen: facts are assigned to it, but no agent of that name has written its record."
    )


def test_an_unknown_node_names_the_nearest() -> None:
    done = a_failing_node().ccmctl("why", "wbe1")

    assert (done.code, done.err) == (1, "ccmctl: wbe1: there is no such node, did you mean web1?\n")


@pytest.mark.parametrize(
    "says",
    [
        {"last_run": "x; reboot", "last_state": "failed"},
        {"node": "x; reboot", "disabled": Disabled(since=before(hours=1), why="work")},
        {"assignments": {"base": the_base(state="failed", run="x; reboot", reason="no")}},
    ],
    ids=["its last run", "its name", "an assignment's run"],
)
def test_a_nodes_text_never_enters_a_suggested_command(says: dict[str, Any]) -> None:
    done = a_desk(a_record(**says)).ccmctl("why", "web1")

    typed = [line for line in done.out.splitlines() if line.startswith(("here:", "on "))]
    assert typed
    assert "reboot" not in "\n".join(typed)


def test_a_run_that_has_just_ended_counts_though_the_node_has_not_written_it_yet() -> None:
    record = a_record(last_run=new_id(), last_state="stable", last_time=before(minutes=20))
    status = {"last_run": RUN, "last_state": "failed", "last_time": before(minutes=1).isoformat()}
    failed = a_summary(state="failed", failed_resources=1, failed=[FAILED])

    done = a_desk(record, failed, assigned=False, status=status).ccmctl("why", "web1")

    assert done.out.splitlines()[0] == (
        "web1 has failed for 1m: exec#migrate failed in its last run: exit status 1: the command failed."
    )


@pytest.mark.parametrize(
    "status",
    [
        {"last_run": RUN, "last_state": "failed", "last_time": before(minutes=30).isoformat()},
        {"last_run": RUN, "last_state": "failed", "last_time": "2026-11-21T11:59:00"},
        {"last_run": "x y", "last_state": "failed", "last_time": before(minutes=1).isoformat()},
        {"last_run": "", "last_state": "", "last_time": None},
    ],
    ids=["older", "of no time zone", "no run", "none yet"],
)
def test_an_answer_that_reports_no_newer_run_changes_nothing(status: dict[str, Any]) -> None:
    record = a_record(last_run=new_id(), last_state="stable", last_time=before(minutes=20))

    done = a_desk(record, assigned=False, status=status).ccmctl("why", "web1")

    assert done.out.splitlines()[0].startswith("web1 is in the desired state: ")


def test_a_slot_that_is_kept_is_named_with_who_waits_and_the_command_that_frees_it() -> None:
    desk = a_desk(a_record(last_run=RUN, last_state="failed", last_time=before(minutes=12)), assigned=False)

    async def take_slots(broker: MemoryBroker) -> None:
        for number, node in enumerate(("web1", "web2", "web4")):
            entry = SlotEntry(
                is_held=not number, has_failed=not number, count=1, since=NOW, resource="exec#restart", place=number
            )  # fmt: skip
            await MemoryBus(broker, node).bucket("CCM_SLOTS").put(f"pg.{node}", msgspec.json.encode(entry))

    desk.hooks.append(take_slots)

    kept = " ".join(desk.ccmctl("why", "web1").out.split())
    waiting = desk.ccmctl("why", "web2")

    assert (
        "slot pg, kept after exec#restart failed; web[2,4] wait for it; "
        "`ccmctl slots release pg web1` frees it when web1 is healthy"
    ) in kept
    assert "slots release" not in waiting.out + waiting.err


def test_a_run_that_ended_before_its_first_resource_shows_the_reason_and_no_time() -> None:
    record = a_record(last_run=RUN, last_state="failed", last_time=before(minutes=12))
    summary = a_summary(
        state="failed", stable_resources=0, manifest="det", reason="no such revision to roll out", total_duration=1_000_000
    )  # fmt: skip

    shown = a_desk(record, summary, assigned=False).ccmctl("why", "web1").out

    assert f"{RUN[:8]} failed 12m ago: det: no such revision to roll out\n" in shown
    assert "no resources" not in shown


def test_a_start_by_a_clock_that_is_ahead_is_shown_as_such() -> None:
    shown = a_desk(a_record(started=before(hours=-2)), assigned=False).ccmctl("why", "web1").out

    assert "(2h in the future)" in shown


def test_a_node_whose_last_run_was_stopped_is_not_called_well() -> None:
    record = a_record(last_run=RUN, last_state="stopped", last_time=NOW)

    done = a_desk(record).ccmctl("why", "web1", "--json").named("why")[0]
    shown = a_desk(record).ccmctl("why", "web1").out.splitlines()[0]

    assert done["state"] == "stopped"
    assert shown.startswith("the last run of web1 ended before it was complete")


def test_what_a_node_does_now_comes_before_the_run_that_was_stopped() -> None:
    record = a_record(last_run=new_id(), last_state="stopped", last_time=before(minutes=1))

    desk = a_desk(record, status={"run": RUN, "name": "other"}, assigned=False)
    done = desk.ccmctl("why", "web1").out.splitlines()[0]

    assert done == f"web1 is busy: run {RUN[:8]} of other."
