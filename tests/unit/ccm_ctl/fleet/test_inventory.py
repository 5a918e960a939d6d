"""Which entries of the fleet are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.model.errors import NoTargetError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus, MemoryKeyValue
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.inventory import FACTS_AT_ONCE, NAMED_LIMIT, read_nodes, require_nodes
from ccm_ctl.fleet.nodes.node_diagnostics import read_evidence
from ccm_ctl.fleet.ports import Fleet, LocalClock
from tests.support.controller import FakeNode, fleet_on
from tests.support.signing import Keyring, OwnSignatory


class RecordedBucket(MemoryKeyValue):
    """A bucket that records what it was asked for."""

    def __init__(self, bus: MemoryBus, bucket: str) -> None:
        super().__init__(bus, bucket)
        self.requests: list[list[str]] = []

    async def matching(self, patterns: Sequence[str], **options: Any) -> list[KeyValueEntry]:
        """See `KeyValue.matching`."""
        self.requests.append(list(patterns))
        return await super().matching(patterns, **options)


class Site:
    """Web1 and web2 with the role web, db1 with the role db, and a fleet that records what is read of them."""

    def __init__(self, keys: Keyring | None = None) -> None:
        self.broker = MemoryBroker()
        bus = MemoryBus(self.broker, "op")
        self.nodes = RecordedBucket(bus, "CCM_NODES")
        self.warnings: list[str] = []
        fleet = fleet_on(bus, keys.trust() if keys is not None else None)
        self.fleet: Fleet = replace(fleet, nodes=self.nodes, clock=LocalClock(), warn=self.warnings.append)

    async def begin(self) -> Site:
        for name, role in (("web1", "web"), ("web2", "web"), ("db1", "db")):
            await FakeNode(name, {"role": role}).begin(self.broker)
        return self

    async def assign(self, name: str, by: OwnSignatory | None, **facts: str) -> None:
        """Store assigned facts; `by`: signed by this operator."""
        stamped = Stamped(bucket="CCM_FACTS", key=name, number=1, body=facts)
        body, bucket = msgspec.json.encode(stamped), MemoryBus(self.broker, "op").bucket("CCM_FACTS")
        signature = by.document("CCM_FACTS", name, body)[SIGNATURE_HEADER] if by is not None else ""
        await bucket.update(name, body, 0, signature=signature)


async def test_targets_that_name_nodes_read_these_nodes_only() -> None:
    site = await Site().begin()
    wish = TargetSpec(targets=("node in (web1,web9)", "node=db1,role=db"))

    with pytest.raises(NoTargetError):
        await resolve(site.fleet, TargetSpec(targets=("node=web9",)))
    site.nodes.requests.clear()
    inventory, found = await resolve(site.fleet, wish)

    assert (list(inventory.nodes), found.nodes, found.offline) == (["db1", "web1"], ["db1", "web1"], [])
    named = [f"{kind}.{name}" for name in ("db1", "web1", "web9") for kind in ("node", "presence")]
    assert site.nodes.requests == [named]


@pytest.mark.parametrize(
    ("targets", "is_whole"),
    [
        pytest.param(("role=web",), False, id="fact"),
        pytest.param(("node=web*",), False, id="pattern of names"),
        pytest.param(("node!=web1",), False, id="all others"),
        pytest.param(("node=web1", "role=db"), False, id="one of the selectors names no node"),
        pytest.param(("node=web1,role=w*",), False, id="a pattern, which older agents read differently"),
        pytest.param(("node=web1",), True, id="required by the caller"),
    ],
)
async def test_all_other_targets_read_all_nodes(targets: tuple[str, ...], is_whole: bool) -> None:
    site = await Site().begin()

    inventory, _ = await resolve(site.fleet, TargetSpec(targets=targets), is_whole=is_whole)

    assert list(inventory.nodes) == ["db1", "web1", "web2"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("node=wbe1", "no node matches node=wbe1, did you mean node=web1?"),
        ("node=>", "no node matches node=>; see `ccmctl node list`"),
        ("node=web1,role=db", "node=web1,role=db: no node matches all terms (node=web1 matches 1, role=db matches 1)"),
    ],
)  # fmt: skip
async def test_a_named_node_that_does_not_match_is_explained_with_all_nodes(
    target: str, message: str
) -> None:
    site = await Site().begin()

    with pytest.raises(NoTargetError) as caught:
        await resolve(site.fleet, TargetSpec(targets=(target,)))

    assert str(caught.value) == message


@pytest.mark.parametrize("is_signed", [True, False])
async def test_facts_of_a_named_node_select_it_only_if_an_operator_signed_them(is_signed: bool) -> None:
    keys = Keyring()
    ann = keys.operator("ann", facts=True)
    site = await Site(keys).begin()
    await site.assign("web1", ann if is_signed else None, role="cache")
    wish = TargetSpec(targets=("node=web1,role=cache",))

    if is_signed:
        _, found = await resolve(site.fleet, wish)
        assert (found.nodes, site.warnings) == (["web1"], [])
    else:
        with pytest.raises(NoTargetError):
            await resolve(site.fleet, wish)
        [warning] = site.warnings
        assert "left out 1 documents of assigned facts not signed by an operator" in warning


async def test_a_node_that_must_exist_is_read_alone() -> None:
    site = await Site().begin()

    found = await require_nodes(site.fleet, ["web1"])

    assert list(found.nodes) == ["web1"]
    assert site.nodes.requests == [["node.web1", "presence.web1"]]
    with pytest.raises(NoTargetError, match="web11: there is no such node, did you mean web1"):
        await require_nodes(site.fleet, ["web1", "web11"])


async def test_the_reason_of_a_node_is_found_in_its_own_entries() -> None:
    site = await Site().begin()

    evidence = await read_evidence(site.fleet, "web1")

    assert evidence.node.is_present
    assert site.nodes.requests
    assert all(key.endswith(".web1") for keys in site.nodes.requests for key in keys)


async def test_many_nodes_are_read_in_several_requests_and_very_many_all_at_once() -> None:
    site = await Site().begin()
    some = [f"web{number}" for number in range(FACTS_AT_ONCE + 1)]

    found = await read_nodes(site.fleet, some)
    lengths = [len(keys) for keys in site.nodes.requests]
    site.nodes.requests.clear()
    again = await read_nodes(site.fleet, [*some, *(f"n{number}" for number in range(NAMED_LIMIT))])

    assert lengths == [2 * FACTS_AT_ONCE, 2]
    assert site.nodes.requests == [["node.>", "presence.>"]]
    assert list(found.nodes) == list(again.nodes) == ["web1", "web2"]
