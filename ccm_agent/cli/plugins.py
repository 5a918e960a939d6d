"""Commands that plugins add to `ccm`; see `ccm_agent/plugins`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import click

from ccm_agent.cli import options
from ccm_agent.cli.implicit import why_path_not_trusted
from ccm_agent.cli.terminal import warn
from ccm_agent.clikit.commands import Argument, Option
from ccm_agent.clikit.text import safe
from ccm_agent.model.errors import CcmError, DocumentError, InputError, Place
from ccm_agent.model.exits import Exit
from ccm_agent.plugins.definition import (
    PluginArgument,
    PluginCommand,
    PluginDefinition,
    PluginFlag,
    PluginReader,
    plugin_files,
)
from ccm_agent.plugins.rendering import is_valid

_WIDTHS = {"8": 8, "16": 16, "32": 32, "64": 64, "": 64}
_PLAIN: dict[str, tuple[click.ParamType[Any, Any], object]] = {
    "": (click.STRING, ""),
    "string": (click.STRING, ""),
    "bool": (click.BOOL, False),
    "existing_file": (click.Path(exists=True, dir_okay=False), ""),
    "existing_dir": (click.Path(exists=True, file_okay=False), ""),
    "counter": (click.INT, 0),
    "integer": (click.IntRange(-(1 << 63), (1 << 63) - 1), 0),
    **dict.fromkeys(("float", "float32", "float64"), (click.FLOAT, 0.0)),
    **{
        f"int{bits}": (click.IntRange(-(1 << size - 1), (1 << size - 1) - 1), 0)
        for bits, size in _WIDTHS.items()
    },
    **{f"uint{bits}": (click.IntRange(0, (1 << size) - 1), 0) for bits, size in _WIDTHS.items()},
}
"""The types of arguments and flags, each with the default value."""


def plugin_command(name: str) -> click.Command | None:
    """
    Return the command that a plugin adds under a name; None if no plugin adds it.

    Choria CCM adds the entries in `commands` of a plugin to its own commands. According to its documentation, they are below the
    name of the plugin's file. Both forms work here.

    Raises:
        CcmError: The plugin of this name cannot be read.
    """
    reader, own = PluginReader(why_path_not_trusted), None
    for stem, path in plugin_files().items():
        try:
            definition = reader.read(path)
        except CcmError:
            if stem == name:
                raise
            continue
        for command in definition.commands:
            if name in (command.spec.name, *command.spec.aliases):
                return _built(command)
        if stem == name:
            own = _group(name, definition.description, definition.commands)
    return own


def warn_of_broken_plugins() -> None:
    """Warn about plugins that cannot be read, because an unknown command may belong to one of them."""
    for broken in _definitions():
        if isinstance(broken, CcmError):
            warn(str(broken))


def plugin_rows() -> list[tuple[str, str]]:
    """Return the names and descriptions of the commands that plugins add, for the help screen."""
    return [
        (command.spec.name, safe(command.spec.description))
        for definition in _definitions()
        if isinstance(definition, PluginDefinition)
        for command in definition.commands
    ]


def _definitions() -> Iterator[PluginDefinition | CcmError]:
    reader = PluginReader(why_path_not_trusted)
    for path in plugin_files().values():
        try:
            yield reader.read(path)
        except CcmError as err:
            yield err


class PluginLeafCommand(options.CcmCommand):
    """A command of a plugin that runs a program or form. Its own flags replace `--debug` and `--info`."""

    def shared_params(self, ctx: click.Context) -> Sequence[click.Parameter]:
        own = {name for one in self.params for name in one.opts}
        return [one for one in super().shared_params(ctx) if not own & set(one.opts)]


class PluginValue(click.ParamType[Any, Any]):
    """The type of an argument or flag. Its `validate` expression may refuse a value."""

    def __init__(self, inner: click.ParamType[Any, Any], expression: str) -> None:
        self.name = inner.name
        self._inner, self._expression = inner, expression

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._expression and isinstance(value, str) and not is_valid(value, self._expression):
            self.fail(f"it does not satisfy `{self._expression}`", param, ctx)
        return self._inner.convert(value, param, ctx)


def _built(command: PluginCommand) -> click.Command:
    spec = command.spec
    if command.below:
        return _group(spec.name, spec.description, command.below)
    if command.refusal:
        extra = {"ignore_unknown_options": True, "allow_extra_args": True}
        return PluginLeafCommand(spec.name, callback=partial(_refuse, command), context_settings=extra)
    values = {f"argument_{number}": one for number, one in enumerate(spec.arguments)} | {
        f"flag_{number}": one for number, one in enumerate(spec.flags)
    }
    params: list[click.Parameter] = [
        _option(name, one, command) if isinstance(one, PluginFlag) else _argument(name, one, command)
        for name, one in values.items()
    ]
    if spec.confirm_prompt:
        about = "Ask before the command runs."
        params.append(click.Option(["--prompt/--no-prompt", "is_asked"], default=True, help=about))
    return PluginLeafCommand(
        spec.name, callback=partial(_call, command, values), params=params, help=safe(spec.description)
    )


def _group(name: str, description: str, commands: Sequence[PluginCommand]) -> click.Group:
    group = options.CcmGroup(name, help=safe(description))
    for one in commands:
        group.add_command(_built(one))
    group.aliases = {alias: one.spec.name for one in commands for alias in one.spec.aliases}
    return group


def _kind(one: PluginArgument, command: PluginCommand) -> tuple[str, click.ParamType[Any, Any], object]:
    """Return the type's name, the type, and the default value of an argument or flag."""
    name = one.type.strip().lower() or ("bool" if isinstance(one, PluginFlag) and one.is_bool else "")
    if name not in _PLAIN:
        names = ", ".join(filter(None, sorted(_PLAIN)))
        raise DocumentError(
            f"`{one.name}` of `{command.spec.name}`: unknown type `{one.type}`; known types: {names}",
            place=Place(command.file),
        )
    kind, absent = (click.Choice(one.enum), "") if one.enum else _PLAIN[name]
    return name, PluginValue(kind, one.validate), absent


def _default(one: PluginArgument) -> str | None:
    return str(one.default).lower() if isinstance(one.default, bool) else one.default


def _settings(one: PluginArgument) -> dict[str, Any]:
    """Return click's settings for an argument or flag that is required or has a default."""
    default = _default(one)
    return {"required": one.required} if default is None else {"default": default}


def _argument(name: str, one: PluginArgument, command: PluginCommand) -> Argument:
    metavar = one.name.upper().replace("-", "_")
    return Argument(
        [name],
        type=_kind(one, command)[1],
        about=safe(one.description),
        metavar=metavar if one.required and one.default is None else f"[{metavar}]",
        **{"required": False, **_settings(one)},
    )


def _option(name: str, one: PluginFlag, command: PluginCommand) -> Option:
    word, kind, _ = _kind(one, command)
    spellings = [f"-{one.short}"] if one.short else []
    settings = _settings(one)
    if word == "bool":
        is_on = click.BOOL.convert(settings.get("default", "false"), None, None)
        settings |= {"is_flag": True, "default": is_on}
        spellings.append(f"--{one.name}/--no-{one.name}" if is_on else f"--{one.name}")
    else:
        spellings.append(f"--{one.name}")
        settings |= (
            {"count": True} if word == "counter" else {"type": kind, "metavar": one.placeholder or None}
        )
    return Option(
        [*spellings, name],
        envvar=one.env or None,
        help=safe(one.description),
        show_default="default" in settings and word != "bool",
        **settings,
    )


def _refuse(command: PluginCommand) -> None:
    raise InputError(f"`{command.spec.name}` of {command.file}: {command.refusal}")


def _call(command: PluginCommand, values: Mapping[str, PluginArgument], **given: Any) -> Exit:
    """Run a command with the values of its arguments and flags. `values` and `given` use the names of click's parameters."""
    from ccm_agent.cli.plugin_call import call_plugin

    arguments: dict[str, object] = {}
    flags: dict[str, object] = {}
    for key, one in values.items():
        found = flags if isinstance(one, PluginFlag) else arguments
        found[one.name] = _kind(one, command)[2] if given[key] is None else given[key]
    return call_plugin(command, arguments, flags, is_asked=given.get("is_asked"))
