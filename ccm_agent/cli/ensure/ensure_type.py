"""Builds the `ccm ensure` command of a resource type from its properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from ccm_agent.cli import inputs, options
from ccm_agent.cli.ensure import ensure_shared
from ccm_agent.cli.ensure.ensure_shared import EnsureSharedOptions
from ccm_agent.clikit.commands import Argument, examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.properties import (
    EVERY_RESOURCE,
    LIST,
    MAP,
    NUMBER,
    NUMBERS,
    SWITCH,
    TEXT,
    Properties,
    Property,
    control_options,
    property_option,
    section_of,
    take_controls,
)
from ccm_agent.model.resource import CommonProperties
from ccm_agent.resources.contract import AnyType, Flag

Ensure = Callable[[str, Properties, EnsureSharedOptions], int]
"""Ensures a resource, given its type, properties and shared flags."""

_COMMON = "common_"
"""The prefix of parameters that all types share, because a type may have a property of the same name."""

_PLACEHOLDERS = {"alias": "NAME", "provider": "NAME", "require": "TYPE#NAME"}
"""The common properties that have an option, with the placeholders of their values in the help."""

_EVERY = frozenset(CommonProperties.__struct_fields__) - {"name", "ensure"}


class EnsureTypeOptions(Options, frozen=True, kw_only=True):
    """The options of the command of a type."""

    shared: EnsureSharedOptions
    properties: Properties


def command_for(kind: AnyType, run: Ensure) -> click.Command:
    """Return the command of a type: arguments, a flag for each of its own properties, and the flags that all types share."""

    @click.pass_obj
    @takes(EnsureTypeOptions)
    def callback(before: EnsureSharedOptions | None, given: EnsureTypeOptions) -> int:
        shared, properties = given.shared.over(before), given.properties
        common = take_controls(properties, _COMMON)
        own = {name: value for name, value in properties.items() if value is not None and value != ()}
        for name in maps:
            if name in own:
                own[name] = inputs.pairs(own[name], f"--{name.replace('_', '-')}")
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        if kind.command.gather is not None:
            own = kind.command.gather(own)
        return run(kind.name, {**own, **common}, shared)

    parameters, maps = _parameters(kind)
    parameters += control_options(_COMMON)
    lines = kind.command.examples or ("NAME",)
    made = options.CcmCommand(
        kind.name,
        callback=callback,
        params=parameters,
        help=kind.summary,
        epilog=examples(*(f"ccm ensure {kind.name} {line}" for line in lines)),
    )
    add_options: click.Command = ensure_shared.shared_flags(made)
    return add_options


def _parameters(kind: AnyType) -> tuple[list[click.Parameter], list[str]]:
    """Return the arguments and flags for a type's properties, and the names of the properties that take K=V."""
    line, known = kind.command, _properties(kind)
    every = _EVERY - ({"timeout"} - kind.rules.limits_resource)
    required = {line.arguments[0], *line.required}
    parameters: list[click.Parameter] = [
        Argument(
            [name],
            required=name in required,
            metavar=name.upper() if name in required else f"[{name.upper()}]",
            about=known[name].about,
        )
        for name in line.arguments
    ]
    taken = {flag.field for flag in line.flags if flag.field} | set(line.arguments) | set(line.hidden)
    flags = [flag for flag in line.flags if flag.field not in line.arguments]
    for name, what in known.items():
        if name not in taken and what.kind and (name not in every or name in _PLACEHOLDERS):
            placeholder = _PLACEHOLDERS.get(name, "") if name in every else ""
            flags.append(Flag(field=name, names=(f"--{name.replace('_', '-')}",), placeholder=placeholder))
    maps: list[str] = []
    for flag in flags:
        what = known.get(flag.field, Property(about="", kind=TEXT))
        what = Property(about=flag.help or what.about, kind=flag.kind or what.kind or TEXT)
        name = flag.field or flag.names[0].lstrip("-").replace("-", "_")
        maps += [name] if what.kind == MAP else []
        section = EVERY_RESOURCE if flag.field in every else section_of(kind.name)
        parameters.append(
            property_option(
                [*flag.names, name], what, section=section, metavar=flag.placeholder, default=flag.default
            )
        )
    return parameters, maps


def _properties(kind: AnyType) -> dict[str, Property]:
    fields = _info(kind.properties).fields
    return {
        field.encode_name: Property(about=_description(field.type), kind=_kind_of(field.type))
        for field in fields
    }


def _info(struct: Any) -> msgspec.inspect.StructType:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return info


def _kind_of(field: msgspec.inspect.Type) -> str:
    """Return the kind of option for a property; "" if no option can express it."""
    inspect = msgspec.inspect
    if isinstance(field, inspect.Metadata):
        return _kind_of(field.type)
    if isinstance(field, inspect.UnionType):
        inner = [_kind_of(one) for one in field.types if not isinstance(one, inspect.NoneType)]
        return inner[0] if len(inner) == 1 else ""
    if isinstance(field, inspect.ListType):
        return {TEXT: LIST, NUMBER: NUMBERS}.get(_kind_of(field.item_type), "")
    if isinstance(field, inspect.DictType):
        return MAP if _kind_of(field.value_type) == TEXT else ""
    simple = ((inspect.BoolType, SWITCH), (inspect.IntType, NUMBER), (inspect.StrType, TEXT))
    return next((word for known, word in simple if isinstance(field, known)), "")


def _description(field: msgspec.inspect.Type) -> str:
    if isinstance(field, msgspec.inspect.Metadata):
        return str((field.extra_json_schema or {}).get("description", ""))
    return ""
