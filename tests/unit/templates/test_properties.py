"""No text makes the language crash, hang or leave its error type."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import CcmError, ExpressionError
from ccm_agent.templates.env import Environment
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.parser import PREDICATES
from ccm_agent.templates.goprint import go_print
from ccm_agent.templates.resolve import evaluate, render_text, render_value

DATA = {
    "n": 1,
    "f": 2.5,
    "s": "abc",
    "b": True,
    "null": None,
    "list": [3, 1, 2],
    "m": {"a": {"b": [1]}},
    "é": "ü",
}
FACTS = {"role": "web", "host": {"info": {"hostname": "web1"}}}
ENV = Environment(facts=FACTS, data=DATA, environ={"HOME": "/root"})

WORDS = [
    *FUNCTIONS, *PREDICATES, "Data", "Facts", "Environ", "Data.n", "Data.list", "Data.s", "Data.m", "Data.nope", "lookup",
    "template", "#", "#index", "#acc", ".a", "nil", "true", "false", "1", "0", "-1", "2.5", "1e308", "9223372036854775807",
    '"abc"', "'a'", "`x`", 'b"a"', '"data.list.#"', '"1h"', '"2024-01-01"', "[", "]", "{", "}", "(", ")", ",", ":", ";",
    ".", "?.", "?", "??", "|", "..", "+", "-", "*", "/", "%", "**", "==", "!=", "<", ">=", "and", "or", "not", "in",
    "contains", "matches", "let", "x", "=", "if", "else",
]  # fmt: skip


def outcome(text: str) -> Any:
    """What an expression gives, or the error that it may end with."""
    try:
        return evaluate(text, ENV)
    except ExpressionError as err:
        return err


@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
@settings(max_examples=400)
def test_any_words_give_a_value_or_an_expression_error(text: str) -> None:
    first = outcome(text)
    again = outcome(text)

    assert str(first) == str(again) or "now" in text
    assert not isinstance(first, ExpressionError) or 0 <= first.offset <= len(first.expression)


@given(st.text(max_size=60))
def test_any_text_gives_a_value_or_an_expression_error(text: str) -> None:
    outcome(text)


LEAVES = st.sampled_from(
    [
        "1",
        "2.5",
        "'a'",
        "true",
        "nil",
        "Data.n",
        "Data.s",
        "Data.list",
        "Data.m",
        "Data.null",
        "Facts.role",
        "[1, 'a']",
        "{a: 1}",
    ]
)
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(("+", "-", "*", "/", "%", "**", "==", "<", "in", "and", "??", "..")), inner
        ).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        st.tuples(st.sampled_from(sorted(FUNCTIONS)), st.lists(inner, min_size=1, max_size=3)).map(
            lambda parts: f"{parts[0]}({', '.join(parts[1])})"
        ),
        st.tuples(st.sampled_from(sorted(PREDICATES)), inner, inner).map(
            lambda parts: f"{parts[0]}([{parts[1]}, 2], {parts[2]} == #)"
        ),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} ? {parts[1]} : {parts[2]})"),
        st.tuples(inner, inner).map(lambda parts: f"({parts[0]})[{parts[1]}]"),
        inner.map(lambda part: f"(let y = {part}; [y, y])"),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
@settings(max_examples=400)
def test_any_expression_gives_a_value_that_prints_or_an_expression_error(text: str) -> None:
    value = outcome(text)

    if not isinstance(value, ExpressionError):
        assert isinstance(go_print(value), str)


@given(st.text(alphabet="{}$ \"'`abD.+\\", max_size=40))
def test_any_string_is_rendered_or_an_error_of_ours(text: str) -> None:
    try:
        rendered = render_text(text, ENV)
    except CcmError:
        return
    assert isinstance(rendered, str)


@given(st.text().filter(lambda text: "{{" not in text and "${" not in text))
def test_text_without_expressions_stays_as_it_is(text: str) -> None:
    assert render_value(text, ENV) == text


@given(st.text())
def test_a_text_literal_gives_its_content(text: str) -> None:
    literal = "".join(f"\\u{{{ord(char):x}}}" for char in text)

    assert evaluate(f'"{literal}"', ENV) == "".join(
        "\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text
    )
