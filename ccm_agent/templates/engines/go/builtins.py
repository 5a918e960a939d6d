"""
The functions that are part of Go's template language: comparison, `index`, `len`, printing, escaping.

Source: the documentation of Go's package text/template, "Functions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines import escapes
from ccm_agent.templates.engines.go.printf import sprintf
from ccm_agent.templates.engines.go.signature import Value, is_true
from ccm_agent.templates.engines.gotypes import MISSING, Complex, Uint8, go_type, text_byte
from ccm_agent.templates.goprint import go_print
from ccm_agent.templates.values import GoValue, StringMap, byte_length, to_bytes


def _and(first: Value, *others: Value) -> Any:
    """Reserve the name; the evaluator implements it, because not all arguments are evaluated."""
    raise NotImplementedError


def _not(value: Value) -> bool:
    return not is_true(value)


def _call(function: Value, *arguments: Value) -> Any:
    raise TemplateError(f"only functions can be called, and no value is one: this is a {go_type(function)}")


def _kind(value: Any) -> str:
    """Return the kind by which a value is compared; "" if it has no order."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int"
    if isinstance(value, float):
        return "float"
    if isinstance(value, str):
        return "string"
    return "complex" if isinstance(value, Complex) else ""


def _is_nil(value: Any) -> bool:
    return value is None or value is MISSING


def eq(first: Value, *others: Value) -> bool:
    """Whether the first value equals one of the others. An int never equals a float; nil equals only nil."""
    if not others:
        raise TemplateError("needs something to compare with")
    return any(_equal(first, other) for other in others)


def _equal(left: Any, right: Any) -> bool:
    if _is_nil(left) or _is_nil(right):
        return _is_nil(left) and _is_nil(right)
    if _kind(left) != _kind(right):
        raise _incompatible(left, right)
    if _kind(left):
        return bool(left == right)
    if isinstance(left, GoValue) and isinstance(right, GoValue):
        return type(left) is type(right) and left == right
    raise TemplateError(f"a {go_type(left)} cannot be compared with a {go_type(right)}; 'deepEqual' can")


def _incompatible(left: Any, right: Any) -> TemplateError:
    hint = "; 'float64' and 'int' convert" if {_kind(left), _kind(right)} == {"int", "float"} else ""
    return TemplateError(f"a {go_type(left)} cannot be compared with a {go_type(right)}{hint}")


def ne(left: Value, right: Value) -> bool:
    return not eq(left, right)


def lt(left: Value, right: Value) -> bool:
    kind = _kind(left)
    for side in (left, right):
        if _kind(side) not in ("int", "float", "string"):
            what = "nil: is a value missing?" if _is_nil(side) else f"a {go_type(side)}"
            raise TemplateError(f"only numbers and text can be ordered, not {what}")
    if kind != _kind(right):
        raise _incompatible(left, right)
    if kind == "string":
        return to_bytes(str(left)) < to_bytes(str(right))
    return bool(left < right)  # type: ignore[operator]


def le(left: Value, right: Value) -> bool:
    return lt(left, right) or eq(left, right)


def gt(left: Value, right: Value) -> bool:
    return not le(left, right)


def ge(left: Value, right: Value) -> bool:
    return not lt(left, right)


def index(item: Value, *indexes: Value) -> Any:
    """Return the element at each index in turn: `index .m "a" 1`."""
    value: Any = item
    if _is_nil(value):
        raise TemplateError("nothing can be looked up in nil: is a value missing?")
    for place in indexes:
        if _is_nil(value):
            raise TemplateError("nothing can be looked up in nil: the value before it is missing")
        value = _element(value, place)
    return value


def _element(value: Any, place: Any) -> Any:
    if isinstance(value, dict):
        if not isinstance(place, str):
            raise TemplateError(f"a map is indexed with text, not with a {go_type(place)}")
        return value.get(place, "" if isinstance(value, StringMap) else None)
    if isinstance(value, str):
        return text_byte(value, _place(place, byte_length(value)))
    if isinstance(value, bytes):
        return Uint8(value[_place(place, len(value))])
    if isinstance(value, (list, tuple)):
        return value[_place(place, len(value))]
    raise TemplateError(f"nothing can be looked up in a {go_type(value)}")


def _place(place: Any, length: int) -> int:
    if isinstance(place, bool) or not isinstance(place, int):
        raise TemplateError(f"a list is indexed with a whole number, not with a {go_type(place)}")
    if not 0 <= place < length:
        raise TemplateError(f"index {place} is out of range: there are {length} elements")
    return place


def length(item: Value) -> int:
    """Return the number of elements; for text the number of bytes."""
    if isinstance(item, str):
        return byte_length(item)
    if isinstance(item, (list, tuple, dict, bytes)):
        return len(item)
    what = "nil: is a value missing?" if _is_nil(item) else f"a {go_type(item)}"
    raise TemplateError(f"only text, lists and maps have a length, not {what}")


def sprint(*values: Any) -> str:
    """Implement `print`: format the values, with a space between two values if neither is text."""
    parts: list[str] = []
    for number, value in enumerate(values):
        if number and not isinstance(value, str) and not isinstance(values[number - 1], str):
            parts.append(" ")
        parts.append(go_print(value))
    return "".join(parts)


def sprintln(*values: Any) -> str:
    """Implement `println`: format the values separated by spaces, and a newline."""
    return " ".join(map(go_print, values)) + "\n"


def printf(layout: str, *values: Any) -> str:
    return sprintf(layout, values)


def _joined(values: tuple[Any, ...]) -> str:
    """Return the text to escape: a single text, or the values as `print` formats them."""
    return sprint(*("<no value>" if value is None else value for value in values))


def html(*values: Any) -> str:
    return escapes.escape_html_nul(_joined(values))


def js(*values: Any) -> str:
    return escapes.escape_js(_joined(values))


def urlquery(*values: Any) -> str:
    return escapes.escape_query(_joined(values))


BUILTINS: dict[str, Callable[..., Any]] = {
    "and": _and,
    "or": _and,
    "not": _not,
    "call": _call,
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
    "index": index,
    "len": length,
    "print": sprint,
    "println": sprintln,
    "printf": printf,
    "html": html,
    "js": js,
    "urlquery": urlquery,
}
