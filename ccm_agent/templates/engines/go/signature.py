"""
Parameter types of Go template functions, and the conversion of values to them.

They are read from the function's annotations: `str`, `bool`, `int` (only Go's int), `float`, `Mapping` (a
`map[string]interface {}`), `list` (a `[]interface {}`), `Time`, `Value` (any type; a missing value is MISSING),
and `Any` (any type; a missing value is None).
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.external import call_plain
from ccm_agent.templates.engines.go.nodes import Bool, Number, String
from ccm_agent.templates.engines.gotypes import (
    MISSING,
    Complex,
    Int64,
    NilMap,
    TypedList,
    Uint8,
    Uint64,
    go_type,
)
from ccm_agent.templates.gotime import Time
from ccm_agent.templates.values import StringMap

Value = typing.NewType("Value", object)
"""A parameter that distinguishes a missing value from nil."""

_MAP = "map[string]interface {}"

_KINDS: dict[Any, str] = {
    str: "string",
    bool: "bool",
    int: "int",
    float: "float64",
    Mapping: _MAP,
    list: "[]interface {}",
    Time: "time.Time",
    Value: "value",
    Any: "any",
    object: "any",
}

# nil can be passed for a parameter of one of these kinds
_NILABLE = frozenset(("any", "value", _MAP, "[]interface {}"))


@dataclass(frozen=True, slots=True)
class FunctionSignature:
    """
    The parameters of a function.

    Attributes:
        fixed: The kinds of the required parameters.
        rest: The kind of the variadic parameter; "" if there is none.
    """

    fixed: tuple[str, ...]
    rest: str = ""

    def kind(self, index: int) -> str:
        """Return the kind of the argument at a position."""
        return self.fixed[index] if index < len(self.fixed) else self.rest

    def check_count(self, name: str, count: int) -> None:
        """
        Refuse a wrong number of arguments.

        Raises:
            TemplateError: The number of arguments is wrong.
        """
        if count < len(self.fixed) or (count > len(self.fixed) and not self.rest):
            least = "at least " if self.rest else ""
            raise TemplateError(f"{name!r} takes {least}{len(self.fixed)} arguments, not {count}")


@dataclass(frozen=True, slots=True)
class ExternalFunction:
    """An external function: it takes and returns plain values, and its integers are int64."""

    name: str
    function: Callable[..., Any]

    def __call__(self, *values: Any) -> Any:
        result = call_plain(self.name, self.function, list(values))
        return Int64(result) if type(result) is int else result


@lru_cache(maxsize=1024)
def read_signature(function: Callable[..., Any]) -> FunctionSignature:
    """Read the signature of a function from its annotations."""
    if isinstance(function, ExternalFunction):
        return FunctionSignature((), "any")
    hints = typing.get_type_hints(function)
    fixed: list[str] = []
    rest = ""
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name, Any)
        kind = _KINDS[typing.get_origin(hint) or hint]
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = kind
        else:
            fixed.append(kind)
    return FunctionSignature(tuple(fixed), rest)


def of_literal(literal: Bool | Number | String, kind: str) -> Any:
    """
    Convert a literal to a kind: `2.0` is accepted as an int.

    Raises:
        TemplateError: The literal cannot be converted.
    """
    if kind in ("any", "value"):
        return _plain_literal(literal)
    if kind == "bool" and isinstance(literal, Bool):
        return literal.value
    if kind == "string" and isinstance(literal, String):
        return literal.value
    if isinstance(literal, Number):
        if kind == "int" and literal.integer is not None:
            return literal.integer
        if kind == "float64" and literal.decimal is not None:
            return literal.decimal
    raise TemplateError(f"a {kind} is needed, not {_shown(literal)}")


def _plain_literal(literal: Bool | Number | String) -> Any:
    if isinstance(literal, Number) and literal.value is None:
        raise TemplateError(f"number {literal.text} is too large for an int")
    return literal.value


def _shown(literal: Bool | Number | String) -> str:
    return literal.text if isinstance(literal, Number) else repr(literal.value)


def of_nil(kind: str) -> Any:
    """
    Convert `nil` to a kind.

    Raises:
        TemplateError: `nil` cannot be converted to the kind.
    """
    if kind == "value":
        return MISSING
    if kind in _NILABLE:
        return NilMap() if kind == _MAP else None
    raise TemplateError(f"a {kind} is needed, not nil: is a value missing?")


def of_value(value: Any, kind: str) -> Any:
    """
    Check that a value is of a kind; only a missing value is converted.

    Raises:
        TemplateError: The value is not of that kind.
    """
    if kind == "value":
        return value
    if value is MISSING:
        return of_nil(kind)
    if value is None:
        if kind == "any":
            return None
        raise TemplateError(f"a {kind} is needed, not null")
    if kind == "any" or _is_of(value, kind):
        return value
    hint = (
        "; 'toString' makes it one" if kind == "string" else "; 'int' makes it one" if kind == "int" else ""
    )
    raise TemplateError(f"a {kind} is needed, not a {go_type(value)}{hint}")


def _is_of(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, (bool, Int64, Uint8, Uint64))
    if kind == "float64":
        return isinstance(value, float)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "time.Time":
        return isinstance(value, Time)
    if kind == "[]interface {}":
        return isinstance(value, list) and not (
            isinstance(value, TypedList) and value.element != "interface {}"
        )
    return isinstance(value, dict) and not isinstance(value, StringMap)


def is_true(value: Any) -> bool:
    """Whether a value is true in Go templates: zero, nil and empty values are false."""
    if isinstance(value, Complex):
        return bool(value.real or value.imaginary)
    if (
        value is None
        or value is MISSING
        or isinstance(value, (bool, int, float, str, bytes, list, tuple, dict))
    ):
        return bool(value)
    return True
