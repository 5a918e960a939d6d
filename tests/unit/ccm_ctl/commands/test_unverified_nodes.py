"""What a node did not sign is marked wherever its state is shown: `why`, `assignment status`, `top` and the dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.subjects import assignment_key, key_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ports import KeyReader, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment, FactsRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus, MemoryKeyValue
from ccm_ctl.commands.assignments.assignment_options import counts_for
from ccm_ctl.dashboard.fleet_state import FleetState
from ccm_ctl.fleet.assignments.assignments import Standing, read_assignments
from ccm_ctl.fleet.impact.sources import _read_addresses
from ccm_ctl.fleet.imports.site_layers import read_layer_facts
from ccm_ctl.fleet.nodes import node_list
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.inventory import read_inventory, read_verified, read_verified_facts
from ccm_ctl.fleet.nodes.node_list import open_list
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust import node_state
from ccm_ctl.top.fleet_watch import FleetWatch
from ccm_ctl.top.rows import node_rows
from tests.support.authorship import Root
from tests.support.controller import BEFORE, NOW, Desk, FakeNode, fleet_on

SCOPE = "fact.role.web"
REASON = "presence: it is not signed, and the node signs its other entries"


class SignedState:
    """web1 and web2, which sign their entries, and an assignment of both. An entry of `forged` has no signature.

    The gathered facts have the address 192.0.2.1 and the system of web1 or web2, those of `forged` 192.0.2.66 and "planted".
    """

    def __init__(self, forged: str = "", kind: str = "presence") -> None:
        self.root = Root()
        self.forged, self.kind = forged, kind
        self.nodes = [FakeNode(name, {"role": "web"}, root=self.root) for name in ("web1", "web2")]

    def desk(self) -> Desk:
        """An operator who knows the root key."""
        desk = Desk(*self.nodes, trust=self.root.trust())
        desk.hooks.append(self.store)
        return desk

    async def store(self, broker: MemoryBroker) -> None:
        """Sign what the nodes stored, and store the assignment."""
        bucket = MemoryBus(broker, "broker").bucket("CCM_NODES")
        for node in self.nodes:
            assert node.key is not None
            for kind in ("node", "presence", "facts"):
                entry = await bucket.get(key := f"{kind}.{node.name}")
                assert entry is not None
                subject, issued = key_subject("CCM_NODES", key), int(time.time() * 1000)
                signature = node.key.sign(SignatureKind.STATE, subject, entry.value, issued_ms=issued)
                is_forged = node.name == self.forged and kind == self.kind
                body = entry.value
                if kind == "facts":
                    facts = {
                        "network": {"address": "192.0.2.66" if is_forged else "192.0.2.1"},
                        "host": {"info": {"os": "planted" if is_forged else f"system-{node.name}"}},
                    }
                    body = msgspec.json.encode(FactsRecord(node=node.name, facts=facts))
                    signature = node.key.sign(SignatureKind.STATE, subject, body, issued_ms=issued)
                await bucket.store_signed(key, body, entry.revision, "" if is_forged else signature)
        bundle = Bundle(digest="ab" * 32, size_bytes=1)
        key = assignment_key(SCOPE, "base")
        body = Assignment(name="base", scope=SCOPE, bundle=bundle)
        stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=BEFORE, body=msgspec.to_builtins(body))
        await MemoryBus(broker, "op").bucket("CCM_ASSIGNMENTS").put(key, msgspec.json.encode(stamped))

    async def fleet(self) -> Fleet:
        """The ports of an operator who knows the root key, on a broker with the nodes."""
        broker = MemoryBroker(now=lambda: NOW)
        for node in self.nodes:
            await node.begin(broker)
        await self.store(broker)
        return fleet_on(MemoryBus(broker, "op"), self.root.trust())


def test_why_names_the_entries_that_the_node_did_not_sign() -> None:
    desk = SignedState("web1").desk()

    forged, genuine = (desk.ccmctl("why", name) for name in ("web1", "web2"))
    records = [desk.ccmctl("why", name, "--json").records[0] for name in ("web1", "web2")]

    assert REASON in " ".join(forged.out.split())
    assert "not signed" not in genuine.out
    assert records[0]["unverified"] == {"presence": REASON.removeprefix("presence: ")}
    assert "unverified" not in records[1]


def test_assignment_status_marks_the_node() -> None:
    desk = SignedState("web1").desk()

    shown = desk.ccmctl("assignment", "status", "base")
    records = desk.ccmctl("assignment", "status", "base", "--json").records

    marks = {one["node"]: one.get("unverified") for one in records if one["record"] == "standing"}
    assert marks == {"web1": REASON, "web2": None}
    text = " ".join(shown.out.split())
    assert text.count("unverified presence: it is not signed") == 1


async def test_a_retry_counts_only_nodes_whose_presence_they_signed() -> None:
    fleet = await SignedState("web1").fleet()

    found = await read_verified(fleet, ["web1", "web2", "removed since"])

    assert {name: node.is_present for name, node in found.nodes.items()} == {"web1": False, "web2": True}


async def test_impact_uses_only_addresses_that_the_node_signed() -> None:
    fleet = await SignedState("web1", "facts").fleet()
    unsigned = replace(fleet, trust=None)

    verified = await _read_addresses(fleet, await read_inventory(fleet))
    stored = await _read_addresses(unsigned, await read_inventory(unsigned))

    assert verified == {"web1": set(), "web2": {"192.0.2.1"}}
    assert stored == {"web1": {"192.0.2.66"}, "web2": {"192.0.2.1"}}


@pytest.mark.parametrize("forged", ["", "web2"])
async def test_an_import_makes_layers_only_of_facts_that_the_node_signed(
    forged: str, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = await SignedState(forged, "facts").fleet()
    inventory = await read_inventory(fleet)

    nodes = [node async for node in read_verified_facts(fleet, inventory, ["web1", "web2"])]

    texts = read_layer_facts(nodes).texts
    systems = {name: found.get("host.info.os") for name, found in texts.items()}
    assert systems == {"web1": "system-web1", "web2": None if forged else "system-web2"}
    assert ("facts of web2 (it is not signed" in caplog.text) == bool(forged)


class AddingReader:
    """A broker that adds an entry to its reply to the request for the facts of web2."""

    def __init__(self, bucket: KeyReader, added: KeyValueEntry) -> None:
        self._bucket, self._added = bucket, added

    async def matching(self, patterns: Sequence[str], **rest: Any) -> list[KeyValueEntry]:
        """See `KeyReader.matching`."""
        found = await self._bucket.matching(patterns, **rest)
        return [*found, self._added] if patterns == ["facts.web2"] else found


@pytest.mark.parametrize(
    ("key", "is_replaced"),
    [("facts.web1", False), ("presence.web1", False), ("node.web1", False), ("facts.web2", True)],
)
async def test_the_reply_about_one_node_does_not_replace_verified_entries_of_another(
    key: str, is_replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await SignedState().fleet()
    entry = await fleet.nodes.get(key)
    assert entry is not None
    forged = replace(entry, value=entry.value.replace(b"web", b"not"), signature="", revision=99)
    fleet = replace(fleet, nodes=AddingReader(fleet.nodes, forged))
    inventory, genuine = await read_inventory(fleet), await read_inventory(fleet)
    monkeypatch.setattr("ccm_ctl.fleet.nodes.inventory.FACTS_AT_ONCE", 1)

    nodes = [node async for node in read_verified_facts(fleet, inventory, ["web1", "web2"])]

    believed = [(node.record, node.presence, node.fact("host.info.os")) for node in nodes]
    web1, web2 = genuine.nodes["web1"], genuine.nodes["web2"]
    assert believed == [
        (web1.record, web1.presence, "system-web1"),
        (web2.record, web2.presence, None if is_replaced else "system-web2"),
    ]


@pytest.mark.parametrize(("is_forged", "where"), [(True, "planted"), (False, "system-web2")])
async def test_a_rollout_of_an_assignment_has_only_nodes_whose_facts_they_signed(
    where: str, *, is_forged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = await SignedState("web2" if is_forged else "", "facts").fleet()
    inventory, _ = await resolve(fleet, TargetSpec(targets=("node=web1",)), is_whole=True)
    bundle = Bundle(digest="ab" * 32, size_bytes=1)
    assigned = Assignment(name="site", scope="all", bundle=bundle, where=f'Facts.host.info.os == "{where}"')
    key = assignment_key("all", "site")
    standing = Standing(key=key, revision=1, written=1, assignment=assigned)
    known = (await read_assignments(fleet)).with_one(standing)

    await known.fill_in(fleet, inventory, is_verified=True)

    assert counts_for(inventory, known, standing) == ([] if is_forged else ["web2"])
    assert ("facts of web2 (it is not signed" in caplog.text) == is_forged


@pytest.mark.parametrize("forged", ["web2", ""])
@pytest.mark.parametrize("kind", ["presence", "facts"])
async def test_impact_verifies_nodes_that_are_no_targets(kind: str, forged: str) -> None:
    fleet = await SignedState(forged, kind).fleet()
    inventory, _ = await resolve(fleet, TargetSpec(targets=("node=web1",)), is_whole=True)

    addresses = await _read_addresses(fleet, inventory)

    is_believed = not forged
    assert inventory.nodes["web1"].is_present
    assert inventory.nodes["web2"].is_present == (is_believed or kind == "facts")
    assert addresses["web2"] == ({"192.0.2.1"} if is_believed or kind == "presence" else set())


@pytest.mark.parametrize("forged", ["web1", ""])
async def test_top_and_the_dashboard_mark_the_node(forged: str) -> None:
    fleet = await SignedState(forged).fleet()
    state, watch = FleetState(fleet, lambda: None), FleetWatch(fleet)

    await asyncio.gather(state.refresh(), watch.refresh())
    rows = (await state.changes(0, TargetSpec()))["rows"]

    marks = {row["node"]: row.get("unverified") for row in msgspec.json.decode(msgspec.json.encode(rows))}
    assert marks == {"web1": REASON if forged else None, "web2": None}
    shown = {row.node: row.cells[1].endswith(" (unverified)") for row in node_rows(watch, NOW)}
    assert shown == {"web1": bool(forged), "web2": False}


@pytest.mark.parametrize("command", ["node list", "assignment status base"])
def test_a_list_that_is_too_long_to_verify_says_so(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    desk = SignedState().desk()

    verified = desk.ccmctl(*command.split())
    monkeypatch.setattr(node_state, "LIST_VERIFIED", 1)
    too_long = desk.ccmctl(*command.split())

    warning = "more than 1 nodes: ccmctl checked only that signatures exist, not that they are valid"
    assert warning not in verified.err
    assert warning in too_long.err


@pytest.mark.parametrize("is_long", [False, True])
async def test_each_part_of_a_node_list_is_judged_as_a_part_of_the_whole_list(
    is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = await SignedState("web2").fleet()
    bucket = fleet.nodes
    record = await bucket.get("node.web1")
    assert isinstance(bucket, MemoryKeyValue)
    assert record is not None
    await bucket.store_signed("node.web1", record.value + b" ", record.revision, record.signature)
    monkeypatch.setattr(node_list, "AT_ONCE", 1)
    monkeypatch.setattr(node_state, "LIST_VERIFIED", 1 if is_long else 2)

    async with open_list(fleet, TargetSpec()) as listed:
        found = {one.node.name: one.node.unverified async for part in listed.parts() for one in part}

    changed = {} if is_long else {"node": "the content was changed after signing"}
    assert found == {"web1": changed, "web2": {"presence": REASON.removeprefix("presence: ")}}
