import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.formats.shellwords import split_words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("echo hello world", ["echo", "hello", "world"], id="words"),
        pytest.param("  a\t b\n c ", ["a", "b", "c"], id="blanks around and between"),
        pytest.param("", [], id="nothing"),
        pytest.param(" \t\n", [], id="blanks alone"),
        pytest.param("echo 'hello world'", ["echo", "hello world"], id="single quotes"),
        pytest.param('echo "hello world"', ["echo", "hello world"], id="double quotes"),
        pytest.param(r"echo hello\ world", ["echo", "hello world"], id="an escaped space"),
        pytest.param('''echo "it's a test"''', ["echo", "it's a test"], id="a quote in the other quotes"),
        pytest.param(
            r"\"a \'b \n\t \\ \a", ['"a', "'b", "nt", "\\", "a"], id="backslashes outside of quotes"
        ),
        pytest.param(
            r'''"a\"b" "c\\d" "\$x" "\`y" "e\fg"''', ['a"b', "c\\d", "$x", "`y", "e\\fg"], id="and inside"
        ),
        pytest.param(r"'a\b'", ["a\\b"], id="single quotes keep backslashes"),
        pytest.param("""a"b c"d'e f'g\\ h""", ["ab cde fg h"], id="pieces make one word"),
        pytest.param("""\"\" '' x\"\"""", ["", "", "x"], id="empty words"),
        pytest.param(
            "* ? [a-z] ~ ~/x {a,b} # c", ["*", "?", "[a-z]", "~", "~/x", "{a,b}", "#", "c"], id="no globs"
        ),
        pytest.param("$HOME $(id) `id`", ["$HOME", "$(id)", "`id`"], id="no variables"),
        pytest.param("a | b > c && d", ["a", "|", "b", ">", "c", "&&", "d"], id="no operators"),
        pytest.param("a \\\n b", ["a", "b"], id="a line that goes on"),
        pytest.param("a\\\nb", ["ab"], id="a line that goes on within a word"),
        pytest.param('"a\\\nb"', ["ab"], id="a line that goes on within quotes"),
        pytest.param("'a\nb'", ["a\nb"], id="a line feed in quotes is text"),
        pytest.param("a\rb", ["a\rb"], id="a carriage return is text"),
        pytest.param("é ☃ \u00a0x", ["é", "☃", "\u00a0x"], id="a space of another kind is text"),
    ],
)
def test_a_line_becomes_words(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("line", "message"),
    [
        pytest.param("echo 'x", "a single quote is not closed: echo 'x", id="single"),
        pytest.param('echo "x', 'a double quote is not closed: echo "x', id="double"),
        pytest.param(
            'echo "x\\"', 'a double quote is not closed: echo "x\\"', id="an escaped one does not close"
        ),
        pytest.param("echo x\\", "nothing follows the backslash at the end: echo x\\", id="backslash"),
    ],
)
def test_an_unclosed_bracket_is_refused(line: str, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        split_words(line)

    assert caught.value.message == message


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_quoted_words_come_back(words: list[str]) -> None:
    assert split_words(shlex.join(words)) == words


@given(st.text(st.sampled_from("ab '\"\\\n\t$`")))
def test_any_line_is_words_or_refused(line: str) -> None:
    try:
        words = split_words(line)
    except PropertyError:
        return
    assert split_words(shlex.join(words)) == words
