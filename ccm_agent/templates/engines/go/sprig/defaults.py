"""
Sprig's functions for defaults, JSON, types and control flow.

Source: masterminds.github.io/sprig, "Default Functions", "Type Functions", "Flow Control Functions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines.escapes import go_json
from ccm_agent.templates.engines.go.sprig.lists import deep_equal, is_empty
from ccm_agent.templates.engines.gotypes import go_kind, go_type
from ccm_agent.templates.gojson import JSONError, read


def _default(fallback: Any, *given: Any) -> Any:
    return fallback if not given or is_empty(given[0]) else given[0]


def _empty(value: Any) -> bool:
    return is_empty(value)


def _coalesce(*values: Any) -> Any:
    return next((value for value in values if not is_empty(value)), None)


def _all(*values: Any) -> bool:
    return not any(map(is_empty, values))


def _any(*values: Any) -> bool:
    return not all(map(is_empty, values))


def _ternary(yes: Any, no: Any, condition: bool) -> Any:
    return yes if condition else no


def _fail(message: str) -> str:
    raise TemplateError(message)


def _to_json(value: Any) -> str:
    return go_json(value)


def _to_pretty_json(value: Any) -> str:
    return go_json(value, indent="  ")


def _to_raw_json(value: Any) -> str:
    return go_json(value, escape=False)


def _must_from_json(text: str) -> Any:
    """Parse a JSON text; all its numbers are floats."""
    try:
        return read(text)
    except JSONError as err:
        raise TemplateError(f"text is not JSON: {err}") from None


def _from_json(text: str) -> Any:
    """Parse a JSON text; return nil for text that is not JSON. See `mustFromJson`."""
    try:
        return _must_from_json(text)
    except TemplateError:
        return None


def _type_of(value: Any) -> str:
    return go_type(value)


def _type_is(name: str, value: Any) -> bool:
    return go_type(value) == name


def _type_is_like(name: str, value: Any) -> bool:
    return go_type(value) in (name, "*" + name)


def _kind_of(value: Any) -> str:
    return go_kind(value)


def _kind_is(name: str, value: Any) -> bool:
    return go_kind(value) == name


def _deep_equal(left: Any, right: Any) -> bool:
    return deep_equal(left, right)


def _hello() -> str:
    return "Hello!"


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "all": _all,
    "any": _any,
    "coalesce": _coalesce,
    "deepEqual": _deep_equal,
    "default": _default,
    "empty": _empty,
    "fail": _fail,
    "fromJson": _from_json,
    "hello": _hello,
    "kindIs": _kind_is,
    "kindOf": _kind_of,
    "mustFromJson": _must_from_json,
    "mustToJson": _to_json,
    "mustToPrettyJson": _to_pretty_json,
    "mustToRawJson": _to_raw_json,
    "ternary": _ternary,
    "toJson": _to_json,
    "toPrettyJson": _to_pretty_json,
    "toRawJson": _to_raw_json,
    "typeIs": _type_is,
    "typeIsLike": _type_is_like,
    "typeOf": _type_of,
}
