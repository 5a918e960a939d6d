"""What changed between two texts."""

from __future__ import annotations

from ccm_agent.clikit.table import Style
from ccm_ctl.render.diff import diff

OLD = "a: 1\nb: 2\n"
NEW = "a: 1\nb: 3\nc: \x1b[2J\n"


def test_a_diff_shows_removed_and_added_lines() -> None:
    assert diff(OLD, NEW, "common 3", "common 4", Style()) == (
        "--- common 3\n+++ common 4\n@@ -1,2 +1,3 @@\n a: 1\n-b: 2\n+b: 3\n+c: \\x1b[2J\n"
    )


def test_equal_texts_have_no_diff() -> None:
    assert diff(OLD, OLD, "a", "b", Style()) == ""


def test_color_distinguishes_removed_and_added_lines() -> None:
    assert diff("x\n", "y\n", "a", "b", Style(color=True)).splitlines() == [
        "\x1b[1m--- a\x1b[0m",
        "\x1b[1m+++ b\x1b[0m",
        "\x1b[90m@@ -1 +1 @@\x1b[0m",
        "\x1b[31m-x\x1b[0m",
        "\x1b[32m+y\x1b[0m",
    ]
