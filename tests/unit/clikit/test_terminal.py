"""The only writer: what goes where, to whom, and what it does not do on what is not a terminal."""

from __future__ import annotations

import asyncio
import io
import os

import pytest
from msgspec import Struct

from ccm_agent.clikit.table import COLORS, UNLIMITED, Style, paint
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import safe_drawn
from ccm_agent.model.errors import Place, SelectorError, UsageError
from tests.support.controller import Screen


def a_terminal(*, json: bool = False, tty: bool = False, **environ: str) -> tuple[Terminal, Screen, Screen]:
    out, err = Screen(is_terminal=tty), Screen(is_terminal=tty)
    return Terminal("ccmctl", json=json, out=out, err=err, environ=environ), out, err


class SeenLine(Struct, kw_only=True, tag_field="record", tag="node"):
    """A record."""

    node: str
    seen: str | None = None


def test_people_see_text_and_programs_see_records() -> None:
    for json, expected in ((False, "a table\n"), (True, '{"record":"node","node":"web1"}\n')):
        terminal, out, err = a_terminal(json=json)
        terminal.show("a table\n")
        terminal.record(SeenLine, node="web1", seen=None)
        terminal.note("on the way \x1b[2J")

        assert (out.getvalue(), err.getvalue()) == (expected, "on the way \\x1b[2J\n")


def test_a_drawn_note_keeps_its_colors_on_a_terminal_and_nothing_else_of_a_terminals_language() -> None:
    for tty, expected in ((True, "\x1b[1mWAVE\x1b[0m \\x1b[2J\n"), (False, "WAVE \\x1b[2J\n")):
        terminal, out, err = a_terminal(tty=tty, TERM="xterm")
        drawn = paint("WAVE", "strong", terminal.live_style)

        terminal.note_drawn(f"{drawn} \x1b[2J")

        assert (out.getvalue(), err.getvalue()) == ("", expected)


def test_an_error_is_a_sentence_and_for_programs_a_record_too() -> None:
    err_ = SelectorError("it is none\nsecond line", place=Place(source="x.yaml", line=3))
    terminal, out, err = a_terminal(json=True)

    terminal.fail(err_)

    assert err.getvalue() == "ccmctl: x.yaml:3: it is none\nsecond line\n"
    assert (
        out.getvalue()
        == '{"record":"error","code":"input.selector","message":"x.yaml:3: it is none\\nsecond line"}\n'
    )


@pytest.mark.parametrize(
    ("tty", "environ", "color"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (True, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_color_is_for_terminals_and_for_who_forces_it(
    tty: bool, environ: dict[str, str], color: bool
) -> None:
    assert a_terminal(tty=tty, **environ)[0].style.color is color


def test_nothing_is_folded_without_a_terminal() -> None:
    assert a_terminal()[0].style == Style(width=UNLIMITED, color=False)


def test_the_live_line_is_drawn_over_and_gets_out_of_the_way_of_results() -> None:
    terminal, out, err = a_terminal(tty=True)

    terminal.live("1 of 2")
    terminal.live("1 of 2")
    terminal.show("a result\n")
    terminal.note("a note")
    terminal.live("")

    clear = "\r\x1b[2K"
    assert err.getvalue() == f"{clear}1 of 2{clear}{clear}1 of 2{clear}a note\n"
    assert out.getvalue() == "a result\n"


def test_output_after_an_interruption_starts_on_a_new_line() -> None:
    idle, _, said = a_terminal(tty=True)
    live, _, drawn = a_terminal(tty=True)
    piped, _, nothing = a_terminal()
    live.live("1 of 2")

    for terminal in (idle, live, piped):
        terminal.break_off()

    clear = "\r\x1b[2K"
    assert (said.getvalue(), drawn.getvalue(), nothing.getvalue()) == ("\n", f"{clear}1 of 2{clear}", "")


@pytest.mark.parametrize(
    ("json", "environ", "tty"), [(True, {}, True), (False, {"TERM": "dumb"}, True), (False, {}, False)]
)
def test_there_is_no_live_line_without_a_terminal(json: bool, environ: dict[str, str], tty: bool) -> None:
    terminal, _, err = a_terminal(json=json, tty=tty, **environ)

    terminal.live("1 of 2")

    assert err.getvalue() == ""


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("y\n", True), ("YES\n", True), (" y \n", True), ("n\n", False), ("\n", False), ("yep\n", False)],
)
def test_a_yes_is_a_yes_and_everything_else_a_no(typed: str, answer: bool) -> None:
    above, below = os.openpty()
    err = Screen(is_terminal=True)
    with os.fdopen(below) as source:
        terminal = Terminal("ccmctl", err=err, out=io.StringIO(), source=source, environ={})
        os.write(above, typed.encode())

        assert asyncio.run(terminal.ask("apply to 12 nodes?", otherwise="use --yes")) is answer
    os.close(above)
    assert err.getvalue() == "apply to 12 nodes? [y/N] "


def test_a_missing_metric_is_not_asked() -> None:
    terminal = Terminal("ccmctl", err=Screen(is_terminal=True), source=io.StringIO("y\n"), environ={})

    with pytest.raises(UsageError) as caught:
        asyncio.run(terminal.ask("apply to 12 nodes?", otherwise="use --yes"))

    assert str(caught.value) == 'cannot ask "apply to 12 nodes?" without a terminal; use --yes'


@pytest.mark.parametrize(
    ("tty", "shown"),
    [
        pytest.param(False, "\\x1b[32mgood\\x1b[0m \\x1b[8mhidden \\x9b2J\n", id="no color"),
        pytest.param(True, "\x1b[32mgood\x1b[0m \\x1b[8mhidden \\x9b2J\n", id="our own colors"),
    ],
)
def test_only_our_own_colors_reach_the_terminal(tty: bool, shown: str) -> None:
    """Whoever drew it should have made safe what a node said; here is what happens when he forgot."""
    terminal, out, err = a_terminal(tty=tty)

    terminal.show("\x1b[32mgood\x1b[0m \x1b[8mhidden \x9b2J\n")
    terminal.live("web1 \x1b]0;title\x07")

    assert out.getvalue() == shown
    assert err.getvalue() == ("\r\x1b[2Kweb1 \\x1b]0;title\\x07" if tty else "")


def test_every_color_of_ours_is_one_that_a_terminal_gets() -> None:
    for meaning in COLORS:
        painted = paint("text", meaning, Style(color=True))

        assert safe_drawn(painted, color=True) == painted
