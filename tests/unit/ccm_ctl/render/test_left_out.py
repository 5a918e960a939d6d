"""Warnings about requirements that a partial run left out."""

from __future__ import annotations

from ccm_agent.model.outcome import LOCKED, NOT_SELECTED
from ccm_ctl.render.left_out import format_left_out, format_locked
from tests.support.controller import event


def test_nodes_that_report_the_same_share_a_sentence() -> None:
    said = format_left_out({"web2": ["a#1 requires b#2"], "web1": ["a#1 requires b#2"], "db1": []})

    assert list(said) == ["left out on web[1-2], although required: a#1 requires b#2"]


def test_only_the_first_requirements_are_named() -> None:
    assert list(format_left_out({"web1": ["a", "b", "c", "d", "e"]})) == [
        "left out on web1, although required: a; b; c; and 2 more"
    ]


def test_locked_resources_are_named_with_the_reason() -> None:
    locked = event("/x", 2, changed=False, skipped=True, code=LOCKED, error=["locked until noon by op: disk"])
    other = event("/y", 3, changed=False, skipped=True, code=NOT_SELECTED, error=["not selected"])

    assert list(format_locked({"web1": [locked, other], "web2": [locked], "db1": []})) == [
        "skipped on web[1-2]: file#/x (locked until noon by op: disk)"
    ]
