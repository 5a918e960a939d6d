"""What a kill, a stop, a lost broker and a full disk do to a run; on a bus in memory."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.wire import (
    AGENT_LOST_EVENTS,
    AGENT_SHUTDOWN,
    AGENT_STARTUP,
    MANIFEST_APPLY,
    SESSION_PROGRESS,
    ManifestRequest,
)
from ccm_agent.storage.journal import read_records
from tests.support.agent import NODE, OneNode, until

STOPPED_AGENT = "interrupted: the agent was stopped"


class Fleet(OneNode):
    """One node whose agent may die and come back, and a controller."""

    async def apply(self, manifest: str, **fields: Any) -> str:
        request = ManifestRequest(protocol=MANIFEST_APPLY, manifest=manifest, **fields)
        return await self.controller.ask(request)

    def told(self, run: str) -> list[tuple[int, str]]:
        """Numbers and kinds of what the stream holds of a run."""
        return [(body["number"], _kind(body)) for body in self.stored(run)]

    def stored(self, run: str) -> list[dict[str, Any]]:
        return [json.loads(w.body) for w in self.broker.events if f".{run}." in w.subject]


def _kind(body: dict[str, Any]) -> str:
    return str(body["protocol"]).removeprefix("io.choria.ccm.v1.")


async def fleet(folder: Path) -> Fleet:
    one = Fleet(folder)
    await one.controller.listen()
    return one


WHOLE = [(1, "session.start"), (2, "transaction.event"), (3, "transaction.event"), (4, "session.summary")]


async def test_a_killed_agent_reports_the_runs_outcomes_after_its_restart(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("stable /a\nchanged /b\nfailed /c\nwait /d\nchanged /e", name="site")
        await at.engine.at_wait.wait()
        await agent.kill()

    async with at.agent():
        summary = await at.controller.summary(run, NODE)

        assert (summary["state"], summary["reason"], summary["code"]) == (
            "failed",
            "interrupted",
            "run.interrupted",
        )
        assert (summary["changed_resources"], summary["failed_resources"], summary["manifest"]) == (
            1,
            1,
            "site",
        )
        assert [one["resource"] for one in summary["failed"]] == ["file#/c"]
        assert at.told(run) == WHOLE
        assert at.engine.applied == []


async def test_a_request_that_comes_again_after_a_kill_is_answered_and_not_applied(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("wait /a")
        await at.engine.at_wait.wait()
        await agent.kill()

    async with at.agent():
        await at.apply("wait /a", run=run)

        answer = await at.controller.answer(run, NODE, 2)
        assert (answer.state, answer.outcome, answer.reason) == ("done", "failed", "interrupted")
        assert at.engine.applied == []


async def test_a_run_that_waited_is_begun_after_a_kill(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        await at.apply("wait /a")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /b")
        await at.controller.answer(waits, NODE)
        await agent.kill()

    async with at.agent():
        assert (await at.controller.summary(waits, NODE))["state"] == "changed"


async def test_step_of_a_rollout_that_waited_is_not_begun_after_a_kill(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        await at.apply("wait /a")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /b", rollout=True)
        await at.controller.answer(waits, NODE)
        await agent.kill()

    async with at.agent():
        summary = await at.controller.summary(waits, NODE)

        assert (summary["state"], summary["reason"]) == ("failed", "interrupted")
        assert at.told(waits) == [(1, "session.summary")]
        assert at.engine.applied == []


async def test_a_run_that_waited_past_its_deadline_is_expired_after_a_kill(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        await at.apply("wait /a")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /b", deadline=at.clock.now() + timedelta(minutes=5))
        await at.controller.answer(waits, NODE)
        await agent.kill()
    at.clock.pass_s(600)

    async with at.agent():
        answer = await at.controller.answer(waits, NODE, 2)

        assert answer.state == "expired"
        assert at.engine.applied == []


async def test_events_of_a_lost_broker_arrive_after_its_return_once_and_in_order(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent():
        run = await at.apply("changed /a\nwait /b\nchanged /c")
        await at.engine.at_wait.wait()
        at.broker.stop()
        at.engine.go.set()
        await asyncio.sleep(0)

        at.broker.start()

        assert (await at.controller.summary(run, NODE))["state"] == "changed"
        assert at.told(run) == WHOLE


async def test_a_lost_acknowledgement_does_not_double_an_event(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent():
        at.broker.lost_acks = 3
        run = await at.apply("changed /a\nchanged /b")

        await at.controller.summary(run, NODE)

        assert at.told(run) == WHOLE


async def test_events_that_were_not_acknowledged_before_a_kill_are_sent_after_it_once(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("wait /a\nchanged /b\nchanged /c")
        await at.engine.at_wait.wait()
        at.broker.stop()
        at.engine.go.set()
        await until(lambda: not agent.agent.is_busy)
        await agent.kill()
    at.broker.start()

    async with at.agent():
        assert (await at.controller.summary(run, NODE))["state"] == "changed"
        assert at.told(run) == WHOLE


async def test_an_agent_starts_and_converges_without_a_broker(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("wait /a")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /b")
        await at.controller.answer(waits, NODE)
        await agent.kill()
    at.broker.stop()

    async with at.agent() as agent:
        await until(lambda: bool(at.engine.applied) and not agent.agent.is_busy)
        at.broker.start()

        assert (await at.controller.summary(waits, NODE))["state"] == "changed"
        assert (await at.controller.summary(run, NODE))["reason"] == "interrupted"


async def test_a_stop_of_the_agent_finishes_the_resource_in_progress_and_sends_a_goodbye(
    tmp_path: Path,
) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("wait /a\nchanged /b")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /c")
        await at.controller.answer(waits, NODE)
        agent.stop.set()
        await asyncio.sleep(0)
        at.engine.go.set()
        async with asyncio.timeout(5):
            await agent.task

        summary = await at.controller.summary(run, NODE)
        assert (summary["state"], summary["skipped_resources"]) == ("failed", 1)
        assert (summary["reason"], summary["code"]) == (STOPPED_AGENT, "run.interrupted")
        assert len(at.engine.applied) == 1
        assert not agent.left_a_resource
        await at.controller.said(event_subject(AGENT_SHUTDOWN, NODE))
        assert await at.controller.bus.bucket("CCM_NODES").get(f"presence.{NODE}") is None

    async with at.agent():
        assert (await at.controller.summary(waits, NODE))["state"] == "changed"


async def test_a_request_that_comes_while_the_agent_stops_is_left_to_the_next_process(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    stops = asyncio.Event()
    async with at.agent() as agent:

        async def restarts() -> bool:
            stops.set()
            return False

        agent.restarts = restarts  # type: ignore[method-assign]
        await at.apply("wait /a")
        await at.engine.at_wait.wait()
        agent.stop.set()
        await stops.wait()
        late = await at.apply("changed /b")
        at.engine.go.set()
        await agent.end()

    assert [subject for subject, _ in at.controller.heard if f".{late}." in subject] == []
    async with at.agent():
        await at.apply("changed /b", run=late)

        assert (await at.controller.answer(late, NODE)).state == "accepted"
        assert (await at.controller.summary(late, NODE))["state"] == "changed"


async def test_a_resource_that_does_not_end_is_left_to_itself_after_the_drain(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent(drain_s=0.05) as agent:
        run = await at.apply("changed /a\nwait /b\nchanged /c")
        await at.engine.at_wait.wait()
        await agent.end()

        summary = await at.controller.summary(run, NODE)
        assert summary["reason"] == "interrupted at file#/b, which continues to run"
        assert (summary["changed_resources"], summary["events_sent"]) == (1, 3)
        assert agent.left_a_resource

    async with at.agent():
        await at.controller.said(event_subject(AGENT_STARTUP, NODE))
        assert len(at.told(run)) == 3


async def test_a_run_reports_its_progress_also_while_it_waits(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent(progress_s=0.02):
        run = await at.apply("changed /a\nwait /b\nchanged /c")
        await at.engine.at_wait.wait()
        waits = await at.apply("changed /d")
        at.clock.pass_s(7)

        progress = await at.controller.said(event_subject(SESSION_PROGRESS, NODE, run))
        queued = await at.controller.said(event_subject(SESSION_PROGRESS, NODE, waits))

        assert progress == {
            "protocol": SESSION_PROGRESS,
            "run": run,
            "node": NODE,
            "resource": "file#/b",
            "position": 2,
            "total": 3,
            "resource_s": 7.0,
            "run_s": 7.0,
            "changed": 1,
        }
        assert (queued["state"], queued["run"]) == ("queued", waits)
        at.engine.go.set()


async def test_a_run_whose_events_wait_reports_it_until_the_stream_has_them(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent(progress_s=0.02, retry_s=0.001):
        await at.controller.said(event_subject(AGENT_STARTUP, NODE))
        at.broker.lost_acks = 10**9
        run = await at.apply("changed /a")

        progress = await at.controller.said(event_subject(SESSION_PROGRESS, NODE, run))
        at.broker.lost_acks = 0
        summary = await at.controller.summary(run, NODE)

        assert {**progress, "run_s": 0} == {
            "protocol": SESSION_PROGRESS,
            "run": run,
            "node": NODE,
            "state": "reporting",
            "run_s": 0,
        }
        assert (progress["run_s"] > 0, summary["state"]) == (True, "changed")


async def test_lost_events_are_counted_and_reported(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    at.broker.stop()
    async with at.agent(spool_limit_bytes=40_000, spool_segment_bytes=4_000) as agent:
        at.broker.start()
        at.broker.lost_acks = 10**9
        runs = [await at.apply("\n".join(f"changed /{n}" for n in range(20))) for _ in range(10)]
        await until(lambda: len(at.engine.applied) == len(runs) and not agent.agent.is_busy)
        at.broker.lost_acks = 0

        told = await at.controller.said(event_subject(AGENT_LOST_EVENTS, NODE))

        (places,) = told["details"]["places"].values()
        first, _, last = places.split(",")[0].partition("-")
        assert 0 < int(last) - int(first) < told["details"]["events"]


async def test_a_kill_between_the_summary_and_the_ledger_is_reported_once(tmp_path: Path) -> None:
    """The ledger's last record is taken away, as if the process had ended before it was written."""
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        at.broker.lost_acks = 10**9
        run = await at.apply("changed /a")
        await until(lambda: bool(at.engine.applied) and not agent.agent.is_busy)
        await agent.kill()
    at.broker.lost_acks = 0
    await asyncio.to_thread(without_last_record, tmp_path / "ledger.log")

    async with at.agent():
        await at.controller.summary(run, NODE)
        await at.apply("changed /a", run=run)

        answer = await at.controller.answer(run, NODE, 2)
        assert (answer.state, answer.outcome) == ("done", "changed")
        assert at.told(run) == [(1, "session.start"), (2, "transaction.event"), (3, "session.summary")]
        assert at.engine.applied == []


async def test_a_power_cut_that_loses_the_ledger_keeps_flushed_events(tmp_path: Path) -> None:
    at = await fleet(tmp_path)
    async with at.agent() as agent:
        run = await at.apply("changed /a\nwait /b")
        await at.engine.at_wait.wait()
        await agent.kill()
    await asyncio.to_thread((tmp_path / "ledger.log").write_bytes, b"")

    async with at.agent():
        summary = await at.controller.summary(run, NODE)

        assert (summary["reason"], summary["changed_resources"]) == ("interrupted", 1)
        await at.apply("changed /a", run=run)
        assert (await at.controller.answer(run, NODE, 2)).outcome == "failed"


def without_last_record(path: Path) -> None:
    data = path.read_bytes()
    offset, _ = read_records(data).records[-1]
    path.write_bytes(data[:offset])
