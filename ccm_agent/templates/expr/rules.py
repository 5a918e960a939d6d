"""Operand types of the operators, and the type of the result; None if an operator does not accept the types."""

from __future__ import annotations

from collections.abc import Callable

from ccm_agent.templates.expr.static_types import (
    ANY,
    BOOL,
    BYTES,
    DURATION,
    FLOAT,
    INT,
    STRING,
    TIME,
    UNKNOWN,
    StaticType,
    array_of,
    promoted,
)

_BOOLEANS = ("bool",)
_ORDERED = ("int", "int64", "uint8", "float64", "string", "time.Time", "time.Duration")
_SUBTRACTED = ("int", "int64", "uint8", "float64", "time.Time", "time.Duration")
_MULTIPLIED = ("int", "int64", "uint8", "float64", "time.Duration")
_NUMBERS = ("int", "int64", "uint8", "float64")
_INTEGERS = ("int", "int64", "uint8")
_TEXTS = ("string",)


def _maybe(left: StaticType, right: StaticType, types: tuple[str, ...]) -> bool:
    """Whether one side is unknown and the other side is acceptable."""
    if left.is_unknown:
        return right.is_unknown or right.type in types
    return right.is_unknown and left.type in types


def _equal(left: StaticType, right: StaticType) -> StaticType | None:
    return BOOL if left.comparable_to(right) else None


def _logic(left: StaticType, right: StaticType) -> StaticType | None:
    both = left.kind == "bool" and right.kind == "bool"
    return BOOL if both or _maybe(left, right, _BOOLEANS) else None


def _order(left: StaticType, right: StaticType) -> StaticType | None:
    if left.is_number and right.is_number:
        return BOOL
    if left.type == right.type and left.type in ("string", "time.Time", "time.Duration"):
        return BOOL
    return BOOL if _maybe(left, right, _ORDERED) else None


_SUMS = {
    ("string", "string"): STRING,
    ("time.Time", "time.Duration"): TIME,
    ("time.Duration", "time.Time"): TIME,
    ("time.Duration", "time.Duration"): DURATION,
}
_DIFFERENCES = {
    ("time.Time", "time.Time"): DURATION,
    ("time.Time", "time.Duration"): TIME,
    ("time.Duration", "time.Duration"): DURATION,
}


def _sum(left: StaticType, right: StaticType) -> StaticType | None:
    if left.is_number and right.is_number:
        return promoted(left, right)
    return _SUMS.get((left.type, right.type)) or (UNKNOWN if _maybe(left, right, _ORDERED) else None)


def _difference(left: StaticType, right: StaticType) -> StaticType | None:
    if left.is_number and right.is_number:
        return promoted(left, right)
    return _DIFFERENCES.get((left.type, right.type)) or (
        UNKNOWN if _maybe(left, right, _SUBTRACTED) else None
    )


def _product(left: StaticType, right: StaticType) -> StaticType | None:
    if left.is_number and right.is_number:
        return promoted(left, right)
    if DURATION.type in (left.type, right.type) and left.type in _MULTIPLIED and right.type in _MULTIPLIED:
        return DURATION
    return UNKNOWN if _maybe(left, right, _MULTIPLIED) else None


def _quotient(left: StaticType, right: StaticType) -> StaticType | None:
    return FLOAT if (left.is_number and right.is_number) or _maybe(left, right, _NUMBERS) else None


def _remainder(left: StaticType, right: StaticType) -> StaticType | None:
    return INT if (left.is_integer and right.is_integer) or _maybe(left, right, _INTEGERS) else None


def _range(left: StaticType, right: StaticType) -> StaticType | None:
    if (left.is_integer and right.is_integer) or _maybe(left, right, _INTEGERS):
        return array_of(INT)
    return None


def _in(left: StaticType, right: StaticType) -> StaticType | None:
    if right.kind == "map" and right.key is not None:
        return BOOL if left.is_unknown or left.assignable_to(right.key) else None
    if right.is_list:
        return BOOL if left.comparable_to(right.element or ANY) else None
    if left.is_unknown and (right.kind in ("string", "struct")):
        return BOOL
    if left.kind == "string" and right.kind == "struct":
        return BOOL
    return BOOL if right.is_unknown else None


def _matches(left: StaticType, right: StaticType) -> StaticType | None:
    if (left.kind == "string" or left.type == BYTES.type) and right.kind == "string":
        return BOOL
    return BOOL if _maybe(left, right, _TEXTS) else None


def _text(left: StaticType, right: StaticType) -> StaticType | None:
    return BOOL if (left.kind == "string" and right.kind == "string") or _maybe(left, right, _TEXTS) else None


def _otherwise(left: StaticType, right: StaticType) -> StaticType:
    if left.is_nil or right.is_nil:
        return right if left.is_nil else left
    return left if right.assignable_to(left) else UNKNOWN


BINARY_RULES: dict[str, Callable[[StaticType, StaticType], StaticType | None]] = {
    **dict.fromkeys(("==", "!="), _equal),
    **dict.fromkeys(("or", "||", "and", "&&"), _logic),
    **dict.fromkeys(("<", ">", "<=", ">="), _order),
    "+": _sum,
    "-": _difference,
    "*": _product,
    **dict.fromkeys(("/", "**", "^"), _quotient),
    "%": _remainder,
    "in": _in,
    "matches": _matches,
    **dict.fromkeys(("contains", "startsWith", "endsWith"), _text),
    "..": _range,
    "??": _otherwise,
}
