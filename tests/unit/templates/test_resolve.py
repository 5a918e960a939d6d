"""Strings, and what holds strings, with their expressions replaced."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ccm_agent.model.errors import ExpressionError
from ccm_agent.templates import lookup as lookup_module
from ccm_agent.templates import resolve as resolve_module
from ccm_agent.templates.env import Environment
from ccm_agent.templates.resolve import (
    Evaluated,
    evaluate,
    evaluate_condition,
    evaluate_shown,
    render_matching,
    render_text,
    render_value,
    resolve,
)

FACTS = {"host": {"info": {"hostname": "web1"}}, "role": "web"}
DATA = {"port": 8080, "ports": [80, 443], "null": None, "m": {"a": 1}, "big": 1000000.0}


@pytest.fixture
def env() -> Environment:
    return Environment(facts=FACTS, data=DATA, environ={"HOME": "/root"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("plain", "plain", id="text stays"),
        pytest.param("{{ Data.ports }}", [80, 443], id="one expression keeps its type"),
        pytest.param("  ${ Data.port }\n", 8080, id="white space around it does not count"),
        pytest.param("{{ Data.null }}", None, id="nil"),
        pytest.param("p{{ Data.port }}", "p8080", id="in text it prints"),
        pytest.param("{{ Data.port }}{{ Data.port }}", "80808080", id="two of them print"),
        pytest.param(
            "x {{ Data.big }} {{ Data.null }} {{ Data.m }}", "x 1e+06 <nil> map[a:1]", id="as Go prints"
        ),
        pytest.param("{{ lookup('data.port') }}", 8080, id="lookup"),
        pytest.param('{{ lookup("data.ports") }}', [80.0, 443.0], id="numbers in a list become floats"),
        pytest.param("{{ lookup('data.nope', 7) }}", 7, id="default number"),
        pytest.param("{{ lookup('data.nope', 'd') }}", "d", id="default text"),
        pytest.param("{{ lookup('data.nope', true) }}", True, id="default boolean"),
        pytest.param("{{ lookup('data.null', 'd') }}", None, id="a null is there"),
        pytest.param('{{ "{{ 1 }}" }}', "{{ 1 }}", id="a value is not rendered again"),
        pytest.param("{{ Facts.nope }}", None, id="a missing fact is nil"),
    ],
)
def test_a_string_becomes_its_value(env: Environment, text: str, value: Any) -> None:
    got = render_value(text, env)

    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{{ nope }}", "unknown name nope"),
        ("a {{ lookup('data.nope') }}", "lookup of 'data.nope' found nothing"),
        ("{{ Facts.nope.deeper }}", "there is no deeper in nil"),
        ("{{ }}", "unexpected end of expression"),
        ("{{ 1 + 'a' }}", "+ does not go between an integer and text (at character 3 of `1 + 'a'`)"),
    ],
)
def test_errors_name_cause_and_place(env: Environment, text: str, wrong: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        render_text(text, env)

    assert wrong in str(caught.value)


def test_an_error_knows_its_expression_and_offset(env: Environment) -> None:
    with pytest.raises(ExpressionError) as caught:
        render_text("abc {{  1 + nope  }}", env)

    assert (caught.value.expression, caught.value.offset) == ("1 + nope", 4)


def test_the_plain_shapes_are_answered_without_the_language(env: Environment) -> None:
    loaded = [name for name in sys.modules if name.startswith("ccm_agent.templates.expr")]
    saved = {name: sys.modules.pop(name) for name in loaded}
    try:
        text = render_text("{{ Facts.host.info.hostname }}:{{ lookup('data.port', 1) }}", env)
        now_loaded = [name for name in sys.modules if name.startswith("ccm_agent.templates.expr")]
    finally:
        sys.modules.update(saved)

    assert text == "web1:8080"
    assert now_loaded == []


@pytest.mark.parametrize(
    ("text", "rendered", "has_something"),
    [
        ("", "", False),
        ("default", "default", True),
        ("role:{{ Facts.role }}", "role:web", True),
        ("role:{{ Data.null }}", "role:<nil>", False),
        ("role:{{ Environ.NOPE }}", "role:", False),
        ("{{ Environ.NOPE }}{{ Data.port }}", "8080", True),
        ("{{ false }}", "false", True),
    ],
)
def test_the_result_tells_whether_any_expression_had_a_value(
    env: Environment, text: str, rendered: str, has_something: bool
) -> None:
    assert render_matching(text, env) == (rendered, has_something)


def test_values_are_walked_and_keys_left_alone(env: Environment) -> None:
    value = {"{{ k }}": ["{{ Data.port }}", {"a": "x{{ Data.port }}"}], "n": 1, "none": None}

    assert resolve(value, env) == {"{{ k }}": [8080, {"a": "x8080"}], "n": 1, "none": None}


@pytest.mark.parametrize(
    ("expression", "answer"),
    [("Data.port > 1", True), ("Facts.role == 'db'", False), ("Data.null", False), ("Data.nope", False)],
)
def test_a_condition_is_a_boolean_or_nil(env: Environment, expression: str, answer: bool) -> None:
    assert evaluate_condition(expression, env) is answer


@pytest.mark.parametrize("expression", ["Data.port", "'yes'", "1", "nil"])
def test_a_condition_that_is_something_else_is_refused(env: Environment, expression: str) -> None:
    with pytest.raises(ExpressionError, match="a condition must return a boolean"):
        evaluate_condition(expression, env)


def test_an_expression_is_shown_with_its_text(env: Environment) -> None:
    assert evaluate_shown("[Data.port, 2.0]", env) == Evaluated([8080, 2.0], "[8080 2]")


def test_evaluating_again_costs_no_compiling(env: Environment) -> None:
    from ccm_agent.templates.expr.program import ExpressionNames, compile_expression

    names = ExpressionNames({"Data": "map"})
    long = f"'{'x' * 5000}'"

    assert compile_expression("Data.port + 1", names) is compile_expression(
        "Data.port + 1", ExpressionNames({"Data": "map"})
    )
    assert compile_expression(long, names) is not compile_expression(long, names)
    assert evaluate(long, env) == render_value("{{ " + long + " }}", env) == "x" * 5000


def test_data_that_unfold_without_end_are_refused(env: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve_module, "VALUE_LIMIT", 10_000)
    monkeypatch.setattr(lookup_module, "VALUE_LIMIT", 10_000)
    laughs: Any = ["ha"]
    for _ in range(40):
        laughs = [laughs, laughs]
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]

    for value, wrong in ((laughs, "aliases of aliases"), (deep, "nested too deeply")):
        with pytest.raises(ExpressionError, match=wrong):
            resolve(value, env)
        with pytest.raises(ExpressionError):
            Environment(data={"v": value}).lookup("data.v")
