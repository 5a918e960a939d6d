"""One screen about one node."""

from __future__ import annotations

import pytest

from ccm_agent.clikit.table import Style
from ccm_ctl.render.why import Fact, SuggestedCommand, screen

LINES = 24
OUTPUT = "".join(f"line {number}\n" for number in range(20)) + "\x1b[2Jx" * 60
FACTS = [
    Fact(
        word, "something that is as long as such things usually are, and perhaps longer than the line", "bad"
    )
    for word in ("failed, too", "assignment", "last run", "agent")
]
STEPS = [
    SuggestedCommand("ccmctl events --no-follow -n web1 -r 3Gb1YlnzjY5hvvqJBrE4G7Yv5Qe", "all that it did"),
    SuggestedCommand("ccm agent enable", "to let it converge", "web1"),
]


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("color", [False, True])
def test_all_of_it_fits_on_one_screen_and_orders_nothing(width: int, color: bool) -> None:
    shown = screen("web1 fails: it does.", "bad", FACTS, OUTPUT, STEPS, Style(width=width, color=color))
    plain = screen("web1 fails: it does.", "bad", FACTS, OUTPUT, STEPS, Style(width=width))

    assert len(shown.splitlines()) < LINES
    assert max(map(len, plain.splitlines())) <= width
    assert "\x1b[2J" not in shown
    assert ("\x1b[" in shown) is color


def test_output_is_shortened_for_other_messages_but_not_dropped() -> None:
    few = screen("web1 fails.", "bad", FACTS, OUTPUT, STEPS, Style(width=160))
    many = screen("web1 fails.", "bad", FACTS * 6, OUTPUT, STEPS, Style(width=160))

    assert [text.count("│") for text in (few, many)] == [8, 3]


def test_a_screen_reads_well() -> None:
    facts = [Fact("agent", "1.2.3"), Fact("last run", ""), Fact("present", "yes")]

    assert screen("web1 is well.", "good", facts, "", STEPS[1:], Style()) == (
        "web1 is well.\n\nagent    1.2.3\npresent  yes\n\non web1:  ccm agent enable  to let it converge\n"
    )
