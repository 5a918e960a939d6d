"""A node lost its state folder, and with it its log of requests; the holder of the broker delivers again what was carried out."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.snapshot import piece_key
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET, sign_signers
from ccm_agent.bus.streams import store
from ccm_agent.bus.subjects import assignment_key, event_subject, key_subject, request_subject
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY, SESSION_ANSWER, Assignment, ManifestRequest
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.keys.signers_timestamp import RenewalState, renew
from ccm_ctl.fleet.trust.seen_signers import SeenSigners
from tests.support.agent import until
from tests.support.bundles import digest_of, packed
from tests.support.nats_server import running_server
from tests.support.signed_node import NODE, SignedNode, signed_node
from tests.support.signing import FULL, OwnKeyValue, now_ms

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    async with signed_node(tmp_path, server) as one:
        yield one


async def test_request_that_was_carried_out_is_not_obeyed_again_after_the_state_was_lost(
    stage: SignedNode,
) -> None:
    ann = stage.keys.operator("ann", **FULL)
    stage.trust = stage.keys.trust()
    request = ManifestRequest(protocol=MANIFEST_APPLY, run=new_id(), name="site", manifest="changed /once")
    subject, body = request_subject(MANIFEST_APPLY, f"node.{NODE}"), msgspec.json.encode(request)

    async with stage.agent():
        headers = {SENT: "1", **ann.request(subject, body)}
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await until(lambda: stage.ran == ["changed /once"])
    stage.clock.ahead_s += 60
    # with its state, the node knows what it carried out
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await stage.controller.answer(request.run, NODE, 2)
        assert stage.ran == []
    await asyncio.to_thread(shutil.rmtree, stage.folder)
    stage.controller.heard.clear()
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        answer = await stage.controller.answer(request.run, NODE)
        assert (answer.state, answer.code) == ("refused", "request.before_state")
        assert "before this node's state was created" in answer.reason

        assert await stage.ask(ann, "changed /new") == ("accepted", "")
        await until(lambda: stage.ran == ["changed /new"])
    # what was signed since is obeyed by later processes too
    body = msgspec.json.encode(msgspec.structs.replace(request, run=new_id(), manifest="changed /later"))
    headers = {SENT: "1", **ann.request(subject, body)}
    async with stage.agent():
        await stage.attacker.publish(subject, body, headers, confirm=True)
        await until(lambda: stage.ran == ["changed /later"])


async def test_an_old_request_that_is_delivered_again_does_not_end_its_run_as_refused(
    stage: SignedNode,
) -> None:
    ann = stage.keys.operator("ann", **FULL)
    stage.trust = stage.keys.trust()
    subject = request_subject(MANIFEST_APPLY, f"node.{NODE}")
    first, other = (
        ManifestRequest(protocol=MANIFEST_APPLY, run=new_id(), name="site", manifest=f"changed /{name}")
        for name in ("first", "other")
    )
    signed = {
        one.run: (body := msgspec.json.encode(one), {SENT: "1", **ann.request(subject, body)})
        for one in (first, other)
    }
    answers_of_first = event_subject(SESSION_ANSWER, NODE, first.run)
    async with stage.agent():
        await stage.attacker.publish(subject, *signed[first.run], confirm=True)
        await until(lambda: stage.ran == ["changed /first"])
        stage.clock.ahead_s = 7200

        await stage.attacker.publish(subject, *signed[first.run], confirm=True)
        await stage.attacker.publish(subject, *signed[other.run], confirm=True)

        answer = await stage.controller.answer(other.run, NODE)
        assert (answer.state, answer.code) == ("refused", "request.clock")
        assert answer.reason.startswith("this node's clock shows 20")
        answered = [body["state"] for name, body in stage.controller.heard if name == answers_of_first]
        assert answered == ["accepted"]
        assert stage.ran == ["changed /first"]


async def assign(stage: SignedNode, by: Signatory, text: str, number: int) -> bytes:
    """Assign a bundle; the document."""
    content = packed(text)
    digest = digest_of(content)
    await NatsObjects(stage.attacker, "CCM_MANIFESTS").put(digest, content)
    bundle = Bundle(digest=digest, size_bytes=len(content))
    key = assignment_key("all", "site")
    body = msgspec.to_builtins(Assignment(name="site", scope="all", bundle=bundle, interval_s=0.2))
    stamped = msgspec.json.encode(Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=number, body=body))
    await OwnKeyValue(stage.attacker, "CCM_ASSIGNMENTS", by).put(key, stamped)
    return stamped


async def put_back(stage: SignedNode, bucket: str, key: str, body: bytes, headers: dict[str, str]) -> None:
    """What the attacker stores, as it was before."""
    headers = {"Nats-Expected-Stream": f"KV_{bucket}", **headers}
    await store(stage.attacker, key_subject(bucket, key), body, headers)


async def test_node_that_lost_its_state_takes_no_documents_of_a_backup(
    stage: SignedNode, tmp_path: Path
) -> None:
    keys, seen = stage.keys, SeenSigners(tmp_path / "seen.json")
    ann = keys.operator("ann", **FULL, timestamp=True)
    stage.trust = keys.trust(max_age_s=3600)
    assert stage.trust.signers is not None
    await stage.put(SIGNERS_KEY, stage.trust.signers)
    key = assignment_key("all", "site")

    old = await assign(stage, ann, "changed /old", now_ms())
    headers = ann.document("CCM_ASSIGNMENTS", key, old)
    assert await renew(stage.fleet(ann), stage.attacker, seen) == RenewalState.RENEWED
    bucket = NatsKeyValue(stage.attacker, TRUST_BUCKET)
    before = [await bucket.get(name) for name in (TIMESTAMP_KEY, piece_key(0))]
    stage.clock.ahead_s = 600
    new = await assign(stage, ann, "changed /new", stage.clock.now_ms())
    await renew(stage.fleet(ann), stage.attacker, seen, is_forced=True)

    # the document alone is put back: the snapshot names a higher number
    await put_back(stage, "CCM_ASSIGNMENTS", key, old, headers)
    async with stage.agent() as agent:
        reported = agent.agent._assignments._selection.cache._reported
        await until(lambda: "which the snapshot of the fleet requires" in reported.get(key, ""))
        # the broker's whole backup is put back: the timestamp of the backup is too old
        for entry in before:
            assert entry is not None
            signed = {SIGNATURE_HEADER: entry.signature} if entry.signature else {}
            await put_back(stage, TRUST_BUCKET, entry.key, entry.value, signed)
    await asyncio.to_thread(shutil.rmtree, stage.folder)
    stage.clock.ahead_s = 3700
    await put_back(stage, TRUST_BUCKET, SIGNERS_KEY, *fresh_list(stage))
    async with stage.agent() as agent:
        reported = agent.agent._assignments._selection.cache._reported
        await until(lambda: "the limit is 1h" in reported.get("", ""))
        assert stage.ran == []

        # what the administrator wrote comes back, and is confirmed
        await put_back(stage, "CCM_ASSIGNMENTS", key, new, ann.document("CCM_ASSIGNMENTS", key, new))
        await renew(stage.fleet(ann), stage.attacker, seen, is_forced=True)
        await until(lambda: stage.ran[:1] == ["changed /new"])
        await put_back(stage, "CCM_ASSIGNMENTS", key, old, headers)
        await until(lambda: "which was seen before" in reported.get(key, ""))

    assert "changed /old" not in stage.ran


def fresh_list(stage: SignedNode) -> tuple[bytes, dict[str, str]]:
    """A list that was changed just now, so the list itself is recent."""
    signed = sign_signers(stage.keys.root, stage.keys.listed(max_age_s=3600))
    return signed.body.encode(), {SIGNATURE_HEADER: signed.signature}
