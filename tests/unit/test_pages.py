"""How blocks of the documentation become a script, and how its output is compared with the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import Block, Command, Setting, blocks, check, commands, files, follow, is_shown

FENCE = "```"


def page(*parts: str) -> str:
    """A page; ''' are fences."""
    return "\n\n".join(parts).replace("'''", FENCE) + "\n"


def test_text_directly_behind_a_shell_block_is_its_output() -> None:
    found = list(blocks(page("'''sh\nls\n'''", "'''text\na\n'''", "Words.", "'''text\nb\n'''")))

    assert found == [
        Block(line=1, language="sh", text="ls\n", output="a\n"),
        Block(line=5, language="text", text="a\n"),
        Block(line=11, language="text", text="b\n"),
    ]


def test_comment_above_a_block_names_the_user() -> None:
    found = list(
        blocks(page("<!-- run: machine -->\n'''sh\nls\n'''", "<!-- not run: it is long -->\n'''sh\nls\n'''"))
    )

    assert [(one.kind, one.words) for one in found] == [("run", "machine"), ("not run", "it is long")]


def test_yaml_block_that_begins_with_the_name_of_a_file_is_that_file() -> None:
    found = list(blocks(page("'''yaml\n# site/a.yaml\na: 1\n'''", "'''yaml\n# a comment\nb: 1\n'''")))

    assert files(found) == {"site/a.yaml": "# site/a.yaml\na: 1\n"}


def test_console_block_is_typed_command_by_command() -> None:
    block = Block(line=3, language="console", text="$ true\n$ echo a\na\n")

    assert commands([block], Setting()) == [
        Command(line=4, text="true\n", output=""),
        Command(line=5, text="echo a\n", output="a\n"),
    ]


def test_block_with_a_step_by_hand_is_refused_because_it_cannot_be_pasted() -> None:
    block = Block(line=1, language="sh", text="ls\n# restart the broker\nls\n")

    with pytest.raises(AssertionError, match="`# restart the broker` asks the reader to act"):
        commands([block], Setting())


def test_scene_comes_before_the_block_that_it_is_for() -> None:
    found = [Block(line=1, language="sh", text="a\n"), Block(line=4, language="sh", text="b\n")]

    assert [one.text for one in commands(found, Setting(scenes={"b": "prepare"}))] == [
        "a\n",
        "prepare\n",
        "b\n",
    ]


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        pytest.param("done in 12 ms", "\x1b[31mdone\x1b[0m  in 1.3 s\n", id="durations, colors, blanks"),
        pytest.param("run 3MTD7luCgmsU2EKdfI7ztFkHCY8", "run 3MTCESORVWGzlJBoc5dzO1kR33V", id="ids"),
        pytest.param("run 3MTD7luC: apply", "run 3MTP3M9g: apply", id="ids that are shortened"),
        pytest.param("failed for 12 min: x", "failed: x", id="a duration that is left out"),
        pytest.param("a\n…\nd\n", "a\nb\nc\nd\n", id="lines that are left out"),
        pytest.param("one line that\n  is broken", "one line that is broken", id="line breaks"),
    ],
)
def test_varying_values_are_normalized(shown: str, said: str) -> None:
    assert is_shown(shown, said)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        pytest.param("2 nodes", "3 nodes", id="a number"),
        pytest.param("a\n", "a\nb\n", id="more than is shown"),
        pytest.param("a\n…\nd\n", "a\nb\n", id="the end"),
    ],
)
def test_other_output_is_not_the_same(shown: str, said: str) -> None:
    assert not is_shown(shown, said)


def test_failing_command_is_named_with_its_output_and_the_line_of_the_page() -> None:
    typed = [Command(line=7, text="x\n"), Command(line=9, text="y\n")]

    with pytest.raises(AssertionError, match="line 9: `y` ended with 1\n\nno such file"):
        check(typed, "\0360\036\0361\036no such file\n\036failed\036`y` ended with 1\n")


def test_commands_run_in_one_terminal_and_questions_are_answered(tmp_path: Path) -> None:
    typed = [
        Command(line=1, text="name=web1\n"),
        Command(
            line=2,
            text='read -p "remove $name? [y/N] " answer; echo "$answer"\n',
            output="remove web1? [y/N]\ny\n",
        ),
        Command(line=3, text="test -t 0 -a -t 1 -a -t 2\n"),
        Command(line=4, text="ls nowhere 2> /dev/null\n"),
    ]

    follow(typed, Setting(status={"ls": 2}), tmp_path, {"PATH": "/usr/bin:/bin", "LC_ALL": "C"})


def test_command_that_fails_ends_the_page(tmp_path: Path) -> None:
    typed = [Command(line=1, text="false\n"), Command(line=2, text="touch after\n")]

    with pytest.raises(AssertionError, match="line 1: `false` ended with 1"):
        follow(typed, Setting(), tmp_path, {"PATH": "/usr/bin:/bin"})

    assert not (tmp_path / "after").exists()
