"""
The properties of resource types, from their schemas: their flags, and the conversion of values on a command line.

The controller does not import the code of the types. It reads their generated JSON Schemas.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import click
import msgspec

from ccm_agent.clikit.properties import (
    CONTROLS,
    EVERY_RESOURCE,
    SWITCH,
    Properties,
    Property,
    control_options,
    property_option,
    section_of,
    split_pair,
    take_controls,
)
from ccm_agent.model.errors import UsageError
from ccm_agent.model.suggestions import did_you_mean

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
"""The folder of the schemas, which are package data. In a checkout, it is a link to schemas/v1."""

_PREFIX, _SUFFIX = "resource_", ".json"
FLAG = "property_"
"""The prefix of parameters for properties, because some properties have the same names as parameters of the command."""

_COMMON = "common_"
"""The prefix of the parameters for properties that all types have."""

_OF_EVERY_RESOURCE = frozenset({"alias", "provider", "require"})


def type_names() -> list[str]:
    """Return the names of the types that have schemas, sorted."""
    return sorted(
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        for path in SCHEMAS.iterdir()
        if path.name.startswith(_PREFIX) and path.name.endswith(_SUFFIX)
    )


@cache
def find_properties(type_name: str) -> dict[str, Property]:
    """
    Return the properties of a type by name, without `name`.

    Raises:
        UsageError: The type does not exist.
    """
    known = type_names()
    if type_name not in known:
        hint = did_you_mean(type_name, known) or (
            f"; known types: {', '.join(known)}, and --unchecked sends a type that only newer agents have"
        )
        raise UsageError(f"unknown resource type `{type_name}`{hint}")
    return {
        name: Property(
            about=field.get("description", ""),
            kind=_choose_kind(field),
            values=tuple(field.get("enum", ())),
            is_secret=field.get("writeOnly", False),
        )
        for name, field in _schema(type_name)["properties"].items()
        if name != "name"
    }


def _schema(type_name: str) -> dict[str, Any]:
    schema: dict[str, Any] = msgspec.json.decode((SCHEMAS / f"{_PREFIX}{type_name}{_SUFFIX}").read_bytes())
    return schema


def _choose_kind(field: dict[str, Any]) -> str:
    """Return the kind of option for a property, ignoring the alternative that its value is a template."""
    first = field["anyOf"][0] if "anyOf" in field else field
    kind = first.get("type")
    if isinstance(kind, list):
        return "text" if "string" in kind else ""
    if kind == "array":
        return {"string": "list", "integer": "numbers"}.get(first["items"].get("type"), "")
    if kind == "object":
        return "map" if first.get("additionalProperties") == {"type": "string"} else ""
    return {"boolean": "switch", "integer": "number", "string": "text"}.get(kind or "", "")


def name_about(type_name: str) -> str:
    """Return the description of the name of a type's resources."""
    return str(_schema(type_name)["properties"]["name"].get("description", ""))


def build_flags(type_name: str, taken: set[str]) -> list[click.Parameter]:
    """
    Return a flag for each property of a type, and the flags that all types have.

    If the flag of a property is in `taken` or belongs to a control, the property can only be given as KEY=VALUE. `ensure` is an
    argument, and its flag is for scripts. A secret (`writeOnly` in the schema) has no flag, because every user can read command
    lines.
    """
    made: list[click.Parameter] = []
    known = find_properties(type_name)
    for name, what in sorted(known.items(), key=lambda item: item[0] in _OF_EVERY_RESOURCE):
        word = f"--{name.replace('_', '-')}"
        if not what.kind or what.is_secret or word in taken or name in CONTROLS:
            continue
        names = [f"{word}/--no-{word[2:]}" if what.kind == SWITCH else word, f"{FLAG}{name}"]
        section = EVERY_RESOURCE if name in _OF_EVERY_RESOURCE else section_of(type_name)
        # `add` converts the values. It also accepts templates, and refuses a property that is given twice.
        made.append(_repeatable(property_option(names, what, section=section, hidden=name == "ensure")))
    return [*made, *control_options(_COMMON)]


def _repeatable(option: click.Option) -> click.Option:
    if not option.is_flag:
        option.multiple, option.type, option.default = True, click.STRING, ()
    return option


def take_flags(type_name: str, options: Properties) -> Properties:
    """
    Return the properties that a type's flags set, and remove their values from `options`.

    Raises:
        UsageError: A value does not have the type of its property.
    """
    given = {name.removeprefix(FLAG): options.pop(name) for name in list(options) if name.startswith(FLAG)}
    controls = take_controls(options, _COMMON)
    found: Properties = {}
    for name, value in given.items():
        for one in value if isinstance(value, tuple) else () if value is None else (value,):
            add(found, type_name, name, one)
    return found | controls


def add(found: dict[str, Any], type_name: str, name: str, value: object, *, unchecked: bool = False) -> None:
    """
    Add a property. A text is converted to the property's type. Lists and maps are extended.

    Args:
        found: The properties so far, which are extended.
        type_name: The resource type.
        name: The name of the property.
        value: A text to convert, or a value that is already converted.
        unchecked: Whether to accept an unknown type or property. Its value stays a text.

    Raises:
        UsageError: The type does not have the property, the value is not valid, or the property was already given.
    """
    known = {} if unchecked and type_name not in type_names() else find_properties(type_name)
    what = known.get(name, Property(about="", kind="text") if unchecked else None)
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
        pair = split_pair(text)
        if pair is None:
            raise UsageError(f"{name}: not a pair; write it as KEY=VALUE")
        return {pair[0]: pair[1].strip()}
    if not kind:
        raise UsageError(f"{name}: not a text value; write it as {name}:=JSON")
    return text


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{name}: {text!r} is not a number") from None
