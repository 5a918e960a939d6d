"""
The properties of resource types, as their schemas tell of them: flags, and values as they are written on a command line.

The controller holds no code of any type; what it knows of them is in the JSON Schemas that are generated from the types.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec

from ccm_agent.model.errors import UsageError
from ccm_agent.model.suggestions import did_you_mean

SCHEMAS = Path(__file__).resolve().parent.parent / "schemas"
"""Package data: in a checkout a link to schemas/v1."""

CONTROLS = ("if", "unless")
"""Flags that every type has, as with `ccm ensure`; a property of such a name is written KEY=VALUE only."""

_PREFIX, _SUFFIX = "resource_", ".json"
_CHECK = ("check", "check_tries", "check_sleep")
FLAG = "property_"
"""Before the names of parameters that are properties: some are called as parameters of the command are."""

_COMMON = "common_"
"""The same for the flags of all types."""


class Property(msgspec.Struct, frozen=True, kw_only=True):
    """
    One property.

    Attributes:
        about: What it is for.
        kind: `text`, `switch`, `number`, `list` (of texts), `numbers`, `map` (of texts); "" takes JSON only.
    """

    about: str
    kind: str


def type_names() -> list[str]:
    """The types that there are schemas of, sorted."""
    return sorted(
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        for path in SCHEMAS.iterdir()
        if path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)
    )


@cache
def properties_of(type_name: str) -> dict[str, Property]:
    """
    The properties of a type by name, without `name` itself.

    Raises:
        UsageError: There is no such type.
    """
    known = type_names()
    if type_name not in known:
        hint = did_you_mean(type_name, known) or f"; there are {', '.join(known)}"
        raise UsageError(f"unknown resource type `{type_name}`{hint}")
    schema = msgspec.json.decode((SCHEMAS / f"{_PREFIX}{type_name}{_SUFFIX}").read_bytes())
    return {
        name: Property(about=field.get("description", ""), kind=_kind_of(field))
        for name, field in schema["properties"].items()
        if name != "name"
    }


def _kind_of(field: dict[str, Any]) -> str:
    """How a value is asked for; a property that also takes a template is what it is without."""
    first = field["anyOf"][0] if "anyOf" in field else field
    kind = first.get("type")
    if isinstance(kind, list):
        return "text" if "string" in kind else ""
    if kind == "array":
        return {"string": "list", "integer": "numbers"}.get(first["items"].get("type"), "")
    if kind == "object":
        return "map" if first.get("additionalProperties") == {"type": "string"} else ""
    return {"boolean": "switch", "integer": "number", "string": "text"}.get(kind or "", "")


def flags_of(type_name: str, taken: set[str]) -> list[click.Parameter]:
    """A flag for each property of a type, except for those whose flag would be one of `taken`, and the common ones."""
    made: list[click.Parameter] = []
    for name, what in properties_of(type_name).items():
        word = f"--{name.replace('_', '-')}"
        if not what.kind or word in taken or name in CONTROLS:
            continue
        if what.kind == "switch":
            made.append(
                click.Option(
                    [f"{word}/--no-{word[2:]}", f"{FLAG}{name}"], is_flag=True, default=None, help=what.about
                )
            )
        else:
            metavar = {"number": "N", "numbers": "N", "map": "KEY:VALUE"}.get(what.kind, "TEXT")
            made.append(
                click.Option([word, f"{FLAG}{name}"], multiple=True, metavar=metavar, help=what.about)
            )
    return [*made, *_common_flags()]


def _common_flags() -> list[click.Parameter]:
    def option(name: str, metavar: str, about: str, default: str | None = None) -> click.Option:
        names = [f"--{name.replace('_', '-')}", f"{_COMMON}{name}"]
        return click.Option(
            names, metavar=metavar, help=about, default=default, show_default=default is not None
        )

    return [
        option("check", "COMMAND", "A health check: a command in nagios format."),
        option("check_tries", "N", "How often to try it.", "5"),
        option("check_sleep", "TIME", "Pause between tries.", "1s"),
        option("if", "EXPR", "Manage it only where this expression is true."),
        option("unless", "EXPR", "Do not manage it where this expression is true."),
    ]


def take_flags(type_name: str, options: dict[str, Any]) -> dict[str, Any]:
    """
    The properties that flags gave, taken out of the options of a command.

    Raises:
        UsageError: A value is not one of its kind.
    """
    given = {name.removeprefix(FLAG): options.pop(name) for name in list(options) if name.startswith(FLAG)}
    check, tries, pause = (options.pop(f"{_COMMON}{name}") for name in _CHECK)
    control = {name: value for name in CONTROLS if (value := options.pop(f"{_COMMON}{name}"))}
    found: dict[str, Any] = {}
    for name, value in given.items():
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            add(found, type_name, name, one)
    if control:
        found["control"] = control
    if check:
        found["health_checks"] = [
            {"command": check, "tries": _number("--check-tries", tries), "try_sleep": pause}
        ]
    return found


def add(found: dict[str, Any], type_name: str, name: str, value: object) -> None:
    """
    Put a property among those that were found, its text read as the type has it; lists and maps grow.

    Args:
        found: Where to.
        type_name: Whose property.
        name: Its name.
        value: A text as it was written, or another value as it is to be.

    Raises:
        UsageError: The type has no such property, or the text is no value of it, or it was given before.
    """
    known = properties_of(type_name)
    what = known.get(name)
    if what is None:
        raise UsageError(
            f"{name}: {type_name} has no such property"
            + (did_you_mean(name, known) or f"; it has {', '.join(known)}")
        )
    if isinstance(value, str) and not ("{{" in value or "${" in value):
        value = _read(name, what.kind, value)
    elif isinstance(value, str) and what.kind in ("list", "numbers"):
        value = [value]
    if name in found and isinstance(found[name], list) and isinstance(value, list):
        found[name] = [*found[name], *value]
    elif name in found and isinstance(found[name], dict) and isinstance(value, dict):
        found[name] = {**found[name], **value}
    elif name in found:
        raise UsageError(f"{name}: given twice; it takes one value")
    else:
        found[name] = value


def _read(name: str, kind: str, text: str) -> object:
    if kind == "switch":
        if text not in ("true", "false"):
            raise UsageError(f"{name}: {text!r} is neither true nor false")
        return text == "true"
    if kind == "number":
        return _number(name, text)
    if kind == "numbers":
        return [_number(name, text)]
    if kind == "list":
        return [text]
    if kind == "map":
        key, colon, value = text.partition(":")
        if not colon:
            raise UsageError(f"{name}: not a pair; write it as KEY:VALUE")
        return {key: value.strip()}
    if not kind:
        raise UsageError(f"{name}: takes more than a text; write it as {name}:=JSON")
    return text


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not a number") from None
