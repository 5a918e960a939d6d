"""From what happens in the fleet to a delivered notification, across failures and restarts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.chain import CHAIN_HEADER
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.records.rollout_records import Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import AGENT_DRIFT, AgentEvent, Assignment, NodeRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.assignments import read_assignments, store_assignment
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.notify.channels import DeliveryError, Notification
from ccm_ctl.notify.rules import NotificationRule
from ccm_ctl.notify.server import (
    HAPPENINGS_KEPT,
    QUEUE_LIMIT,
    RETRY_S,
    STATE_LIMIT_BYTES,
    NotificationServer,
)
from tests.support.authorship import Root, Writer, new_seed, now_ms
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN


class Channel:
    """Takes notifications, or refuses them."""

    def __init__(self) -> None:
        self.taken: list[Notification] = []
        self.is_broken = False

    async def send(self, _rule: NotificationRule, notification: Notification) -> None:
        if self.is_broken:
            raise DeliveryError("webhook: HTTP status 503")
        self.taken.append(notification)

    @property
    def messages(self) -> list[str]:
        return [one.message for one in self.taken]


class MovingClock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> Any:
        return self.time


class Scene:
    """A fleet in memory, a clock and a channel; `server` starts a server as after a restart."""

    def __init__(self, path: Path) -> None:
        self.clock, self.channel, self.told, self.path = MovingClock(), Channel(), list[str](), path
        self.broker = MemoryBroker(now=lambda: self.clock.time)
        self.bus = MemoryBus(self.broker, "op")
        self.fleet: Fleet = msgspec.structs.replace(fleet_on(self.bus), clock=self.clock)
        self.root = Root()
        self.writers: dict[str, Writer] = {}

    async def server(self, **rules: NotificationRule) -> NotificationServer:
        server = NotificationServer(self.fleet, rules, self.path, self.told.append, self.channel.send)
        await server.open()
        return server

    def trust(self, *, allow_unsigned: bool = False) -> None:
        """Give the operator's credentials the fleet's root key."""
        until = now_ms() + 60_000 if allow_unsigned else 0
        trust = self.root.trust(allow_unsigned_until=until)
        self.fleet = msgspec.structs.replace(self.fleet, trust=trust)

    async def sign(self, node: str, *, is_certified: bool = True) -> None:
        """Let a node sign its events from now on, with a certificate in its record."""
        key = SigningKey(new_seed())
        self.writers[node] = Writer(key)
        if is_certified:
            record = NodeRecord(node=node, key=key.public_key, certificate=self.root.certificate(node, key))
            await self.bus.bucket("CCM_NODES").put(f"node.{node}", msgspec.json.encode(record))

    async def publish(self, protocol: str, node: str, said: object, run: str = "") -> None:
        subject, body, headers = event_subject(protocol, node, run), msgspec.json.encode(said), {}
        if writer := self.writers.get(node):
            event = writer.event(subject, body)
            headers = {CHAIN_HEADER: event.chain, SIGNATURE_HEADER: event.signature}
        await self.bus.events.publish(subject, new_id(), body, headers)

    async def fail(self, node: str, reason: str = "no such package") -> None:
        run = new_id()
        summary = SessionSummary(
            protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=NOW, node=node, run=run, manifest="site",
            state="failed", reason=reason, failed_resources=1,
        )  # fmt: skip
        await self.publish(SESSION_SUMMARY, node, summary, run)

    async def drift(self, node: str) -> None:
        event = AgentEvent(
            protocol=AGENT_DRIFT, event_id=new_id(), timestamp=NOW, node=node, message="site: 1 corrected"
        )
        await self.publish(AGENT_DRIFT, node, event)

    async def end_run(self, **counts: int) -> str:
        run = new_id()
        history = History(self.fleet)
        await history.begin(
            RunRecord(run=run, action="apply", name="site", requester="op", time=NOW, nodes=1),
            ["web1"],
            [],
            OWN,
        )
        await history.change(run, _done(counts))
        return run


def _done(counts: dict[str, int]) -> Callable[[Any], None]:
    def change(state: Any) -> None:
        state.state, state.counts = "done", counts

    return change


def _going_on(state: Any) -> None:
    state.state, state.counts = "running", {}


def a_rule(on: str, **more: Any) -> NotificationRule:
    return NotificationRule(on=on, webhook="https://hooks.example.com/x", **more)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "state" / "notify.json")


async def started(scene: Scene, **rules: NotificationRule) -> NotificationServer:
    """A server that has looked once: what happened before it does not report."""
    server = await scene.server(**rules)
    await server.look()
    await server.deliver_due()
    assert scene.channel.taken == []
    return server


async def test_events_before_the_first_check_are_not_reported(scene: Scene) -> None:
    await scene.fail("web1")
    await scene.end_run(failed=1)

    await started(scene, all=a_rule("true"))


async def test_a_look_reports_everything_that_matches_in_one_notification(scene: Scene) -> None:
    server = await started(
        scene, nodes=a_rule("failed && node != ''"), drift=a_rule("drift"), none=a_rule("paused")
    )
    for node in ("web1", "web2", "web3"):
        await scene.fail(node)
    await scene.drift("db1")

    await server.look()
    await server.deliver_due()
    await server.look()
    await server.deliver_due()

    assert scene.channel.messages == [
        "failed on 3 nodes: web1, web2, web3",
        "db1: drift was corrected: site: 1 corrected",
    ]
    assert [one.count for one in scene.channel.taken] == [3, 1]


async def test_an_ended_run_is_reported_by_its_result(scene: Scene) -> None:
    server = await started(
        scene, failed=a_rule("run.failed"), missing=a_rule("run.missing && run.name == 'site'")
    )
    _, bad, lost = (
        await scene.end_run(changed=2),
        await scene.end_run(failed=1),
        await scene.end_run(lost=1),
    )

    await server.look()
    await server.deliver_due()

    assert scene.channel.messages == [
        f"run {bad[:8]} (apply site by op) ended: 1 failed",
        f"run {lost[:8]} (apply site by op) ended: 1 lost",
    ]


async def test_another_operator_cannot_hide_that_a_run_failed(scene: Scene) -> None:
    server = await started(scene, runs=a_rule("kind == 'run'"))
    run = await scene.end_run()
    eve = History(fleet_on(MemoryBus(scene.broker, "eve")))
    await History(scene.fleet).change(run, _going_on)
    await eve.change(run, _done({"stable": 1, "x" * 9000: 1}))
    await server.look()
    await eve.change(run, _done({"stable": 2}))
    await server.look()
    await History(scene.fleet).change(run, _done({"failed": 1}))

    await server.look()
    await server.look()
    await server.deliver_due()

    assert scene.channel.messages == [
        f"run {run[:8]} (apply site by op) ended: 1 stable (recorded by eve)",
        f"run {run[:8]} (apply site by op) ended: 1 failed",
    ]


async def test_an_end_that_is_recorded_twice_is_reported_once(scene: Scene) -> None:
    server = await started(scene, runs=a_rule("kind == 'run'"))
    run = await scene.end_run()
    await History(scene.fleet).change(run, _going_on)
    await History(fleet_on(MemoryBus(scene.broker, "eve"))).change(run, _done({"failed": 1}))
    await server.look()
    await History(scene.fleet).change(run, _done({"failed": 1}))

    await server.look()
    await server.look()
    await server.deliver_due()

    assert scene.channel.messages == [f"run {run[:8]} (apply site by op) ended: 1 failed (recorded by eve)"]


async def test_a_paused_rollout_is_reported_once(scene: Scene) -> None:
    server = await started(scene, paused=a_rule("paused"))
    plan = RolloutPlan(waves=(Wave(name="wave 1", nodes=2, slots=1),))
    state = RolloutState(run=new_id(), plan=plan, phase=Phase.PAUSED, reason="1 failed in wave 1")
    await RolloutStore(scene.fleet).write(state, 0, base=OWN)

    for _ in range(2):
        await server.look()
        await server.deliver_due()

    assert scene.channel.messages == [
        f"rollout {state.run[:8]} is paused: 1 failed in wave 1\n"
        f"  continue:  ccmctl run resume {state.run[:8]}\n  abort:     ccmctl run abort {state.run[:8]}"
    ]


async def test_a_node_behind_its_assignment_is_stale_after_the_time_of_the_rule(scene: Scene) -> None:
    record = NodeRecord(node="web1", version="1", machine="m", facts={"role": "web"})
    await scene.bus.bucket("CCM_NODES").put("node.web1", msgspec.json.encode(record))
    bundle = Bundle(digest="0" * 64, size_bytes=1)
    assignment = Assignment(name="site", scope="all", bundle=bundle)
    await store_assignment(scene.fleet, assignment, await read_assignments(scene.fleet), OWN)
    server = await started(scene, soon=a_rule("stale", after="10m"), late=a_rule("stale", after="2h"))

    for minutes, expected in ((5, 0), (11, 1), (12, 1), (121, 2), (200, 2)):
        scene.clock.time = NOW + timedelta(minutes=minutes)
        await server.look()
        await server.deliver_due()
        assert len(scene.channel.taken) == expected, minutes

    assert [one.rule for one in scene.channel.taken] == ["soon", "late"]
    assert scene.channel.messages[0].startswith("web1 does not match site: ")


async def test_an_undelivered_notification_is_retried_in_order_and_survives_a_restart(scene: Scene) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    scene.channel.is_broken = True
    await scene.fail("web1")
    await server.look()
    await server.deliver_due()
    await scene.fail("web2")
    await server.look()
    await server.deliver_due()
    server.close()
    scene.channel.is_broken = False

    restarted = await scene.server(nodes=a_rule("failed"))
    await restarted.deliver_due()
    assert scene.channel.taken == []  # the time of the next attempt has not come

    scene.clock.time = NOW + timedelta(seconds=RETRY_S[0])
    await restarted.deliver_due()

    assert scene.channel.messages == [
        "web1: site failed: no such package",
        "web2: site failed: no such package",
    ]
    assert len({one.id for one in scene.channel.taken}) == 2


async def test_events_during_an_outage_of_the_server_are_reported_afterwards(scene: Scene) -> None:
    (await started(scene, nodes=a_rule("failed"))).close()
    scene.clock.time = NOW + timedelta(hours=5)
    await scene.fail("web1")
    scene.clock.time = NOW + timedelta(hours=9)

    restarted = await scene.server(nodes=a_rule("failed"))
    await restarted.look()
    await restarted.deliver_due()

    assert scene.channel.messages == ["web1: site failed: no such package"]


async def test_events_of_a_stream_that_was_created_again_are_reported(scene: Scene) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    for node in ("web1", "web2"):
        await scene.fail(node)
    await server.look()
    await server.deliver_due()
    server.close()
    again = Scene(scene.path)  # a broker without the events of the former one
    await again.fail("web3")

    server = await again.server(nodes=a_rule("failed"))
    for _ in range(2):
        await server.look()
        await server.deliver_due()

    assert again.channel.messages == ["web3: site failed: no such package"]


async def test_only_events_that_their_node_signed_are_reported(scene: Scene) -> None:
    scene.trust()
    await scene.sign("signed1")
    await scene.sign("unknown1", is_certified=False)
    server = await started(scene, nodes=a_rule("failed || drift"))
    for node in ("signed1", "unknown1", "unsigned1"):
        await scene.fail(node)
        await scene.drift(node)

    await server.look()
    await server.deliver_due()

    (notification,) = scene.channel.taken
    assert [one["node"] for one in notification.happenings] == ["signed1", "signed1"]
    assert scene.told == [
        "notifications: left out events that are not signed by their node: unknown1, unsigned1; "
        "see `ccmctl events --verify`"
    ]


async def test_unsigned_events_of_nodes_without_a_certificate_are_reported_while_they_are_allowed(
    scene: Scene,
) -> None:
    scene.trust(allow_unsigned=True)
    await scene.sign("certified1")
    scene.writers.clear()  # an event that claims to be from it, without a signature
    server = await started(scene, nodes=a_rule("failed"))
    for node in ("certified1", "old1"):
        await scene.fail(node)

    await server.look()
    await server.deliver_due()

    assert scene.channel.messages == ["old1: site failed: no such package"]


async def test_a_second_server_on_the_same_state_is_refused(scene: Scene) -> None:
    await started(scene, nodes=a_rule("failed"))

    with pytest.raises(UsageError, match="another server"):
        await scene.server()


async def test_a_damaged_state_is_refused_with_the_way_out(scene: Scene) -> None:
    scene.path.parent.mkdir()
    scene.path.write_text("{")

    with pytest.raises(UsageError, match="remove it"):
        await scene.server()


async def test_what_nodes_say_cannot_make_the_state_too_large_to_be_read_again(scene: Scene) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    scene.channel.is_broken = True
    for number in range(HAPPENINGS_KEPT):
        await scene.fail(f"web{number}", "\U0001f4a3" * 1000)

    await server.look()

    size_bytes = scene.path.stat().st_size
    assert size_bytes * QUEUE_LIMIT < STATE_LIMIT_BYTES
    (one,) = server._state.queue
    assert (one.count, one.happenings[0]["node"]) == (HAPPENINGS_KEPT, "web0")


async def test_a_delivered_notification_is_not_repeated_while_the_disk_is_full(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    await scene.fail("web1")
    await server.look()

    def full(path: Path, body: bytes) -> None:
        raise InputError(f"{path}: cannot be written: No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ccm_ctl.notify.server.write_whole", full)
        with pytest.raises(InputError):
            await server.deliver_due()
        await server.deliver_due()
    await scene.fail("web2")
    await server.look()
    server.close()
    await (await scene.server(nodes=a_rule("failed"))).deliver_due()

    assert scene.channel.messages == [
        "web1: site failed: no such package",
        "web2: site failed: no such package",
    ]


async def test_the_queue_is_bounded_and_reports_dropped_entries(scene: Scene) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    scene.channel.is_broken = True
    server._state.queue = [
        Notification(id=str(number), rule="nodes", message="m", time="t", not_before=1e12)
        for number in range(QUEUE_LIMIT)
    ]
    await scene.fail("web1")

    await server.look()

    assert len(server._state.queue) == QUEUE_LIMIT
    assert server._state.queue[0].id == "1"
    assert "1 dropped" in scene.told[-1]


async def test_a_template_makes_the_message_and_one_that_fails_hides_nothing(scene: Scene) -> None:
    server = await started(
        scene,
        good=a_rule("failed", template="{{ count }} on {{ node }}: {{ reason }}"),
        bad=a_rule("failed", template="{{ nothing.there }}"),
    )
    await scene.fail("web1", "{{ 7 * 7 }}")

    await server.look()
    await server.deliver_due()

    assert scene.channel.messages[0] == "1 on web1: {{ 7 * 7 }}"
    assert scene.channel.messages[1].startswith("web1: site failed: {{ 7 * 7 }}\n(message template:")


async def test_control_characters_and_length_of_a_reason_from_a_node_are_bounded(scene: Scene) -> None:
    server = await started(scene, nodes=a_rule("failed"))
    await scene.fail("web1", "a\x1b[31mb\nSubject: x" + "y" * 10_000)

    await server.look()
    await server.deliver_due()

    (message,) = scene.channel.messages
    assert "\x1b" not in message
    assert "\n" not in message
    assert len(message) < 600


async def test_a_condition_that_fails_at_run_time_is_reported_once(scene: Scene) -> None:
    server = await started(scene, odd=a_rule("run.counts.failed > 0"))
    for node in ("web1", "web2"):
        await scene.fail(node)

    await server.look()

    assert scene.channel.taken == []
    assert len(scene.told) <= 1
