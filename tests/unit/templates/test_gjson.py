"""GJSON paths, beyond the cases of the reference in tests/conformance."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import ExpressionError
from ccm_agent.templates import gjson
from ccm_agent.templates.gjson import PATH_LIMIT, get, scalar_number

# The document of GJSON's own description of its paths.
DOCUMENT = """{
  "name": {"first": "Tom", "last": "Anderson"},
  "age":37,
  "children": ["Sara","Alex","Jack"],
  "fav.movie": "Deer Hunter",
  "friends": [
    {"first": "Dale", "last": "Murphy", "age": 44, "nets": ["ig", "fb", "tw"]},
    {"first": "Roger", "last": "Craig", "age": 68, "nets": ["fb", "tw"]},
    {"first": "Jane", "last": "Murphy", "age": 47, "nets": ["ig", "tw"]}
  ],
  "vals": [{"a":1,"b":"data"},{"a":2,"b":true},{"a":3,"b":false},{"a":4,"b":"0"},{"a":5,"b":0},{"a":6,"b":"1"},
    {"a":7,"b":1},{"a":8,"b":"true"},{"a":9,"b":false},{"a":10,"b":null},{"a":11}]
}"""
MISSING = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("name.last", "Anderson"),
        ("age", 37.0),
        ("children.1", "Alex"),
        ("child*.2", "Jack"),
        ("c?ildren.0", "Sara"),
        (r"fav\.movie", "Deer Hunter"),
        ("friends.#", 3.0),
        ("friends.#.age", [44.0, 68.0, 47.0]),
        ("friends.1.last", "Craig"),
        ('friends.#(last=="Murphy").first', "Dale"),
        ('friends.#(last=="Murphy")#.first', ["Dale", "Jane"]),
        ("friends.#(age>45)#.last", ["Craig", "Murphy"]),
        ('friends.#(first%"D*").last', "Murphy"),
        ('friends.#(first!%"D*").last', "Craig"),
        ('children.#(!%"*a*")', "Alex"),
        ('children.#(%"*a*")#', ["Sara", "Jack"]),
        ('friends.#(nets.#(=="fb"))#.first', ["Dale", "Roger"]),
        ("vals.#(b==~true)#.a", [2.0, 6.0, 7.0, 8.0]),
        ("vals.#(b==~false)#.a", [3.0, 4.0, 5.0, 9.0, 10.0, 11.0]),
        ("vals.#(b==~null)#.a", [10.0, 11.0]),
        ("vals.#(b!=~*)#.a", [11.0]),
        ("friends|0|first", "Dale"),
        ('friends.#(last="Murphy")#|first', MISSING),
        ('friends.#(last="Murphy")#.0', []),
        ('friends.#(last="Murphy")#|#', 2.0),
        ("children.@reverse", ["Jack", "Alex", "Sara"]),
        ("children.@reverse.0", "Jack"),
        ("name.@keys", ["first", "last"]),
        ("name.@values", ["Tom", "Anderson"]),
        ("name.@tostr", '{"first": "Tom", "last": "Anderson"}'),
        ("name.@tostr.@fromstr.last", "Anderson"),
        ("name.@ugly.@tostr", '{"first":"Tom","last":"Anderson"}'),
        ("nope.@keys", []),
        ("nope", MISSING),
        ("friends.9", MISSING),
        ("age.x", MISSING),
        ('{name.first,age,"murphys":friends.#(last="Murphy")#.first}',
         {"first": "Tom", "age": 37.0, "murphys": ["Dale", "Jane"]}),
        ("[age,nope,name.first]", [37.0, "Tom"]),
        ('{"company":!"Happysoft","employed":!true}', {"company": "Happysoft", "employed": True}),
        ("@dig:first", ["Tom", "Dale", "Roger", "Jane"]),
        ('!{"a":[1,[2,[3]]]}.a.@flatten', [1.0, 2.0, [3.0]]),
        ('![1,[2,[3]]].@flatten:{"deep":true}', [1.0, 2.0, 3.0]),
        ('![{"a":1,"b":2},{"b":3}].@join', {"a": 1.0, "b": 3.0}),
        ('!{"a":[1,2],"b":[3,4]}.@group', [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 4.0}]),
        ('!{"b":1,"a":[1,{"c":2}]}.@pretty:{"sortKeys":true}.@tostr',
         '{\n  "a": [\n    1,\n    {\n      "c": 2\n    }\n  ],\n  "b": 1\n}\n'),
        ("@this.age", 37.0),
        ("@valid.age", 37.0),
    ],
)  # fmt: skip
def test_paths(path: str, value: Any) -> None:
    found = get(DOCUMENT, path)

    assert found.exists is (value is not MISSING)
    assert found.value() == (None if value is MISSING else value)


def test_a_null_is_there_and_the_first_of_equal_keys_is_found() -> None:
    assert get('{"a": null}', "a").exists
    assert get('{"a": 1, "a": 2}', "a").value() == 1.0
    assert get('{"x": {"a": 1, "a": 2}}', "x").value() == {"a": 1.0}


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (r"\u001f\ud83d\ude00", "\x1f\U0001f600"),
        (r"\ud83d", "\ufffd"),
        (r"\ud83dx", "\ufffdx"),
        (r"\ud83d\u0041", "\ufffd"),
        (r"\n\/\"", '\n/"'),
    ],
)
def test_escapes_in_strings_are_read(escaped: str, text: str) -> None:
    assert get(f'{{"a": "{escaped}"}}', "a").value() == text


def test_lines_of_json_are_an_array() -> None:
    lines = '{"a": 1}\n{"a": 2}\n"x"'

    assert get(lines, "..#").value() == 3.0
    assert get(lines, "..#.a").value() == [1.0, 2.0]
    assert get(lines, "..2").value() == "x"


@pytest.mark.parametrize(
    ("raw", "number"),
    [
        ("1", 1),
        ("1.0", 1.0),
        ("-5", -5),
        ("9007199254740993", 9007199254740993),
        ("1e3", 1000),
        ("1.5e300", 1.5e300),
        ("1e300", 1e300),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", 2.0**63),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -(2.0**63)),
        ("1e18", 10**18),
        ("1e-7", 0),
    ],
)
def test_a_looked_up_number_is_an_int_unless_it_has_a_point(raw: str, number: float) -> None:
    got = scalar_number(raw)

    assert got == number
    assert type(got) is type(number)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc.*#@\\|", max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, st.booleans())
def test_every_key_can_be_escaped_and_found(value: Any, spaced: bool) -> None:
    text = json.dumps({"v": value}, indent=2 if spaced else None, ensure_ascii=not spaced)

    assert get(text, "v").value() == value
    if isinstance(value, dict):
        for key, item in value.items():
            escaped = "".join("\\" + char if char in ".*#@\\|" else char for char in key)
            assert get(text, f"v.{escaped}").value() == item or "*" in key


@given(st.text(alphabet='{}[]()"\\.|#@!*?:,=<>%~ab01 ', max_size=40), JSON)
def test_any_path_gives_something_or_nothing(path: str, value: Any) -> None:
    found = get(json.dumps(value), path)

    assert found.exists is (found.raw != "")
    found.value()
    found.looked_up()


@given(
    st.text(alphabet='{}[]",:\\ab01.-+ntf \n', max_size=40),
    st.sampled_from(("a", "#", "0.a", "@keys", "#.a", "@pretty")),
)
def test_an_invalid_json_document_does_no_harm(text: str, path: str) -> None:
    get(text, path).value()


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("a" * (PATH_LIMIT + 1), "longer than"),
        ("[" * 2000 + "]" * 2000, "nested too deeply"),
        ("|".join(["[@this,@this]"] * 60), "reads too much text"),
        (".".join(["@tostr"] * 60), "reads too much text"),
    ],
)
def test_no_path_works_without_end(path: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gjson, "WORK_LIMIT", 1024 * 1024)

    with pytest.raises(ExpressionError, match=wrong):
        get('{"a": "b"}', path)
