"""Warnings about requirements that a partial run left out."""

from __future__ import annotations

from ccm_ctl.render.left_out import format_left_out


def test_nodes_that_report_the_same_share_a_sentence() -> None:
    said = format_left_out({"web2": ["a#1 requires b#2"], "web1": ["a#1 requires b#2"], "db1": []})

    assert list(said) == ["left out on web[1-2], though needed: a#1 requires b#2"]


def test_only_the_first_requirements_are_named() -> None:
    assert list(format_left_out({"web1": ["a", "b", "c", "d", "e"]})) == [
        "left out on web1, though needed: a; b; c; and 2 more"
    ]
