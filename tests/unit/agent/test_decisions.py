"""What the node decided about requests, as events for the audit trail."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.state.request_log import REFUSALS_A_MINUTE, DecisionLog, RequestLog
from ccm_agent.bus.chain import NONE
from ccm_agent.model.errors import Refusal
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.wire import MANIFEST_APPLY, NODE_PING
from ccm_agent.testing.clock import FakeClock

ANN = Principal(name="ann", key="UANN", is_verified=True)


class Published:
    """Stands for the publisher of events."""

    def __init__(self) -> None:
        self.details: list[dict[str, Any]] = []
        self.messages: list[str] = []

    def decided(self, message: str, details: dict[str, Any]) -> str:
        """See `AgentEventPublisher.decided`."""
        self.messages.append(message)
        self.details.append(details)
        return f"link{len(self.details)}"


class Node:
    """A log of decisions."""

    def __init__(self, folder: Path) -> None:
        self.published = Published()
        self.clock = FakeClock()
        self.requests = RequestLog(folder / "ledger.log", keep_s=60, clock=self.clock)
        self.requests.open()
        published: Any = self.published
        self.log = DecisionLog(folder / "decisions.json", self.requests, published, self.clock)
        self.log.open()


def request(protocol: str = MANIFEST_APPLY, scope: str = "all") -> IncomingRequest:
    return IncomingRequest(subject=f"{protocol}.{scope}", protocol=protocol, scope=scope, body=b"{}")


def test_a_decision_names_the_request_and_its_author_and_the_decision_before_it(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.log.asked("r1", request(), ANN)
    node.log.asked("r2", request(scope="node.web1"), ANN)

    node.log.decided("r1", "accepted")
    node.log.decided("r2", "refused", reason="not here", code="policy.denied")

    common = {"action": "manifest.apply", "requester": "ann", "key": "UANN", "verified": "yes"}
    assert node.published.details == [
        {"number": 1, "previous": NONE, "run": "r1", "scope": "all", "state": "accepted", **common},
        {
            "number": 2,
            "previous": "link1",
            "run": "r2",
            "scope": "node.web1",
            "state": "refused",
            "code": "policy.denied",
            **common,
        },
    ]
    assert node.published.messages == ["manifest.apply accepted", "manifest.apply refused: not here"]


@pytest.mark.parametrize("lost", ["ledger.log", "decisions.json"])
async def test_a_later_process_continues_the_numbers_from_either_file(tmp_path: Path, lost: str) -> None:
    node = await asyncio.to_thread(Node, tmp_path)
    node.log.asked("r1", request(), ANN)
    node.log.decided("r1", "accepted")
    await node.log.save()
    await asyncio.to_thread((tmp_path / lost).unlink)

    later = await asyncio.to_thread(Node, tmp_path)
    later.log.asked("r2", request(), ANN)
    later.log.decided("r2", "accepted")

    assert [(one["number"], one["previous"]) for one in later.published.details] == [(2, "link1")]


async def test_a_killed_process_has_recorded_the_number_of_its_last_decision(tmp_path: Path) -> None:
    node = await asyncio.to_thread(Node, tmp_path)
    node.log.asked("r1", request(), ANN)
    node.log.decided("r1", "accepted")
    await node.requests.compact()

    later = await asyncio.to_thread(Node, tmp_path)
    later.log.asked("r2", request(), ANN)
    later.log.decided("r2", "accepted")

    assert [(one["number"], one["previous"]) for one in later.published.details] == [(2, "link1")]


def test_questions_and_repeated_answers_are_no_decisions(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.log.asked("r1", request(NODE_PING), ANN)
    node.log.decided("r1", "done")
    node.log.asked("r2", request(), ANN)
    node.log.decided("r2", "accepted")
    node.log.decided("r2", "accepted")
    node.log.decided("r3", "done")

    assert [one["run"] for one in node.published.details] == ["r2"]


def test_a_flood_of_refusals_is_counted_and_leaves_room_for_what_is_accepted(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(REFUSALS_A_MINUTE + 70):
        node.log.unauthorized(f"r{number}", request(), Refusal("request.not_authorized", "no"))
    node.log.asked("mine", request(), ANN)

    node.log.decided("mine", "accepted")

    assert len(node.published.details) == REFUSALS_A_MINUTE + 1
    assert node.published.details[-1]["left_out"] == "70"
    assert [one["number"] for one in node.published.details] == list(range(1, REFUSALS_A_MINUTE + 2))


def test_a_refused_request_with_the_run_of_another_one_leaves_its_author_alone(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.log.asked("r1", request(), ANN)
    node.log.decided("r1", "queued")

    node.log.unauthorized("r1", request(), Refusal("request.not_authorized", "no"))
    node.log.decided("r1", "expired", code="run.expired")

    assert [(one["state"], one.get("requester")) for one in node.published.details] == [
        ("queued", "ann"),
        ("refused", None),
        ("expired", "ann"),
    ]
