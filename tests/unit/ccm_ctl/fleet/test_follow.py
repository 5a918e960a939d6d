"""Following a run over the bus: early, late, double and missing messages, and a broker that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    SessionStart,
    SessionSummary,
    TransactionEvent,
)
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import SESSION_ANSWER, SESSION_PROGRESS, Answer, NodeState, Progress
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.events.gaps import Gaps
from ccm_ctl.fleet.runs import follow as follow_module
from ccm_ctl.fleet.runs import run as run_module
from ccm_ctl.fleet.runs.follow import Follower
from ccm_ctl.fleet.runs.joining import Joining
from ccm_ctl.fleet.runs.node_run import EventReceived, News
from ccm_ctl.fleet.runs.run import Run
from tests.support.controller import NOW, event, fleet_on
from tests.support.signing import OWN

WAIT_S = 10.0
"""Only a failure takes so long."""


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "TURN_S", 0.001)
    for name in ("RESEND_AFTER_S", "READ_AGAIN_S"):
        monkeypatch.setattr(run_module, name, 0.002)
    monkeypatch.setattr(run_module, "QUIET_S", 0.1)
    for name in ("ANSWER_WITHIN_S", "LOST_AFTER_S"):
        monkeypatch.setattr(run_module, name, 1.0)  # longer than a busy machine keeps a test waiting


class Scene:
    """A broker, one node that speaks as the test says, and a follower of its run."""

    def __init__(self, *expected: str) -> None:
        self.broker = MemoryBroker()
        self.node = MemoryBus(self.broker, "web1")
        self.fleet = fleet_on(MemoryBus(self.broker, "op"))
        self.id = new_id()
        self.expected = expected or ("web1",)
        self.asked: list[list[str]] = []
        self.news: list[News] = []
        self.on_turn: Callable[[], Awaitable[None]] | None = None

    async def follow(self, begin: Callable[[], Awaitable[None]], *, asked: bool = True) -> Run:
        run = Run(self.id, self.expected, [], asyncio.get_running_loop().time(), asked=asked)
        self.run = run

        async def ask(named: list[str]) -> None:
            self.asked.append(named)

        async def turn(news: list[News]) -> None:
            self.news += news
            if self.on_turn is not None:
                await self.on_turn()

        async with asyncio.timeout(WAIT_S):
            may_join = Joining(self.fleet, ["role=web"], "").may_join
            await Follower(self.fleet, run, ask=ask, may_join=may_join, on_turn=turn).follow(begin)
        return run

    async def other(self, node: str, said: Answer | Progress | SessionStart | SessionSummary) -> None:
        """What a node says that is not expected."""
        bus, subject = MemoryBus(self.broker, node), event_subject(said.protocol, node, self.id)
        if isinstance(said, Answer | Progress):
            await bus.events.announce(subject, msgspec.json.encode(said))
        else:
            await bus.events.publish(subject, new_id(), msgspec.json.encode(said))

    async def assign(self, node: str, **facts: str) -> None:
        """An operator assigns facts to a node."""
        await self.fleet.facts.write(
            node, msgspec.json.encode(Stamped(bucket="CCM_FACTS", key=node, number=1, body=facts)), 0, OWN
        )

    async def store(self, said: SessionStart | TransactionEvent | SessionSummary) -> None:
        subject = event_subject(said.protocol, "web1", self.id)
        await self.node.events.publish(subject, said.event_id, msgspec.json.encode(said))

    def hide(self, said: SessionStart | TransactionEvent | SessionSummary) -> None:
        """Store messages in the stream that are not delivered over core NATS."""
        subject = event_subject(said.protocol, "web1", self.id)
        self.broker.store("CCM_EVENTS", self.broker.events, subject, msgspec.json.encode(said))

    async def answer(self, state: str) -> None:
        answer = Answer(protocol=SESSION_ANSWER, state=state)
        await self.node.events.announce(
            event_subject(SESSION_ANSWER, "web1", self.id), msgspec.json.encode(answer)
        )

    @property
    def numbers(self) -> list[int]:
        return [one.event.number for one in self.news if isinstance(one, EventReceived)]


def start() -> SessionStart:
    return SessionStart(protocol=SESSION_START, event_id=new_id(), timestamp=NOW, number=1)


def summary(number: int) -> SessionSummary:
    return SessionSummary(
        protocol=SESSION_SUMMARY,
        event_id=new_id(),
        timestamp=NOW,
        number=number,
        events_sent=number,
        state="changed",
    )


async def test_a_received_summary_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "RESEND_AFTER_S", WAIT_S)
    scene = Scene()

    async def begin() -> None:
        await scene.answer("accepted")
        for said in (start(), event("/etc/motd", 2), summary(3)):
            await scene.store(said)

    run = await scene.follow(begin)

    assert (run.counts(), scene.numbers, scene.asked) == ({NodeState.CHANGED: 1}, [1, 2, 3], [])


async def test_missed_events_are_read_from_the_stream() -> None:
    scene = Scene()

    async def begin() -> None:
        await scene.store(start())
        scene.hide(event("/etc/motd", 2))
        await scene.store(summary(3))

    await scene.follow(begin)

    assert scene.numbers == [1, 2, 3]


async def test_a_watcher_replays_the_stream_and_follows() -> None:
    scene = Scene()
    scene.hide(start())
    scene.hide(event("/etc/motd", 2))

    async def begin() -> None:
        await scene.store(summary(3))

    run = await scene.follow(begin, asked=False)

    assert (run.counts(), scene.numbers) == ({NodeState.CHANGED: 1}, [1, 2, 3])


async def test_a_node_that_does_not_answer_is_asked_again_and_then_unreachable() -> None:
    scene = Scene("web1", "web2")

    async def begin() -> None:
        await scene.answer("refused")
        await asyncio.sleep(0)  # it is heard before the request goes out again, however busy the machine is

    run = await scene.follow(begin)

    assert scene.asked == [["web2"]] * run_module.RESENDS
    assert run.counts() == {NodeState.REFUSED: 1, NodeState.UNREACHABLE: 1}


async def test_a_node_that_falls_silent_is_lost_only_after_the_stream_was_read() -> None:
    scene = Scene()

    async def begin() -> None:
        await scene.store(start())

    run = await scene.follow(begin)

    assert (run.counts(), scene.numbers) == ({NodeState.LOST: 1}, [1])


async def test_a_lost_broker_is_waited_for() -> None:
    scene = Scene()
    turns = 0

    async def begin() -> None:
        await scene.answer("accepted")
        scene.broker.stop()
        scene.hide(start())
        scene.hide(event("/etc/motd", 2))
        scene.hide(summary(3))

    async def come_back() -> None:
        nonlocal turns
        turns += 1
        if scene.run.away_since is not None and turns > 80:  # longer than a silent node is waited for
            scene.broker.start()

    scene.on_turn = come_back

    run = await scene.follow(begin)

    assert (run.counts(), scene.numbers) == ({NodeState.CHANGED: 1}, [1, 2, 3])


async def test_protocol_errors_and_messages_of_other_runs_are_skipped() -> None:
    scene = Scene()

    async def begin() -> None:
        subject = event_subject(SESSION_SUMMARY, "web1", scene.id)
        scene.broker.inject(subject, b"{")
        scene.broker.inject(subject, msgspec.json.encode(summary(1)), {"Nats-Stream": "CCM_EVENTS"})
        for said in (start(), summary(2)):
            await scene.store(said)

    run = await scene.follow(begin)

    assert (run.counts(), scene.numbers) == ({NodeState.CHANGED: 1}, [1, 2])


async def test_node_with_matching_assigned_facts_joins_with_all_its_events() -> None:
    scene = Scene()
    await scene.assign("web9", role="web")

    async def begin() -> None:
        await scene.other("web9", Answer(protocol=SESSION_ANSWER, state="accepted"))
        await scene.other("web9", start())
        await scene.other("web9", summary(2))
        scene.on_turn = end

    async def end() -> None:
        if scene.run.joined:
            scene.on_turn = None
            for said in (start(), summary(2)):
                await scene.store(said)

    run = await scene.follow(begin)

    assert (run.joined, run.ignored) == (["web9"], set())
    assert run.nodes["web9"].state is NodeState.CHANGED
    assert run.counts() == {NodeState.CHANGED: 1}
    assert [
        one.event.number for one in scene.news if one.node == "web9" and isinstance(one, EventReceived)
    ] == [
        1,
        2,
    ]


@pytest.mark.parametrize("facts", [{}, {"role": "db"}])
async def test_a_node_whose_assigned_facts_do_not_match_is_ignored(
    facts: dict[str, str],
) -> None:
    """It hears requests to other roles, and says itself what its gathered facts are."""
    scene = Scene()
    if facts:
        await scene.assign("evil", **facts)

    async def begin() -> None:
        await scene.other("evil", Answer(protocol=SESSION_ANSWER, state="accepted"))
        await scene.other("evil", start())
        await scene.other("evil", msgspec.structs.replace(summary(2), state="failed"))
        for said in (start(), summary(2)):
            await scene.store(said)
        scene.on_turn = talk

    async def talk() -> None:
        await scene.other(
            "evil", Progress(protocol=SESSION_PROGRESS, run_s=asyncio.get_running_loop().time())
        )

    run = await scene.follow(begin)

    assert (run.joined, run.ignored, list(run.nodes)) == ([], {"evil"}, ["web1"])
    assert run.counts() == {NodeState.CHANGED: 1}
    assert {one.node for one in scene.news} == {"web1"}


async def test_a_node_that_joined_cannot_keep_a_run_from_ending_by_talking() -> None:
    scene = Scene()
    await scene.assign("web9", role="web")

    async def begin() -> None:
        await scene.other("web9", Answer(protocol=SESSION_ANSWER, state="accepted"))
        for said in (start(), summary(2)):
            await scene.store(said)
        scene.on_turn = talk

    async def talk() -> None:
        for _ in range(3):
            await scene.other(
                "web9", Progress(protocol=SESSION_PROGRESS, run_s=asyncio.get_running_loop().time())
            )
            await asyncio.sleep(0)

    run = await scene.follow(begin)

    assert run.joined == ["web9"]
    assert run.counts() == {NodeState.CHANGED: 1}


@pytest.mark.parametrize("number", ["1099511627776", "-1", "true", "2.0", '"3"', "1" * 400])
async def test_event_number_out_of_range_is_ignored(number: str) -> None:
    scene = Scene()
    hostile = msgspec.json.encode(summary(2)).replace(b'"number":2', b'"number":' + number.encode())

    async def begin() -> None:
        subject = event_subject(SESSION_SUMMARY, "web1", scene.id)
        await scene.node.events.publish(subject, new_id(), hostile)
        for said in (start(), summary(2)):
            await scene.store(said)

    run = await scene.follow(begin)

    assert (scene.numbers, run.nodes["web1"].missing) == ([1, 2], Gaps())
