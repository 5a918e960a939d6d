"""The screen of `ccmctl doctor`."""

from __future__ import annotations

from ccm_agent.clikit.table import Style
from ccm_ctl.render.doctor import CheckLine, screen

LINES = [
    CheckLine("broker.connection", "ok", "Connected."),
    CheckLine("broker.tls", "problem", "The connection has no TLS: the network can read it.", "ccmctl init --server-name HOST"),
    CheckLine("broker.accounts", "unknown", "this needs the fleet's keys"),
    CheckLine("broker.configuration", "unknown", "this needs the fleet's keys"),
    CheckLine("keys.root", "ok", "The root key is kept apart."),
    CheckLine("nodes.policy", "warning", "No policy.yaml on 1 of 1 node (w\x1b[2Jeb1)."),
]  # fmt: skip


def test_screen_shows_the_problems_and_counts_passed_checks() -> None:
    shown = screen(LINES, Style(width=60), show_all=False)

    assert shown == (
        "Broker\n"
        "  problem  The connection has no TLS: the network can read\n"
        "           it.\n"
        "           fix: ccmctl init --server-name HOST\n"
        "  unknown  accounts, configuration: this needs the fleet's\n"
        "           keys\n"
        "\n"
        "Nodes\n"
        "  warning  No policy.yaml on 1 of 1 node (w\\x1b[2Jeb1).\n"
        "\n"
        "2 checks passed, 1 warning, 1 problem, 2 unknown\n"
    )


def test_all_lists_passed_checks() -> None:
    shown = screen(LINES, Style(width=60), show_all=True)

    assert "  ok       Connected.\n" in shown
    assert "Keys of the fleet\n  ok       The root key is kept apart.\n" in shown


def test_screen_without_a_finding_is_one_line() -> None:
    assert screen(LINES[:1], Style(), show_all=False) == "1 check passed\n"


def test_a_fix_that_is_too_long_has_its_comment_below_the_command() -> None:
    fix = "ccmctl node add db1 > db1.creds   # then set nats.creds in its agent.yaml"
    line = CheckLine("nodes.signatures", "problem", "Unsigned operation.", fix)

    assert screen([line], Style(width=56), show_all=False) == (
        "Nodes\n"
        "  problem  Unsigned operation.\n"
        "           fix: ccmctl node add db1 > db1.creds\n"
        "                then set nats.creds in its agent.yaml\n"
        "\n"
        "0 checks passed, 1 problem\n"
    )
    assert f"fix: {fix}\n" in screen([line], Style(), show_all=False)
