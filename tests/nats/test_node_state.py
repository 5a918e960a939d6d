"""
What nodes store about themselves is signed with their keys, and decisions use nothing else (ADR 115).

The operator tester may publish on all subjects of these entries, as the holder of the broker may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.layout import FACTS, NODES, REGISTRATION, SLOTS
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.node_state import StateReader
from ccm_agent.bus.signatures.signing import CERTIFICATE_HEADER, SIGNATURE_HEADER, SignatureError
from ccm_agent.bus.signatures.trust import Trust, read_signers, trust_in_credentials
from ccm_agent.bus.streams import Stored, read_all, store
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.records.registration import encode_entry
from ccm_agent.model.records.slots import SlotEntry
from ccm_agent.model.wire import Presence
from ccm_agent.registration.entries import entry_subject
from ccm_agent.registration.publish import Publisher
from tests.support.fleet import a_file, manifest
from tests.support.nats_server import settings
from tests.support.registrations import an_entry
from tests.support.secured import Secured, secured_fleet
from tests.support.signing import now_ms

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

KINDS = ("node", "presence", "facts")
GATE = 'len(registrations("*", "*", "web", "*")) >= 2 && failed == 0'


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    with secured_fleet(tmp_path) as one:
        yield one


def connect(secured: Secured, name: str = "tester") -> Connection:
    creds = secured.keys / "tester.creds" if name == "tester" else secured.directory / f"{name}.creds"
    return Connection(settings(secured.fleet.broker, name, creds=str(creds)))


async def read_entries(secured: Secured, node: str = "web1") -> dict[str, Stored]:
    async with connect(secured) as tester:
        await tester.connect_now()
        pattern = key_subject(NODES, f"*.{node}")
        found = [one async for one in read_all(tester, f"KV_{NODES}", pattern)]
    return {one.subject.split(".")[2]: one for one in found}


async def read_one(secured: Secured, stream: str, subject: str) -> Stored:
    async with connect(secured) as tester:
        await tester.connect_now()
        found = [one async for one in read_all(tester, stream, subject)]
    return found[-1]


async def overwrite(secured: Secured, subject: str, body: bytes, headers: Mapping[str, str]) -> None:
    """What the holder of the broker stores."""
    stream = REGISTRATION if subject.startswith("choria") else f"KV_{subject.split('.')[1]}"
    async with connect(secured) as tester:
        await tester.connect_now()
        await store(tester, subject, body, {"Nats-Expected-Stream": stream, **headers})


def trust_of(secured: Secured) -> Trust:
    trust = trust_in_credentials((secured.directory / "web1.creds").read_text())
    assert trust is not None
    return trust


def reader(secured: Secured, at_ms: int = 0) -> StateReader:
    trust = trust_of(secured)
    assert trust.signers is not None
    signed = trust.signers
    signers = read_signers(signed.body.encode(), signed.signature, trust.root, now_ms=now_ms())
    return StateReader(trust.root, signers, lambda: at_ms or now_ms())


def read_signer(one: StateReader, stored: Stored, certificate: str) -> str:
    return one.read_signer(stored.subject, stored.body, stored.headers.get(SIGNATURE_HEADER, ""), certificate)


def test_a_node_signs_what_it_stores_about_itself(secured: Secured) -> None:
    secured.fleet.wait_for(lambda: set(asyncio.run(read_entries(secured))) == set(KINDS), "all entries")
    entries = asyncio.run(read_entries(secured))
    certificate = trust_of(secured).certificate

    assert {read_signer(reader(secured), one, certificate) for one in entries.values()} == {"web1"}

    presence = entries["presence"]
    changed = msgspec.structs.replace(presence, body=presence.body + b" ")
    moved = msgspec.structs.replace(presence, subject=key_subject(NODES, "presence.web2"))
    bare = msgspec.structs.replace(presence, headers={})
    for forged in (changed, moved, bare):
        with pytest.raises(SignatureError):
            read_signer(reader(secured), forged, certificate)
    late = reader(secured, now_ms() + 10 * 60_000)
    with pytest.raises(SignatureError, match="expired"):
        read_signer(late, presence, certificate)
    assert read_signer(late, entries["node"], certificate) == "web1"


def test_a_forged_presence_does_not_make_a_stopped_node_a_target(secured: Secured) -> None:
    path = secured.fleet.write("site.json", manifest(a_file("a")))
    words = ("apply", path, "--targets", "role=web", "--yes", "--json", "--timeout", "20s")
    before = secured.as_("bob", *words)
    assert (before.code, before.states) == (0, {"web1": "changed"})
    assert "left out" not in before.err

    old = asyncio.run(read_entries(secured))["presence"]
    secured.fleet.agents["web1"].stop()
    body = msgspec.json.encode(msgspec.json.decode(old.body, type=Presence))
    asyncio.run(overwrite(secured, old.subject, body, {}))
    unsigned = secured.as_("bob", *words)
    signed_for_other_content = {SIGNATURE_HEADER: old.headers[SIGNATURE_HEADER]}
    asyncio.run(overwrite(secured, old.subject, body + b" ", signed_for_other_content))
    changed = secured.as_("bob", *words)

    (listed,) = secured.as_("bob", "node", "list", "--json").named("node")
    assert (listed["state"], list(listed["unverified"])) == ("present", ["presence"])
    assert "unverified presence: the content was changed" in secured.as_("bob", "node", "show", "web1").out

    for done, reason in ((unsigned, "it is not signed"), (changed, "the content was changed")):
        assert done.states == {"web1": "offline"}
        assert f"left out 1 entries not signed by their node: presence of web1 ({reason}" in done.err

    secured.fleet.agents["web1"].start()
    forged = body + b" "
    secured.fleet.wait_for(lambda: asyncio.run(read_entries(secured))["presence"].body != forged, "web1")
    (listed,) = secured.as_("bob", "node", "list", "--json").named("node")
    assert (listed["state"], listed.get("unverified")) == ("present", None)
    after = secured.as_("bob", *words)
    assert (after.code, after.states) == (0, {"web1": "stable"})
    assert "left out" not in after.err


def test_a_forged_record_does_not_move_a_node_into_a_role(secured: Secured) -> None:
    creds = secured.give("node", "db1")
    secured.fleet.add("db1", nats={"url": secured.fleet.environ["NATS_URL"], "creds": str(creds)})
    record = asyncio.run(read_entries(secured, "db1"))["node"]
    forged = msgspec.json.decode(record.body) | {"facts": {"role": "web"}}
    asyncio.run(overwrite(secured, record.subject, msgspec.json.encode(forged), {}))
    path = secured.fleet.write("site.json", manifest(a_file("a")))

    done = secured.as_("tester", "plan", path, "--targets", "role=web", "--json")

    assert done.states == {"web1": "changed"}
    assert "node of db1 (it is not signed" in done.err
    asyncio.run(
        overwrite(secured, record.subject, record.body, {SIGNATURE_HEADER: record.headers[SIGNATURE_HEADER]})
    )
    by_name = secured.as_("tester", "plan", path, "--targets", "node=db1", "--json")
    assert by_name.states == {"db1": "changed"}
    assert "left out" not in by_name.err


def test_forged_assigned_facts_neither_select_a_node_nor_hide_it(secured: Secured) -> None:
    creds = secured.give("node", "db1")
    secured.fleet.add("db1", nats={"url": secured.fleet.environ["NATS_URL"], "creds": str(creds)})
    assert secured.as_("tester", "facts", "set", "db1", "role=db").code == 0
    path = secured.fleet.write("site.json", manifest(a_file("a")))

    def plan(target: str) -> tuple[dict[str, str], str]:
        done = secured.as_("tester", "plan", path, *target.split(), "--json")
        return done.states, done.err

    subject = key_subject(FACTS, "db1")
    genuine = asyncio.run(read_one(secured, f"KV_{FACTS}", subject))
    signature = {SIGNATURE_HEADER: genuine.headers[SIGNATURE_HEADER]}
    forged = msgspec.json.encode(msgspec.json.decode(genuine.body) | {"body": {"role": "web"}})
    for headers, reason in (({}, "it is not signed"), (signature, "the content was changed after signing")):
        asyncio.run(overwrite(secured, subject, forged, headers))
        left_out = (
            "left out 1 documents of assigned facts not signed by an operator who may write them: "
            f"db1 ({reason})"
        )
        for target, states in (
            ("-t role=web", {"web1": "changed"}),
            ("-t role=db", {"db1": "changed"}),
            ("--where Facts.role!='web'", {"db1": "changed"}),
        ):
            found, err = plan(target)
            assert found == states
            assert left_out in err
    listed = {one["node"]: one for one in secured.as_("tester", "node", "list", "--json").named("node")}
    assert listed["db1"]["unverified"] == {"assigned": "the content was changed after signing"}
    assert "unverified assigned facts: the content" in secured.as_("tester", "node", "show", "db1").out

    asyncio.run(overwrite(secured, subject, genuine.body, signature))
    for target, states in (("-t role=web", {"web1": "changed"}), ("-t role=db", {"db1": "changed"})):
        found, err = plan(target)
        assert (found, "left out" in err) == (states, False)


def test_a_gate_counts_only_registrations_that_nodes_signed(secured: Secured) -> None:
    creds = secured.give("node", "web2")
    secured.fleet.add("web2", nats={"url": secured.fleet.environ["NATS_URL"], "creds": str(creds)})
    assert secured.as_("bob", "facts", "set", "web2", "role=web").code == 0
    key = NodeKey(str(secured.directory / "web1.creds"))
    key.read("web1")
    entries = [an_entry(service="web", address=f"10.0.0.{number}") for number in (1, 2)]

    def sign(subject: str, body: bytes, _lasts_s: float | None) -> dict[str, str]:
        return key.sign_state(subject, body, issued_ms=now_ms(), carries_certificate=True)

    async def register(count: int) -> None:
        async with connect(secured) as tester:
            await tester.connect_now()
            for number, entry in enumerate(entries):
                publisher = Publisher(tester, "jetstream", sign=sign if number < count else None)
                await publisher.publish(entry)

    def gated() -> tuple[int, str]:
        path = secured.fleet.write("site.json", manifest(a_file("a")))
        words = ("--batch", "1,1", "--gate", GATE, "--yes", "--json")
        done = secured.as_("bob", "apply", path, "--targets", "role=web", *words)
        return done.code, done.err

    asyncio.run(register(1))
    code, err = gated()
    assert code != 0
    assert "left out 1 registrations not signed by their node" in err

    # the signature of one entry is not that of another
    async def copy() -> None:
        async with connect(secured) as tester:
            await tester.connect_now()
            subject, body = (entry_subject(entries[0]), encode_entry(entries[0]))
            headers = {**sign(subject, body, None), "Nats-Expected-Stream": REGISTRATION}
            await store(tester, entry_subject(entries[1]), encode_entry(entries[1]), headers)
            assert CERTIFICATE_HEADER in headers

    asyncio.run(copy())
    assert gated()[0] != 0

    asyncio.run(register(2))
    code, err = gated()
    assert (code, "left out" in err) == (0, False)


def sign_as(secured: Secured, node: str, subject: str, body: bytes) -> dict[str, str]:
    """The headers with which a node stores an entry that other nodes read."""
    key = NodeKey(str(secured.directory / f"{node}.creds"))
    key.read(node)
    return key.sign_state(subject, body, issued_ms=now_ms(), carries_certificate=True)


def test_a_node_ignores_a_holder_of_a_slot_that_did_not_sign(secured: Secured) -> None:
    secured.give("node", "web2")
    subject = key_subject(SLOTS, "restart.web2")
    body = msgspec.json.encode(SlotEntry(is_held=True, count=1, resource="exec#x", run="r"))
    kind, name, properties = a_file("a")
    control = {"slots": "restart/1", "slots_wait": "1s"}
    path = secured.fleet.write("site.json", manifest((kind, name, properties | {"control": control})))
    words = ("apply", path, "--targets", "role=web", "--yes", "--json")

    def apply_while_held(headers: Mapping[str, str]) -> dict[str, str]:
        asyncio.run(overwrite(secured, subject, body, headers))
        return secured.as_("bob", *words).states

    of_another_node = sign_as(secured, "web1", subject, body)
    assert apply_while_held({}) == {"web1": "changed"}
    assert apply_while_held(of_another_node) == {"web1": "stable"}
    secured.fleet.agents["web1"].files.joinpath("a").unlink()
    assert apply_while_held(sign_as(secured, "web2", subject, body)) == {"web1": "failed"}


def test_slots_and_impact_count_only_holders_that_signed(secured: Secured) -> None:
    secured.give("node", "web2")
    subject = key_subject(SLOTS, "restart.web2")
    body = msgspec.json.encode(SlotEntry(is_held=True, count=1, resource="exec#x", run="r"))
    kind, name, properties = a_file("a")
    path = secured.fleet.write(
        "site.json", manifest((kind, name, properties | {"control": {"slots": "restart/1"}}))
    )

    def look(headers: Mapping[str, str]) -> tuple[str | None, list[str], str]:
        """The mark in `ccmctl slots`, the holders that the report names, and its warning."""
        asyncio.run(overwrite(secured, subject, body, headers))
        (listed,) = secured.as_("bob", "slots", "--json").named("slot")
        shown = secured.as_("bob", "slots").out
        assert ("unverified: " in shown) == ("unverified" in listed)
        done = secured.as_("bob", "plan", path, "--targets", "role=web", "--impact", "--json")
        (report,) = done.named("impact_summary")
        return listed.get("unverified"), report["slots"][0]["held_by"], done.err

    for headers, reason in (
        ({}, "it is not signed"),
        (sign_as(secured, "web1", subject, body), "signed with the key of web1"),
    ):
        mark, holders, err = look(headers)
        assert (mark, holders) == (reason, [])
        assert f"left out 1 entries of slots not signed by their node: restart of web2 ({reason})" in err

    mark, holders, err = look(sign_as(secured, "web2", subject, body))
    assert (mark, holders, "left out" in err) == (None, ["web2"], False)


def test_a_template_sees_only_registrations_that_nodes_signed(secured: Secured) -> None:
    creds = secured.give("node", "lb1", "--reads-registrations")
    secured.fleet.add("lb1", nats={"url": secured.fleet.environ["NATS_URL"], "creds": str(creds)})
    entry = an_entry(service="web", address="10.0.0.1")
    subject, body = entry_subject(entry), encode_entry(entry)
    kind, name, properties = a_file("pool", "{{ len(registrations('prod', 'http', 'web', '*')) }}")
    path = secured.fleet.write("lb.json", manifest((kind, name, properties)))

    def pool_while_stored(headers: Mapping[str, str]) -> str:
        asyncio.run(overwrite(secured, subject, body, headers))
        done = secured.as_("tester", "apply", path, "--targets", "node=lb1", "--yes", "--json")
        assert done.code == 0, done.err
        return (secured.fleet.agents["lb1"].files / "pool").read_text()

    assert pool_while_stored({}) == "0"
    assert pool_while_stored(sign_as(secured, "web1", subject, body + b" ")) == "0"
    assert pool_while_stored(sign_as(secured, "web1", subject, body)) == "1"
