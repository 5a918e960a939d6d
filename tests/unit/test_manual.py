"""Man pages and the parts of help screens that they are made of."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

from ccm_agent.clikit.commands import Argument, BaseCommand, Option, examples
from ccm_agent.version import VERSION

TOP = Path(__file__).resolve().parents[2]
sys.path += [str(TOP / ".ci"), str(TOP / "deploy/packages")]

import manual  # noqa: E402 -- scripts of the checkout, not modules of a package
from help_screens import Screen, screens  # noqa: E402

REQUESTS = {".TH", ".SH", ".SS", ".B", ".TP", ".PP", ".nf", ".fi"}


@pytest.fixture
def screen() -> Screen:
    command = BaseCommand(
        "put",
        help="Store a document.\n\nKEY names it. Exit codes: 0 or 1.",
        epilog=examples("prog put a 'b'", "prog put c    # again"),
        params=[
            Argument(["key"], about="The document's key."),
            Option(["--targets", "-t"], metavar="SELECTOR", help="Select nodes.", section="Targets"),
            Option(["--yes"], is_flag=True, help="Do not ask."),
        ],
    )
    found = Screen(("prog", "put"), "store a document")
    parent = click.Context(click.Group("prog"), info_name="prog")
    with click.Context(command, info_name="put", parent=parent) as context:
        command.format_help(context, found)
    return found


def test_help_screen_comes_in_parts(screen: Screen) -> None:
    assert screen.usage == "prog put [OPTIONS] KEY"
    assert screen.paragraphs == ["Store a document.", "KEY names it. Exit codes: 0 or 1."]
    assert screen.sections == {
        "Arguments": [("KEY", "The document's key.")],
        "Targets": [("-t, --targets SELECTOR", "Select nodes.")],
        "Options": [("--yes", "Do not ask."), ("--help", "Show this message and exit.")],
    }
    assert screen.examples == ["prog put a 'b'", "prog put c    # again"]


def test_man_page_has_the_parts_in_the_usual_order(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(manual.EXIT_CODES, "prog", [("0", "Success.")])

    assert manual.page(screen, [screen], 0).splitlines() == [
        f'.TH "PROG-PUT" "1" "1970-01-01" "ccm-fleet {VERSION}" "ccm-fleet"',
        ".SH NAME",
        r"prog\-put \- store a document",
        ".SH SYNOPSIS",
        ".B prog put",
        "[OPTIONS] KEY",
        ".SH DESCRIPTION",
        "Store a document.",
        ".PP",
        "KEY names it. Exit codes: 0 or 1.",
        ".SH ARGUMENTS",
        ".TP",
        ".B KEY",
        r"The document\(aqs key.",
        ".SH OPTIONS",
        ".SS Targets",
        ".TP",
        r".B \-t, \-\-targets SELECTOR",
        "Select nodes.",
        ".SS Options",
        ".TP",
        r".B \-\-yes",
        "Do not ask.",
        ".TP",
        r".B \-\-help",
        "Show this message and exit.",
        ".SH EXAMPLES",
        ".nf",
        r"prog put a \(aqb\(aq",
        "prog put c    # again",
        ".fi",
        ".SH EXIT STATUS",
        ".TP",
        ".B 0",
        "Success.",
        ".SH SEE ALSO",
    ]


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        pytest.param(".git", r"\&.git", id="a dot at the beginning"),
        pytest.param("a\\n", r"a\en", id="a backslash"),
        pytest.param("a…", r"a\[u2026]", id="another script"),
    ],
)
def test_text_is_printed_as_it_is(text: str, escaped: str) -> None:
    assert manual.escaped(text) == escaped


def test_every_command_has_a_page_that_is_only_requests_and_text() -> None:
    pages = manual.manual(0)

    assert {"ccm.1", "ccm-ensure-file.1", "ccmctl-run-list.1"} < set(pages)
    assert len(pages) == len(list(screens()))
    for name, text in pages.items():
        requests = {line.partition(" ")[0] for line in text.splitlines() if line.startswith((".", "'"))}
        assert requests <= REQUESTS, name
        assert text.isascii(), name
        assert re.search(r"^\.SH NAME\n\S+ \\- \S", text, re.MULTILINE), name
