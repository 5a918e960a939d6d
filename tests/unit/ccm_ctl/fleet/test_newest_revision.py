"""An earlier revision of an assignment that the broker wrote again is no base of the next one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.trust import EVERYWHERE
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import NotFoundError, RevisionError
from ccm_agent.model.wire import Assignment
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.assignment_history import Past, Revision, verify_newest
from ccm_ctl.fleet.assignments.assignments import Standing, read_assignments, store_assignment
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


def kept(number: int, **others: Any) -> Revision:
    """A revision of the assignment web."""
    standing = Standing(key="all.web", revision=number, written=number, assignment=revision("abcdef"[number]))
    return Revision(standing=standing, **others)


def test_a_rollback_needs_the_newest_revisions_and_a_verified_one() -> None:
    unsigned = kept(2, unverified="it is not signed")
    withheld = kept(2, unverified="a newer one is not shown", is_outdated=True)

    Past(name="web", revisions=[kept(1), unsigned]).check_whole()
    with pytest.raises(SignatureError, match="a newer one is not shown; choose an earlier revision"):
        Past(name="web", revisions=[kept(1), withheld]).check_whole()
    with pytest.raises(SignatureError, match="no revision is verified"):
        Past(name="web", revisions=[unsigned]).check_whole()


def test_a_revision_is_chosen_only_if_it_is_verified() -> None:
    past = Past(name="web", revisions=[kept(1), kept(2, unverified="it is not signed"), kept(3)])

    chosen = past.pick(1)

    assert chosen.revision == 1
    with pytest.raises(SignatureError, match="revision 2 is not verified: it is not signed"):
        past.pick(2)
    with pytest.raises(NotFoundError, match="revision 4 is not stored; stored revisions: 1, 3"):
        past.pick(4)
