"""How Go prints and compares values."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ccm_agent.templates.goprint import go_print, sorted_keys
from ccm_agent.templates.values import (
    GoValue,
    byte_length,
    clean_text,
    deep_equal,
    format_float,
    from_bytes,
    is_number,
    loose_equal,
    numbers_equal,
    to_bytes,
    type_name,
    wrap_int,
)


class Month(GoValue):
    go_type = "time.Month"

    def go_text(self) -> str:
        return "March"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (2.0, "2"),
        (1.5, "1.5"),
        (0.1 + 0.2, "0.30000000000000004"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (1.5e-5, "1.5e-05"),
        (100000.0, "100000"),
        (123456.0, "123456"),
        (123456.5, "123456.5"),
        (1000000.0, "1e+06"),
        (1234567.0, "1.234567e+06"),
        (123456789.0, "1.23456789e+08"),
        (1e15, "1e+15"),
        (1e21, "1e+21"),
        (1e100, "1e+100"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_floats_print_as_go_prints_them(value: float, text: str) -> None:
    assert format_float(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param(None, "<nil>", id="nil"),
        pytest.param(True, "true", id="true"),
        pytest.param(False, "false", id="false"),
        pytest.param(-7, "-7", id="int"),
        pytest.param("a b", "a b", id="text has no quotes"),
        pytest.param(b"ab", "[97 98]", id="bytes are numbers"),
        pytest.param([], "[]", id="empty list"),
        pytest.param([1, "a", True, None, 2.5], "[1 a true <nil> 2.5]", id="list"),
        pytest.param(["", "a", ""], "[ a ]", id="empty texts leave their blanks"),
        pytest.param({"b": 2, "a": 1}, "map[a:1 b:2]", id="map is sorted"),
        pytest.param({"b": 1, "B": 2, "10": 4, "9": 5}, "map[10:4 9:5 B:2 b:1]", id="keys sort by bytes"),
        pytest.param({"a": {"b": [1, "c"]}}, "map[a:map[b:[1 c]]]", id="nested"),
        pytest.param({True: 1, False: 2}, "map[false:2 true:1]", id="boolean keys"),
        pytest.param({10: "x", 9: "y"}, "map[9:y 10:x]", id="number keys sort by value"),
        pytest.param([Month()], "[March]", id="a Go value prints itself"),
    ],
)
def test_values_print_as_go_prints_them(value: Any, text: str) -> None:
    assert go_print(value) == text


def test_mixed_keys_print_in_one_order() -> None:
    assert sorted_keys({"a": 1, 2: 1, None: 1, True: 1}) == [None, "a", 2, True]


@pytest.mark.parametrize(
    ("left", "right", "deep", "loose"),
    [
        pytest.param(1, 1.0, False, True, id="int and float"),
        pytest.param([1], [1.0], False, True, id="lists of them"),
        pytest.param({"a": 1}, {"a": 1.0}, False, False, id="maps compare strictly"),
        pytest.param([{"a": 1}], [{"a": 1}], True, True, id="maps in lists"),
        pytest.param(True, 1, False, False, id="a boolean is not a number"),
        pytest.param([True], [1], False, False, id="nor in a list"),
        pytest.param(None, False, False, False, id="nil is only nil"),
        pytest.param(None, None, True, True, id="nil"),
        pytest.param("1", 1, False, False, id="text and number"),
        pytest.param([], {}, False, False, id="list and map"),
        pytest.param([1, 2], [1], False, False, id="length"),
        pytest.param({"a": None}, {"b": None}, False, False, id="other keys"),
        pytest.param(math.nan, math.nan, False, False, id="NaN"),
    ],
)
def test_equality(left: Any, right: Any, deep: bool, loose: bool) -> None:
    assert (deep_equal(left, right), loose_equal(left, right)) == (deep, loose)
    assert (deep_equal(right, left), loose_equal(right, left)) == (deep, loose)


def test_large_ints_meet_floats_as_floats() -> None:
    assert numbers_equal(2**53 + 1, float(2**53))
    assert not numbers_equal(2**53 + 1, 2**53)


@pytest.mark.parametrize(
    ("value", "wrapped"),
    [(2**63, -(2**63)), (-(2**63) - 1, 2**63 - 1), (2**64 + 5, 5), (7, 7), (2**63 - 1, 2**63 - 1)],
)
def test_ints_wrap_at_64_bits(value: int, wrapped: int) -> None:
    assert wrap_int(value) == wrapped


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "nil"),
        (True, "bool"),
        (1, "int"),
        (1.0, "float64"),
        ("", "string"),
        (b"", "[]uint8"),
        ([], "[]interface {}"),
        ({}, "map[string]interface {}"),
        (Month(), "time.Month"),
    ],
)
def test_types_have_go_names(value: Any, name: str) -> None:
    assert type_name(value) == name


def test_booleans_are_not_numbers() -> None:
    assert [is_number(value) for value in (1, 1.5, True, False, "1", None)] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_bytes_that_are_not_utf8_survive_in_text() -> None:
    text = from_bytes(b"a\xff\xc3\xa9")

    assert to_bytes(text) == b"a\xff\xc3\xa9"
    assert byte_length(text) == 4
    assert clean_text(text) == "a\ufffd\u00e9"


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert to_bytes("x\ud83d") == b"x\xef\xbf\xbd"
