"""An earlier revision of an assignment that the broker wrote again is no base of the next one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ccm_agent.bus.signing import SignatureError
from ccm_agent.bus.trust import EVERYWHERE
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import RevisionError
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignment_history import verify_newest
from ccm_ctl.fleet.assignments import read_assignments, store_assignment
from ccm_ctl.fleet.ports import Fleet
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN, Keyring

NOW_MS = int(NOW.timestamp() * 1000)


def revision(digit: str) -> Assignment:
    bundle = Bundle(digest=digit * 64, size_bytes=1)
    return Assignment(name="web", scope="all", bundle=bundle, data_revision=1)


async def two_revisions(broker: MemoryBroker) -> Fleet:
    keys = Keyring(lambda: NOW_MS)
    anna = keys.operator("anna", apply=(EVERYWHERE,))
    fleet = fleet_on(MemoryBus(broker, "anna", anna), keys.trust())
    for digit in "ab":
        await store_assignment(fleet, revision(digit), await read_assignments(fleet), OWN)
    return fleet


async def test_earlier_revision_that_was_written_again_is_not_signed_anew() -> None:
    broker = MemoryBroker(lambda: NOW)
    fleet = await two_revisions(broker)
    known = await read_assignments(fleet)
    genuine = known.one("web")
    base = await verify_newest(fleet, genuine)
    await store_assignment(fleet, replace(genuine.assignment, data_revision=2), known, [base])

    bucket = MemoryBus(broker, "broker").bucket("CCM_ASSIGNMENTS")
    first, *_, last = await bucket.history("all.web")
    await bucket.store_signed("all.web", first.value, last.revision, first.signature)
    put_back = (await read_assignments(fleet)).one("web")

    assert put_back.assignment.bundle.digest == "a" * 64
    assert put_back.verified()  # its own signature is valid
    with pytest.raises(SignatureError, match="an older revision that was written again"):
        await verify_newest(fleet, put_back)
    with pytest.raises(RevisionError):
        await verify_newest(fleet, genuine)
