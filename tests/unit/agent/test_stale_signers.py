"""What a node does while no administrator has confirmed its signers list, and which timestamps it takes."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from ccm_agent.agent.trust.authentication import Authenticator, StaleSignersError
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.agent.trust.signers_guard import SignersGuard
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, Timestamp
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET, SignedText, SignersList, sign_signers
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import IncomingRequest, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, RESOURCE_EXEC
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.signing import FULL, Keyring, authenticator, unsigned

HOUR_S = 3600
WEB = "fact.role.web"
BODY = b'{"protocol":"x","run":"y"}'
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class Stage:
    """A node whose signers list must be confirmed each hour, and the operator bob."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(NOW)
        self.keys = Keyring(lambda: int(self.clock.now().timestamp() * 1000))
        self.bob = self.keys.operator("bob", **FULL, exec=(">",), timestamp=True)
        self.node: Authenticator = authenticator(folder, self.keys.trust(max_age_s=HOUR_S), self.clock)
        self.guard = RevisionGuard(folder / "documents.json", self.node)
        self.bucket = MemoryBus(MemoryBroker(), "op").bucket(TRUST_BUCKET)

    async def ask(self, protocol: str) -> None:
        """A request of bob; an error if the node refuses it."""
        subject = request_subject(protocol, WEB)
        headers = self.bob.request(subject, BODY)
        await self.node.request(
            IncomingRequest(subject=subject, protocol=protocol, scope=WEB, body=BODY, headers=headers)
        )

    def facts(self, number: int, role: str) -> KeyValueEntry:
        """Facts that bob assigns."""
        body = msgspec.json.encode(
            Stamped(bucket="CCM_FACTS", key="web1", number=number, body={"role": role})
        )
        signature = self.bob.document("CCM_FACTS", "web1", body)[SIGNATURE_HEADER]
        return KeyValueEntry(key="web1", value=body, revision=number, created=NOW, signature=signature)

    def deletion(self, number: int) -> KeyValueEntry:
        """Their removal."""
        signature = self.bob.deletion("CCM_FACTS", "web1", number)[SIGNATURE_HEADER]
        return KeyValueEntry(key="web1", value=b"", revision=9, created=NOW, signature=signature)

    async def put(self, key: str, signed: SignedText) -> None:
        """What the broker delivers."""
        await self.bucket.put(key, signed.body.encode())
        self.bucket._writes[-1].signature = signed.signature  # type: ignore[attr-defined]

    async def confirm(self, signers: int) -> bool:
        """Have the node read a timestamp of now that names a list."""
        await self.put(TIMESTAMP_KEY, self.keys.timestamp(self.bob, signers))
        self.node.freshness.notified()
        return await self.node.read_timestamp(self.bucket)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.mark.parametrize("protocol", [MANIFEST_APPLY, RESOURCE_EXEC])
async def test_a_change_is_refused_until_the_list_is_confirmed(stage: Stage, protocol: str) -> None:
    await stage.ask(protocol)

    await stage.clock.advance(HOUR_S + 1)
    with pytest.raises(
        StaleSignersError, match="only plans are accepted: no administrator has confirmed signers list 1"
    ):
        await stage.ask(protocol)
    await stage.ask(MANIFEST_PLAN)

    assert await stage.confirm(signers=1)
    await stage.ask(protocol)


async def test_a_list_that_a_timestamp_names_and_the_broker_withholds_makes_the_node_plan_only(
    stage: Stage,
) -> None:
    newer = sign_signers(stage.keys.root, stage.keys.listed(max_age_s=HOUR_S))
    assert await stage.confirm(signers=2)

    with pytest.raises(StaleSignersError, match="signers list 2 exists, but the broker has not delivered it"):
        await stage.ask(MANIFEST_APPLY)
    await stage.put(SIGNERS_KEY, newer)
    assert await stage.node.read_list(stage.bucket)
    await stage.ask(MANIFEST_APPLY)


async def test_a_list_that_is_older_than_the_one_of_the_timestamp_is_refused(stage: Stage) -> None:
    between, newest = (sign_signers(stage.keys.root, stage.keys.listed(max_age_s=HOUR_S)) for _ in range(2))
    await stage.confirm(signers=3)

    await stage.put(SIGNERS_KEY, between)
    with pytest.raises(ProtocolError, match="signers list 2 is older than 3, which a timestamp requires"):
        await stage.node.read_list(stage.bucket)
    assert stage.node.signers.number == 1
    await stage.put(SIGNERS_KEY, newest)
    assert await stage.node.read_list(stage.bucket)


async def test_nothing_new_is_taken_while_the_list_is_stale_and_what_is_known_stays(stage: Stage) -> None:
    await stage.guard.seen(stage.guard.check("CCM_FACTS", stage.facts(5, "web")))
    signature = stage.bob.object("object", "d" * 64)[SIGNATURE_HEADER]
    stage.node.object("object", "d" * 64, signature)

    await stage.clock.advance(HOUR_S + 1)
    assert stage.guard.check("CCM_FACTS", stage.facts(5, "web")).number == 5
    for take in (
        lambda: stage.guard.check("CCM_FACTS", stage.facts(6, "db")),
        lambda: stage.guard.check_pinned("CCM_FACTS", stage.facts(5, "web")),
        lambda: stage.guard.check_absence("CCM_FACTS", "web1", stage.deletion(6)),
        lambda: stage.node.object("object", "d" * 64, signature),
    ):
        with pytest.raises(ProtocolError, match="new documents are refused"):
            take()

    await stage.confirm(signers=1)
    assert stage.guard.check("CCM_FACTS", stage.facts(6, "db")).number == 6
    stage.guard.check_pinned("CCM_FACTS", stage.facts(6, "db"))
    stage.node.object("object", "d" * 64, signature)
    stage.guard.check_absence("CCM_FACTS", "web1", stage.deletion(7))


async def test_a_document_that_is_there_is_no_deletion(stage: Stage) -> None:
    await stage.guard.seen(stage.guard.check("CCM_FACTS", stage.facts(5, "web")))

    with pytest.raises(ProtocolError, match="disappeared without being deleted"):
        stage.guard.check_absence("CCM_FACTS", "web1", stage.facts(6, "web"))


async def test_a_plain_document_under_a_key_that_had_a_stamped_one_is_suspected_without_signatures_only(
    stage: Stage, tmp_path: Path
) -> None:
    plain = RevisionGuard(tmp_path / "plain.json", unsigned(tmp_path / "plain"))
    for guard in (plain, stage.guard):
        guard.numbers["CCM_DATA/common"] = 5

    assert plain.suspects_copy("CCM_DATA", "common")
    assert not plain.suspects_copy("CCM_DATA", "other")
    assert not stage.guard.suspects_copy("CCM_DATA", "common")
    assert stage.guard.refuses_plain
    assert not plain.refuses_plain


async def test_a_signer_with_a_right_to_commands_alone_is_not_marked_as_a_planner(tmp_path: Path) -> None:
    keys = Keyring()
    eve = keys.operator("eve", exec=(WEB,))
    node = authenticator(tmp_path, keys.trust())
    subject = request_subject(RESOURCE_EXEC, WEB)

    found = await node.request(
        IncomingRequest(
            subject=subject, protocol=RESOURCE_EXEC, scope=WEB, body=BODY, headers=eve.request(subject, BODY)
        )
    )

    assert not found.is_plan_only


async def test_a_timestamp_is_taken_if_it_is_newer_and_names_no_older_list(tmp_path: Path) -> None:
    guard = SignersGuard(tmp_path / "timestamp.json", "root")
    assert await guard.take(Timestamp(issued=10, signers=3))

    assert not await guard.take(Timestamp(issued=10, signers=3))
    assert not await guard.take(Timestamp(issued=9, signers=4))
    assert not await guard.take(Timestamp(issued=11, signers=2))
    assert guard.newest == Timestamp(issued=10, signers=3)
    assert await guard.take(Timestamp(issued=11, signers=3))


@pytest.mark.parametrize("root", ["root", "another"])
async def test_a_timestamp_of_this_fleet_is_known_after_a_restart(tmp_path: Path, root: str) -> None:
    guard = SignersGuard(tmp_path / "timestamp.json", "root")
    await guard.take(Timestamp(issued=10, signers=3))

    restarted = SignersGuard(tmp_path / "timestamp.json", root)
    await asyncio.to_thread(restarted.open)
    assert restarted.newest.signers == (3 if root == "root" else 0)


async def test_a_timestamp_is_read_at_a_notification_and_when_a_quarter_of_the_age_has_passed(
    tmp_path: Path,
) -> None:
    guard = SignersGuard(tmp_path / "timestamp.json", "root")
    aged, ageless = SignersList(number=3, issued=0, max_age_s=4), SignersList(number=3, issued=0)
    assert guard.is_due(aged, 0)  # the process has just begun
    await guard.take(Timestamp(issued=1_000, signers=3))

    assert [guard.is_due(aged, now_ms) for now_ms in (1_000, 2_000, 2_001)] == [False, False, True]
    guard.notified()
    assert guard.is_due(aged, 1_000)
    assert not guard.is_due(ageless, 9_000)


async def test_a_node_without_a_root_reads_no_list_and_no_timestamp(stage: Stage, tmp_path: Path) -> None:
    node = unsigned(tmp_path / "plain")
    await stage.put(SIGNERS_KEY, sign_signers(stage.keys.root, stage.keys.listed(max_age_s=HOUR_S)))
    await stage.put(TIMESTAMP_KEY, stage.keys.timestamp(stage.bob, 2))

    assert not await node.read_list(stage.bucket)
    assert not await node.read_timestamp(stage.bucket)
    assert await stage.node.read_list(stage.bucket)
    assert await stage.node.read_timestamp(stage.bucket)


async def test_a_timestamp_that_is_not_due_is_not_read(stage: Stage) -> None:
    assert await stage.confirm(signers=1)
    await stage.clock.advance(60)
    await stage.put(TIMESTAMP_KEY, stage.keys.timestamp(stage.bob, 1))

    assert not await stage.node.read_timestamp(stage.bucket)
    await stage.clock.advance(HOUR_S / 2)
    assert await stage.node.read_timestamp(stage.bucket)
