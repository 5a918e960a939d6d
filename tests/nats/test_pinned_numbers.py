"""
The holder of the broker shows an earlier document at the revision that an assignment pins.

The signature of the earlier document is valid, and a revision is the broker's count. So an assignment names the numbers of the
documents that it pins.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.assignments.pinned_data import check_pinned
from tests.support.agent import Running, until
from tests.support.bundles import digest_of, packed
from tests.support.nats_server import running_server
from tests.support.signed_node import SignedNode, signed_node
from tests.support.signing import FULL, OwnKeyValue, now_ms

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

DATA, URL = "CCM_DATA", "kv://CCM_DATA/common"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    async with signed_node(tmp_path, server) as one:
        yield one


async def put(stage: SignedNode, by: Signatory, word: str, number: int) -> int:
    stamped = Stamped(bucket=DATA, key="common", number=number, body=f"data: {{word: {word}}}\n")
    return await OwnKeyValue(stage.attacker, DATA, by).put("common", msgspec.json.encode(stamped))


def pinning(revision: int) -> Assignment:
    content = packed("changed /site")
    bundle = Bundle(digest=digest_of(content), size_bytes=len(content))
    return Assignment(name="site", scope="all", bundle=bundle, data=[URL], data_revision=revision)


async def assign(stage: SignedNode, by: Signatory, assignment: Assignment) -> None:
    await NatsObjects(stage.attacker, "CCM_MANIFESTS").put(assignment.bundle.digest, packed("changed /site"))
    key, body = assignment_key("all", "site"), msgspec.to_builtins(assignment)
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=stage.clock.now_ms(), body=body)
    await OwnKeyValue(stage.attacker, "CCM_ASSIGNMENTS", by).put(key, msgspec.json.encode(stamped))


def trouble(agent: Running) -> str:
    """What the node reports about its assignments."""
    return str(agent.agent._context.record.assignments)


async def test_earlier_document_at_a_pinned_revision_is_not_used(stage: SignedNode) -> None:
    ann = stage.keys.operator("ann", **FULL)
    stage.trust = stage.keys.trust()
    start = now_ms() - 10
    await put(stage, ann, "old", start)
    revision = await put(stage, ann, "new", start + 1)
    genuine = await stage.stored(DATA)
    [old, _] = genuine
    numbers = await check_pinned(stage.fleet(ann), pinning(revision))
    assert numbers == {"common": start + 1}

    # the broker counts as it likes; an assignment of an earlier `ccmctl` has no numbers
    await stage.restore(DATA, [old, old])
    await assign(stage, ann, pinning(revision))
    async with stage.agent() as agent:
        await until(lambda: stage.ran == ["changed /site"])
        await assign(stage, ann, msgspec.structs.replace(pinning(revision), data_numbers=numbers))
        await until(lambda: f"the one with number {start + 1}, which was assigned" in trouble(agent))
        assert stage.ran == ["changed /site"]

    await stage.restore(DATA, genuine)
    async with stage.agent():
        await until(lambda: stage.ran == ["changed /site"])
