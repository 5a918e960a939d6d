"""The document that holds the next revision of an assignment."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.wire import Assignment, AssignmentStage
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.assignments.staging import complete_stage, hold_back, is_first, next_number
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet
from tests.support.controller import NOW, fleet_on
from tests.support.signing import Keyring

RUN = "2zFXzzzzzzzzzzzzzzzzzzzzzzz"
STAGE = AssignmentStage(key="all.web", number=100)
NOW_MS = int(NOW.timestamp() * 1000)


def an_assignment(digest: str, **fields: object) -> Assignment:
    return Assignment(name="web", scope="all", bundle=Bundle(digest=digest * 64, size_bytes=1), **fields)  # type: ignore[arg-type]


def standing(assignment: Assignment, *, number: int = 7, stamp: int = 7) -> Standing:
    return Standing(key="all.web", revision=3, written=1, assignment=assignment, number=number, stamp=stamp)


def test_current_revision_keeps_its_number_and_holds_the_new_one() -> None:
    old, new = an_assignment("a", targets=["role=web"]), an_assignment("b", targets=["role=web"])

    held = hold_back(standing(old), new, 100, RUN)

    assert held == replace(old, number=7, next=replace(new, number=100, rollout=RUN))
    assert not is_first(standing(held))


def test_first_revision_selects_no_node_before_it_is_released() -> None:
    new = an_assignment("b", where="Facts.a == 1")

    held = hold_back(None, new, 100, RUN)

    assert held.where == "false"
    assert held.next == replace(new, number=100, rollout=RUN)
    assert is_first(standing(held))


@pytest.mark.parametrize(
    ("before", "number"),
    [
        pytest.param(None, NOW_MS, id="the first revision"),
        pytest.param(standing(an_assignment("a")), NOW_MS, id="after an older one"),
        pytest.param(standing(an_assignment("a"), stamp=NOW_MS + 5), NOW_MS + 6, id="clock is behind"),
        pytest.param(
            standing(an_assignment("a", next=an_assignment("b", number=NOW_MS + 9))),
            NOW_MS + 10,
            id="after a rollout",
        ),
    ],
)
def test_number_of_a_new_revision_is_that_of_no_earlier_one(before: Standing | None, number: int) -> None:
    assert next_number(NOW, before) == number


class Written:
    """An assignment with a next revision, in a fleet with signatures: bob may assign to all nodes, and lou to none."""

    def __init__(self) -> None:
        keyring = Keyring(lambda: NOW_MS)
        self.broker = MemoryBroker()
        self.signatories: dict[str, Signatory | None] = {
            "bob": keyring.operator("bob", apply=("all",)),
            "lou": keyring.operator("lou"),
            "broker": None,
        }
        self.trust = keyring.trust()

    def fleet(self, operator: str) -> Fleet:
        return fleet_on(MemoryBus(self.broker, operator, self.signatories[operator]), self.trust)

    async def write(self, operator: str, following: Assignment) -> None:
        held = hold_back(standing(an_assignment("a")), following, STAGE.number, RUN)
        fleet = self.fleet(operator)
        await Documents(fleet, fleet.assignments, "CCM_ASSIGNMENTS").change(
            STAGE.key, lambda _: msgspec.to_builtins(held)
        )

    async def digest(self) -> str:
        fleet = self.fleet("bob")
        found = await Documents(fleet, fleet.assignments, "CCM_ASSIGNMENTS").read(STAGE.key)
        return str(found.body["bundle"]["digest"])[0]


async def test_next_revision_becomes_the_current_one() -> None:
    written = Written()
    await written.write("bob", an_assignment("b"))

    await complete_stage(written.fleet("bob"), STAGE, RUN)
    once = await written.digest()
    await complete_stage(written.fleet("bob"), STAGE, RUN)

    assert (once, await written.digest()) == ("b", "b")


@pytest.mark.parametrize(
    ("writer", "reason"),
    [
        pytest.param("broker", "it is not signed", id="the broker"),
        pytest.param("lou", "lou signed it, but may not write there", id="another operator"),
    ],
)
async def test_an_assignment_that_no_operator_signed_is_not_completed(writer: str, reason: str) -> None:
    written = Written()
    await written.write("bob", an_assignment("b"))
    await written.write(writer, an_assignment("c"))

    with pytest.raises(SignatureError, match=reason):
        await complete_stage(written.fleet("bob"), STAGE, RUN)

    assert await written.digest() == "a"
