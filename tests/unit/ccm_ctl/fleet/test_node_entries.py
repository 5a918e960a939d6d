"""Which entries of a node a decision uses: those that the node signed, and assigned facts that an operator signed."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.layout import NODES
from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind
from ccm_agent.bus.signatures.trust import certify_node
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import BusSetupError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.registration.entries import StreamEntry, entry_subject
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes.nodes import ASSIGNED, Inventory, Node
from ccm_ctl.fleet.trust.node_state import (
    LeftOutReasons,
    NodeVerifier,
    VerifiedServices,
    judge_node,
    leave_out,
    make_node_verifier,
    verify_nodes,
)
from ccm_ctl.fleet.trust.verified_reader import VerifiedReader
from tests.support.controller import fleet_on
from tests.support.signing import Keyring, OwnSignatory, new_key

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
FOREIGN = "signed with the key of web2"


class Site:
    """Web1 and its entries, and the operators ann, who may assign facts, and bob, who may not."""

    def __init__(self, *, signed_state: bool = True) -> None:
        keys = Keyring(lambda: NOW_MS)
        self.ann, self.bob = keys.operator("ann", facts=True), keys.operator("bob")
        listed = keys.listed(signed_state=signed_state)
        self.root, self.key = keys.root, new_key()
        self.verifier = NodeVerifier(
            state=StateReader(keys.root.public_key, listed, lambda: NOW_MS),
            facts=VerifiedReader(listed, FakeClock(NOW), is_demanded=True),
        )

    def entry(self, kind: str, *, is_signed: bool = True, body: bytes = b"{}") -> KeyValueEntry:
        """An entry that web1 stored."""
        subject = key_subject(NODES, f"{kind}.web1")
        signature = self.key.sign(SignatureKind.STATE, subject, b"{}", issued_ms=NOW_MS) if is_signed else ""
        return KeyValueEntry(key=f"{kind}.web1", value=body, revision=1, created=NOW, signature=signature)

    def facts(self, by: OwnSignatory) -> KeyValueEntry:
        """Facts that an operator assigned."""
        body = msgspec.json.encode(Stamped(bucket="CCM_FACTS", key="web1", number=1, body={}))
        signature = by.document("CCM_FACTS", "web1", body)[SIGNATURE_HEADER]
        return KeyValueEntry(key="web1", value=body, revision=1, created=NOW, signature=signature)

    def node(self, certified: str = "web1", **entries: KeyValueEntry) -> Node:
        certificate = certify_node(self.root, certified, self.key.public_key, issued_ms=NOW_MS)
        record = NodeRecord(node="web1", certificate=certificate)
        presence = Presence(node="web1", machine="m", started=NOW, time=NOW)
        kept = dict.fromkeys(("role",), "web")
        return Node(
            name="web1", record=record, presence=presence, entries=entries, assigned=kept, gathered=kept
        )

    def judge(self, node: Node, *, is_quick: bool = False) -> dict[str, str]:
        judge_node(self.verifier, node, is_quick=is_quick)
        return dict(node.unverified)


def test_entries_count_that_their_node_signed() -> None:
    site = Site()

    assert site.judge(site.node(presence=site.entry("presence"), node=site.entry("node"))) == {}
    assert site.judge(site.node("web2", presence=site.entry("presence"))) == {"presence": FOREIGN}
    assert site.judge(site.node(presence=site.entry("presence", body=b"x"))) == {
        "presence": "the content was changed after signing"
    }
    assert list(site.judge(site.node(presence=site.entry("presence", is_signed=False)))) == ["presence"]


def test_a_long_list_looks_whether_entries_are_signed_and_not_by_whom() -> None:
    site = Site()

    assert site.judge(site.node("web2", presence=site.entry("presence")), is_quick=True) == {}
    bare = site.node(presence=site.entry("presence", is_signed=False), assigned=site.facts(site.bob))
    assert list(site.judge(bare, is_quick=True)) == ["presence"]


def test_a_node_that_signs_one_entry_signs_all_of_them() -> None:
    site = Site(signed_state=False)
    bare = site.entry("facts", is_signed=False)

    assert site.judge(site.node(facts=bare)) == {}
    assert site.judge(site.node(facts=bare, presence=site.entry("presence"))) == {
        "facts": "it is not signed, and the node signs its other entries"
    }


@pytest.mark.parametrize("is_genuine", [True, False])
def test_assigned_facts_count_if_an_operator_signed_them_who_may(is_genuine: bool) -> None:
    site = Site()
    node = site.node(
        assigned=site.facts(site.ann if is_genuine else site.bob), presence=site.entry("presence")
    )
    reason = "bob signed it, but may not write there"

    assert site.judge(node) == ({} if is_genuine else {ASSIGNED: reason})
    assert leave_out(node) == ([], [] if is_genuine else [f"web1 ({reason})"])
    assert node.assigned == ({"role": "web"} if is_genuine else {})
    assert node.is_present


def test_what_is_not_verified_is_taken_from_the_node_and_named() -> None:
    site = Site()
    node = site.node("web2", presence=site.entry("presence"), facts=site.entry("facts"))
    site.judge(node)
    reasons = LeftOutReasons()

    assert reasons.take(node)
    assert reasons.entries == [f"facts of web1 ({FOREIGN})", f"presence of web1 ({FOREIGN})"]
    assert reasons.assigned == []
    assert (node.is_present, node.gathered) == (False, {})
    assert not LeftOutReasons().take(site.node())


@pytest.mark.parametrize(
    ("certified", "is_judged", "is_found"),
    [("web1", True, True), ("web2", True, False), ("web1", False, False)],
)
def test_the_key_of_a_node_is_known_if_its_record_was_verified(
    certified: str, is_judged: bool, is_found: bool
) -> None:
    site = Site()
    node = site.node(certified, node=site.entry("node"))
    assert node.record is not None
    node.record.key = site.key.public_key
    if is_judged:
        site.judge(node)
        leave_out(node)

    assert node.certified == ((site.key.public_key, 0) if is_found else None)


class CountedReader(StateReader):
    """Notes the entries whose signature it reads."""

    read: list[str]

    def read_signer(self, subject: str, *rest: object, **others: object) -> str:
        """See `StateReader.read_signer`."""
        self.read.append(subject.removeprefix("$KV.CCM_NODES."))
        return super().read_signer(subject, *rest, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize("forged", ["", "presence", "facts"])
async def test_each_entry_is_verified_once_also_if_others_are_read_later(forged: str) -> None:
    site = Site(signed_state=False)
    reader = CountedReader(site.root.public_key, None, lambda: NOW_MS)
    reader.read = []
    verifier = replace(site.verifier, state=reader)
    bodies = dict.fromkeys(("node", "presence", "facts"), b"{}") | ({forged: b"x"} if forged else {})
    entries = {kind: site.entry(kind, body=body) for kind, body in bodies.items()}
    node = site.node(node=entries["node"], presence=entries["presence"])
    inventory, left_out = Inventory({"web1": node}), LeftOutReasons()

    await verify_nodes(verifier, inventory, ["web1"], left_out)
    node.entries = {**node.entries, "facts": entries["facts"]}
    await verify_nodes(verifier, inventory, ["web1"], left_out)

    assert reader.read == ["node.web1", "presence.web1", "facts.web1"]
    assert (node.is_present, node.gathered != {}) == (forged != "presence", forged != "facts")
    reason = f"{forged} of web1 (the content was changed after signing)"
    assert left_out.entries == ([reason] if forged else [])


@pytest.mark.parametrize(
    ("is_presence_signed", "is_facts_signed", "left"),
    [(True, True, ""), (False, False, ""), (True, False, "facts"), (False, True, "presence")],
)
async def test_a_node_signs_all_or_nothing_also_if_an_entry_is_read_later(
    is_presence_signed: bool, is_facts_signed: bool, left: str
) -> None:
    site = Site(signed_state=False)
    node = site.node(presence=site.entry("presence", is_signed=is_presence_signed))
    inventory, left_out = Inventory({"web1": node}), LeftOutReasons()

    await verify_nodes(site.verifier, inventory, ["web1"], left_out)
    node.entries = {**node.entries, "facts": site.entry("facts", is_signed=is_facts_signed)}
    await verify_nodes(site.verifier, inventory, ["web1"], left_out)

    assert (node.is_present, node.gathered != {}) == (left != "presence", left != "facts")
    reason = f"{left} of web1 (it is not signed, and the node signs its other entries)"
    assert left_out.entries == ([reason] if left else [])


@pytest.mark.parametrize("forged", [frozenset[int](), frozenset({0, 199, 250})])
async def test_many_nodes_are_verified_in_parts_and_none_is_missed(forged: frozenset[int]) -> None:
    site = Site()
    nodes = {
        f"n{number}": site.node(presence=site.entry("presence", is_signed=number not in forged))
        for number in range(251)
    }
    inventory, left_out = Inventory(nodes), LeftOutReasons()

    await verify_nodes(site.verifier, inventory, nodes, left_out)

    assert {name for name, node in nodes.items() if not node.is_present} == {
        f"n{number}" for number in forged
    }
    assert len(left_out.entries) == len(forged)


@pytest.mark.parametrize("name", ["ann", "bob", "mallory", ""])
async def test_the_own_signer_is_the_one_of_the_credentials(name: str) -> None:
    keys = Keyring()
    signatories = {"ann": keys.operator("ann"), "bob": keys.operator("bob")}
    signatories["mallory"] = Keyring().operator("mallory")
    fleet = replace(fleet_on(MemoryBus(MemoryBroker(), "op"), keys.trust()), signatory=signatories.get(name))

    verifier = await make_node_verifier(fleet)

    assert verifier is not None
    own = verifier.own_signer
    assert (own.name if own is not None else "") == (name if name in ("ann", "bob") else "")


class Registry:
    """A registry that stores an entry and the mark of a removed one."""

    def __init__(self) -> None:
        self.entry = RegistrationEntry(
            cluster="prod", service="web", protocol="http", address="192.0.2.1", port=80, priority=1
        )

    async def matching(self, *_: str) -> list[StreamEntry]:
        """See `ServiceRegistry.matching`."""
        given = {"subject": entry_subject(self.entry), "time": NOW}
        return [
            StreamEntry(**given, sequence=1, entry=self.entry),
            StreamEntry(**given, sequence=2, reason="MaxAge"),
        ]


async def test_in_unsigned_operation_every_registered_service_counts_and_marks_do_not() -> None:
    registry, fleet = Registry(), fleet_on(MemoryBus(MemoryBroker(), "op"))

    found = await VerifiedServices(replace(fleet, services=registry)).registrations("prod", "", "", "")

    assert found == [registry.entry]
    with pytest.raises(BusSetupError, match="cannot be read"):
        await VerifiedServices(fleet).registrations("prod", "", "", "")
