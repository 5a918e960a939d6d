"""Expression text to tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.lexer import (
    BRACKET,
    BYTES,
    END,
    NAME,
    NUMBER,
    OPERATOR,
    STRING,
    Token,
    tokenize,
)


def test_a_whole_expression() -> None:
    text = "let n = #index ?? 0x1f; n not in [1..2]"

    assert tokenize(text) == [
        Token(OPERATOR, "let", 0),
        Token(NAME, "n", 4),
        Token(OPERATOR, "=", 6),
        Token(OPERATOR, "#", 8),
        Token(NAME, "index", 9),
        Token(OPERATOR, "??", 15),
        Token(NUMBER, "0x1f", 18),
        Token(OPERATOR, ";", 22),
        Token(NAME, "n", 24),
        Token(OPERATOR, "not", 26),
        Token(OPERATOR, "in", 30),
        Token(BRACKET, "[", 33),
        Token(NUMBER, "1", 34),
        Token(OPERATOR, "..", 35),
        Token(NUMBER, "2", 37),
        Token(BRACKET, "]", 38),
        Token(END, "", 39),
    ]


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        pytest.param('"a\\tb"', STRING, "a\tb", id="escape"),
        pytest.param(
            r'"\x41\101\u00e9\u{1F600}\U0001F600"', STRING, "AA\u00e9\U0001f600\U0001f600", id="numbers"
        ),
        pytest.param(r'"\ud83d"', STRING, "\ufffd", id="half a pair"),
        pytest.param("'say \"hi\"'", STRING, 'say "hi"', id="the other quote"),
        pytest.param("`a\\n``b`", STRING, "a\\n`b", id="raw"),
        pytest.param(r'b"\xff\101"', BYTES, "\xffA", id="bytes"),
        pytest.param('b"\u00e9"', BYTES, "\xc3\xa9", id="bytes of text"),
        pytest.param("größe", NAME, "größe", id="letters of any script"),
        pytest.param("$x_1", NAME, "$x_1", id="dollar and underscore"),
        pytest.param("1_000.5e-3", NUMBER, "1_000.5e-3", id="number"),
        pytest.param(".5", NUMBER, ".5", id="number without its zero"),
        pytest.param("/* a */ x // b", NAME, "x", id="comments are nothing"),
        pytest.param("\u00a0x\u2003", NAME, "x", id="white space of any kind"),
    ],
)
def test_one_token(text: str, kind: str, says: str) -> None:
    token, end = tokenize(text)

    assert (token.kind, token.text, end.kind) == (kind, says, END)


@pytest.mark.parametrize(
    ("text", "offset", "wrong"),
    [
        ("1 + ~5", 4, "the character '~' (U+007E) means nothing here"),
        ('"abc', 0, "this text literal never ends"),
        ('x "a\nb"', 2, "this text literal never ends"),
        ("`abc", 0, "this text literal never ends"),
        ("1 /* x", 2, "this comment never ends"),
        (r'"a\qb"', 2, "'\\\\q' is not an escape"),
        (r"'a\"b'", 2, "is not an escape"),
        (r'"\400"', 1, "an octal escape ends at"),
        (r'"\u{110000}"', 1, "beyond the last character"),
        (r'b"\u0041"', 2, "bytes have no Unicode escapes"),
        ("12ab", 0, "followed by a letter"),
        ("x\x1c", 1, "U+001C"),
        ("½", 0, "U+00BD"),
    ],
)
def test_an_invalid_token_is_reported_with_its_place(text: str, offset: int, wrong: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        tokenize(text)

    assert caught.value.offset == offset
    assert wrong in caught.value.message


@given(st.text())
def test_any_text_gives_tokens_in_order_or_a_fault_inside_it(text: str) -> None:
    try:
        tokens = tokenize(text)
    except EvaluationError as fault:
        tokens = [Token(OPERATOR, "", fault.offset or 0), Token(END, "", len(text))]

    assert [token.offset for token in tokens] == sorted(token.offset for token in tokens)
    assert tokens[-1] == Token(END, "", len(text))
