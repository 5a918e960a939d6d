"""Where expressions stand in strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.env import Environment
from ccm_agent.templates.resolve import render_text
from ccm_agent.templates.scan import as_template, find_spans, has_expression


@pytest.mark.parametrize(
    ("text", "expressions"),
    [
        pytest.param("plain", [], id="text"),
        pytest.param("{{ a }}", ["a"], id="double braces"),
        pytest.param("${ a }", ["a"], id="dollar"),
        pytest.param("x{{a}}y${b}z", ["a", "b"], id="both"),
        pytest.param("{{}}", [""], id="empty"),
        pytest.param("{{ a }", [], id="never closed"),
        pytest.param("{{ '}}' }}", ["'}}'"], id="quotes hide a closer"),
        pytest.param('{{ "a\\"}}" }}', ['"a\\"}}"'], id="escaped quote"),
        pytest.param("{{ `a\\`}}", ["`a\\`"], id="raw quotes have no escapes"),
        pytest.param("{{ {a: {b: 1}} }}", ["{a: {b: 1"], id="the first closer ends it"),
        pytest.param("${ {a: {b: 1}} }", ["{a: {b: 1}}"], id="dollar counts braces"),
        pytest.param("${ '}' }", ["'}'"], id="a quoted brace does not count"),
        pytest.param("${{ 1 }}", ["1"], id="dollar before double braces is text"),
        pytest.param("\\{{ 1 }}", ["1"], id="a backslash does not escape"),
        pytest.param("{{ it's }} {{ 1 }}", ["1"], id="a quote that never ends makes text of its opener"),
        pytest.param("{{ a {{ b }}", ["a {{ b"], id="an opener inside is part of it"),
        pytest.param("{{\u00a0a\u00a0}}", ["a"], id="white space as Go has it is trimmed"),
        pytest.param("{{\x1ca}}", ["\x1ca"], id="and nothing else"),
    ],
)
def test_expressions_are_found(text: str, expressions: list[str]) -> None:
    assert [span.expression for span in find_spans(text)] == expressions
    assert has_expression(text) is bool(expressions)


@given(st.text(alphabet="{}$\"'`\\ ab", max_size=60))
def test_spans_stand_in_order_between_their_openers_and_closers(text: str) -> None:
    at = 0
    for span in find_spans(text):
        assert at <= span.start < span.end <= len(text)
        assert text[span.start : span.end].startswith(("{{", "${"))
        assert text[span.start : span.end].endswith("}")
        at = span.end


@pytest.mark.parametrize("piece", ["{{", "${", '{{"', "${'", '{{"}}"'])
def test_search_for_missing_closing_brackets_ends_quickly(piece: str) -> None:
    assert find_spans(piece * 50_000) == []


@given(st.text(alphabet="${}\"'`\\ 1\n"))
def test_a_template_of_a_text_renders_to_that_text(text: str) -> None:
    assert render_text(as_template(text), Environment()) == text


def test_a_text_without_expressions_is_its_own_template() -> None:
    assert [as_template(text) for text in ("plain", "{{ never", "$ {", "}} }")] == [
        "plain",
        "{{ never",
        "$ {",
        "}} }",
    ]
