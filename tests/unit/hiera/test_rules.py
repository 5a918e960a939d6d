"""`@require` and `@validate`: found in comments, checked on what came out."""

from typing import Any

import pytest

from ccm_agent.hiera.rules import check, read_rules
from ccm_agent.model.data import DataRule
from ccm_agent.model.errors import DataError


def rule(*path: str, required: bool = False, expression: str = "", line: int = 1) -> DataRule:
    return DataRule(path=path, required=required, expression=expression, source="s.yaml", line=line)


def test_rules_stand_above_beside_or_below_a_key() -> None:
    text = """\
data:
  # The account.
  # @require
  # @validate len(value) > 2
  user: bob
  port: 80 # @validate isInt(value)
  m:
    # @required
    a.b: x
    c: d
    # @require
overrides:
  # @require
  x: {}
"""

    rules, warnings = read_rules(text, "s.yaml")

    assert rules == (
        rule("user", required=True, expression="len(value) > 2", line=3),
        rule("port", expression="isInt(value)", line=6),
        rule("m", "a.b", required=True, line=8),
        rule("m", "c", required=True, line=11),
    )
    assert warnings == ()


@pytest.mark.parametrize(
    ("comment", "advice"),
    [
        ("@requiired", "s.yaml:2: unknown annotation `@requiired`, did you mean `@require`?"),
        (
            "@require please",
            "s.yaml:2: `@require please` is not an annotation; write `@require` alone on its line",
        ),
        (
            "@validate",
            "s.yaml:2: `@validate` is not an annotation; write `@validate`, a space and an expression",
        ),
        (
            "@validate(isInt(value))",
            "s.yaml:2: `@validate(isInt(value))` is not an annotation; write `@validate`, a space and an expression",
        ),
        ("@todo", "s.yaml:2: unknown annotation `@todo`"),
    ],
)
def test_a_comment_that_only_looks_like_a_rule_is_warned_about(comment: str, advice: str) -> None:
    assert read_rules(f"data:\n  # {comment}\n  a: ''\n", "s.yaml") == ((), (advice,))


def test_the_last_expression_wins() -> None:
    rules, _ = read_rules("data:\n  # @validate false\n  # @validate true\n  a: 1\n", "s.yaml")

    assert rules == (rule("a", expression="true", line=2),)


def test_json_has_no_rules() -> None:
    assert read_rules('{"data": {"a": "# @require"}}') == ((), ())


@pytest.mark.parametrize("value", [0, False, 0.0, [], {}, " "])
def test_existing_content_satisfies_require(value: object) -> None:
    check({"a": value}, [rule("a", required=True)])


@pytest.mark.parametrize("data", [{"a": None}, {"a": ""}, {}, {"a": {"b": 1}}])
def test_nothing_does_not_satisfy_require(data: dict[str, Any]) -> None:
    path = ("a", "x") if isinstance(data.get("a"), dict) else ("a",)

    with pytest.raises(DataError) as caught:
        check(data, [rule(*path, required=True, line=7)])

    name = ".".join(path)
    assert str(caught.value) == (
        f"s.yaml:7: the key `{name}` is required but has no value: set it in `data` or an override"
    )


def test_every_broken_rule_is_named_and_no_value() -> None:
    data = {"a": "hunter2", "b.c": "hunter2", "d": None}
    rules = [
        rule("a", expression="isInt(value)", line=2),
        rule("b.c", expression="value ==", line=4),
        rule("d", required=True, expression="false", line=6),
    ]

    with pytest.raises(DataError) as caught:
        check(data, rules)

    lines = str(caught.value).split("\n")
    assert lines[0] == "the data violates 3 of its rules:"
    assert lines[1] == "  s.yaml:2: the value of `a` does not satisfy `isInt(value)`"
    assert lines[2].startswith('  s.yaml:4: the rule `value ==` of `["b.c"]` cannot be checked: ')
    assert lines[3] == "  s.yaml:6: the key `d` is required but has no value: set it in `data` or an override"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("value", [None, {"x": 1}, ["x"]])
def test_expressions_are_not_asked_about_null_mappings_and_lists(value: object) -> None:
    check({"a": value}, [rule("a", expression="false")])


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        pytest.param("value == '2.5'", 2.5, id="a float is its text"),
        pytest.param("value == '1e+19'", 1e19, id="as it prints"),
        pytest.param("value == 'true'", True, id="so is a boolean"),
        pytest.param("isIPv4(value) || isIPv6(value)", "::1", id="claims combine"),
        pytest.param("!isInt(value)", "auto", id="claims can be denied"),
        pytest.param("isRegex(value, '^[a-z]+$')", "abc", id="a pattern"),
        pytest.param("Value == 'x'", "x", id="the other name"),
    ],
)
def test_an_expression_sees_the_value_as_text(expression: str, value: object) -> None:
    check({"a": value}, [rule("a", expression=expression)])


@pytest.mark.parametrize(
    "expression",
    [
        "isRegex(value, '^[a-z]+$')",
        "isInt(value, value)",
        "isInt(1)",
        "isRegex(value, '[')",
        "isRegex(value)",
        "len(value)",
        "nope",
        "Facts.x == 1",
        "readFile('/etc/passwd') == ''",
    ],
)
def test_an_expression_that_is_false_or_wrong_refuses_the_data(expression: str) -> None:
    with pytest.raises(DataError):
        check({"a": "ABC\n"}, [rule("a", expression=expression)])
