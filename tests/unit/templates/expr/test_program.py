"""Expressions, compiled and run: values, errors with places, limits."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ccm_agent.model.errors import ExpressionError
from ccm_agent.templates import goprint
from ccm_agent.templates.expr import frame
from ccm_agent.templates.expr.evaluation_errors import point
from ccm_agent.templates.expr.program import ExpressionNames, compile_expression
from ccm_agent.templates.gotime import GoDuration, Month
from ccm_agent.templates.values import StringMap, from_bytes

NAMES = ExpressionNames(
    {"Data": "map", "Environ": "text map", "value": "any", "text": "text"}, frozenset({"twice"})
)
DATA: dict[str, Any] = {
    "n": 1,
    "f": 2.5,
    "s": "abc",
    "b": True,
    "no": False,
    "null": None,
    "list": [3, 1, 2],
    "mixed": [1, "a", True, None, 2.5],
    "m": {"a": 1, "b": {"c": "deep"}},
    "items": [{"name": "web", "port": 80}, {"name": "db", "port": 5432}],
    "bytes": from_bytes(b"a\xff"),
}


def run(text: str, **more: Any) -> Any:
    variables = {
        "Data": {**DATA, **more},
        "Environ": StringMap({"HOME": "/root"}),
        "value": more,
        "text": "t",
    }
    return compile_expression(text, NAMES).run(variables, {"twice": lambda x: [x, x]})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # arithmetic
        ("9223372036854775807 + Data.n", -(2**63)),
        ("Data.n * 9223372036854775807 * 2", -2),
        ("-(Data.n) - 9223372036854775807", -(2**63)),
        ("Data.n / 0", math.inf),
        ("-1 / (Data.n - 1)", -math.inf),
        ("2 ** -1", 0.5),
        ("2 ** 1024", math.inf),
        ("(-2) ** 1025", -math.inf),
        ("0 ** -1", math.inf),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("Data.n + Data.f", 3.5),
        # comparison
        ("1 == 1.0", True),
        ("Data.b == 1", False),
        ("[1, [2]] == [1.0, [2.0]]", True),
        ("{a: 1} == {a: 1.0}", False),
        ("Data.nope == nil", True),
        ("concat([]) == nil", True),
        ("0/0 == 0/0", False),
        ("9007199254740993 > 9007199254740992.0", False),
        ('"z" < "é"', True),
        ("duration('1h') > duration('59m')", True),
        ("date('2024-01-01') in [date('2024-01-01 00:00:00')]", True),
        # logic gives what is asked and runs no more than needed
        ("Data.no and Data.list[99] == 1", False),
        ("Data.b or Data.list[99] == 1", True),
        ("true and Data.s", "abc"),
        ("Data.null ?? Data.nope ?? 3", 3),
        ("Data.n ?? Data.list[99]", 1),
        # members
        ("Data.nope?.a.b", None),
        ("Data.m?.b.c", "deep"),
        ("Data.list[-1]", 2),
        ("Data.list[1.9]", 1),
        ("Data.s[0]", 97),
        ("Environ.NOPE", ""),
        ("$env.Data.n", 1),
        ('"n" in Data', True),
        ('"Data" in $env', True),
        ("Data.null in {a: 1}", False),
        ("Data.s in b'abc'", False),
        ("97 in b'abc'", True),
        ("get(Data.list, 9)", None),
        ("'héllo'[:3]", "hé"),
        ("len('héllo'[:2])", 2),
        ("Data.bytes[1]", 255),
        # loops
        ("map([1, 2], {let o = #; map([10, 20], # + o)})", [[11, 21], [12, 22]]),
        ("map([[5], [6]], map(#, #index))", [[0], [0]]),
        ("filter(Data.items, any([80], # == 80)) | len()", 2),
        ("first(filter(Data.mixed, # == 1))", 1),
        ("filter([1, 2, 3], # > 1)[-1]", 3),
        ("count(Data.mixed, # == 1) > 0", True),
        ("map(filter(1..6, # % 2 == 0), #index)", [0, 1, 2]),
        ("sum(1..100000000)", 5000000050000000),
        ("sum([])", 0),
        ("sum(3..1)", 0),
        ("7 in 1..100000000", True),
        ("0 in 1..100000000", False),
        ("len(Data.s) in 1..100000000", True),
        ("2.0 in 1..3", True),
        ("Data.s in 1..3", False),
        ("Data.s in ['b', 'abc']", True),
        ("nil in ['', 'abc']", True),
        ("reduce(Data.list, #acc > # ? #acc : #)", 3),
        ("groupBy([true, 1, 1.0, '1'], #)[1]", [1]),
        ("len(groupBy([true, 1, 1.0, '1'], #))", 4),
        ("groupBy([1], #)[9] ?? 'none'", "none"),
        ("sortBy([3, 1, 2], -#)", [3, 2, 1]),
        ("map(Data.s, #)", [97, 98, 99]),
        # the rest
        ("let x = Data.n; [x, {a: x}]", [1, {"a": 1}]),
        ("{a: 1, a: 2}", {"a": 1}),
        ("1; 2; 3", 3),
        ("int(date('2024-03-01').Month())", 3),
        ("date('2024-03-01').Month()", Month(3)),
        ("date('2024-03-01').Month().String()", "March"),
        ("date('2024-03-01').Weekday().String() + '!'", "Friday!"),
        ("timezone('Europe/Zurich').String()", "Europe/Zurich"),
        ("date('2024-07-01').In(timezone('Europe/Zurich')).Zone()", "CEST"),
        ("[date('2024-12-30').ISOWeek(), date('2027-01-03').ISOWeek()]", [2025, 2026]),
        ("duration('1h') * 1.5", 5.4e12),
        ("duration('10m') * 3", GoDuration(30 * 60 * 10**9)),
        ("type(first([duration('1s')]).String())", "string"),
        ("twice(Data.n)", [1, 1]),
        ("Data.s | twice()", ["abc", "abc"]),
        ("text + 'x'", "tx"),
    ],
)
def test_values(text: str, value: Any) -> None:
    got = run(text)

    assert got == value
    assert type(got) is type(value)


def test_nan_is_not_a_number() -> None:
    assert math.isnan(run("0 / 0"))


@pytest.mark.parametrize(
    ("text", "offset", "wrong"),
    [
        ("Data.nope.x", 10, "there is no x in nil; use ?. where it may be missing"),
        ("Data.s.x", 7, "text has no x; its elements are chosen by integers"),
        ("Data.list[99]", 9, "index 99 is out of range: there are 3 elements"),
        ("Data.s * 3", 7, "* does not go between text and an integer"),
        ("Data.nope + 1", 10, "+ does not go between nil and an integer"),
        ("not Data.n", 0, "not needs a boolean, and this is an integer"),
        ("Data.s or true and Data.n == 1", 7, "or needs a boolean, and this is text"),
        ("Data.s ? 1 : 2", 5, "a condition needs a boolean, and this is text"),
        ("Data.n % (Data.n - 1)", 7, "the remainder of a division by zero"),
        ("1 % 0", 2, "the remainder of a division by zero"),
        ("Data.n in Data.m", 7, "an integer is not a key of this map"),
        ("1 in Data.n", 2, "in looks into lists and maps, not into an integer"),
        ("1..Data.s", 1, "an integer is needed, not text"),
        ("Data.n[0:1]", 6, "an integer cannot be sliced"),
        ("Data.n matches 'a'", 7, "matches looks at text, not at an integer"),
        ("Data.s matches Data.n", 7, "a pattern is text, and this is an integer"),
        ("Data.s matches value.p", 7, "the pattern does not parse"),
        ("Data.n contains 'a'", 7, "contains goes between texts, and this is an integer"),
        ("filter(Data.list, #)", 0, "filter() needs a condition, not an integer"),
        ("map(Data.m, #)", 0, "map() goes over a list, not over a map"),
        ("map(Data.n, #)", 0, "map() goes over a list, not over an integer"),
        ("map(Data.list, # + 'a')", 17, "+ does not go between an integer and text"),
        ("reduce(Data.m.none ?? [], #)", 0, "reduce() of an empty list needs a third argument"),
        ("groupBy(Data.items, #)", 0, "groupBy() cannot group by a map"),
        ("sortBy(Data.mixed, #)", 0, "< does not go between"),
        ("sortBy(Data.list, #, 'up')", 0, 'sortBy() takes "asc" or "desc"'),
        ("filter(Data.list, # > 5)[0]", 24, "index 0 is out of range"),
        ("Data.list[99] == 1 and false", 9, "index 99 is out of range"),
        ("Data.s and true", 7, "and needs a boolean"),
        ("Data.n in ['a', 'b']", 7, "is not a key of this map; its keys are text"),
        ("upper(Data.n)", 0, "upper() does not take an integer"),
        ("Data.n()", 5, "an integer is not a function"),
        ("{(Data.n): 1}", 7, "the keys of a map are text, and this is an integer"),
        ("int(Data.s)", 0, "int() cannot read this text: it is not a whole number of 64 bits"),
        ("join(Data.list)", 0, "join() joins texts, and here is an integer"),
        ("fromJSON('{')", 0, "fromJSON() cannot read this text: no JSON at character 2"),
        ("fromBase64('SGk')", 0, "fromBase64() cannot read this text"),
        ("duration('5')", 0, "duration() cannot read this text"),
        ("date('x')", 0, "date() cannot read this text"),
        ("timezone('Mars/Base')", 0, "the zone database has no such time zone"),
        ("bitshl(1, -1)", 0, "bitshl() shifts by zero bits or more"),
        ("find([1], # > 4) == 1", 17, "expected an integer, not nil"),
        ("twice(1, 2)", 0, "twice() does not take 2 arguments"),
        ("upper", 0, "upper is not a value"),
        ("Data.list[nope:]", 10, "nope is not a value"),
    ],
)
def test_errors_name_cause_and_place(text: str, offset: int, wrong: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(text, p="(")

    assert wrong in caught.value.message
    assert (caught.value.expression, caught.value.offset) == (text, offset)


@pytest.mark.parametrize(
    "text",
    [
        "int(Data.secret)",
        "Data.secret + 1",
        "Data.secret.x",
        "upper(Data.m, Data.secret)",
        "date(Data.secret)",
    ],
)
def test_errors_never_hold_a_value(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        run(text, secret="hunter2")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("len(1..1000000)", "lists of 1000000 elements and more"),
        ("map(1..1200, len(1..1000))", "lists of 1000000 elements and more"),
        ("let r = 1..3000; all(r, all(r, # > 0))", "more than 200000 steps"),
        ("reduce(1..60, #acc + #acc, 'x')", "bytes of text"),
        ("reduce(1..60, concat(#acc, #acc), [1])", "elements and more"),
        ("reduce(1..60, [#acc, #acc], [1]) | flatten()", "steps"),
        ("reduce(1..60, [#acc, #acc], [1]) | string()", "cannot be printed"),
        ("reduce(1..60, [#acc, #acc], []) | string()", "cannot be printed"),
        ("reduce(1..60, ({a: #acc, b: #acc}), {}) | string()", "cannot be printed"),
        ("reduce(1..60, [#acc, #acc], [1]) | toJSON()", "toJSON() cannot write this"),
        (
            "let x = reduce(1..60, [#acc, #acc], [1]); let y = reduce(1..60, [#acc, #acc], [1]); x == y",
            "steps",
        ),
        ("reduce(1..60, ({a: #acc, b: #acc}), {}) == reduce(1..60, ({a: #acc, b: #acc}), {})", "steps"),
        ("replace(repeat('x', 900000), 'x', repeat('y', 90000))", "bytes of text"),
        ("join(map(1..900, repeat('x', 1000)), repeat('y', 90000))", "bytes of text"),
        ("repeat('x', 1000001)", "repeats 1000000 times at most"),
        ("reduce(1..900, [#acc], 1) | flatten()", "nested more than"),
        ("reduce(1..3000, [#acc], 1) | string()", "nested too deeply"),
        ("map(1..20000, Data.n in 1..20000)", "elements and more"),
        ("let big = 1..400000; none(big, 0 in big)", "more than 200000 steps"),
        ("uniq(map(1..4000, [#]))", "more than 200000 steps"),
    ],
)
def test_no_expression_runs_or_grows_without_end(
    text: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "steps" in wrong:
        monkeypatch.setattr(frame, "STEP_LIMIT", 200_000)
    monkeypatch.setattr(goprint, "PRINT_LIMIT", 200_000)

    with pytest.raises(ExpressionError) as caught:
        run(text)

    assert wrong in str(caught.value)


def test_a_pattern_never_hangs() -> None:
    assert run("repeat('a', 20000) + 'b' matches '^(a+)+$'") is False


@pytest.mark.parametrize(
    ("text", "answer"), [("Data.b", True), ("Data.null", False), ("Data.n == 1", True), ("value.nope", False)]
)
def test_conditions_are_booleans_or_nil(text: str, answer: bool) -> None:
    program = compile_expression(text, NAMES, is_condition=True)

    assert program.run({"Data": DATA, "Environ": {}, "value": {}, "text": ""}, {}) is answer


def test_a_condition_that_is_not_valid_is_refused_when_that_is_known() -> None:
    with pytest.raises(ExpressionError, match="a condition must return a boolean, not text"):
        compile_expression("'yes'", NAMES, is_condition=True)
    with pytest.raises(ExpressionError, match="a condition must return a boolean, not an integer"):
        compile_expression("Data.n", NAMES, is_condition=True).run({"Data": DATA}, {})


def test_an_error_points_at_its_place() -> None:
    with pytest.raises(ExpressionError) as caught:
        run("let x = 1;\n\tx + Data.s")

    assert point(caught.value) == "\tx + Data.s\n\t  ^"
    assert "line 2, character 4" in caught.value.message


def test_the_cause_of_an_error_is_kept() -> None:
    cause = ExpressionError("the file is gone")

    def failing() -> None:
        raise cause

    names = ExpressionNames({}, frozenset({"failing"}))

    with pytest.raises(ExpressionError) as caught:
        compile_expression("failing()", names).run({}, {"failing": failing})

    assert caught.value.__cause__ is cause


def test_a_defect_in_a_function_is_not_an_error_of_the_expression() -> None:
    def broken(x: int) -> Any:
        return x + "a"  # type: ignore[operator]

    names = ExpressionNames({}, frozenset({"broken"}))

    with pytest.raises(TypeError, match="unsupported operand"):
        compile_expression("broken(1)", names).run({}, {"broken": broken})
