"""
Jet's values: truth, equality and printing.

In addition to the plain values of `templates/values.py`, Jet distinguishes three:

- MISSING: the result of a missing member and of `nil`. It prints nothing.
- None: a null in the data. It prints `<nil>` and is false.
- Boxed: the value of `.` in a `range` over data. It is always true, is neither a number nor text, and
  prints floats with an exponent. A variable, a member or an element removes the box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.model.gathered import GatheredRecord
from ccm_agent.templates.engines.gotypes import MISSING, TypedList, field_of, go_type, is_unsigned, text_byte
from ccm_agent.templates.goprint import go_print
from ccm_agent.templates.services import service_method
from ccm_agent.templates.values import GoValue, StringMap, byte_length, float_digits, from_bytes, plain_digits


@dataclass(frozen=True, slots=True)
class Boxed:
    """An element of data that `range` assigns to `.`. It is never None or MISSING."""

    value: Any


@dataclass(frozen=True, slots=True)
class Printed(GoValue):
    """A value that prints a fixed text: the result of `writeJson`."""

    text: str

    def go_text(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class HiddenBool(GoValue):
    """A boolean that prints nothing: the result of `includeIfExists`."""

    value: bool

    def go_text(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Caught(GoValue):
    """The error in a `catch`. Its only method is `Error`."""

    message: str

    def go_text(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class RootContext(GoValue):
    """The root context of a template: a structure with the template's variables as members."""

    members: dict[str, Any]

    def go_text(self) -> str:
        return "{" + " ".join(map(go_print, self.members.values())) + "}"


@dataclass(frozen=True, slots=True)
class Ints(GoValue):
    """The result of `ints`, which can only be used in a `range`."""

    start: int
    stop: int

    def go_text(self) -> str:
        """Print as in the reference: the number before the start, and the end."""
        return f"{{-1 {self.start - 1} {self.stop}}}"


class _Callable(GoValue):
    """A callable value, which cannot be printed."""

    __slots__ = ()

    def go_text(self) -> str:
        raise TemplateError("a function cannot be printed; is it missing its arguments?")


@dataclass(frozen=True, slots=True)
class Lazy(_Callable):
    """A built-in that evaluates its arguments itself."""

    name: str
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function(_Callable):
    """
    A function with typed parameters. Its arguments are converted as in Go's reflection.

    Attributes:
        name: The name for errors.
        parameters: The type of each parameter: `string`, `int` or `any`.
        call: Called with the converted arguments.
    """

    name: str
    parameters: tuple[str, ...]
    call: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Writer(_Callable):
    """A function that writes directly to the output. It must be the last or the only stage of a pipeline."""

    name: str
    escape: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class PlainFunction(_Callable):
    """An external function that takes and returns plain values."""

    name: str
    call: Callable[..., Any]


def is_function(value: object) -> bool:
    """Whether the value can be called."""
    return isinstance(value, _Callable)


def boxed(value: Any) -> Any:
    """Box an element of a list or map, as in `range`."""
    return None if value is None else Boxed(value)


def unboxed(value: Any) -> Any:
    """Return the value without its box."""
    return value.value if isinstance(value, Boxed) else value


def plain(value: Any) -> Any:
    """Convert a value to the form for external functions."""
    value = unboxed(value)
    if isinstance(value, RootContext):
        return value.members
    return value.value if isinstance(value, HiddenBool) else value


def is_true(value: Any) -> bool:
    """
    Whether a value is true in Jet: zero values and nil are false; an empty list or map, and any boxed
    value, is true.
    """
    if value is MISSING or value is None:
        return False
    if isinstance(value, (bool, int, float, str)):
        return bool(value)
    if isinstance(value, HiddenBool):
        return value.value
    return not (isinstance(value, TypedList) and value.is_nil)


def is_set(value: Any) -> bool:
    """Whether `isset` treats a value as set: it exists and is not nil."""
    return value is not MISSING and value is not None


def type_of(value: Any) -> str:
    """Return the name of a value's type for error messages."""
    if isinstance(value, Boxed):
        return "boxed " + go_type(value.value)
    if isinstance(value, RootContext):
        return "root"
    if isinstance(value, (Printed, Ints, Caught, HiddenBool)):
        return type(value).__name__.lower()
    return "function" if is_function(value) else go_type(value)


def print_value(value: Any) -> str:
    """
    Return the text that an action prints for a value.

    Raises:
        TemplateError: The value is a function, or its text is too long.
    """
    if isinstance(value, str):
        return value
    if value is MISSING or isinstance(value, HiddenBool):
        return ""
    if isinstance(value, Boxed):
        return sprint(value)
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, bytes):
        return from_bytes(value)
    return sprint(value)


def sprint(value: Any) -> str:
    """Return the text of a value inside another: in a list, or after text and `+`."""
    return go_print(unboxed(value))


def _plain_float(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return go_print(value)
    sign, digits, point = float_digits(value)
    return sign + plain_digits(digits, point)


def member(value: Any, name: str) -> Any:
    """
    Return the member or method `name` of a value.

    Returns:
        The member, unboxed; MISSING if a map has no such key.

    Raises:
        TemplateError: The value cannot have members.
    """
    value = unboxed(value)
    if isinstance(value, Caught) and name == "Error":
        return PlainFunction("Error", lambda: value.message)
    if isinstance(value, RootContext):
        if name not in value.members:
            raise TemplateError(
                f"the context has no member {name!r}; it has {', '.join(sorted(value.members))}"
            )
        return value.members[name]
    return element(value, name)


def element(value: Any, index: Any) -> Any:
    """
    Return `value[index]`: an element of a list, a byte of a text, or a value of a map.

    Raises:
        TemplateError: The index is out of range or has a wrong type, or the value has no elements.
    """
    value = unboxed(value)
    if value is MISSING or value is None:
        what = "null" if value is None else "nothing"
        raise TemplateError(f"{_shown(index)} cannot be looked up: the value before it is {what}")
    if isinstance(value, dict):
        if not isinstance(index, str):
            raise TemplateError(f"a map is indexed with text, not with a {type_of(index)}")
        return field_of(value, index) if isinstance(value, GatheredRecord) else value.get(index, MISSING)
    if isinstance(value, str):
        return text_byte(value, _place(index, byte_length(value)))
    if isinstance(index, str) and (method := service_method(value, index)) is not None:
        return PlainFunction(index, method)
    if isinstance(value, (list, tuple, bytes)):
        return value[_place(index, len(value))]
    if isinstance(value, RootContext) and isinstance(index, str):
        return member(value, index)
    raise TemplateError(f"{_shown(index)} cannot be looked up in a {type_of(value)}")


def _shown(index: Any) -> str:
    return repr(index) if isinstance(index, str) else "an index"


def _place(index: Any, length: int) -> int:
    if isinstance(index, bool) or not isinstance(index, (int, float)):
        raise TemplateError(f"a list or text is indexed with a number, not with {_shown_type(index)}")
    place = to_int(index)
    if not 0 <= place < length:
        raise TemplateError(f"index {place} is out of range: there are {length} elements")
    return place


def _shown_type(index: Any) -> str:
    return "nothing" if index is MISSING else f"a {type_of(index)}"


def to_int(number: float) -> int:
    """Return a number truncated to an integer, as Go converts a float."""
    if isinstance(number, float) and not -(2.0**63) <= number < 2.0**63:
        return -(2**63)
    return int(number)


def slice_value(value: Any, start: int, end: int | None) -> Any:
    """
    Return `value[start:end]`, by bytes for text.

    Raises:
        TemplateError: The bounds are outside the value, or the value is not a list or text.
    """
    value = unboxed(value)
    if not isinstance(value, (list, tuple, str, bytes)):
        raise TemplateError(f"only a list or text can be sliced, not a {type_of(value)}")
    data = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    stop = len(data) if end is None else end
    if not 0 <= start <= stop <= len(data):
        raise TemplateError(f"slice [{start}:{stop}] is out of range: there are {len(data)} elements")
    part = data[start:stop]
    if isinstance(value, str) and isinstance(part, bytes):
        return from_bytes(part)
    return TypedList(part, value.element) if isinstance(value, TypedList) else part


def equal(left: Any, right: Any) -> bool:
    """
    Compare like Jet's `==`: numbers of any kind by value, lists and maps deeply. Values of different types are
    never equal, and functions are not equal to any value.

    Raises:
        TemplateError: The result of `json` is compared with a text.
    """
    left, right = unboxed(left), unboxed(right)
    left = MISSING if left is None else left
    right = MISSING if right is None else right
    if left is MISSING or right is MISSING:
        return left is right
    if isinstance(left, HiddenBool) and isinstance(right, (bool, HiddenBool)):
        return left.value == is_true(right)
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _numbers_equal(left, right)
    if isinstance(left, dict):
        return _maps_equal(left, right)
    if isinstance(left, (list, tuple)):
        return _lists_equal(left, right)
    if isinstance(left, bytes) and isinstance(right, str):
        raise TemplateError("JSON cannot be compared with text; compare the value itself")
    if isinstance(left, (str, bytes)):
        return type(left) is type(right) and bool(left == right)
    return type(left) is type(right) and not is_function(left) and bool(left == right)


def _numbers_equal(left: Any, right: Any) -> bool:
    """Compare two numbers. The left side's kind decides: an integer is compared with the truncated float."""
    if isinstance(left, float):
        return left == float(right)
    if is_unsigned(left):
        return int(left) == to_int(right) % 2**64
    return int(left) == to_int(right)


def _maps_equal(left: dict[str, Any], right: Any) -> bool:
    if not isinstance(right, dict) or isinstance(left, StringMap) != isinstance(right, StringMap):
        return False
    return len(left) == len(right) and all(
        key in right and equal(value, right[key]) for key, value in left.items()
    )


def _lists_equal(left: Any, right: Any) -> bool:
    if not isinstance(right, (list, tuple)) or go_type(left) != go_type(right):
        return False
    return len(left) == len(right) and all(equal(a, b) for a, b in zip(left, right, strict=True))
