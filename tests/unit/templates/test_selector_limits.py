"""An expression that selects nodes ends within its limits, whatever an operator writes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.model.errors import SelectorError, SelectorLimitError
from ccm_agent.templates.selector import (
    LENGTH_LIMIT,
    PATTERN_LIMIT,
    WHERE_CPU_S,
    WHERE_LENGTH_LIMIT,
    parse_selector,
    parse_where,
)

FACTS: dict[str, Any] = {
    "role": "web",
    "packages": [{"name": f"lib{number}", "version": f"1.{number}"} for number in range(300)],
    "text": "a" * 20_000,
}

COSTLY = [
    pytest.param(
        'let t=repeat("a",200000); count(1..100000,{(t+string(#)) matches "c$"})>0',
        id="long text matched often",
    ),
    pytest.param("count(1..99999, {lookup('facts') != nil}) == 99999", id="all facts looked up often"),
    pytest.param(
        "count(1..99999, {lookup('facts.packages.#.name') != nil}) == 99999", id="a path searched often"
    ),
    pytest.param("any(1..9999, any(1..9999, # == -1))", id="loops within each other"),
    pytest.param("len(1..999999) > 0", id="a long range"),
    pytest.param(
        "len(repeat('a', 999999) + repeat('b', 999999)) > 0 and all(1..9999999, true)", id="elements"
    ),
    pytest.param(
        "lastIndexOf(repeat('a', 500000), 'ab' + repeat('a', 250000)) > 0 and any(1..99999, any(1..99, # < 0))",
        id="the last of many near misses",
    ),
    pytest.param(
        "let a=repeat('a',200000); len(sort(map(1..20000, # % 2 == 0 ? a + 'x' : a + 'y'))) > 0",
        id="long texts sorted",
    ),
    pytest.param(
        "let a=repeat('a',100000); let l=map(1..50000, a); (a + 'b') in l or any(1..99999, a + 'b' in l)",
        id="a long text among many",
    ),
    pytest.param(
        "let t=repeat('é',90000); len(trim(t, t + string(1..9))) > 0 and any(1..99999, trim(t,t)!='')",
        id="trim",
    ),
    pytest.param(
        "let s=string(map(1..9999, 'a')); any(1..9999, len(split(s, ' ')) < 0)", id="a text split often"
    ),
    pytest.param("any(1..9999, len(toJSON(Facts)) < 0)", id="JSON made often"),
    pytest.param("any(1..9999, len(fromJSON(toJSON(Facts))) < 0)", id="JSON read often"),
    pytest.param("let l=reduce(1..60, [#acc, #acc], [1]); toJSON(l) == ''", id="JSON of a list of itself"),
    pytest.param("len(reduce(1..60, #acc + #acc, 'x')) > 0", id="a text that doubles"),
    pytest.param("len(reduce(1..60, concat(#acc, #acc), [1])) > 0", id="a list that doubles"),
    pytest.param("let l=reduce(1..60, [#acc, #acc], [1]); string(l) == ''", id="a list of itself printed"),
    pytest.param(
        "let l=reduce(1..60, [#acc, #acc], [1]); let m=reduce(1..60, [#acc, #acc], [1]); l == m",
        id="lists of themselves compared",
    ),
    pytest.param(
        "lookup('facts.packages.@this|@tostr|@tostr|@tostr|@tostr|@tostr|@tostr|@tostr|@tostr') == 1",
        id="modifiers",
    ),
]


def outcome(where: str) -> tuple[bool | None, float]:
    """The answer, None when it was too costly; and the CPU time that it took."""
    parsed = parse_where(where)
    begun = time.thread_time()
    try:
        answer: bool | None = parsed.matches("web1", FACTS)
    except SelectorLimitError:
        answer = None
    return answer, time.thread_time() - begun


@pytest.mark.parametrize("where", COSTLY)
def test_a_costly_expression_is_refused_within_its_time(where: str) -> None:
    answer, cpu_s = outcome(where)

    assert answer is not True
    assert cpu_s < 10 * WHERE_CPU_S


def test_a_refusal_names_the_limit() -> None:
    with pytest.raises(SelectorLimitError) as caught:
        parse_where("any(1..9999, any(1..9999, # == -1))").matches("web1", {})

    assert caught.value.code == "selector.too_costly"
    assert str(caught.value).startswith(
        "the expression of `where` is too costly: the expressions take more than"
    )


@pytest.mark.parametrize(
    "where",
    [
        "any(Facts.packages, .name == 'lib299')",
        "count(Facts.packages, .version startsWith '1.1') > 100",
        "lookup('facts.packages.#(name==\"lib299\").version') == '1.299'",
        "len(Facts.text) == 20000 and Facts.text matches 'a$'",
        "Node in map(1..2000, 'web' + string(#))",
    ],
)
def test_ordinary_selectors_are_within_the_limits(where: str) -> None:
    assert parse_where(where).matches("web1", FACTS)


def test_an_expression_that_is_too_long_is_refused() -> None:
    with pytest.raises(SelectorLimitError, match="16384 is the limit"):
        parse_where("true or " * (WHERE_LENGTH_LIMIT // 8) + "true")


def test_many_large_patterns_are_refused_before_they_are_all_compiled() -> None:
    patterns = ", ".join(f"Node matches '{number}" + r"(\\pL?){90}'" for number in range(300))
    begun = time.thread_time()

    with pytest.raises(SelectorError, match="the patterns of the expression are too large together"):
        parse_where(f"true in [{patterns}]")

    assert time.thread_time() - begun < 5


def test_a_selector_or_pattern_that_is_too_long_is_refused() -> None:
    with pytest.raises(SelectorLimitError, match="100000 is the limit"):
        parse_selector("role=" + "a" * LENGTH_LIMIT)
    with pytest.raises(SelectorLimitError, match="at most 512 characters"):
        parse_selector("node=" + "*a" * PATTERN_LIMIT)


def test_a_pattern_with_many_stars_is_quick() -> None:
    begun = time.thread_time()

    assert not parse_selector("node=" + "*a" * 200 + "b").matches("a" * 250, {})

    assert time.thread_time() - begun < 1


ATOMS = st.sampled_from(
    (
        "1", "9999", "1..9999", "'a'", "''", "nil", "true", "Facts", "Facts.packages", "Facts.text", "Node", "[]", "{}", "#",
        "1.5",         "repeat('a',9999)", "lookup('facts')", "'[a-z]+$'", "'(a*)*b'", "'é'",
    )
)  # fmt: skip
OPERATORS = st.sampled_from(
    ("+", "-", "*", "/", "%", "**", "==", "<", "in", "matches", "contains", "..", "and", "??")
)
FUNCTIONS = st.sampled_from(
    (
        "len", "string", "toJSON", "fromJSON", "upper", "trim", "sort", "uniq", "flatten", "keys", "values", "toPairs", "max",
        "median", "reverse", "lookup", "toBase64", "type", "int", "float", "first",
    )
)  # fmt: skip
TWO = st.sampled_from(
    ("split", "repeat", "concat", "lastIndexOf", "indexOf", "trim", "join", "hasPrefix", "get", "take")
)
LOOPS = st.sampled_from(
    ("any", "all", "map", "filter", "count", "sum", "groupBy", "sortBy", "find", "reduce")
)


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("{}({})".format, FUNCTIONS, inner),
        st.builds("{}({}, {})".format, TWO, inner, inner),
        st.builds("{}({}, {{{}}})".format, LOOPS, inner, inner),
        st.builds("reduce(1..30, [#acc, {}], {})".format, inner, inner),
        st.builds("reduce(1..30, #acc + {}, {})".format, inner, inner),
        st.builds("(let v = {}; {} + v)".format, inner, inner),
    )


LONGEST_CPU_S = 10 * WHERE_CPU_S


@settings(max_examples=150, deadline=None)
@given(st.recursive(ATOMS, _larger, max_leaves=12))
def test_no_expression_takes_longer_than_its_limits(text: str) -> None:
    times_s = [0.0]
    try:
        times_s = [outcome(f"({text}) == nil")[1]]
        if times_s[0] >= LONGEST_CPU_S:
            # Python may have collected the garbage of other tests meanwhile; what takes long takes long each time
            times_s += [outcome(f"({text}) == nil")[1] for _ in range(2)]
    except SelectorError:
        pass  # its types do not fit

    assert min(times_s) < LONGEST_CPU_S
