import pytest

from ccm_agent.model.ports import Command
from ccm_agent.testing.runner import FakeRunner, UnscriptedCommandError


async def test_an_unscripted_command_fails_the_test() -> None:
    with pytest.raises(UnscriptedCommandError) as caught:
        await FakeRunner().run(Command(argv=("rm", "-rf", "/")))

    assert str(caught.value) == "no script for the command ('rm', '-rf', '/')"


async def test_the_script_with_the_most_words_answers() -> None:
    runner = FakeRunner()
    runner.when("dpkg-query", stdout="any")
    runner.when("dpkg-query", "-W", "zsh", stdout="zsh")

    assert (await runner.run(Command(argv=("dpkg-query", "-W", "zsh")))).stdout == b"zsh"
    assert (await runner.run(Command(argv=("dpkg-query", "-W", "vim")))).stdout == b"any"


async def test_scripts_for_the_same_words_answer_in_turn() -> None:
    runner = FakeRunner()
    runner.when("a", stdout="1")
    runner.when("a", stdout="2")

    answers = [(await runner.run(Command(argv=("a",)))).stdout for _ in range(3)]

    assert answers == [b"1", b"2", b"2"]
    assert runner.lines == ["a", "a", "a"]


async def test_an_effect_happens_when_the_command_runs() -> None:
    runner, seen = FakeRunner(), []
    runner.when("touch", effect=lambda: seen.append("made"))

    await runner.run(Command(argv=("touch", "x")))

    assert seen == ["made"]
