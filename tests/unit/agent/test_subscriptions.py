"""Assigned facts, the scopes that follow from them, and documents that are not obeyed; on a bus in memory."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.agent.cache.facts import routed_facts
from ccm_agent.bus.subjects import event_subject, fact_scope
from ccm_agent.model.errors import BusUnavailableError
from ccm_agent.model.ports import KeyValue, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import AGENT_REFUSED, MANIFEST_APPLY, ManifestRequest, NodeRecord
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
    until,
)

NODE = "web1.example.net"


class Stage:
    """A node and whoever assigns facts to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.broker = MemoryBroker()
        self.controller = Controller(memory_bus(self.broker, "op"))
        self.number = 0
        self.readings = 0

    @contextlib.asynccontextmanager
    async def agent(self, facts: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Running]:
        bus = memory_bus(self.broker, NODE)

        def bucket(name: str) -> KeyValue:
            made = bus.bucket(name)
            really = made.newest

            async def counted(key: str, at_least: int = 0) -> KeyValueEntry | None:
                self.readings += 1
                entry = await really(key, at_least)
                if entry is not None and entry.revision < at_least:
                    raise BusUnavailableError(
                        f"{key}: revision {at_least} is stored, and no replica shows it"
                    )
                return entry

            made.newest = counted  # type: ignore[method-assign]
            return made

        ports = agent_ports(bus, FakeEngine(), FakeClock(), gather_facts=lambda: facts or {}, bucket=bucket)
        async with running(agent_settings(self.folder, NODE, **settings), ports) as one:
            yield one

    async def assign(self, body: Any, **fields: Any) -> None:
        """Write a document as `ccmctl facts set` does; the fields make it another's."""
        self.number += 1
        values = {"bucket": "CCM_FACTS", "key": NODE, "number": self.number, "body": body} | fields
        await self.write(msgspec.json.encode(Stamped(**values)))

    async def write(self, value: bytes) -> None:
        await self.controller.bus.bucket("CCM_FACTS").put(NODE, value)

    async def apply(self, scope: str, **fields: Any) -> str:
        return await self.controller.ask(ManifestRequest(protocol=MANIFEST_APPLY, **fields), scope)

    async def refusal(self) -> str:
        return str((await self.controller.said(event_subject(AGENT_REFUSED, NODE)))["message"])


async def stage(folder: Path) -> Stage:
    one = Stage(folder)
    await one.controller.listen()
    return one


@contextlib.contextmanager
def without_pokes(broker: MemoryBroker) -> Iterator[None]:
    """Nobody hears of a write, as when the connection was lost just then."""
    deliver = broker.deliver
    broker.deliver = lambda message: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        broker.deliver = deliver  # type: ignore[method-assign]


WEB = fact_scope("role", "web")
DB = fact_scope("role", "db")


async def test_an_assigned_fact_routes_requests_as_soon_as_it_is_written(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)

        run = await at.apply(WEB, targets=["role=web"])

        assert (await at.controller.summary(run, NODE))["state"] == "stable"


async def test_changed_routed_facts_apply_after_a_reload(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent({"site": "fra"}) as one:
        before = one.agent.scopes

        one.agent.reload(msgspec.structs.replace(one.agent.settings, routed_facts=("site",)))

        await until(lambda: one.agent.scopes != before)
        assert one.agent.scopes == [*before, fact_scope("site", "fra")]


async def test_a_changed_fact_ends_the_old_route_and_opens_the_new_one(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)
        await at.assign({"role": "db"})
        await until(lambda: DB in one.agent.scopes)

        lost = await at.apply(WEB)
        run = await at.apply(DB)

        await at.controller.summary(run, NODE)
        assert not [subject for subject, _ in at.controller.heard if lost in subject]
        assert one.agent.scopes == ["all", f"node.{NODE}", DB]


async def test_assigned_facts_are_known_after_a_restart_without_a_broker(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)
    at.broker.stop()

    async with at.agent() as one:
        assert one.agent.scopes == ["all", f"node.{NODE}", WEB]


async def test_changes_missed_during_an_outage_are_read_on_reconnect(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)
        with without_pokes(at.broker):
            await at.assign({"role": "db"})
        at.broker.stop()
        at.broker.start()

        await until(lambda: DB in one.agent.scopes)


async def test_a_broker_recreated_is_asked_for_nothing_that_the_old_one_reported(
    tmp_path: Path,
) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "none"})
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)
        at.broker.stop()
        at.broker.make_anew()
        with without_pokes(at.broker):
            await at.assign({"role": "db"})

        await until(lambda: DB in one.agent.scopes)


async def test_missed_changes_are_read_at_the_interval_too(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent(read_interval_s=0.02) as one:
        with without_pokes(at.broker):
            await at.assign({"role": "web"})

        await until(lambda: WEB in one.agent.scopes)


async def test_facts_of_the_configuration_are_routed_too(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    facts = {"host": {"info": {"platformFamily": "rhel"}}}
    async with at.agent(facts, routed_facts=("host.info.platformFamily", "host.info.none")) as one:
        assert one.agent.scopes == [
            "all",
            f"node.{NODE}",
            fact_scope("host.info.platformFamily", "rhel"),
        ]


async def test_the_node_record_holds_the_routed_facts(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent():
        await at.assign({"role": "web", "rack": 7})
        bucket = at.controller.bus.bucket("CCM_NODES")

        async def record() -> NodeRecord:
            entry = await bucket.get(f"node.{NODE}")
            return msgspec.json.decode(entry.value if entry else b'{"node":""}', type=NodeRecord)

        wanted = {"role": "web", "rack": 7}
        found = await record()
        while found.facts != wanted:
            sequence = newest(at.broker)
            await until(lambda before=sequence: newest(at.broker) != before)
            found = await record()
        assert (found.node, found.version) == (NODE, "0.1.0")


def newest(broker: MemoryBroker) -> int:
    writes = broker.buckets["CCM_NODES"]
    return writes[-1].sequence if writes else 0


async def test_a_deleted_key_takes_the_facts_away(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"})
        await until(lambda: WEB in one.agent.scopes)

        await at.controller.bus.bucket("CCM_FACTS").delete(NODE)

        await until(lambda: one.agent.scopes == ["all", f"node.{NODE}"])


# -- documents that are not obeyed


async def test_document_of_another_node_is_refused_with_a_message(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"}, key="web2.example.net")

        assert await at.refusal() == (
            f"CCM_FACTS/{NODE}: the document belongs to CCM_FACTS/web2.example.net and was copied here"
        )
        assert WEB not in one.agent.scopes


async def test_a_document_of_another_bucket_is_refused(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent():
        await at.assign({"role": "web"}, bucket="CCM_DATA")

        assert (await at.refusal()).startswith(f"CCM_FACTS/{NODE}: the document belongs to CCM_DATA/")


async def test_an_old_document_is_refused_after_a_restart_too_and_the_facts_stay(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": "web"}, number=5)
        await until(lambda: WEB in one.agent.scopes)
    await at.assign({"role": "db"}, number=4)

    async with at.agent() as one:
        assert await at.refusal() == f"CCM_FACTS/{NODE}: number 4 is older than 5, which was seen before"
        assert one.agent.scopes == ["all", f"node.{NODE}", WEB]


@pytest.mark.parametrize(
    "value", [b'{"role": "web"}', b"no JSON", b"[]"], ids=["plain", "not JSON", "a list"]
)
async def test_a_document_that_does_not_name_itself_is_refused(tmp_path: Path, value: bytes) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.write(value)

        assert (await at.refusal()).startswith(f"CCM_FACTS/{NODE}: not a document that `ccmctl` wrote")
        assert one.agent.scopes == ["all", f"node.{NODE}"]


async def test_a_refused_document_is_reported_once_and_not_at_each_reading(tmp_path: Path) -> None:
    at = await stage(tmp_path)
    async with at.agent(read_interval_s=0.005):
        await at.write(b"no JSON")
        await at.refusal()
        before = at.readings
        await until(lambda: at.readings > before + 5)

    told = [subject for subject, _ in at.controller.heard if subject == event_subject(AGENT_REFUSED, NODE)]
    assert len(told) == 1


# -- which facts are routed


@pytest.mark.parametrize(
    ("assigned", "facts", "paths", "routed"),
    [
        pytest.param({"role": "web"}, {}, (), {"role": "web"}, id="text"),
        pytest.param({"n": 7, "b": False}, {}, (), {"n": 7, "b": False}, id="integers and booleans"),
        pytest.param({"f": 1.5, "l": [1], "n": None}, {}, (), {}, id="nothing else"),
        pytest.param({"site": {"rack": "r7"}}, {}, (), {"site.rack": "r7"}, id="nested by path"),
        pytest.param({}, {"a": {"b": "c"}}, ("a.b",), {"a.b": "c"}, id="named by path"),
        pytest.param({}, {"a": {"b": 1.5}}, ("a.b", "a.x", "y"), {}, id="named and not to be routed"),
        pytest.param({"a": 1}, {"a": 2}, ("a",), {"a": 1}, id="assigned wins"),
        pytest.param({}, {"a.b": 1}, ("a.b",), {"a.b": 1}, id="a name with a dot"),
    ],
)
def test_text_integers_and_booleans_are_routed(
    assigned: dict[str, Any], facts: dict[str, Any], paths: tuple[str, ...], routed: dict[str, Any]
) -> None:
    assert routed_facts(assigned, facts, paths) == routed


@pytest.mark.parametrize("value", ["two words", "a.b", "*", ">", "é", "", "x" * 500, "=h", "A=B"])
async def test_a_value_of_any_kind_reaches_the_node_and_no_other(tmp_path: Path, value: str) -> None:
    at = await stage(tmp_path)
    async with at.agent() as one:
        await at.assign({"role": value})
        await until(lambda: fact_scope("role", value) in one.agent.scopes)

        others = [await at.apply(fact_scope("role", other)) for other in ("two", "b", "ée", "x", "x" * 499)]
        run = await at.apply(fact_scope("role", value))

        await at.controller.summary(run, NODE)
        assert not [one for one, _ in at.controller.heard if any(other in one for other in others)]
