"""Failures that are named while a command waits for other nodes."""

from __future__ import annotations

import io

import pytest

from ccm_agent.clikit.terminal import Terminal
from ccm_ctl.commands.runs import failure_lines
from ccm_ctl.commands.runs.failure_lines import FailureLines


def lines(terminal: Terminal, err: io.StringIO, *failures: tuple[str, str, str, str]) -> str:
    """What stands on standard error after these failures."""
    told = FailureLines(terminal)
    for node, state, why, run in failures:
        told.name(node, state, why, run)
    told.close()
    return err.getvalue()


def test_the_same_failure_is_named_once_and_another_one_of_the_node_again() -> None:
    err = io.StringIO()

    said = lines(
        Terminal("ccmctl", err=err),
        err,
        ("web1", "lost", "", ""),
        ("web1", "lost", "", ""),
        ("web1", "failed", "file#/a: no\nmore", "r1"),
        ("web1", "failed", "file#/a: no", "r2"),
    )

    assert said == "web1: lost\nweb1: failed: file#/a: no\nweb1: failed: file#/a: no\n"


def test_failures_above_the_most_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_lines, "LINES_MOST", 2)
    err = io.StringIO()

    said = lines(
        Terminal("ccmctl", err=err), err, *((f"web{number}", "failed", "no", "") for number in range(5))
    )

    assert said == "web0: failed: no\nweb1: failed: no\nand 3 more failures, listed below\n"


def test_a_long_error_is_shortened_and_cannot_add_a_line() -> None:
    err = io.StringIO()

    said = lines(
        Terminal("ccmctl", err=err), err, ("web1", "failed", "\x1b[2J\u2028fake: failed" + " word" * 100, "")
    )

    assert said.startswith("web1: failed: \\x1b[2J")
    assert said.endswith(" word …\n")
    assert len(said.splitlines()) == 1
    assert len(said) <= failure_lines.LINE_WIDTH + 1


def test_programs_get_no_line() -> None:
    err = io.StringIO()

    assert lines(Terminal("ccmctl", json=True, err=err), err, ("web1", "failed", "no", "")) == ""
