"""What no key of the fleet signed has the reason in the answers for pages, and what was signed has none."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.signatures.trust import certify_node
from ccm_agent.bus.subjects import assignment_key, key_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.registration import encode_entry
from ccm_agent.model.records.slots import SlotEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY, Assignment, Disabled, ManifestRequest, NodeRecord
from ccm_agent.registration.entries import StreamEntry, entry_subject
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.schedules.stored_schedule import Schedule
from ccm_ctl.fleet.trust.verified_reader import open_reader
from tests.contract.dashboard.test_server import served
from tests.contract.dashboard.test_stored_pages import Services
from tests.support.controller import NOW, fleet_on
from tests.support.registrations import an_entry
from tests.support.signing import OWN, Keyring, new_key

NOW_MS = int(NOW.timestamp() * 1000)
UNSIGNED = "it is not signed"


class Slots:
    """A bucket of slots as a test fills it."""

    def __init__(self, *entries: KeyValueEntry) -> None:
        self._entries = list(entries)

    async def matching(self, patterns: list[str]) -> list[KeyValueEntry]:
        """All of them."""
        assert patterns == [">"]
        return self._entries


class Scene:
    """A fleet with signatures: an operator, a node, and the bus of whoever holds the broker."""

    def __init__(self) -> None:
        self.keys = Keyring(lambda: NOW_MS)
        self.anna = self.keys.operator("anna", apply=(">",), data=True, facts=True, schedules=True)
        self.trust = self.keys.trust(signed_state=True)
        self.node = new_key()
        self.certificate = certify_node(self.keys.root, "web1", self.node.public_key, issued_ms=NOW_MS)
        self.slots, self.schedules = Slots(), list[Schedule]()

    def adapt(self, fleet: Fleet) -> Fleet:
        """The dashboard's fleet, which knows the root key."""

        async def read_schedules(_left_out: list[str]) -> list[Schedule]:
            return self.schedules

        return replace(fleet, trust=self.trust, slots=self.slots, schedules=read_schedules)

    def sign(self, subject: str, body: bytes) -> str:
        """A signature of web1."""
        return self.node.sign(SignatureKind.STATE, subject, body, issued_ms=int(time.time() * 1000))

    async def write(self, broker: MemoryBroker, name: str, genuine: str, forged: str, *bodies: Any) -> None:
        """Two documents: one that anna signed, and one that nobody signed."""
        fleet = fleet_on(MemoryBus(broker, "anna", self.anna), self.trust)
        bucket = {"CCM_DATA": fleet.data, "CCM_ASSIGNMENTS": fleet.assignments, "CCM_FACTS": fleet.facts}[
            name
        ]
        await Documents(fleet, bucket, name).change(genuine, lambda _: bodies[0], base=OWN)  # type: ignore[arg-type]
        stamped = msgspec.json.encode(Stamped(bucket=name, key=forged, number=NOW_MS, body=bodies[-1]))
        await MemoryBus(broker, "broker").bucket(name).store_signed(forged, stamped, 0, "")

    def slot(self, node: str, body: SlotEntry) -> KeyValueEntry:
        """An entry of a slot that web1 signed, whatever node it names."""
        key, value = f"pg.{node}", msgspec.json.encode(body)
        signature = self.sign(key_subject("CCM_SLOTS", key), value)
        return KeyValueEntry(
            key=key, value=value, revision=1, created=NOW, signature=signature, certificate=self.certificate
        )


def assignment(name: str) -> dict[str, Any]:
    bundle = Bundle(digest="ab" * 32, size_bytes=1)
    found: dict[str, Any] = msgspec.to_builtins(Assignment(name=name, scope="all", bundle=bundle))
    return found


async def test_documents_that_nobody_signed_are_marked_in_lists_and_histories() -> None:
    scene = Scene()
    async with served(adapt=scene.adapt) as site:
        await site.sign_in()
        await scene.write(site.broker, "CCM_DATA", "common", "made-up", "data: {}")
        own, other = (assignment_key("all", name) for name in ("base", "made-up"))
        await scene.write(
            site.broker, "CCM_ASSIGNMENTS", own, other, assignment("base"), assignment("made-up")
        )
        await scene.write(site.broker, "CCM_FACTS", "web1", "db1", {"role": "web"})
        _, data = await site.ask("GET", "/api/data")
        _, revisions = await site.ask("GET", "/api/data/made-up")
        _, assigned = await site.ask("GET", "/api/assignments")
        facts = {
            name: (await site.ask("GET", f"/api/nodes/{name}/fact-history"))[1]["revisions"][0]["unverified"]
            for name in ("web1", "db1")
        }

    assert {one["key"]: one["unverified"] for one in data["documents"]} == {"common": "", "made-up": UNSIGNED}
    assert [one["unverified"] for one in revisions["revisions"]] == [UNSIGNED]
    assert {one["name"]: one["unverified"] for one in assigned["assignments"]} == {
        "base": "",
        "made-up": UNSIGNED,
    }
    assert facts == {"web1": "", "db1": UNSIGNED}


async def test_a_schedule_that_nobody_signed_is_marked() -> None:
    scene = Scene()
    request = ManifestRequest(protocol=MANIFEST_APPLY, name="m", run="r", requester="anna")
    plain = Schedule(
        name="nightly", subject="s", protocol=MANIFEST_APPLY, scope="all", target="t",
        when="@every 60s", stored=NOW, request=request,
    )  # fmt: skip
    reader = await open_reader(scene.adapt(fleet_on(MemoryBus(MemoryBroker(lambda: NOW), "op"))))
    scene.schedules = [reader.judged(plain), replace(plain, name="own")]
    async with served(adapt=scene.adapt) as site:
        await site.sign_in()
        _, listed = await site.ask("GET", "/api/schedules")

    assert {one["name"]: one["unverified"] for one in listed["schedules"]} == {"nightly": UNSIGNED, "own": ""}


async def test_registrations_that_no_node_signed_are_marked() -> None:
    scene = Scene()
    entries = [an_entry(number) for number in (1, 2)]
    signed, bare = (
        StreamEntry(subject=entry_subject(one), sequence=1, time=NOW, entry=one, body=encode_entry(one))
        for one in entries
    )
    signature = scene.sign(signed.subject, signed.body)
    signed = replace(signed, signature=signature, certificate=scene.certificate)
    async with served(adapt=scene.adapt, services=Services(signed, bare)) as site:
        await site.sign_in()
        _, listed = await site.ask("GET", "/api/registrations")

    marks = {one["address"]: one["unverified"] for one in listed["registrations"]}
    assert marks == {"10.0.0.1": "", "10.0.0.2": UNSIGNED}


async def test_an_entry_of_a_slot_that_its_node_did_not_sign_holds_nothing() -> None:
    scene = Scene()
    held, waits = SlotEntry(is_held=True, count=1, since=NOW), SlotEntry(is_held=False, count=1, since=NOW)
    scene.slots = Slots(
        scene.slot("db1", held), scene.slot("web1", held), replace(scene.slot("db2", waits), signature="")
    )
    async with served(adapt=scene.adapt) as site:
        await site.sign_in()
        _, listed = await site.ask("GET", "/api/slots")

    assert [(one["node"], one["state"], one["unverified"]) for one in listed["slots"]] == [
        ("web1", "held", None),
        ("db1", "held", "signed with the key of web1"),
        ("db2", "waiting", UNSIGNED),
    ]
    assert {one["position"] for one in listed["slots"]} == {None}


async def test_a_lock_in_a_record_that_the_node_did_not_sign_is_marked() -> None:
    scene = Scene()
    async with served(adapt=scene.adapt) as site:
        await site.sign_in()
        bucket = MemoryBus(site.broker, "broker").bucket("CCM_NODES")
        for name in ("web1", "db1"):
            record = NodeRecord(
                node=name,
                version="1",
                disabled=Disabled(by="anna", why="x", since=NOW),
                key=scene.node.public_key,
                certificate=scene.certificate,
            )
            key, body = f"node.{name}", msgspec.json.encode(record)
            before = await bucket.get(key)
            assert before is not None
            await bucket.store_signed(
                key, body, before.revision, scene.sign(key_subject("CCM_NODES", key), body)
            )
        _, listed = await site.ask("GET", "/api/slots")

    marks = {one["node"]: one["unverified"] for one in listed["locks"]}
    assert marks == {"web1": "", "db1": "signed with the key of web1"}
