"""
Values of YAML scalars: the core schema of YAML 1.2 with the deviations of goccy/go-yaml, which CCM uses.

`yes`, `no`, `on`, `off`, dates, `1:30` and `1e3` are text; `0644`, `017` and `0o17` are octal; `08` is text; a
number that does not fit into 64 bits is text. These are pure functions on text, so tests need no parser.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

CORE_TAG = "tag:yaml.org,2002:"

_WORDS: dict[str, object] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
    ".inf": float("inf"),
    ".Inf": float("inf"),
    ".INF": float("inf"),
    "-.inf": float("-inf"),
    "-.Inf": float("-inf"),
    "-.INF": float("-inf"),
    ".nan": float("nan"),
    ".NaN": float("nan"),
    ".NAN": float("nan"),
}

SPECIAL_FIRST = frozenset("~nNtTfF.+-0123456789")
"""A plain scalar that begins with another character is text."""

_FLOAT = "0123456789.eE+-"
_DIGITS = {2: "01", 8: "01234567", 10: "0123456789", 16: "0123456789abcdefABCDEF"}
_TRUE = frozenset({"1", "t", "true", "yes"})
_FALSE = frozenset({"0", "f", "false", "no"})


def plain_value(text: str) -> object:
    """Return the value of an unquoted scalar: None, bool, int, float, or the text itself."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] in "+-.0123456789":
        number = parse_number(text)
        return text if number is None else number
    return text


def parse_number(text: str) -> int | float | None:
    """Parse a number; None if the text is not a number or does not fit into 64 bits."""
    dots = text.count(".")
    if dots > 1 or text.startswith("_"):
        return None
    negative = text.startswith("-")
    digits = text.removeprefix("+").removeprefix("-").replace("_", "")
    if digits[:2] in ("0x", "0o", "0b"):
        return _parse_int(digits[2:], {"x": 16, "o": 8, "b": 2}[digits[1]], negative)
    if dots:
        return _parse_float(digits, negative)
    return _parse_int(digits, 8 if len(digits) > 1 and digits[0] == "0" else 10, negative)


def _parse_float(digits: str, negative: bool) -> float | None:
    # float() accepts more than decimal numbers: words, white space, digits of other scripts, a second sign
    if digits.strip(_FLOAT) or digits[:1] in ("+", "-", "e", "E"):
        return None
    try:
        value = float(digits)
    except ValueError:
        return None
    if value == float("inf"):
        return None
    return -value if negative else value


def _parse_int(digits: str, base: int, negative: bool) -> int | None:
    # a 64-bit number has at most 64 digits in any base, without leading zeroes; int() limits the length too
    if not digits or digits.strip(_DIGITS[base]):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > 64:
        return None
    value = int(digits, base)
    if negative:
        return -value if value <= 1 << 63 else None
    return value if value < 1 << 64 else None


def key_text(value: object) -> str:
    """Return a mapping key as text, as Go prints the decoded value: `0x10` is "16", `.inf` is "+Inf"."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return float_text(value)
    return str(value)


def written_key(text: str, is_plain: bool) -> str:
    """Return the mapping key that a scalar represents. An unquoted key may be a number in another notation."""
    return key_text(plain_value(text)) if is_plain and (not text or text[0] in SPECIAL_FIRST) else text


def float_text(value: float) -> str:
    """Format a float like Go's `%v`: the shortest digits, `1e+06` from a million on."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) + len(whole)
    digits = (whole + fraction).lstrip("0")
    power -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return sign + "0"
    if power - 1 < -4 or power - 1 >= 6:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{power - 1:+03d}"
    if power <= 0:
        return f"{sign}0.{'0' * -power}{digits}"
    return f"{sign}{digits[:power].ljust(power, '0')}{'.' if digits[power:] else ''}{digits[power:]}"


def tagged_value(tag: str, text: str, is_plain: bool) -> object:
    """
    Return the value of a scalar with an explicit tag.

    An unknown tag is ignored, and the scalar stays text, as in Choria CCM.

    Args:
        tag: The resolved tag, such as `tag:yaml.org,2002:int` or `!custom`.
        text: The scalar's text.
        is_plain: Whether it was written without quotes.

    Raises:
        ValueError: The text is not a value of that type.
    """
    if not tag.startswith(CORE_TAG):
        return text
    name = tag.removeprefix(CORE_TAG)
    value = plain_value(text) if is_plain else text
    if name == "str":
        # 1.50 stays "1.50"; only a literal null is not text
        return "" if value is None else text
    if name == "null":
        return None
    if name == "int":
        return _tagged_int(text, is_plain)
    if name == "float":
        return _tagged_float(text, is_plain)
    if name == "bool":
        return _tagged_bool(text)
    if name == "timestamp":
        return _tagged_time(text)
    if name in ("map", "seq"):
        raise ValueError(f"{text!r} is a scalar, not a list or mapping")
    if name == "binary":
        import base64

        return base64.b64decode("".join(text.split()), validate=True)
    return text


def _tagged_int(text: str, is_plain: bool) -> int:
    number = _tagged_number(text, is_plain)
    if number is None or (isinstance(number, float) and number != int(number)):
        raise ValueError(f"{text!r} is not a whole number of at most 64 bits")
    return int(number)


def _tagged_number(text: str, is_plain: bool) -> int | float | None:
    # a leading zero means octal only if the unquoted text is a number, which 08 is not
    number = parse_number(text) if text else None
    if is_plain and number is not None:
        return number
    digits = text.removeprefix("+").removeprefix("-")
    return _parse_int(digits, 10, text.startswith("-")) if digits.isdecimal() else number


def _tagged_float(text: str, is_plain: bool) -> float:
    number = _tagged_number(text, is_plain)
    value = plain_value(text) if number is None else number
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not re.fullmatch(r"[+-]?[0-9]+[eE][+-]?[0-9]+", text):
        raise ValueError(f"{text!r} is not a number")
    return float(text)


def _tagged_bool(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _tagged_time(text: str) -> datetime:
    padded = re.sub(r"(?<![0-9.])([0-9])(?![0-9])", r"0\1", text)  # 2024-1-2 3:04:05, as in YAML 1.1
    moment = datetime.fromisoformat(padded)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def explain_unquoted(key: str, value: float) -> str:
    """Return the error message for a number that must be written as digits in quotes."""
    return f"`{key}` must be quoted, as in {key}: {_as_typed(value)}; unquoted it is the number {key_text(value)}"


def _as_typed(value: float) -> str:
    """
    Guess the digits of a mode as typed. YAML reads 0644 as the number 420, and 644 as 644.

    A number such as 444 or 600 was probably typed in octal digits without the leading zero.
    """
    digits = str(value)
    if (
        len(digits) == 3
        and set(digits) <= set("01234567")
        and (float(value) > 0o777 or set(digits) <= set("0467"))
    ):
        return f'"0{digits}"'
    return f'"{value:04o}"' if isinstance(value, int) and 0 <= value <= 0o7777 else '"0644"'
