"""The language of matchers: examples of goss' manual, and its edges."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.health.goss.matchers import MismatchError, have_patterns, parse_matcher
from ccm_agent.model.errors import CcmError, PropertyError


@pytest.mark.parametrize(
    ("matcher", "found", "fits"),
    [
        pytest.param("foo", "foo", True, id="text is equal"),
        pytest.param("55", 55, True, id="a number is compared with a text as text"),
        pytest.param(42, "42\n", True, id="a text is compared with a number as number"),
        pytest.param(42.0, 42, True, id="whole floats are the integers that they look like"),
        pytest.param(True, True, True, id="boolean"),
        pytest.param(True, 1, False, id="one is not true"),
        pytest.param(True, "true", False, id="a text is not a boolean"),
        pytest.param(["a", "b"], ["a", "b", "c"], True, id="a list wants its elements"),
        pytest.param(["a", "b", "b"], ["a", "b", "c"], False, id="each element counts once"),
        pytest.param({"have-prefix": "4"}, 42, True, id="prefix of a number"),
        pytest.param({"have-suffix": "2"}, "42", True, id="suffix"),
        pytest.param({"match-regexp": r"\d{2}"}, "a 42", True, id="expression anywhere"),
        pytest.param({"match-regexp": "^4$"}, "42", False, id="expression with anchors"),
        pytest.param({"contain-substring": "2"}, 425, True, id="substring"),
        pytest.param({"gt": 40}, "42", True, id="gt"),
        pytest.param({"gt": 42}, 42, False, id="not gt"),
        pytest.param({"ge": 42}, 42, True, id="ge"),
        pytest.param({"lt": 45}, 42.5, True, id="lt"),
        pytest.param({"le": 41}, 42, False, id="not le"),
        pytest.param({"contain-element": {"have-prefix": "b"}}, ["foo", "bar"], True, id="an element"),
        pytest.param({"contain-element": "b"}, "a\nb", True, id="a line is an element"),
        pytest.param({"contain-elements": ["b", {"gt": 3}]}, ["a", "b", 4], True, id="elements"),
        pytest.param({"equal": ["a", "b"]}, ["a", "b"], True, id="equal list"),
        pytest.param({"equal": ["b", "a"]}, ["a", "b"], False, id="order counts for equal"),
        pytest.param({"equal": True}, 1, False, id="equal is strict about booleans"),
        pytest.param({"consist-of": ["b", {"have-prefix": "m"}, "a"]}, ["a", "b", "m1"], True, id="in any order"),
        pytest.param({"consist-of": ["b"]}, ["a", "b"], False, id="nothing besides"),
        pytest.param(
            {"consist-of": [{"have-prefix": "a"}, "ab"]}, ["ab", "ac"], True, id="matchers share elements out"
        ),
        pytest.param({"have-len": 3}, "abc", True, id="length of a text"),
        pytest.param({"have-len": 2}, "é", True, id="length is in bytes"),
        pytest.param({"have-len": 1}, {"a": 1}, True, id="length of a mapping"),
        pytest.param({"have-key": "foo"}, {"foo": 1}, True, id="key"),
        pytest.param({"have-key": {"have-prefix": "f"}}, {"foo": 1}, True, id="key by matcher"),
        pytest.param({"not": "a"}, "b", True, id="not"),
        pytest.param({"not": {"not": {"gt": 1}}}, 2, True, id="not not"),
        pytest.param({"and": [42, {"gt": 40}, {"lt": 45}, "42"]}, "42", True, id="and"),
        pytest.param({"and": []}, "x", True, id="and of nothing"),
        pytest.param({"or": [1, {"have-prefix": "x"}]}, "xyz", True, id="or goes on over what is not a number"),
        pytest.param({"or": ["a", "b"]}, "c", False, id="or of none"),
        pytest.param({"semver-constraint": ">1.0.0 <2.0.0 !=1.5.0"}, ["1.0.1", "1.9.9"], True, id="versions"),
        pytest.param({"semver-constraint": ">1.0.0 <2.0.0 !=1.5.0"}, ["1.0.1", "1.5.0"], False, id="excluded version"),
        pytest.param({"semver-constraint": ">5.0.0 || < 1.5.0"}, "1.0.1", True, id="either range"),
        pytest.param({"semver-constraint": "1.x"}, "1.9.0", True, id="wildcard"),
        pytest.param({"semver-constraint": ">1.x"}, "1.9.0", False, id="above a wildcard"),
        pytest.param({"semver-constraint": ">=1.0.0"}, "1.0.0-rc.1", False, id="a pre-release comes before"),
        pytest.param({"semver-constraint": ">1.0.0-rc.2"}, "1.0.0-rc.10", True, id="pre-releases count as numbers"),
        pytest.param(
            {"gjson": {"moo.nested": "cow", "count": {"le": 25}, "@this": {"have-key": "foo"}}},
            '{"foo": "bar", "moo": {"nested": "cow"}, "count": "15"}',
            True,
            id="gjson",
        ),
        pytest.param({"have-patterns": ["foo", "!bar"]}, ["foo", "x"], True, id="patterns of a list"),
    ],
)  # fmt: skip
def test_a_matcher_fits_or_does_not(matcher: Any, found: Any, fits: bool) -> None:
    assert parse_matcher(matcher).fits(found) is fits


@pytest.mark.parametrize(
    ("matcher", "found", "why"),
    [
        pytest.param(1, "one", "it is not a number", id="no number"),
        pytest.param({"not": {"gt": 1}}, "one", "it is not a number", id="not does not make it one"),
        pytest.param(["a"], 5, "it is not a list", id="no list"),
        pytest.param({"have-len": 1}, 5, "it has no length", id="no length"),
        pytest.param({"have-key": "a"}, "a", "it is not a mapping", id="no mapping"),
        pytest.param({"gjson": {"a": 1}}, "{a", "it is not valid JSON", id="no JSON"),
        pytest.param({"gjson": {"b": 1}}, '{"a":1}', "there is nothing at the path b", id="nothing there"),
        pytest.param(
            {"semver-constraint": ">1.0.0"}, "1.0", "`1.0` is not a semantic version, such as 1.2.3", id="no version"
        ),
    ],
)  # fmt: skip
def test_an_incomparable_value_reports_why(matcher: Any, found: Any, why: str) -> None:
    with pytest.raises(MismatchError) as caught:
        parse_matcher(matcher).fits(found)

    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("matcher", "message"),
    [
        pytest.param(None, "a matcher is empty; give the expected value", id="nothing"),
        pytest.param(
            {"gt": 1, "lt": 5},
            "a mapping must contain one matcher, such as {gt: 5}, not `gt`, `lt`; join several with `and`",
            id="two at once",
        ),
        pytest.param({"have-prefx": "a"}, "there is no matcher `have-prefx`, did you mean `have-prefix`?", id="typo"),
        pytest.param({"gt": "5"}, '`gt` needs a number, not "5"', id="text for a number"),
        pytest.param({"and": "x"}, '`and` needs a list, not "x"', id="no list"),
        pytest.param(
            {"xml": {}},
            "the matcher `xml` is not supported: goss 0.4.9, which Choria CCM uses, does not have it; use `match-regexp`",
            id="xml",
        ),
        pytest.param(
            {"semver-constraint": "~1.0"},
            "`semver-constraint`: `~1.0` is not a semantic version, such as 1.2.3",
            id="a range that blang does not know",
        ),
    ],
)  # fmt: skip
def test_a_contradictory_matcher_is_refused(matcher: Any, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        parse_matcher(matcher)

    assert caught.value.message == message


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        pytest.param("foo", "a foo b\nc", True, id="in a line"),
        pytest.param("!foo", "bar\r\nbaz", True, id="in no line"),
        pytest.param("!foo", "bar\nfoo", False, id="in one line after all"),
        pytest.param("\\!foo", "a !foo", True, id="an exclamation mark itself"),
        pytest.param("\\/foo/", "a /foo/ b", True, id="slashes themselves"),
        pytest.param("/[Gg]oss/", "the goss", True, id="expression"),
        pytest.param("!/[Gg]oss/", "the goss", False, id="expression that must not fit"),
        pytest.param("/^b$/", "a\nb\nc", True, id="anchors are those of a line"),
        pytest.param("/GOSS/i", "the goss", True, id="flags"),
        pytest.param("/etc/motd", "see /etc/motd", True, id="a path is not an expression"),
        pytest.param("a\nb", "a\nb", False, id="no pattern spans lines"),
        pytest.param("", "", True, id="nothing is in nothing"),
        pytest.param("x", "", False, id="something is not"),
    ],
)
def test_patterns_are_compared_line_by_line(pattern: str, text: str, fits: bool) -> None:
    assert have_patterns([pattern]).fits(text) is fits


# ---- as goss itself answers ----

TABLE = json.loads((Path(__file__).parent / "data/matchers_goss_0.4.9.json").read_text())
OTHERWISE: dict[str, Callable[[Any, Any], bool]] = {
    "a list against a text takes the text's lines, as the manual says": lambda matcher, content: (
        isinstance(content, str)
        and (isinstance(matcher, list) or "consist-of" in matcher or matcher == {"not": ["a"]})
    ),
    "`or` goes on over what cannot be compared": lambda matcher, content: (
        isinstance(matcher, dict) and "or" in matcher
    ),
    "an expression may have flags, as in later versions": lambda matcher, content: (
        matcher == {"have-patterns": ["/FOO/i"]}
    ),
}
"""Where the answer is another one on purpose."""


def test_matchers_answer_as_goss_does_but_where_they_should_not() -> None:
    differences = set()
    for content, answers in TABLE["rows"]:
        for matcher, answer in zip(TABLE["matchers"], answers, strict=True):
            try:
                fits = parse_matcher(matcher).fits(content)
            except (MismatchError, CcmError):
                fits = False  # to goss that is a failure too
            if fits is not (answer == "1"):
                why = [reason for reason, applies in OTHERWISE.items() if applies(matcher, content)]
                assert why, (matcher, content)
                differences.update(why)

    assert differences == set(OTHERWISE)
    assert sum(len(answers) for _, answers in TABLE["rows"]) == 3104
