"""Nested values as a tree."""

from __future__ import annotations

from ccm_agent.clikit.table import Style
from ccm_ctl.render.tree import tree


def test_a_tree_is_indented_sorted_and_separates_differing_nodes() -> None:
    value = {
        "role": "web",
        "host": {"info": {"platform": "debian", "uptime": 12}, "empty": {}, "none": None},
        "addresses": ["10.0.0.1", "::1", ""],
        "partitions": [{"device": "/dev/sda1", "size": 1.5}, {"device": "/dev/sdb1"}],
        "looks": {"number": "12", "truth": "true", "spaced": " x ", "nothing": "", "control": "\x1b[2J"},
        "motd": "line 1\nline 2",
        "is_virtual": False,
    }

    assert tree(value, Style()) == (
        'addresses: 10.0.0.1, ::1, ""\n'
        "host:\n"
        "  empty: {}\n"
        "  info:\n"
        "    platform: debian\n"
        "    uptime: 12\n"
        "  none: null\n"
        "is_virtual: false\n"
        "looks:\n"
        "  control: \\x1b[2J\n"
        '  nothing: ""\n'
        '  number: "12"\n'
        '  spaced: " x "\n'
        '  truth: "true"\n'
        "motd:\n"
        "  line 1\n"
        "  line 2\n"
        "partitions:\n"
        "  [0]:\n"
        "    device: /dev/sda1\n"
        "    size: 1.5\n"
        "  [1]:\n"
        "    device: /dev/sdb1\n"
        "role: web\n"
    )


def test_nothing_is_nothing() -> None:
    assert tree({}, Style()) == ""


def test_sorted_results_stay_sorted() -> None:
    assert tree({"node": "web1", "agent": {"b": 1, "a": 2}}, Style(), as_given=True) == (
        "node: web1\nagent:\n  a: 2\n  b: 1\n"
    )
