from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.bus.subjects import event_subject
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.errors import CcmError
from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.wire import (
    AGENT_DRIFT,
    AGENT_REFUSED,
    MANIFEST_APPLY,
    RUN_STOP,
    ManifestRequest,
    StopRequest,
)
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.download import FakeDownload
from ccm_agent.testing.files import FakeFiles
from ccm_agent.testing.memory_bus import MemoryBroker
from tests.support.agent import (
    Controller,
    FakeEngine,
    Running,
    agent_ports,
    agent_settings,
    memory_bus,
    resource_event,
    running,
    until,
)
from tests.support.bundles import digest_of, packed

NODE = "web1.example.net"
SITE = "/etc/site.yaml"


class CheckingEngine(FakeEngine):
    """An engine whose checks find what a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.critical = 0

    async def apply(self, source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        summary = await super().apply(source, options)
        if options.health_check_only:
            summary.health_check_critical_count = self.critical
        return summary

    @property
    def actions(self) -> list[str]:
        """What was asked of it, in order: cause, and "check" for a run of checks."""
        return ["check" if one.health_check_only else one.cause for _, one in self.applied]


class World:
    """An agent's surroundings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.engine = CheckingEngine()
        self.files = FakeFiles()
        self.download = FakeDownload()
        self.broker = MemoryBroker()
        self.bus = memory_bus(self.broker, NODE)
        self.controller = Controller(memory_bus(self.broker, "op"))

    @asynccontextmanager
    async def agent(self, *manifests: str, **settings: Any) -> AsyncIterator[Running]:
        """An agent with these sources."""
        values = {"manifests": manifests, "change_pause_s": 0, **settings}
        sources = SourcePorts(files=self.files, download=self.download, objects=self.bus.objects)
        ports = agent_ports(self.bus, self.engine, self.clock, sources=sources)
        async with running(agent_settings(self.folder, NODE, **values), ports) as one:
            yield one

    async def applies(self, count: int) -> list[tuple[ManifestSource, ApplyOptions]]:
        """Wait until so many runs were begun."""
        await until(lambda: len(self.engine.applied) >= count)
        return self.engine.applied

    async def idle(self, one: Running) -> None:
        """Wait until no run is in hand or waits."""
        await until(lambda: not one.agent.is_busy)

    async def stored(self) -> list[dict[str, Any]]:
        """What the stream holds of runs, oldest first."""
        events = await self.controller.bus.events.read("io.choria.ccm.v1.>")
        bodies = [msgspec.json.decode(event.body) for event in events]
        return [body for body in bodies if body.get("run")]


@pytest.fixture
async def world(tmp_path: Path) -> World:
    one = World(tmp_path)
    await one.controller.listen()
    return one


async def test_a_manifest_is_applied_at_the_start_and_on_each_interval(world: World) -> None:
    world.files.put(SITE, "stable /a")
    async with world.agent(SITE, interval_s=300, watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        await world.clock.advance(300)
        applied = await world.applies(2)
        await world.idle(one)

    assert world.engine.actions == ["interval", "interval"]
    assert [source.digest for source, _ in applied] == [digest_of(b"stable /a")] * 2
    assert applied[0][1].run != applied[1][1].run


async def test_a_run_of_the_nodes_own_is_reported_like_any_other(world: World) -> None:
    world.files.put(SITE, "changed /a\nstable /b")
    async with world.agent(SITE):
        run = (await world.applies(1))[0][1].run
        summary = await world.controller.summary(run, NODE)

    told = [(one["protocol"].rpartition("v1.")[2], one["number"]) for one in await world.stored()]
    assert told == [("session.start", 1), ("transaction.event", 2), ("session.summary", 3)]
    assert (summary["state"], summary["manifest"], summary["digest"]) == (
        "changed",
        SITE,
        digest_of(b"changed /a\nstable /b"),
    )


async def test_a_file_that_changed_is_applied_with_the_next_look_at_it(world: World) -> None:
    world.files.put(SITE, "stable /a")
    async with world.agent(SITE, interval_s=86_400, watch_interval_s=30) as one:
        await world.applies(1)
        await world.idle(one)
        await world.clock.advance(30)
        world.files.put(SITE, "stable /b")
        await world.clock.advance(30)
        applied = await world.applies(2)

    assert world.engine.actions == ["interval", "change"]
    assert applied[1][0].text == b"stable /b"


async def test_objects_and_web_bundles_that_changed_are_applied(world: World) -> None:
    url = "https://config.example.com/web.tar.gz"
    objects = world.bus.objects("site")
    await objects.put("base.tar.gz", packed("one"))
    world.download.serve(url, packed("two"), etag='"1"')
    async with world.agent("obj://site/base.tar.gz", url, interval_s=86_400, watch_interval_s=30) as one:
        await world.applies(2)
        await world.idle(one)
        await objects.put("base.tar.gz", packed("three"))
        world.download.serve(url, packed("four"), etag='"2"')
        await world.clock.advance(30)
        applied = await world.applies(4)

    assert {source.digest for source, _ in applied[:2]} == {
        digest_of(packed("one")),
        digest_of(packed("two")),
    }
    assert {source.digest for source, _ in applied[2:]} == {
        digest_of(packed("three")),
        digest_of(packed("four")),
    }
    assert world.engine.actions[2:] == ["change", "change"]


async def test_an_object_that_changed_is_applied_when_the_notice_comes(world: World) -> None:
    objects = world.bus.objects("site")
    await objects.put("base.tar.gz", packed("one"))
    async with world.agent("obj://site/base.tar.gz", interval_s=86_400, watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        await objects.put("base.tar.gz", packed("two"))
        applied = await world.applies(2)

    assert [source.digest for source, _ in applied] == [digest_of(packed("one")), digest_of(packed("two"))]
    assert world.engine.actions == ["interval", "change"]


async def test_object_is_polled_where_notices_are_denied(world: World) -> None:
    world.broker.deny(NODE, "choria.ccm.poke.site.>")
    objects = world.bus.objects("site")
    await objects.put("base.tar.gz", packed("one"))
    async with world.agent("obj://site/base.tar.gz", interval_s=86_400, watch_interval_s=30) as one:
        await world.applies(1)
        await world.idle(one)
        await objects.put("base.tar.gz", packed("two"))
        await world.clock.advance(30)
        await world.applies(2)

    assert world.engine.actions == ["interval", "change"]


async def test_data_that_changed_is_applied_when_the_notice_comes(world: World) -> None:
    world.files.put(SITE, "stable /a")
    data = world.controller.bus.bucket("CCM_DATA")
    await data.put("common", b"data: {a: 1}")
    async with world.agent(SITE, external_data_url="kv://CCM_DATA/common", watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        await data.put("common", b"data: {a: 2}")
        await world.applies(2)

    assert world.engine.actions == ["interval", "change"]


async def test_data_that_changed_without_a_notice_is_seen_on_the_next_connection(world: World) -> None:
    world.files.put(SITE, "stable /a")
    world.broker.deny(NODE, "choria.ccm.poke.CCM_DATA.common")
    data = world.controller.bus.bucket("CCM_DATA")
    await data.put("common", b"data: {a: 1}")
    async with world.agent(SITE, external_data_url="kv://CCM_DATA/common", watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        await data.put("common", b"data: {a: 2}")
        world.broker.stop()
        world.broker.start()
        await world.applies(2)

    assert world.engine.actions == ["interval", "change"]


async def test_a_node_that_starts_without_a_broker_applies_again_when_it_has_the_data(world: World) -> None:
    world.files.put(SITE, "stable /a")
    await world.controller.bus.bucket("CCM_DATA").put("common", b"data: {a: 1}")
    world.broker.stop()
    async with world.agent(SITE, external_data_url="kv://CCM_DATA/common", watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        world.broker.start()
        await world.applies(2)

    assert world.engine.actions == ["interval", "change"]


async def test_data_on_the_web_is_looked_at_and_applied_when_it_changed(world: World) -> None:
    url = "https://config.example.com/data.yaml"
    world.files.put(SITE, "stable /a")
    world.download.serve(url, b"data: {a: 1}", etag='"1"')
    async with world.agent(SITE, external_data_url=url, interval_s=86_400, watch_interval_s=30) as one:
        await world.applies(1)
        await world.idle(one)
        await world.clock.advance(30)
        world.download.serve(url, b"data: {a: 2}", etag='"2"')
        await world.clock.advance(30)
        await world.applies(2)

    assert world.engine.actions == ["interval", "change"]


async def test_reasons_that_come_while_a_run_continues_become_one_run(world: World) -> None:
    world.files.put(SITE, "wait /a")
    data = world.controller.bus.bucket("CCM_DATA")
    async with world.agent(SITE, external_data_url="kv://CCM_DATA/common", watch_interval_s=0) as one:
        await world.engine.at_wait.wait()
        for number in range(20):
            await data.put("common", b"data: {a: %d}" % number)
        world.engine.go.set()
        await world.applies(2)
        await world.idle(one)

    assert len(world.engine.applied) == 2


async def test_a_request_waits_while_the_node_applies_its_own_manifest(world: World) -> None:
    world.files.put(SITE, "wait /a")
    async with world.agent(SITE):
        await world.engine.at_wait.wait()
        run = await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name=SITE, manifest="stable /b")
        )
        answer = await world.controller.answer(run, NODE)
        world.engine.go.set()
        summary = await world.controller.summary(run, NODE)

    assert (answer.state, summary["state"]) == ("queued", "stable")


async def test_a_change_under_the_same_manifest_is_corrective_and_one_under_a_new_is_not(
    world: World,
) -> None:
    world.files.put(SITE, "changed /a")
    async with world.agent(SITE, interval_s=300, watch_interval_s=0) as one:
        for count in (1, 2):
            await world.applies(count)
            await world.idle(one)
            await world.clock.advance(300)
        await world.applies(3)
        await world.idle(one)
        world.files.put(SITE, "changed /a\nstable /b")
        await world.clock.advance(300)
        run = (await world.applies(4))[3][1].run
        await world.controller.summary(run, NODE)
        drift = await world.controller.said(event_subject(AGENT_DRIFT, NODE))

    events = [one for one in await world.stored() if "transaction.event" in one["protocol"]]
    summaries = [one for one in await world.stored() if "session.summary" in one["protocol"]]
    assert [one["corrective"] for one in events] == [False, True, True, False]
    assert [one["corrective"] for one in summaries] == [False, True, True, False]
    assert drift["details"] == {
        "run": summaries[1]["run"],
        "manifest": SITE,
        "count": 1,
        "resources": ["file#/a"],
    }


async def test_change_by_a_request_is_not_drift(world: World) -> None:
    async with world.agent():
        run = await world.controller.ask(
            ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="changed /b")
        )
        summary = await world.controller.summary(run, NODE)

    assert "corrective" not in summary


async def test_without_broker_and_web_the_node_converges_on_what_it_has(world: World) -> None:
    objects = world.bus.objects("site")
    await objects.put("base.tar.gz", packed("one"))
    async with world.agent("obj://site/base.tar.gz"):
        await world.applies(1)
    world.broker.stop()

    async with world.agent("obj://site/base.tar.gz"):
        applied = await world.applies(2)

    assert applied[1][0].digest == digest_of(packed("one"))


async def test_a_source_that_gives_rubbish_is_reported_once(world: World) -> None:
    objects = world.bus.objects("site")
    await objects.put("base.tar.gz", b"no archive")
    async with world.agent("obj://site/base.tar.gz", watch_interval_s=30, interval_s=60):
        said = await world.controller.said(event_subject(AGENT_REFUSED, NODE))
        await world.clock.advance(120)
        await objects.put("base.tar.gz", packed("one"))
        await world.clock.advance(30)
        await world.applies(1)

    refusals = [subject for subject, _ in world.controller.heard if subject.startswith(AGENT_REFUSED)]
    assert (said["details"], len(refusals)) == ({"refused": "obj://site/base.tar.gz"}, 1)


async def test_a_critical_check_is_acted_upon_twice_an_hour(world: World) -> None:
    world.files.put(SITE, "stable /a")
    world.engine.critical = 1
    async with world.agent(SITE, interval_s=86_400, watch_interval_s=0, health_check_interval_s=600) as one:
        await world.applies(1)
        for checks, healed in enumerate((1, 2, 2, 2, 2, 2, 3), 1):
            await world.idle(one)
            await world.clock.advance(600)
            # the time at which a check is acted upon is read after its end
            await until(lambda: world.engine.actions.count("check") >= checks)  # noqa: B023 - awaited here
            await until(lambda: world.engine.actions.count("health") >= healed)  # noqa: B023 - awaited here
        await world.idle(one)

    assert world.engine.actions[1:7] == ["check", "health", "check", "health", "check", "check"]
    assert world.engine.actions.count("health") == 3


async def test_checks_that_find_nothing_say_nothing(world: World) -> None:
    world.files.put(SITE, "stable /a")
    async with world.agent(SITE, interval_s=86_400, watch_interval_s=0, health_check_interval_s=60) as one:
        await world.applies(1)
        await world.idle(one)
        await world.clock.advance(60)
        await world.applies(2)
        await world.idle(one)
        world.files.put(SITE, "failed /a")
        await world.clock.advance(60)
        await world.applies(3)
        run = world.engine.applied[2][1].run
        await world.controller.summary(run, NODE)

    told = [(one["run"], one["number"]) for one in await world.stored()]
    first = world.engine.applied[0][1].run
    assert told == [(first, 1), (first, 2), (run, 1), (run, 2), (run, 3)]


async def test_a_reload_takes_the_new_sources(world: World) -> None:
    world.files.put(SITE, "stable /a")
    world.files.put("/etc/other.yaml", "stable /b")
    async with world.agent(SITE, watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        one.agent.reload(msgspec.structs.replace(one.agent.settings, manifests=("/etc/other.yaml",)))
        applied = await world.applies(2)

    assert [source.name for source, _ in applied] == [SITE, "/etc/other.yaml"]


async def test_killed_run_of_the_node_is_closed_and_repeated(
    world: World,
) -> None:
    world.files.put(SITE, "changed /a\nwait /b\nstable /c")
    async with world.agent(SITE) as one:
        await world.engine.at_wait.wait()
        await one.kill()
    world.engine.go.set()

    async with world.agent(SITE) as one:
        runs = [options.run for _, options in await world.applies(2)]
        ends = [await world.controller.summary(run, NODE) for run in runs]
        await world.idle(one)

    told = [(one["run"], one["number"]) for one in await world.stored()]
    assert [end["state"] for end in ends] == ["failed", "changed"]
    assert (ends[0]["reason"], ends[0]["changed_resources"]) == ("interrupted", 1)
    assert told == [(run, number) for run in runs for number in (1, 2, 3)]


async def test_run_that_the_node_started_can_be_stopped(world: World) -> None:
    world.files.put(SITE, "wait /a\nstable /b")
    async with world.agent(SITE) as one:
        await world.engine.at_wait.wait()
        run = world.engine.applied[0][1].run
        asked = await world.controller.ask(StopRequest(protocol=RUN_STOP, stop=run, requester="maria"))
        await world.controller.answer(asked, NODE)
        world.engine.go.set()
        summary = await world.controller.summary(run, NODE)
        await world.idle(one)

    assert (summary["state"], summary["reason"]) == ("stopped", "stopped by maria (unverified)")


@pytest.mark.parametrize("where", ["reason", "resource"])
async def test_error_that_is_not_utf_8_ends_the_run_but_not_the_agent(world: World, where: str) -> None:
    """A name in an archive may hold any byte."""
    world.files.put(SITE, "stable /a")
    rightly = world.engine.apply

    async def apply(source: ManifestSource, options: ApplyOptions) -> SessionSummary:
        if len(world.engine.applied) == 1:
            return await rightly(source, options)
        world.engine.applied.append((source, options))
        if where == "reason":
            raise CcmError("a name: caf\udce9")
        if options.on_resource and options.on_event:
            options.on_resource("file#/caf\udce9", 1, 1)
            event = resource_event("/caf\udce9", failed=True, error=["no \udce9"], output="\udce9")
            if waiting := options.on_event(event):
                await waiting
        raise CcmError("a resource: caf\udce9")

    world.engine.apply = apply  # type: ignore[method-assign]
    async with world.agent(SITE, interval_s=300, watch_interval_s=0) as one:
        await world.applies(1)
        await world.idle(one)
        await world.clock.advance(300)
        await world.applies(2)
        await world.idle(one)

    ends = [body for body in await world.stored() if body["protocol"] == SESSION_SUMMARY]
    assert [(end["state"], end.get("reason", "")) for end in ends] == [
        ("failed", "a name: caf?" if where == "reason" else "a resource: caf?"),
        ("stable", ""),
    ]
