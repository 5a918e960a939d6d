"""What a shell gets for a Tab."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import CompletionItem

from ccm_agent.clikit.commands import BaseCommand, Group
from ccm_agent.clikit.completion import SHELLS, answer, offer, script
from ccm_agent.clikit.program import run_program
from ccm_agent.clikit.terminal import Terminal
from tests.support.controller import Screen


class Fruit(BaseCommand):
    """A command whose words are fruit."""

    def offer(self, ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
        return offer(["kind=apple", "kind=pear", "color=red", "$(id)", "--all", "=id"], incomplete)


def a_program() -> click.Group:
    root = Group("fruit")
    root.add_command(Fruit("eat", params=[click.Option(["-t"], metavar="FRUIT"), click.Argument(["word"])]))
    return root


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script(shell: str) -> None:
    assert "_FRUIT_COMPLETE" in script(a_program(), "fruit", shell)
    assert answer(a_program(), "fruit", f"{shell}_source", {}) == script(a_program(), "fruit", shell)


def test_another_shell_gets_nothing() -> None:
    assert answer(a_program(), "fruit", "tcsh_complete", {}) == ""


@pytest.mark.parametrize(
    ("line", "breaks", "words"),
    [
        pytest.param("fruit e", "=:", ["eat"], id="command"),
        pytest.param(
            "fruit eat ",
            "=:",
            ["color=red", "kind=apple", "kind=pear"],
            id="only words that no shell expands",
        ),
        pytest.param(
            "fruit eat -t kind=",
            "=:",
            ["apple", "pear"],
            id="bash keeps what stands before its last word break",
        ),
        pytest.param("fruit eat -t kind=a", "=:", ["apple"], id="the part after it is typed"),
        pytest.param("fruit eat -t kind=a", " ", ["kind=apple"], id="a bash that does not break words there"),
        pytest.param("fruit eat kind=p and more", "=:", ["pear"], id="the cursor stands within the line"),
    ],
)
def test_bash_gets_the_rest_of_its_own_last_word(
    line: str, breaks: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line.removesuffix(" and more"))))
    monkeypatch.setenv("COMP_WORDBREAKS", breaks)

    assert answer(a_program(), "fruit", "bash_complete", {}).split() == [f"plain,{word}" for word in words]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")], ids=["Ctrl-C", "bug"])
def test_nothing_is_written_behind_the_prompt_when_an_answer_fails(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_FRUIT_COMPLETE", "bash_complete")
    out, err = Screen(is_terminal=True), Screen(is_terminal=True)

    def fail() -> int:
        raise error

    assert run_program(Terminal("fruit", out=out, err=err, environ={}), fail, lambda: True) == 1
    assert (out.getvalue(), err.getvalue()) == ("", "")
