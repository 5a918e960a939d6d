"""
Go's types that a template can distinguish: `add 1 1` is an int64, `split` returns text, a list can be nil.

All other values are represented as in `templates/values.py`: a plain int is Go's int, a plain list `[]interface
{}`, a plain dict `map[string]interface {}`. The types here are subclasses, so all code for plain values accepts
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.values import GoValue, StringMap, format_float, to_bytes, type_name


class MissingValue:
    """The result of looking up a missing key: it is neither a value nor nil. The only instance is `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING = MissingValue()


class Int64(int):
    """Go's int64. `has`, `kindOf` and typed parameters distinguish it from int."""

    __slots__ = ()
    go_type = "int64"


class Uint8(int):
    """A byte: the result of indexing a string."""

    __slots__ = ()
    go_type = "uint8"


class Uint64(int):
    """Go's uint64."""

    __slots__ = ()
    go_type = "uint64"


class TypedList(list[Any]):
    """
    A slice with elements of one type, or a nil slice.

    Attributes:
        element: Go's name of that type, such as `string`.
        is_nil: Whether it is a nil slice. It prints and iterates like an empty slice, and is `null` in JSON.
    """

    __slots__ = ("element", "is_nil")

    def __init__(
        self, items: Iterable[Any] = (), element: str = "interface {}", *, is_nil: bool = False
    ) -> None:
        super().__init__(items)
        self.element = element
        self.is_nil = is_nil


def strings(items: Iterable[str]) -> TypedList:
    """Create a `[]string`."""
    return TypedList(items, "string")


class NilMap(dict[str, Any]):
    """A nil map. It reads like an empty map, but keys cannot be added."""

    __slots__ = ()


class Complex(GoValue):
    """A complex number, which only a literal such as `3i` creates."""

    __slots__ = ("imaginary", "real")
    go_type = "complex128"

    def __init__(self, real: float, imaginary: float) -> None:
        self.real = real
        self.imaginary = imaginary

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Complex) and (self.real, self.imaginary) == (other.real, other.imaginary)

    def __hash__(self) -> int:
        return hash((Complex, self.real, self.imaginary))

    def go_text(self) -> str:
        imaginary = format_float(self.imaginary)
        return f"({format_float(self.real)}{imaginary if imaginary[0] in '+-' else '+' + imaginary}i)"


def is_unsigned(value: object) -> bool:
    """Whether the value is one of Go's unsigned integers."""
    return isinstance(value, (Uint8, Uint64))


def go_type(value: object) -> str:
    """Return the name of a value's Go type like `%T`."""
    if value is None or value is MISSING:
        return "<nil>"
    if isinstance(value, (Int64, Uint8, Uint64)):
        return value.go_type
    if isinstance(value, TypedList):
        return "[]" + value.element
    if isinstance(value, StringMap):
        return "map[string]string"
    return type_name(value)


_KINDS = {
    "string": "string",
    "bool": "bool",
    "float64": "float64",
    "complex128": "complex128",
    "int": "int",
    "int64": "int64",
    "uint8": "uint8",
    "uint64": "uint64",
    "time.Duration": "int64",
}


def go_kind(value: object) -> str:
    """Return the name of a value's kind: `slice`, `map`, `int` …; `invalid` for nil."""
    if value is None or value is MISSING:
        return "invalid"
    if isinstance(value, (list, tuple, bytes)):
        return "slice"
    name = go_type(value)
    if isinstance(value, Mapping) and not isinstance(value, GatheredRecord):
        return "map"
    if name in _KINDS:
        return _KINDS[name]
    if isinstance(value, (GoValue, GatheredRecord)):
        return "ptr" if name.startswith("*") else "struct"
    return "func" if callable(value) else "struct"


def field_of(record: GatheredRecord, name: str) -> Any:
    """
    Return the field of a gathered fact, by Go's name or its JSON name.

    Raises:
        TemplateError: There is no such field. The message includes the most similar field.
    """
    if name not in record:
        raise TemplateError(record.no_field(name))
    return record[name]


def element_type(items: object) -> str:
    """Return the element type of a slice: `interface {}` unless the slice is typed."""
    if isinstance(items, bytes):
        return "uint8"
    return items.element if isinstance(items, TypedList) else "interface {}"


def text_byte(text: str, index: int) -> Uint8:
    """Return the byte of a Go string at a valid index."""
    return Uint8(to_bytes(text)[index])
