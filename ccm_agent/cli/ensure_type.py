"""A type's properties to the command that `ccm ensure` offers for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import msgspec

from ccm_agent.cli import ensure_shared, options
from ccm_agent.cli import given as given_values
from ccm_agent.model.resource import CommonProperties
from ccm_agent.resources.contract import AnyType, Flag

Ensure = Callable[[str, dict[str, Any], dict[str, Any]], int]
"""Ensures a resource: its type, its properties, the shared flags."""

CHECK_TRIES = 5
CHECK_SLEEP = "1s"


def command_for(kind: AnyType, run: Ensure) -> click.Command:
    """The command of a type: arguments, a flag for each of its own properties, and the flags that all types share."""

    def callback(**given: Any) -> int:
        context = click.get_current_context()
        shared = ensure_shared.gather_shared(context, given)
        common = _common(given)
        own = {name: value for name, value in given.items() if value is not None and value != ()}
        for name in maps:
            if name in own:
                own[name] = given_values.pairs(own[name], f"--{name.replace('_', '-')}")
        own = {name: list(value) if isinstance(value, tuple) else value for name, value in own.items()}
        if kind.command.gather is not None:
            own = kind.command.gather(own)
        return run(kind.name, {**own, **common}, shared)

    parameters, maps = _parameters(kind)
    made = options.CcmCommand(kind.name, callback=callback, params=parameters, help=kind.summary)
    decorated: click.Command = ensure_shared.shared_flags(_common_flags(made))
    return decorated


def _parameters(kind: AnyType) -> tuple[list[click.Parameter], list[str]]:
    """Arguments and flags of a type's own properties, and the names of those that take K=V."""
    parameters: list[click.Parameter] = []
    maps: list[str] = []
    line = kind.command
    required = {line.arguments[0], *line.required}
    for name in line.arguments:
        shown = name.upper() if name in required else f"[{name.upper()}]"
        parameters.append(click.Argument([name], required=name in required, metavar=shown))
    kinds = {field.encode_name: _kind_of(field.type) for field in _info(kind.properties).fields}
    about = {field.encode_name: _description(field.type) for field in _info(kind.properties).fields}
    taken = {flag.field for flag in line.flags if flag.field} | set(line.arguments) | set(line.hidden)
    flags = [flag for flag in line.flags if flag.field not in line.arguments]
    for name, what in kinds.items():
        if name not in taken and name not in CommonProperties.__struct_fields__ and what:
            flags.append(Flag(field=name, names=(f"--{name.replace('_', '-')}",)))
    for flag in flags:
        what = flag.kind or kinds.get(flag.field, "") or "text"
        name = flag.field or flag.names[0].lstrip("-").replace("-", "_")
        if what == "map":
            maps.append(name)
        parameters.append(_option(flag, name, what, flag.help or about.get(flag.field, "")))
    return parameters, maps


def _option(flag: Flag, name: str, what: str, help_text: str) -> click.Option:
    names = [*flag.names, name]
    if what == "switch":
        return click.Option(names, is_flag=True, default=None, help=help_text)
    many = what in ("list", "numbers", "map")
    value_type = click.INT if what in ("number", "numbers") else click.STRING
    metavar = flag.placeholder or ("K=V" if what == "map" else None)
    default = tuple(flag.default) if many and flag.default is not None else flag.default
    return click.Option(
        names,
        type=value_type,
        multiple=many,
        default=() if many and default is None else default,
        metavar=metavar,
        help=help_text,
    )


def _common_flags(made: Any) -> Any:
    decorators = (
        click.option("--alias", metavar="NAME", help="Alternative name that other resources can refer to."),
        click.option(
            "--check",
            metavar="COMMAND",
            help="Health check: a command that follows the Nagios plugin conventions.",
        ),
        click.option(
            "--check-tries",
            type=int,
            default=CHECK_TRIES,
            show_default=True,
            help="Maximum attempts of the health check.",
        ),
        click.option("--check-sleep", default=CHECK_SLEEP, show_default=True, help="Time between attempts."),
        click.option(
            "--if", "if_", metavar="CONDITION", help="Manage the resource only if this expression is true."
        ),
        click.option(
            "--unless", "unless_", metavar="CONDITION", help="Skip the resource if this expression is true."
        ),
        click.option("--provider", metavar="NAME", help="Use this provider instead of detecting one."),
        click.option(
            "--require",
            multiple=True,
            metavar="TYPE#NAME",
            help="Resource that must have succeeded earlier in the session.",
        ),
    )
    return options.decorated(made, decorators)


def _common(given: dict[str, Any]) -> dict[str, Any]:
    """The common properties, taken out of what was given."""
    check, tries, pause = given.pop("check"), given.pop("check_tries"), given.pop("check_sleep")
    control = {"if": given.pop("if_"), "unless": given.pop("unless_")}
    control = {key: value for key, value in control.items() if value}
    found = {
        "alias": given.pop("alias"),
        "provider": given.pop("provider"),
        "require": list(given.pop("require")),
        "control": control,
        "health_checks": [{"command": check, "tries": tries, "try_sleep": pause}] if check else None,
    }
    return {name: value for name, value in found.items() if value}


def _info(struct: Any) -> msgspec.inspect.StructType:
    info = msgspec.inspect.type_info(struct)
    assert isinstance(info, msgspec.inspect.StructType)
    return info


def _kind_of(field: msgspec.inspect.Type) -> str:
    """How a property is asked for; "" for one that a flag cannot say."""
    inspect = msgspec.inspect
    if isinstance(field, inspect.Metadata):
        return _kind_of(field.type)
    if isinstance(field, inspect.UnionType):
        inner = [_kind_of(one) for one in field.types if not isinstance(one, inspect.NoneType)]
        return inner[0] if len(inner) == 1 else ""
    if isinstance(field, inspect.ListType):
        return {"text": "list", "number": "numbers"}.get(_kind_of(field.item_type), "")
    if isinstance(field, inspect.DictType):
        return "map" if _kind_of(field.value_type) == "text" else ""
    simple = ((inspect.BoolType, "switch"), (inspect.IntType, "number"), (inspect.StrType, "text"))
    return next((word for known, word in simple if isinstance(field, known)), "")


def _description(field: msgspec.inspect.Type) -> str:
    if isinstance(field, msgspec.inspect.Metadata):
        return str((field.extra_json_schema or {}).get("description", ""))
    return ""
