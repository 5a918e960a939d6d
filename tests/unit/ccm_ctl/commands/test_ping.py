"""`ccmctl ping`: who answers."""

from __future__ import annotations

import pytest

from ccm_ctl.fleet.runs import gather
from tests.support.controller import Desk, FakeNode


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "ASK_AGAIN_S", 0.01)


def test_each_node_answers_is_silent_or_offline() -> None:
    deaf = FakeNode("web2", {"role": "none"})
    desk = Desk(FakeNode("web1", {"role": "web"}), deaf, FakeNode("web3", {"role": "web"}, is_present=False))
    desk.ccmctl("node", "list")
    desk.ccmctl("facts", "set", "web2", "role=web")

    said = desk.ccmctl("ping", "--targets", "role=web")

    assert (said.code, said.screen) == (
        3,
        "NODE  STATE    AFTER  VERSION\n"
        "web1  answers    Nms  1.2.3\n"
        "web2  silent\n"
        "web3  offline\n"
        "1 of 3 nodes answered\n",
    )
    asked = [one for one in desk.broker.sent if "node.ping" in one.subject]
    assert [b'"named":["web2"]' in one.body for one in asked] == [False, True, True]


def test_all_nodes_are_asked_by_default() -> None:
    said = Desk(FakeNode("a"), FakeNode("b")).ccmctl("ping", "--json")

    assert said.code == 0
    assert sorted((one["node"], one["state"], one["body"]["version"]) for one in said.records) == [
        ("a", "done", "1.2.3"),
        ("b", "done", "1.2.3"),
    ]
