"""The static check: what is an error before anything runs, and what is known of a value."""

from __future__ import annotations

import pytest

from ccm_agent.templates.expr.check import check
from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.functions import FUNCTIONS
from ccm_agent.templates.expr.parser import parse
from ccm_agent.templates.expr.static_types import MAP, STRING_MAP

VARIABLES = {"Data": MAP, "Environ": STRING_MAP}


def nature(text: str) -> str:
    tree = parse(text, frozenset(FUNCTIONS))
    return str(check(tree, VARIABLES, frozenset({"lookup"})))


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("1", "an integer"),
        ("1 + 1.5", "a float"),
        ("6 / 3", "a float"),
        ("1 < 2", "a boolean"),
        ("'a' + 'b'", "text"),
        ("Data", "a map"),
        ("Data.x", "anything"),
        ("Data.x.y", "unknown"),
        ("Data.x + 1", "unknown"),
        ("Environ.X", "text"),
        ("lookup('a')", "anything"),
        ("[1, 2][0]", "an integer"),
        ("['a', 1][0]", "anything"),
        ("1..3", "a list"),
        ("map(1..3, string(#))[0]", "text"),
        ("filter(['a'], true)[0]", "text"),
        ("find([1], true)", "an integer"),
        ("groupBy([1], #)[1]", "a list"),
        ("split('a', ',')", "a list of text"),
        ("true ? 1 : nil", "an integer"),
        ("true ? 1 : 'a'", "unknown"),
        ("nil ?? 'a'", "text"),
        ("let x = 'a'; x", "text"),
        ("duration('1h') * 2", "a duration"),
        ("now() - now()", "a duration"),
        ("now().Month()", "a month"),
        ("now().Add(duration('1h')).Year()", "an integer"),
        ("abs(-1)", "an integer"),
        ("keys({})", "a list"),
    ],
)
def test_types_of_known_values(text: str, known: str) -> None:
    assert nature(text) == known


@pytest.mark.parametrize(
    ("text", "offset", "wrong"),
    [
        ("nope", 0, "unknown name nope"),
        ("data.x", 0, "unknown name data; did you mean Data?"),
        ("true or nope", 8, "unknown name nope"),
        ("1 + 'a'", 2, "+ does not go between an integer and text"),
        ("true ? 1 : 1 + 'a'", 13, "+ does not go between"),
        ("'a' == 1", 4, "== does not go between text and an integer"),
        ("true == 1", 5, "== does not go between"),
        ("not 1", 0, "not does not take an integer"),
        ("-'a'", 0, "- does not take text"),
        ("1 and true", 2, "and does not go between an integer and a boolean"),
        ("1 % 1.5", 2, "% does not go between an integer and a float"),
        ("1 in {a: 1}", 2, "in does not go between an integer and a map"),
        ("'a' in 'abc'", 4, "in does not go between"),
        ("'a' in [1]", 4, "in does not go between"),
        ("Environ[1]", 8, "an integer is not a key of a map of text"),
        ("[1]['a']", 4, "an element of a list is chosen by an integer, not by text"),
        ("(1).a", 4, "an integer has no field a"),
        ("'a'.upper()", 4, "text has no method upper"),
        ("now().Foo()", 6, "a time has no method Foo"),
        ("{a: 1}[0:1]", 6, "a map cannot be sliced"),
        ("[1]['a':]", 4, "a slice begins and ends at an integer"),
        ("1 ? 2 : 3", 0, "a condition must be a boolean, and this is an integer"),
        ("filter([1], #)", 12, "filter() needs a condition, and this is an integer"),
        ("filter([1], nil)", 12, "is always nil"),
        ("map({}, #)", 4, "map() goes over a list, not over a map"),
        ("filter([1], #index > 0)", 12, "there is no #index here"),
        ("sortBy([1], #, 1)", 15, 'sortBy() takes "asc" or "desc"'),
        ("map([1, 2], .a)", 13, "an integer has no field a"),
        ("let Data = 1; 2", 4, "Data is already defined"),
        ("let map = 1; 2", 4, "map is already defined"),
        ("let x = 1; let x = 2; x", 15, "x is already defined"),
        ("let f = 1; f()", 11, "an integer is not a function"),
        ("Data()", 0, "a map is not a function"),
        ("upper(1)", 6, "upper() takes text here, not an integer"),
        ("upper('a', 'b')", 0, "upper() takes 1 argument, not 2"),
        ("len(1)", 0, "len() does not take an integer"),
        ("len()", 0, "len() takes 1 argument, not 0"),
        ("max()", 0, "max() takes at least 1 argument"),
        ("concat('a')", 0, "concat() does not take text"),
        ("get(1, 'a')", 4, "get() does not take an integer"),
        ("duration('1h') / 2", 15, "/ does not go between a duration and an integer"),
        ("'a' matches '('", 12, "the pattern does not parse: missing )"),
        ("$env.nope", 5, "unknown name nope"),
        ("split('a', ',') + 1", 16, "+ does not go between a list of text and an integer"),
    ],
)
def test_the_mistake(text: str, offset: int, wrong: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        nature(text)

    assert wrong in caught.value.message
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    "text",
    ["Data.x == 1", "Data.x + 'a'", "Data.x in Data.y", "Data.x and true", "filter(Data.x, #)", "$env?.nope"],
)
def test_types_of_facts_and_data_are_known_later(text: str) -> None:
    assert nature(text)


def test_a_key_that_a_map_with_known_keys_does_not_have_is_an_error() -> None:
    tree = parse("Data.known && Data.unknown", frozenset(FUNCTIONS))

    with pytest.raises(
        EvaluationError, match=r"there is no Data\.unknown; there are Data\.known, Data\.other"
    ):
        check(tree, VARIABLES, frozenset(), {"Data": ("known", "other")})
