"""What an agent answers, and what it puts into its queue; on a bus in memory."""

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.requests.request_handler import decode_request
from ccm_agent.agent.runs.run_queue import find_deadline
from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.subjects import event_subject, request_subject
from ccm_agent.model.bundle import PartialManifest
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ids import is_id, new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import (
    AGENT_REFUSED,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_FACTS,
    NODE_PING,
    NODE_STATUS,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RUN_STOP,
    SESSION_ANSWER,
    EnsureRequest,
    ExecRequest,
    ManifestRequest,
    Request,
    RunAhead,
    StopRequest,
)
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Controller,
    FakeClock,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    running,
)

NODE = "web1.example.net"


class Stage:
    """An agent, its engine and clock, and a controller that hears it."""

    def __init__(self, broker: MemoryBroker, agent: Running, engine: FakeEngine, clock: FakeClock) -> None:
        self.broker = broker
        self.agent = agent
        self.engine = engine
        self.clock = clock
        self.controller = Controller(memory_bus(broker, "op"))

    async def apply(self, manifest: str = "stable /a", scope: str = "all", **fields: Any) -> str:
        """Ask for a run."""
        fields = {"protocol": MANIFEST_APPLY} | fields
        return await self.controller.ask(ManifestRequest(manifest=manifest, **fields), scope)

    async def answered(self, run: str, nth: int = 1) -> tuple[str, str, str]:
        """State, code and outcome of the nth answer."""
        answer = await self.controller.answer(run, NODE, nth)
        return answer.state, answer.code, answer.outcome

    async def hold(self, **fields: Any) -> str:
        """A run that stays in hand until `engine.go` is set."""
        run = await self.apply("wait /held\nstable /after", **fields)
        await self.engine.at_wait.wait()
        return run

    async def is_silent(self, run: str) -> bool:
        """The agent said nothing about a run: a later question of everybody's is answered, and this was not."""
        ping = await self.controller.ask(Request(protocol=NODE_PING))
        await self.controller.answer(ping, NODE)
        return not any(
            f".{run}." in subject for subject, _ in self.controller.heard if "request" not in subject
        )


@contextlib.asynccontextmanager
async def stage(folder: Path, **settings: Any) -> AsyncIterator[Stage]:
    engine, clock = FakeEngine(), FakeClock()
    broker = MemoryBroker(clock.now)
    ports = agent_ports(
        memory_bus(broker, NODE),
        engine,
        clock,
        gather_facts=lambda: {"role": "web"},
        waits_for=lambda: {"package": "ccm apply (pid 99)"},
    )
    async with running(agent_settings(folder, NODE, **settings), ports) as agent:
        one = Stage(broker, agent, engine, clock)
        await one.controller.listen()
        yield one
        engine.go.set()


# -- who is meant


async def test_a_node_that_the_selector_means_not_stays_silent_on_a_scope_of_many(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(targets=["role=db"])

        assert await at.is_silent(run)


@pytest.mark.parametrize(
    ("scope", "named"), [("all", [NODE]), (f"node.{NODE}", [])], ids=["named", "on its own scope"]
)
async def test_a_named_node_reports_that_it_no_longer_matches(
    tmp_path: Path, scope: str, named: list[str]
) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(scope=scope, targets=["role=db"], named=named)

        answer = await at.controller.answer(run, NODE)

        assert (answer.state, answer.reason, answer.code) == (
            "refused",
            "no longer matches",
            "target.mismatch",
        )


async def test_any_of_several_targets_is_enough(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(targets=["role=db", "role=web"])

        assert await at.answered(run) == ("accepted", "", "")


async def test_a_target_that_cannot_be_read_is_refused_with_its_code(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(where="${")

        assert await at.answered(run) == ("refused", "ccm.error", "")


# -- once, however often


async def test_a_request_that_comes_again_is_answered_from_the_ledger_and_not_carried_out(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply("changed /a")
        await at.controller.summary(run, NODE)

        await at.apply("changed /a", run=run, named=[NODE])

        assert await at.answered(run, 2) == ("done", "", "changed")
        assert len(at.engine.applied) == 1


async def test_a_request_that_comes_again_for_other_nodes_is_not_answered_again(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply("changed /a")
        await at.controller.summary(run, NODE)

        await at.apply(run=run, named=["web9"])
        await at.apply(run=run, named=[NODE])

        assert await at.answered(run, 2) == ("done", "", "changed")
        assert len([one for one in at.broker.sent if one.subject.startswith(f"{SESSION_ANSWER}.{run}")]) == 2


async def test_a_node_that_the_first_request_did_not_reach_takes_one_that_names_others(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(named=["web9"])

        assert await at.answered(run) == ("accepted", "", "")


async def test_a_request_that_comes_again_while_it_is_in_progress_or_waits_is_answered_as_before(
    tmp_path: Path,
) -> None:
    async with stage(tmp_path) as at:
        held = await at.hold()
        waits = await at.apply()
        await at.controller.answer(waits, NODE)

        for run in (held, waits):
            await at.apply(run=run)

        assert await at.answered(held, 2) == ("accepted", "", "")
        again = await at.controller.answer(waits, NODE, 2)
        assert (again.state, again.position) == ("queued", 1)


async def test_queued_run_is_answered_with_the_run_that_it_waits_for(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        held = await at.hold(name="site", requester="anna")

        waits = await at.apply()

        answer = await at.controller.answer(waits, NODE)
        ahead = RunAhead(run=held, action="apply", name="site", requester="anna (unverified)")
        assert (answer.state, answer.position, answer.ahead) == ("queued", 1, ahead)
        assert (await at.controller.answer(held, NODE)).ahead is None


async def test_a_request_on_two_scopes_is_carried_out_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply()
        await at.apply(run=run, scope=f"node.{NODE}")

        await at.controller.summary(run, NODE)
        await at.controller.answer(run, NODE, 2)

        assert len(at.engine.applied) == 1


async def test_a_refusal_stays_one_when_the_request_comes_again(tmp_path: Path) -> None:
    async with stage(tmp_path, queue_limit=1) as at:
        await at.hold()
        await at.apply()
        refused = await at.apply()
        assert await at.answered(refused) == ("refused", "queue.full", "")
        at.engine.go.set()

        await at.apply(run=refused)

        assert await at.answered(refused, 2) == ("refused", "queue.full", "")


# -- the queue


async def test_runs_are_carried_out_one_at_a_time_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        await at.hold()
        runs = [await at.apply(f"stable /{number}") for number in range(3)]
        positions = [(await at.controller.answer(run, NODE)).position for run in runs]
        at.engine.go.set()

        for run in runs:
            await at.controller.summary(run, NODE)

        assert positions == [1, 2, 3]
        assert [source.text for source, _ in at.engine.applied[1:]] == [
            b"stable /0",
            b"stable /1",
            b"stable /2",
        ]


async def test_a_newer_request_of_a_name_supersedes_one_that_waits(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        await at.hold(name="site")
        old = await at.apply(name="site")
        new = await at.apply(name="site")

        superseded = await at.controller.answer(old, NODE, 2)

        assert (superseded.state, superseded.code) == ("superseded", "run.superseded")
        assert superseded.reason == f"replaced by a newer request for site: run {new[:8]}"
        await at.apply(run=old)
        assert await at.answered(old, 3) == ("superseded", "run.superseded", "")


# -- deadlines


async def test_a_request_past_its_deadline_is_expired(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(deadline=at.clock.now() - timedelta(seconds=1))

        assert await at.answered(run) == ("expired", "run.expired", "")
        assert at.engine.applied == []


async def test_a_request_that_waited_past_its_deadline_is_expired_and_not_begun(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        await at.hold()
        run = await at.apply(deadline=at.clock.now() + timedelta(seconds=60))
        assert await at.answered(run) == ("queued", "", "")
        at.clock.pass_s(61)

        at.engine.go.set()

        assert await at.answered(run, 2) == ("expired", "run.expired", "")
        assert len(at.engine.applied) == 1


# -- stop

MARIA = "maria (unverified)"


async def test_a_stop_ends_the_run_in_progress_after_its_resource(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.hold()

        stop = await at.controller.ask(StopRequest(protocol=RUN_STOP, stop=run, requester="maria"))
        assert await at.answered(stop) == ("done", "", "")
        at.engine.go.set()

        summary = await at.controller.summary(run, NODE)
        assert (summary["state"], summary["code"]) == ("stopped", "run.stopped")
        assert (summary["reason"], summary["stopped_by"]) == (f"stopped by {MARIA}", MARIA)
        assert summary["skipped_resources"] == 1


async def test_a_stop_takes_a_run_that_waits_out_of_the_queue_and_closes_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        await at.hold()
        run = await at.apply()

        await at.controller.ask(StopRequest(protocol=RUN_STOP, stop=run, requester="maria"))

        summary = await at.controller.summary(run, NODE)
        assert (summary["state"], summary["stopped_by"], summary["events_sent"]) == ("stopped", MARIA, 2)
        assert summary["reason"] == f"stopped by {MARIA} before it began"
        at.engine.go.set()
        assert len(at.engine.applied) == 1


async def test_kill_is_passed_on_to_the_current_run(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.hold()
        [(_, options)] = at.engine.applied
        assert options.stop is not None

        stop = await at.controller.ask(StopRequest(protocol=RUN_STOP, stop=run, kill=True))
        await at.answered(stop)
        is_kill = options.stop.is_kill
        at.engine.go.set()

        assert is_kill
        assert (await at.controller.summary(run, NODE))["state"] == "stopped"


async def test_a_stop_that_overtakes_its_run_keeps_it_from_beginning(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = new_id()
        await at.controller.ask(StopRequest(protocol=RUN_STOP, stop=run))

        await at.apply(run=run)

        assert await at.answered(run) == ("done", "run.unreceived", "failed")
        assert at.engine.applied == []


async def test_a_stop_of_an_ended_run_reports_how_it_ended(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply("changed /a")
        await at.controller.summary(run, NODE)

        stop = await at.controller.ask(StopRequest(protocol=RUN_STOP, stop=run))

        assert await at.answered(stop) == ("done", "", "changed")


# -- what kind of run


@pytest.mark.parametrize(
    ("protocol", "noop", "checks"),
    [(MANIFEST_APPLY, False, False), (MANIFEST_PLAN, True, False), (MANIFEST_CHECK, False, True)],
    ids=["apply", "plan", "check"],
)
async def test_the_subject_decides_between_apply_plan_and_check(
    tmp_path: Path, protocol: str, noop: bool, checks: bool
) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(
            protocol=protocol, requester="op", data=["kv://CCM_DATA/common"], cause="schedule"
        )
        await at.controller.summary(run, NODE)

        _, options = at.engine.applied[0]

        assert (options.noop, options.health_check_only) == (noop, checks)
        assert (options.run, options.node, options.requester, options.cause, options.hiera) == (
            run,
            NODE,
            "op",
            "schedule",
            ("kv://CCM_DATA/common",),
        )


async def test_one_resource_is_a_run_and_always_reported(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        request = EnsureRequest(protocol=RESOURCE_ENSURE, type="file", properties={"name": "/etc/motd"})
        run = await at.controller.ask(request)

        summary = await at.controller.summary(run, NODE)

        assert (summary["state"], summary["manifest"], summary["events_sent"]) == (
            "changed",
            "file#/etc/motd",
            3,
        )


async def test_command_is_a_run_and_supersedes_no_other(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        await at.hold(name="site")
        request = ExecRequest(protocol=RESOURCE_EXEC, argv=["echo", "a b"])
        first = await at.controller.ask(request)
        second = await at.controller.ask(msgspec.structs.replace(request, run=new_id()))
        at.engine.go.set()

        ends = [await at.controller.summary(run, NODE) for run in (first, second)]

        assert [one["manifest"] for one in ends] == ["exec#echo 'a b'", "exec#echo 'a b'"]


@pytest.mark.parametrize("argv", [[], [""], ["echo", "\0"]])
async def test_command_that_no_program_can_be_given_fails(tmp_path: Path, argv: list[str]) -> None:
    async with stage(tmp_path) as at:
        run = await at.controller.ask(ExecRequest(protocol=RESOURCE_EXEC, argv=argv))

        summary = await at.controller.summary(run, NODE)

        assert (summary["state"], summary["reason"]) == (
            "failed",
            "the request has no command",
        )


async def test_a_manifest_with_another_digest_is_not_applied(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply(name="site", digest="0" * 64)

        summary = await at.controller.summary(run, NODE)

        assert (summary["state"], summary["code"]) == ("failed", "bus.protocol")
        assert summary["reason"] == "site: the manifest does not match its digest; send it again"
        assert at.engine.applied == []


async def test_stable_resources_are_reported_on_request(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        some = await at.apply("stable /a\nskipped /b")
        every = await at.apply("stable /a\nskipped /b", events="all")

        assert (await at.controller.summary(some, NODE))["events_sent"] == 3
        assert (await at.controller.summary(every, NODE))["events_sent"] == 4


async def test_a_fault_of_the_engine_ends_the_run_and_not_the_agent(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.apply("changed /a\nbroken /b")

        summary = await at.controller.summary(run, NODE)

        assert (summary["state"], summary["reason"], summary["code"]) == ("failed", "/b: broken", "ccm.error")
        assert (summary["changed_resources"], summary["events_sent"]) == (1, 3)
        assert await at.answered(await at.apply()) == ("accepted", "", "")


# -- questions


async def test_a_ping_reports_the_agent(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        ping = await at.controller.ask(Request(protocol=NODE_PING))

        answer = await at.controller.answer(ping, NODE)

        assert (answer.state, answer.node, answer.body) == ("done", NODE, {"version": "0.1.0"})
        assert answer.started == at.clock.now()
        assert len(answer.machine) == 32


async def test_facts_are_answered_whole(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        run = await at.controller.ask(Request(protocol=NODE_FACTS))

        assert (await at.controller.answer(run, NODE)).body == {"role": "web"}


async def test_the_status_shows_the_current_run_and_the_queue(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        held = await at.hold(name="site")
        waits = await at.apply(name="other")
        run = await at.controller.ask(Request(protocol=NODE_STATUS))

        body = (await at.controller.answer(run, NODE)).body

        assert (body["run"], body["name"]) == (held, "site")
        at_hand = {key: body["progress"][key] for key in ("resource", "position", "total")}
        assert at_hand == {"resource": "file#/held", "position": 1, "total": 2}
        assert body["waits_for"] == {"package": "ccm apply (pid 99)"}
        assert body["waiting"] == [{"run": waits, "name": "other"}]
        assert body["scopes"] == ["all", f"node.{NODE}"]


async def test_a_request_of_a_newer_controller_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        protocol = "io.choria.ccm.v1.node.reboot.request"
        run = await at.controller.ask(Request(protocol=protocol))

        answer = await at.controller.answer(run, NODE)

        assert (answer.state, answer.code) == ("refused", "request.unknown")
        assert (
            answer.reason
            == f"this agent does not support {protocol}; upgrade the agent if it is older than the controller"
        )


# -- what breaks the protocol


async def refused(at: Stage) -> dict[str, Any]:
    return await at.controller.said(event_subject(AGENT_REFUSED, NODE))


async def test_copied_request_is_refused_with_a_message(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        subject = request_subject(MANIFEST_APPLY, "all")
        body = b'{"protocol":"' + MANIFEST_APPLY.encode() + b'","run":"' + new_id().encode() + b'"}'
        at.broker.inject(subject, body, {"Nats-Stream": "KV_CCM_DATA", "Nats-Subject": "x"})

        told = await refused(at)

        assert told["details"] == {"refused": subject}
        assert "was sent here" in told["message"]
        assert at.engine.applied == []


async def test_body_of_another_protocol_is_refused_with_a_message(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        subject = request_subject(MANIFEST_PLAN, "all")
        body = b'{"protocol":"' + MANIFEST_APPLY.encode() + b'","run":"' + new_id().encode() + b'"}'
        at.broker.inject(subject, body)

        assert (await refused(at))["details"] == {"refused": subject}


@pytest.mark.parametrize("run", ["", "short", "../../etc/passwd", "a.b", "x" * 28])
async def test_a_run_id_that_could_not_be_answered_is_refused(tmp_path: Path, run: str) -> None:
    async with stage(tmp_path) as at:
        subject = request_subject(MANIFEST_APPLY, "all")
        at.broker.inject(subject, f'{{"protocol":"{MANIFEST_APPLY}","run":"{run}"}}'.encode())

        assert (await refused(at))["message"] == (f"{subject}: the request has no valid run id")


async def test_refusals_are_reported_no_more_than_ten_times_a_minute(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        subject = request_subject(MANIFEST_APPLY, "all")
        for _ in range(100):
            at.broker.inject(subject, b"no JSON")

        await at.is_silent("")
        await refused(at)

        told = [one for one, _ in at.controller.heard if one == event_subject(AGENT_REFUSED, NODE)]
        assert len(told) <= 10


# -- scheduled requests


async def test_a_scheduled_request_has_a_run_id_that_every_node_derives_alike(tmp_path: Path) -> None:
    async with stage(tmp_path) as at:
        subject = request_subject(MANIFEST_APPLY, "all")
        at.broker.fire(subject, f'{{"protocol":"{MANIFEST_APPLY}","manifest":"stable /a"}}'.encode())

        answer = await at.controller.said_like(SESSION_ANSWER)

        assert is_id(answer["run"])
        assert (await at.controller.summary(answer["run"], NODE))["state"] == "stable"
        start = await at.controller.said(event_subject(SESSION_START, NODE, answer["run"]))
        assert start["origin"] == "one"


@pytest.mark.parametrize("stamp", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon", ""])
def test_a_scheduled_request_of_a_time_that_no_run_id_has_is_refused(stamp: str) -> None:
    headers = {"Nats-Stream": "CCM_SCHEDULES", "Nats-Sequence": "7", "Nats-Time-Stamp": stamp}

    with pytest.raises(ProtocolError, match="without the broker's headers"):
        scheduled_run_id(
            IncomingRequest(subject="s", protocol="p", scope="all", body=b"", headers=headers, scheduled=True)
        )


@pytest.mark.parametrize("body", [b'{"run":"\xff"}', b'{"run":' + b"[" * 100_000, b"{}"])
def test_a_body_that_cannot_be_read_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="the request cannot be read"):
        decode_request(IncomingRequest(subject="s", protocol=MANIFEST_APPLY, scope="all", body=body))


def test_a_deadline_beyond_the_calendar_is_ignored() -> None:
    request = ManifestRequest(protocol=MANIFEST_APPLY, deadline_s=1e15)

    assert find_deadline(request, datetime(2026, 11, 21, tzinfo=UTC)) is None


def test_the_id_of_a_scheduled_run_comes_from_the_place_and_time_of_its_message() -> None:
    def incoming(**headers: str) -> IncomingRequest:
        given = {
            "Nats-Stream": "CCM_SCHEDULES",
            "Nats-Sequence": "7",
            "Nats-Time-Stamp": "2026-11-21T12:00:00.123456789Z",
        }
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return IncomingRequest(
            subject="s", protocol="p", scope="all", body=b"", headers=given | named, scheduled=True
        )

    run, due = scheduled_run_id(incoming())

    assert (run, due.isoformat()) == (scheduled_run_id(incoming())[0], "2026-11-21T12:00:00+00:00")
    assert is_id(run)
    assert run != scheduled_run_id(incoming(Nats_Sequence="8"))[0]
    assert run != scheduled_run_id(incoming(Nats_Time_Stamp="2026-11-21T12:00:00.123456788Z"))[0]


# -- parts of manifests


async def test_a_part_of_a_manifest_reaches_the_engine_with_its_selection(tmp_path: Path) -> None:
    part = PartialManifest(only=("file#/a",), manifest="changed /a")
    digest = sha256(b"changed /a").hexdigest()
    async with stage(tmp_path) as at:
        run = await at.apply(manifest="", part=part, digest=digest, name="site")
        await at.controller.said(event_subject(SESSION_SUMMARY, NODE, run))

        source, options = at.engine.applied[0]

    assert (source.text, source.digest, options.selection) == (b"changed /a", digest, part)


async def test_a_run_of_a_part_does_not_replace_a_waiting_run_of_the_whole(tmp_path: Path) -> None:
    part = PartialManifest(tags=("web",), manifest="stable /a")
    async with stage(tmp_path) as at:
        await at.hold(name="other")
        whole = await at.apply(name="site")
        partial = await at.apply(name="site", manifest="", part=part)
        again = await at.apply(name="site", manifest="", part=part)

        assert (await at.answered(again))[0] == "queued"
        assert (await at.answered(whole))[0] == "queued"
        assert (await at.answered(partial, 2))[0] == "superseded"
