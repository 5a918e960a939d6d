"""JSON as Go writes and reads it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.templates.expr.collections import AnyMap, NilList
from ccm_agent.templates.gojson import JSONError, read, write
from ccm_agent.templates.golayout import parse_time
from ccm_agent.templates.gotime import UTC, GoDuration, Month


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2.0, "2"),
        (-0.0, "-0"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-7, "1e-7"),
        (0.000001, "0.000001"),
        (1.5e-10, "1.5e-10"),
        ('a/b é\u2028<&>\x00\x08\x7f"\\', '"a/b é\\u2028\\u003c\\u0026\\u003e\\u0000\\b\x7f\\"\\\\"'),
        ("\udcff", '"\\ufffd"'),
        ([], "[]"),
        (NilList(), "null"),
        ({"b": 1, "a": [True]}, '{"a":[true],"b":1}'),
        (b"ab", '"YWI="'),
        (GoDuration(1500), "1500"),
        (Month(3), "3"),
        (UTC, "{}"),
        (parse_time("2006-01-02", "2024-02-29"), '"2024-02-29T00:00:00Z"'),
    ],
)
def test_values_are_written(value: Any, text: str) -> None:
    assert write(value) == text


def test_levels_are_indented() -> None:
    assert write({"a": [1, {}], "b": []}, "  ") == '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": []\n}'


@pytest.mark.parametrize("value", [math.nan, math.inf, {1: 2}, AnyMap(), object(), [object()]])
def test_values_without_a_json_form_are_refused(value: Any) -> None:
    with pytest.raises(JSONError):
        write(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" [1 , 2.5] ", [1.0, 2.5]),
        ('{"a": 1, "a": 2}', {"a": 2.0}),
        ('"\\ud83d\\ude00"', "\U0001f600"),
        ("9007199254740993", 9007199254740992.0),
    ],
)
def test_json_is_read(text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    "text", ["", "{", "1 2", "NaN", "-Infinity", "01", "+1", "1.", "1e999", "'a'", '"\n"', "[" * 100_000]
)
def test_invalid_json_is_refused(text: str) -> None:
    with pytest.raises(JSONError):
        read(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_written_values_are_read_again(value: Any) -> None:
    assert read(write(value)) == value
    assert read(write(value, "  ")) == value
