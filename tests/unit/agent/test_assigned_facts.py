"""Assigned facts stay until an operator removes them, whatever the broker has lost."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.agent.cache.facts import AssignedFacts
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.signing import FULL, Keyring, authenticator

BUCKET = "CCM_FACTS"


async def test_facts_that_are_gone_stay_in_force_and_a_signed_removal_ends_them(tmp_path: Path) -> None:
    keys, broker = Keyring(), MemoryBroker()
    bob = keys.operator("bob", **FULL)
    guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, keys.trust()))
    bucket = MemoryBus(broker, "broker").bucket(BUCKET)
    facts = AssignedFacts("web1", bucket, guard, tmp_path / "facts.json")
    body = msgspec.json.encode(Stamped(bucket=BUCKET, key="web1", number=5, body={"role": "web"}))
    await bucket.store_signed("web1", body, 0, bob.document(BUCKET, "web1", body)[SIGNATURE_HEADER])

    assert await facts.read()
    stored = list(broker.buckets[BUCKET])
    broker.buckets[BUCKET].clear()
    with pytest.raises(ProtocolError, match="disappeared without being deleted"):
        await facts.read()
    assert facts.facts == {"role": "web"}

    broker.buckets[BUCKET] += stored
    removal = bob.deletion(BUCKET, "web1", 6)[SIGNATURE_HEADER]
    await bucket.delete("web1", number=6, signature=removal)
    assert await facts.read()
    assert facts.facts == {}
