"""What `ccm` writes, and what a terminal makes of it."""

from __future__ import annotations

import pytest

from ccm_agent.cli.terminal import complain


def test_an_error_orders_no_terminal_about(capsys: pytest.CaptureFixture[str]) -> None:
    complain("https://host/x: the bundle holds \x1b]0;a title\x07 twice\n\x9b2J and \ta line more")

    assert capsys.readouterr().err == (
        "ccm: error: https://host/x: the bundle holds \\u001b]0;a title\\u0007 twice\n\\u009b2J and \ta line more\n"
    )
