"""Which keys sign for which nodes, as an operator's credentials and the broker's buckets say."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, Trust
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.errors import InputError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.verdicts import Verdict
from ccm_agent.model.wire import AGENT_KEY, AGENT_STARTUP, NodeRecord
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust import authors as module
from ccm_ctl.fleet.trust.authors import Authors, find_certificates, read_authors
from tests.support.authorship import Root, Writer, new_seed, now_ms
from tests.support.controller import fleet_on


class Scene:
    """A broker, and an operator with a root key in the credentials."""

    def __init__(self, trust: Trust | None = None) -> None:
        self.root = Root()
        self.broker = MemoryBroker()
        self.trust = trust or self.root.trust()
        self.key = SigningKey(new_seed())

    @property
    def fleet(self) -> Fleet:
        return fleet_on(MemoryBus(self.broker, "op"), self.trust)

    async def publish(self, trust: Trust) -> None:
        """What `ccmctl signers publish` writes, or what an attacker does."""
        assert trust.signers is not None
        bucket = MemoryBus(self.broker, "op").bucket("CCM_TRUST")
        entry = await bucket.get(SIGNERS_KEY)
        revision = entry.revision if entry else 0
        await bucket.store_signed(SIGNERS_KEY, trust.signers.body.encode(), revision, trust.signers.signature)

    async def record(self, node: str, key: str, certificate: str) -> None:
        record = NodeRecord(node=node, key=key, certificate=certificate)
        await self.fleet.nodes.put(f"node.{node}", msgspec.json.encode(record))

    async def tell(self, protocol: str, node: str, **details: str) -> None:
        body = {"protocol": protocol, "event_id": new_id(), "timestamp": "2026-11-22T12:00:00Z", "node": node}
        bus = MemoryBus(self.broker, node)
        subject = event_subject(protocol, node)
        await bus.events.publish(subject, new_id(), json.dumps(body | {"details": details}).encode())

    async def authors(self) -> Authors:
        found = await read_authors(self.fleet)
        assert found is not None
        return found


async def test_credentials_without_trust_have_no_authors() -> None:
    assert await read_authors(fleet_on(MemoryBus(MemoryBroker(), "op"))) is None


async def test_a_certificate_is_found_in_the_nodes_record() -> None:
    scene = Scene()
    await scene.record("web1", scene.key.public_key, scene.root.certificate("web1", scene.key))
    authors = await scene.authors()

    await find_certificates(scene.fleet, authors, [("web1", scene.key.public_key)])

    assert (authors.knows("web1", scene.key.public_key), authors.certified("web1")) == (True, True)


@pytest.mark.parametrize("protocol", [AGENT_STARTUP, AGENT_KEY])
async def test_a_certificate_of_an_older_key_is_found_in_an_event(protocol: str) -> None:
    scene, newer = Scene(), SigningKey(new_seed())
    await scene.record("web1", newer.public_key, scene.root.certificate("web1", newer))
    certificate = scene.root.certificate("web1", scene.key)
    await scene.tell(protocol, "web1", key=scene.key.public_key, certificate=certificate)
    await scene.tell(
        protocol, "web1", key=newer.public_key, certificate=scene.root.certificate("web1", newer)
    )
    authors = await scene.authors()

    await find_certificates(scene.fleet, authors, [("web1", scene.key.public_key)])

    assert authors.knows("web1", scene.key.public_key)


async def test_a_renewed_certificate_of_the_same_key_replaces_the_expired_one() -> None:
    """Agents renew certificates and keep their key. A long search, dashboard or run knows the earlier certificate."""
    scene, now = Scene(), now_ms()
    key = scene.key.public_key
    authors = await scene.authors()
    authors.learn("web1", key, scene.root.certificate("web1", scene.key, expires_ms=now - 1000))
    event = Writer(scene.key).event(event_subject(AGENT_STARTUP, "web1"), b"{}")
    before = authors.judge("web1", event)
    await scene.record("web1", key, scene.root.certificate("web1", scene.key, expires_ms=now + 60_000))

    await find_certificates(scene.fleet, authors, [("web1", key)])
    authors.learn("web1", key, scene.root.certificate("web1", scene.key, expires_ms=now - 2000))

    assert (before, authors.judge("web1", event)) == (Verdict.FORGED, Verdict.VERIFIED)


@pytest.mark.parametrize("is_revoked", [True, False])
async def test_certificates_of_targets_are_read_again_if_another_key_was_revoked_since(
    is_revoked: bool,
) -> None:
    """The targets may have been chosen before the key that certified them was revoked, for example during a confirmation."""
    scene = Scene()
    key, certifier = scene.key.public_key, SigningKey(new_seed()).public_key
    resolved = TargetSet(nodes=["web1"], offline=[], scopes=[], targets=[], certified={"web1": (key, 0)})
    if is_revoked:
        await scene.publish(scene.root.trust(revoked=[certifier]))

    authors = await read_authors(scene.fleet, resolved)

    assert authors is not None
    assert (authors.knows("web1", key), authors.certified("web1")) == (not is_revoked, not is_revoked)


async def test_a_certificate_of_another_root_or_node_is_skipped() -> None:
    scene = Scene()
    await scene.record("web1", scene.key.public_key, Root().certificate("web1", scene.key))
    await scene.record("web2", scene.key.public_key, scene.root.certificate("web1", scene.key))
    await scene.tell(AGENT_KEY, "web1", key=scene.key.public_key, certificate="v1.x.y")
    authors = await scene.authors()

    await find_certificates(scene.fleet, authors, [(node, scene.key.public_key) for node in ("web1", "web2")])

    assert (authors.certified("web1"), authors.certified("web2")) == (False, False)


async def test_records_that_cannot_be_read_are_skipped() -> None:
    scene = Scene()
    await scene.fleet.nodes.put("node.web1", b"\xff{")
    await scene.record("web2", scene.key.public_key, scene.root.certificate("web2", scene.key))
    authors = await scene.authors()

    await find_certificates(scene.fleet, authors, [("web1", "x"), ("web2", scene.key.public_key)])

    assert authors.certified("web2")


async def test_a_flood_of_key_events_is_read_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEY_EVENTS_READ", 5)
    scene = Scene()
    for _ in range(5):
        await scene.tell(AGENT_KEY, "web1", key="x", certificate="y")
    certificate = scene.root.certificate("web1", scene.key)
    await scene.tell(AGENT_KEY, "web1", key=scene.key.public_key, certificate=certificate)
    authors = await scene.authors()

    await find_certificates(scene.fleet, authors, [("web1", scene.key.public_key)])

    assert not authors.certified("web1")


async def test_the_time_limit_for_unsigned_messages_is_in_the_signed_list() -> None:
    allowed = Scene()
    allowed.trust = allowed.root.trust(allow_unsigned_until=now_ms() + 60_000)
    over = Scene()
    over.trust = over.root.trust(allow_unsigned_until=now_ms() - 1)

    assert ((await allowed.authors()).accepts_unsigned, (await over.authors()).accepts_unsigned) == (
        True,
        False,
    )


async def test_a_list_in_the_credentials_that_the_root_did_not_sign_is_an_error() -> None:
    scene = Scene()
    scene.trust = msgspec.structs.replace(scene.trust, root=Root().key.public_key)

    with pytest.raises(InputError, match="signers list in these credentials cannot be used"):
        await scene.authors()


async def test_the_newest_list_counts_wherever_it_is() -> None:
    """An attacker who holds the broker can put an older list back, or one of its own."""
    scene = Scene()
    older = scene.root.trust(allow_unsigned_until=now_ms() + 60_000)
    scene.trust = scene.root.trust()
    await scene.publish(older)
    with_older = (await scene.authors()).accepts_unsigned
    foreign = Root()
    foreign.number = 100
    await scene.publish(foreign.trust(allow_unsigned_until=now_ms() + 60_000))
    with_foreign = (await scene.authors()).accepts_unsigned
    await scene.publish(scene.root.trust(allow_unsigned_until=now_ms() + 60_000))
    with_newer = (await scene.authors()).accepts_unsigned

    assert (with_older, with_foreign, with_newer) == (False, False, True)


def test_an_event_is_judged_by_its_own_signature() -> None:
    root, key = Root(), SigningKey(new_seed())
    authors = Authors(root.key.public_key, None, now_ms())
    authors.learn("web1", key.public_key, root.certificate("web1", key))
    subject = event_subject(AGENT_STARTUP, "web1")
    genuine, unsigned = Writer(key).event(subject, b"{}"), Writer(None).event(subject, b"{}")
    unknown = Writer(SigningKey(new_seed())).event(subject, b"{}")

    assert [
        authors.judge("web1", one) for one in (genuine, replace(genuine, body=b"{ }"), unsigned, unknown)
    ] == [Verdict.VERIFIED, Verdict.FORGED, Verdict.PROVISIONAL, Verdict.PROVISIONAL]
