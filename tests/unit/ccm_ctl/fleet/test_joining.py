"""Which nodes may join a run: by what operators wrote, never by what a node says."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import FactsRecord, NodeRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.joining import Joining
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN, Keyring


@pytest.fixture
def fleet() -> Fleet:
    return fleet_on(MemoryBus(MemoryBroker(), "op"))


async def assign(fleet: Fleet, node: str, body: object) -> None:
    await fleet.facts.write(
        node, msgspec.json.encode(Stamped(bucket="CCM_FACTS", key=node, number=1, body=body)), 0, OWN
    )


@pytest.mark.parametrize(
    ("targets", "where", "may"),
    [
        ([], "", True),
        (["role=web"], "", True),
        (["role=db", "node=web1"], "", True),
        (["role=web"], "Facts.cpus > 2", True),
        (["role=db"], "", False),
        (["role=web,os=linux"], "", False),
        ([], "Facts.cpus > 8", False),
        (["role=("], "", False),
        (["role=web"], "no ( expression", False),
    ],
)
async def test_assigned_facts_decide(fleet: Fleet, targets: list[str], where: str, *, may: bool) -> None:
    await assign(fleet, "web1", {"role": "web", "cpus": 4})

    assert await Joining(fleet, targets, where).may_join("web1") is may


async def test_a_nodes_claim_about_itself_is_ignored(fleet: Fleet) -> None:
    record = NodeRecord(node="evil", facts={"role": "web"})
    await fleet.nodes.put("node.evil", msgspec.json.encode(record))
    await fleet.nodes.put("facts.evil", msgspec.json.encode(FactsRecord(node="evil", facts={"role": "web"})))

    assert not await Joining(fleet, ["role=web"], "").may_join("evil")


@pytest.mark.parametrize("body", [["role=web"], "role: web", 7])
async def test_invalid_facts_match_nothing(fleet: Fleet, body: object) -> None:
    await assign(fleet, "web1", body)

    assert not await Joining(fleet, [], "").may_join("web1")


async def test_assigned_facts_count_if_an_operator_signed_them_who_may_write_them() -> None:
    keys = Keyring(lambda: int(NOW.timestamp() * 1000))
    anna, lou = keys.operator("anna", facts=True), keys.operator("lou", plan=(">",))
    bus = MemoryBus(MemoryBroker(), "op")
    body = msgspec.json.encode(Stamped(bucket="CCM_FACTS", key="web1", number=1, body={"role": "web"}))
    found = {}

    for name, signatory in (("nobody", None), ("lou", lou), ("anna", anna)):
        signature = signatory.document("CCM_FACTS", "web1", body)[SIGNATURE_HEADER] if signatory else ""
        bucket = bus.bucket("CCM_FACTS")
        newest = await bucket.newest("web1")
        await bucket.update("web1", body, newest.revision if newest else 0, signature=signature)
        joining = Joining(fleet_on(bus, keys.trust()), ["role=web"], "")
        found[name] = await joining.may_join("web1")

    assert found == {"nobody": False, "lou": False, "anna": True}
