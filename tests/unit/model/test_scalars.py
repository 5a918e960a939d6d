"""What an unquoted word of YAML means."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.formats.scalars import (
    CORE_TAG,
    float_text,
    key_text,
    parse_number,
    plain_value,
    tagged_value,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("yes", "yes", id="yes is text"),
        pytest.param("off", "off", id="off is text"),
        pytest.param("True", True, id="true has three spellings"),
        pytest.param("tRUE", "tRUE", id="and no fourth"),
        pytest.param("~", None, id="a tilde is nothing"),
        pytest.param("", None, id="an empty value is nothing"),
        pytest.param("0644", 420, id="a leading nought means octal"),
        pytest.param("0o17", 15, id="so does 0o"),
        pytest.param("08", "08", id="no octal digit, no number"),
        pytest.param("-0x_ff", -255, id="hexadecimal with sign and underscore"),
        pytest.param("0b11", 3, id="binary"),
        pytest.param("1_000", 1000, id="underscores between digits"),
        pytest.param("_1", "_1", id="but not in front"),
        pytest.param("1e3", "1e3", id="an exponent needs a dot"),
        pytest.param("1.0e3", 1000.0, id="and has one here"),
        pytest.param("-.5", -0.5, id="a dot may come first"),
        pytest.param("5.", 5.0, id="or last"),
        pytest.param("1.2.3", "1.2.3", id="a version is text"),
        pytest.param("1:30", "1:30", id="a time is text"),
        pytest.param("2024-01-02", "2024-01-02", id="a date is text"),
        pytest.param("18446744073709551615", 2**64 - 1, id="the largest number of 64 bits"),
        pytest.param("18446744073709551616", "18446744073709551616", id="one more is text"),
        pytest.param("-9223372036854775809", "-9223372036854775809", id="so is one less than the least"),
        pytest.param("1.5e400", "1.5e400", id="no float holds it"),
        pytest.param("-.INF", -math.inf, id="infinity"),
        pytest.param("+", "+", id="a sign alone"),
        pytest.param("١", "١", id="other digits are text"),
    ],
)
def test_plain_text_is_read_as_the_reference_does(text: str, value: object) -> None:
    read = plain_value(text)

    assert (type(read), read) == (type(value), value)


def test_nan_is_a_number() -> None:
    value = plain_value(".nan")

    assert isinstance(value, float)
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (16, "16"),
        (1.0, "1"),
        (1.5, "1.5"),
        (1e6, "1e+06"),
        (1e-5, "1e-05"),
        (0.0001, "0.0001"),
        (123456.0, "123456"),
        (-123456789.0, "-1.23456789e+08"),
        (math.inf, "+Inf"),
        (math.nan, "NaN"),
        (0.0, "0"),
        ("x", "x"),
    ],
)
def test_keys_are_text_as_go_prints_them(value: object, text: str) -> None:
    assert key_text(value) == text


@pytest.mark.parametrize(
    ("tag", "text", "value"),
    [
        ("str", "1.50", "1.50"),
        ("str", "null", ""),
        ("int", "0x1F", 31),
        ("float", "1e3", 1000.0),
        ("bool", "yes", True),
        ("bool", "NO", False),
        ("int", "08", 8),
        ("int", "017", 15),
        ("null", "x", None),
        ("binary", "aG k=", b"hi"),
        ("unknown", "1", "1"),
    ],
)
def test_a_tag_decides_the_type(tag: str, text: str, value: object) -> None:
    assert tagged_value(CORE_TAG + tag, text, True) == value


def test_a_leading_zero_of_a_quoted_tagged_number_is_not_octal() -> None:
    assert tagged_value(CORE_TAG + "int", "017", False) == 17
    assert tagged_value(CORE_TAG + "float", "017", False) == 17.0


def test_a_timestamp_is_utc_by_default() -> None:
    from datetime import UTC, datetime

    assert tagged_value(CORE_TAG + "timestamp", "2024-01-02", True) == datetime(2024, 1, 2, tzinfo=UTC)
    assert tagged_value(CORE_TAG + "timestamp", "2024-1-2 3:04:05.5", True) == datetime(
        2024, 1, 2, 3, 4, 5, 500_000, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("tag", "text"),
    [("int", "x"), ("int", "1.5"), ("float", "x"), ("bool", "maybe"), ("bool", "on"), ("map", "x")],
)
def test_a_tag_that_does_not_fit_is_refused(tag: str, text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        tagged_value(CORE_TAG + tag, text, True)


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_number_of_64_bits_is_read_back_from_its_digits(number: int) -> None:
    assert parse_number(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_survives_its_text(number: float) -> None:
    assert float(float_text(number)) == number


@given(st.text(alphabet="+-_.0123456789xobeEaF", min_size=1, max_size=12))
def test_no_text_makes_the_number_reader_fail(text: str) -> None:
    number = parse_number(text)

    assert number is None or isinstance(number, (int, float))
