"""What is wrong with events, in one sentence for each node."""

from __future__ import annotations

import pytest

from ccm_agent.model.records.verdicts import MissingEvents, NodeReport, PartReport, Verdict
from ccm_ctl.render.verdicts import node_sentence, part_sentence

A, B = "A" * 16, "B" * 16


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        pytest.param(NodeReport(node="web1", counts={Verdict.VERIFIED: 5}), "", id="nothing"),
        pytest.param(
            NodeReport(node="web1", missing=[MissingEvents(chain=A, first=17, last=18)], missing_count=2),
            "web1: 2 events are missing from its chain (places 17-18)",
            id="missing",
        ),
        pytest.param(
            NodeReport(
                node="web1",
                missing=[MissingEvents(chain=A, first=3, last=3), MissingEvents(chain=B, first=1, last=4)],
                missing_count=5,
            ),
            "web1: 5 events are missing from its chain (places 3 of chain AAAAAA, 1-4 of chain BBBBBB)",
            id="missing in two chains",
        ),
        pytest.param(
            NodeReport(
                node="web1",
                missing=[MissingEvents(chain=A, first=10 * one, last=10 * one) for one in range(1, 9)],
                missing_count=8,
            ),
            "web1: 8 events are missing from its chain (places 10, 20, 30, 40, 50, …)",
            id="missing at many places",
        ),
        pytest.param(
            NodeReport(node="web1", changed=[7, 4], counts={Verdict.GAP: 3}),
            "web1: 2 events were changed (places 4, 7), 1 event cannot be verified",
            id="changed",
        ),
        pytest.param(
            NodeReport(node="web1", counts={Verdict.GAP: 1}, doubled=1),
            "web1: 1 event signed twice for one place (is its state a copy, or its key in use on another host?)",
            id="signed twice",
        ),
        pytest.param(
            NodeReport(
                node="web1", counts={Verdict.FORGED: 9}, reasons={"one": 3, "two": 3, "three": 2, "four": 1}
            ),
            "web1: 9 events are forged (one, two, three, …)",
            id="forged",
        ),
        pytest.param(
            NodeReport(node="\x1b[2J", reordered=1),
            "\\x1b[2J: 1 event is stored out of order",
            id="an escape",
        ),
    ],
)
def test_a_node_has_one_sentence(report: NodeReport, sentence: str) -> None:
    assert node_sentence(report) == sentence


@pytest.mark.parametrize(
    ("report", "numbers", "sentence"),
    [
        pytest.param(PartReport(node="web1"), [], "", id="nothing"),
        pytest.param(
            PartReport(node="web1", verdict=Verdict.GAP, missing=4),
            [3, 4, 5, 9],
            "web1: 4 events of the run are missing or changed (numbers 3-5, 9)",
            id="missing",
        ),
        pytest.param(
            PartReport(node="web1", verdict=Verdict.GAP, missing=3, unproven=2),
            [1, 2, 3],
            "web1: 1 event of the run is missing or changed; 2 before that cannot be verified",
            id="not proven",
        ),
        pytest.param(
            PartReport(node="web1", reasons={"summary: it is not signed": 2}),
            [],
            "web1: 2 messages left out as not genuine: summary: it is not signed",
            id="left out",
        ),
    ],
)
def test_a_part_of_a_run_has_one_sentence(report: PartReport, numbers: list[int], sentence: str) -> None:
    assert part_sentence(report, numbers) == sentence
