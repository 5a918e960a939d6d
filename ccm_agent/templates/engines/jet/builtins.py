"""
The functions of every Jet template.

Source: https://github.com/CloudyKit/jet, docs/builtins.md.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ccm_agent.model.errors import TemplateError
from ccm_agent.templates.engines import escapes, gostrings
from ccm_agent.templates.engines.bounds import check_count
from ccm_agent.templates.engines.gotypes import MISSING, go_type
from ccm_agent.templates.engines.jet.evaluate import LazyArguments
from ccm_agent.templates.engines.jet.values import (
    Function,
    HiddenBool,
    Ints,
    Lazy,
    Printed,
    RootContext,
    Writer,
    sprint,
    to_int,
    type_of,
    unboxed,
)
from ccm_agent.templates.values import byte_length, is_number


@cache
def builtins() -> dict[str, Any]:
    """Return all built-in functions by name. Callers must not change the mapping."""
    one_text, two_texts = ("string",), ("string", "string")
    typed: list[Function | Writer] = [
        Function("lower", one_text, gostrings.lower),
        Function("upper", one_text, gostrings.upper),
        Function("hasPrefix", two_texts, str.startswith),
        Function("hasSuffix", two_texts, str.endswith),
        Function("repeat", ("string", "int"), gostrings.repeat),
        Function("replace", ("string", "string", "string", "int"), gostrings.replace),
        Function("split", two_texts, gostrings.split),
        Function("trimSpace", one_text, gostrings.trim_space),
        Function("html", one_text, escapes.escape_html),
        Function("url", one_text, escapes.escape_query),
        Function("json", ("any",), _json),
        Function("writeJson", ("any",), _write_json),
        Writer("safeHtml", escapes.escape_html_nul),
        Writer("safeJs", escapes.escape_js),
        Writer("raw", _as_it_is),
        Writer("unsafe", _as_it_is),
    ]
    lazy = {
        "isset": _isset,
        "len": _len,
        "map": _map,
        "slice": _slice,
        "array": _slice,
        "ints": _ints,
        "includeIfExists": _include_if_exists,
        "exec": _exec,
        "dump": _dump,
    }
    return {
        **{function.name: function for function in typed},
        **{name: Lazy(name, call) for name, call in lazy.items()},
    }


def _as_it_is(text: str) -> str:
    return text


def _json(value: Any) -> bytes:
    return _json_text(value).encode()


def _write_json(value: Any) -> Printed:
    return Printed(_json_text(value) + "\n")


def _json_text(value: Any) -> str:
    """
    Write JSON. The root context is written with its members in order and lower-case names; for other values
    see `go_json`.
    """
    if not isinstance(value, RootContext):
        return escapes.go_json(value)
    members = (
        f"{escapes.go_json(name.lower())}:{escapes.go_json(held)}" for name, held in value.members.items()
    )
    return "{" + ",".join(members) + "}"


def _require(call: LazyArguments, name: str, least: int, most: int | None) -> None:
    if len(call) < least or (most is not None and len(call) > most):
        wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
        raise TemplateError(f"{name!r} takes {wanted} arguments, not {len(call)}")


def _isset(call: LazyArguments) -> bool:
    _require(call, "isset", 1, None)
    return all(call.is_set(index) for index in range(len(call)))


def _len(call: LazyArguments) -> int:
    _require(call, "len", 1, 1)
    value = unboxed(call.value(0))
    if isinstance(value, str):
        return byte_length(value)
    if isinstance(value, (list, tuple, dict, bytes)):
        return len(value)
    what = (
        "nothing: a member is missing"
        if value is MISSING
        else "null"
        if value is None
        else f"a {type_of(value)}"
    )
    raise TemplateError(f"'len' needs text, a list or a map, not {what}")


def _map(call: LazyArguments) -> dict[str, Any]:
    if len(call) % 2:
        raise TemplateError("'map' takes keys and values in pairs: a value is missing")
    made: dict[str, Any] = {}
    for index in range(0, len(call), 2):
        key, value = call.value(index), unboxed(call.value(index + 1))
        if not isinstance(key, str):
            raise TemplateError(f"'map' takes text as keys, not a {type_of(key)}")
        if value is MISSING:
            made.pop(key, None)
        else:
            made[key] = value
    return made


def _slice(call: LazyArguments) -> list[Any]:
    values = [unboxed(value) for value in call.values()]
    if any(value is MISSING for value in values):
        raise TemplateError("'slice' is given a missing value")
    return values


def _ints(call: LazyArguments) -> Ints:
    if len(call) > 2:
        raise TemplateError(f"'ints' takes two numbers, not {len(call)} arguments")
    bounds = [0, 0]
    for index in range(len(call)):
        value = unboxed(call.value(index))
        if not is_number(value):
            raise TemplateError(f"'ints' takes two numbers, not a {type_of(value)}")
        bounds[index] = to_int(value)
    start, stop = bounds
    if stop <= start:
        raise TemplateError(f"'ints' counts up: {stop} is not greater than {start}")
    check_count(stop - start)
    return Ints(start, stop)


def _context(call: LazyArguments) -> Any:
    return call.value(1) if len(call) > 1 else call.runtime.context


def _include_if_exists(call: LazyArguments) -> HiddenBool:
    _require(call, "includeIfExists", 1, 2)
    path = unboxed(call.value(0))
    if not isinstance(path, str) or not call.runtime.has_template(path):
        return HiddenBool(False)
    call.runtime.run_aside(call.runtime.find(path), _context(call))
    return HiddenBool(True)


def _exec(call: LazyArguments) -> Any:
    _require(call, "exec", 1, 2)
    path = unboxed(call.value(0))
    if not isinstance(path, str):
        raise TemplateError(f"'exec' takes the path of a template, not a {type_of(path)}")
    template = call.runtime.find(path)
    context = _context(call)
    _, returned = call.runtime.aside(lambda: call.runtime.run_aside(template, context))
    return returned


def _dump(call: LazyArguments) -> str:
    """
    Print variables by name. A call without names is refused, because it would print all variables of the
    template.
    """
    names = [unboxed(value) for value in call.values()]
    if not names or not all(isinstance(name, str) for name in names):
        raise TemplateError("'dump' takes the names of variables here, as text: dump(\"name\")")
    lines = []
    for name in names:
        if call.runtime.knows(name):
            value = unboxed(call.runtime.resolve(name))
            lines.append(f"\t{name}:={sprint(value)} // {go_type(value)}\n")
    return "".join(lines)
