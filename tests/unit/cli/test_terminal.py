"""What `ccm` writes, and what a terminal makes of it."""

from __future__ import annotations

import pytest

from ccm_agent.clikit.terminal import Terminal


def test_an_error_orders_no_terminal_about(capsys: pytest.CaptureFixture[str]) -> None:
    Terminal("ccm").fail_with(
        "https://host/x: the bundle contains \x1b]0;a title\x07 twice\n\x9b2J and \ta line more"
    )

    assert capsys.readouterr().err == (
        "ccm: https://host/x: the bundle contains \\x1b]0;a title\\x07 twice\n\\x9b2J and \ta line more\n"
    )
