"""`ccmctl notify` as an operator types it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from ccm_agent.clikit.terminal import Terminal
from ccm_ctl.__main__ import VERBS
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import CtlProgram
from tests.support.controller import Desk, Said

URL = "https://hooks.example.com/T0/secret"


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return tmp_path / "notify.yaml"


def run(rules: Path, *words: str) -> Said:
    return Desk().ccmctl("notify", *words, environ={"CCM_NOTIFY": str(rules)})


def test_a_rule_is_added_listed_replaced_and_removed_and_its_url_stays_private(rules: Path) -> None:
    added = run(rules, "add", "pager", "--on", "drift", "--webhook", URL)
    again = run(rules, "add", "pager", "--on", "stale", "--webhook", URL)
    replaced = run(rules, "add", "pager", "--on", "stale", "--webhook", URL, "--replace", "--after", "2h")
    listed, as_json = run(rules, "list"), run(rules, "list", "--json")
    removed, unknown = run(rules, "rm", "pager"), run(rules, "rm", "pager")

    assert (added.code, again.code, replaced.code, removed.code, unknown.code) == (0, 1, 0, 0, 1)
    assert "use --replace" in again.err
    assert listed.out.splitlines()[1].split() == ["pager", "stale", "webhook", "https://hooks.example.com/…"]
    assert as_json.named("notification_rule")[0]["after"] == "2h"
    assert "secret" not in listed.out + as_json.out + replaced.out + replaced.err
    assert run(rules, "list").out == f"no notification rules in {rules}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--on", "drft", "--webhook", URL], "did you mean drift?"),
        (["--on", "drift"], "exactly one of --webhook, --exec and --smtp"),
        (["--on", "drift", "--exec", "a 'b"], "--exec a 'b: a quotation mark is not closed"),
        (
            ["--on", "drift", "--webhook", URL, "--template", "{{ nod }}"],
            "message template: 'nod' is undefined",
        ),
    ],
)
def test_a_rule_with_a_mistake_is_not_stored(rules: Path, words: list[str], message: str) -> None:
    done = run(rules, "add", "pager", *words)

    assert (done.code, rules.exists()) == (1, False)
    assert message in done.err


def test_the_test_button_runs_the_command(rules: Path, tmp_path: Path) -> None:
    run(rules, "add", "log", "--on", "drift", "--exec", f"/usr/bin/tee {tmp_path}/body")

    done = run(rules, "test", "log")

    assert (done.code, done.out) == (0, "delivered: exec /usr/bin/tee\n")
    assert "test of a notification rule" in (tmp_path / "body").read_text()


def test_names_of_rules_are_completed(rules: Path) -> None:
    run(rules, "add", "pager", "--on", "drift", "--webhook", URL)
    application = Application(Terminal("ccmctl"), {"CCM_NOTIFY": str(rules)})

    found = ShellComplete(CtlProgram(VERBS), {"obj": application}, "ccmctl", "_X").get_completions(
        ["notify", "rm"], "pa"
    )

    assert [one.value for one in found] == ["pager"]
