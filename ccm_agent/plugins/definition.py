"""The content of plugin files, and their locations."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

from ccm_agent.model.codec import convert_as, decode_document, locate
from ccm_agent.model.errors import DocumentError, Place, UsageError

SYSTEM_PLUGINS = "/etc/choria/ccm/plugins"
TYPES = ("exec", "form", "parent")
LIMIT_BYTES = 1 << 20
"""The maximum size of a plugin file."""

_FILE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)-plugin\.yaml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BUILDER = "use App Builder to run this command"


class PluginArgument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An argument of a command."""

    name: str
    description: str = ""
    required: bool = False
    enum: list[str] = []
    default: str | bool | None = None
    validate: str = ""
    type: str = ""


class PluginFlag(PluginArgument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A flag of a command."""

    placeholder: str = ""
    is_bool: bool = field(name="bool", default=False)
    env: str = ""
    short: str = ""


class BackoffSetting(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The retries of a failed program. Pauses are durations that grow in equal steps from the shortest to the
    longest.
    """

    max_attempts: int
    min_sleep: str = "500ms"
    max_sleep: str = "20s"
    steps: int = 0


class FormQuestion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    A question of a form; see `form.FormReader`.

    Attributes:
        properties: Further questions; their answers are stored below the name of this question.
    """

    name: str
    description: str = ""
    help: str = ""
    empty: Literal["", "array", "object", "absent"] = ""
    type: Literal["", "string", "integer", "float", "bool", "password", "object", "array"] = ""
    conditional: str = ""
    validation: str = ""
    required: bool = False
    default: str = ""
    enum: list[str] = []
    properties: list[FormQuestion] = []


class CommandSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command as written, without its subcommands."""

    name: str
    type: str
    description: str = ""
    aliases: list[str] = []
    arguments: list[PluginArgument] = []
    flags: list[PluginFlag] = []
    confirm_prompt: str = ""
    banner: str = ""
    cheat: Any = None
    tags: Any = None
    secrets: Any = None
    transform: Any = None
    include_file: str = ""
    command: str = ""
    script: str = ""
    shell: str = ""
    environment: list[str] = []
    dir: str = ""
    backoff: BackoffSetting | None = None
    no_helper: bool = False
    properties: list[FormQuestion] = []


class PluginCommand(Struct, frozen=True, kw_only=True):
    """
    A command that a plugin adds.

    Attributes:
        spec: The command as written.
        file: The plugin file, for errors.
        below: The subcommands. A command with subcommands only groups them.
        refusal: The reason why the command cannot be run; "" if it can.
    """

    spec: CommandSpec
    file: str
    below: tuple[PluginCommand, ...] = ()
    refusal: str = ""


class PluginDefinition(Struct, frozen=True, kw_only=True):
    """The content of a plugin file."""

    name: str
    description: str
    commands: tuple[PluginCommand, ...]


def plugin_files(environ: Mapping[str, str] = os.environ, system: str = SYSTEM_PLUGINS) -> dict[str, str]:
    """
    Return the plugin files by plugin name, which is part of the file name, sorted. The user's file replaces the
    system's file with the same name.

    Args:
        environ: The environment, which determines the user's folder.
        system: The system's folder.
    """
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    found: dict[str, str] = {}
    for folder in (system, f"{config}/choria/ccm/plugins"):
        try:
            files = [one for one in Path(folder).iterdir() if one.is_file()]
        except OSError:
            continue
        found |= {match[1]: str(one) for one in files if (match := _FILE.fullmatch(one.name))}
    return dict(sorted(found.items()))


class PluginReader:
    """
    Reads plugin files.

    Args:
        why_not_trusted: Returns the reason why the file at a path must not be used; "" if it may be used.
    """

    def __init__(self, why_not_trusted: Callable[[str], str] = lambda _: "") -> None:
        self._why_not_trusted = why_not_trusted

    def read(self, path: str) -> PluginDefinition:
        """
        Read a plugin file.

        Raises:
            UsageError: The file cannot be read, or another user could have written it.
            DocumentError: The file is not a plugin; the error includes the place.
        """
        return self.definition(self._bytes(path), path)

    def definition(self, data: bytes, path: str) -> PluginDefinition:
        """
        Read the content of a plugin file, and the files that it includes.

        Raises:
            UsageError: An included file cannot be read, or another user could have written it.
            DocumentError: The file is not a plugin; the error includes the place.
        """
        text, document = _mapping(data, path)
        if isinstance(included := document.get("include_file"), str) and included:
            path = _beside(path, included)
            text, base = _mapping(self._bytes(path), path)
            document = base | {key: document[key] for key in ("name", "description") if document.get(key)}
        return PluginDefinition(
            name=str(document.get("name") or ""),
            description=str(document.get("description") or ""),
            commands=tuple(self._commands(document, path, text, ())),
        )

    def _bytes(self, path: str) -> bytes:
        if why := self._why_not_trusted(path):
            raise UsageError(f"{path}: root does not run this plugin: {why}; fix its owner and mode")
        try:
            with Path(path).open("rb") as file:
                data = file.read(LIMIT_BYTES + 1)
        except (OSError, ValueError) as err:
            raise UsageError(f"{path}: cannot be read: {getattr(err, 'strerror', err)}") from err
        if len(data) > LIMIT_BYTES:
            raise UsageError(f"{path}: it is larger than {LIMIT_BYTES >> 20} MiB")
        return data

    def _commands(
        self, document: Mapping[str, Any], path: str, text: str, at: tuple[str | int, ...]
    ) -> Iterator[PluginCommand]:
        found = document.get("commands")
        if not isinstance(found, list) or not found:
            raise DocumentError("`commands` must be a list of commands", place=locate(text, at, path))
        for number, one in enumerate(found):
            yield self._command(one, path, text, (*at, "commands", number))

    def _command(self, written: Any, path: str, text: str, at: tuple[str | int, ...]) -> PluginCommand:
        if not isinstance(written, dict):
            raise DocumentError("a command must be a mapping", place=locate(text, at, path))
        kind = written.get("type")
        if isinstance(kind, str) and kind not in TYPES:
            known = {
                key: written[key] for key in ("name", "type", "description", "aliases") if key in written
            }
            spec = convert_as(known, CommandSpec, path, text, at)
            refusal = f"commands of the type `{kind}` are not supported; {_BUILDER}"
            return PluginCommand(spec=spec, file=path, refusal=refusal)
        included = written.get("include_file")
        if kind == "parent" and isinstance(included, str) and included:
            path = _beside(path, included)
            text, base = _mapping(self._bytes(path), path)
            written, at = {**base, "name": written.get("name"), "type": "parent"}, ()
            written = {key: value for key, value in written.items() if key not in _ROOT_ONLY}
        spec = convert_as({k: v for k, v in written.items() if k != "commands"}, CommandSpec, path, text, at)
        below = (
            tuple(self._commands(written, path, text, at))
            if "commands" in written or kind == "parent"
            else ()
        )
        command = PluginCommand(spec=spec, file=path, below=below, refusal=_refusal(spec))
        _check(command)
        return command


_ROOT_ONLY = ("version", "author", "help_template")


def _mapping(data: bytes, path: str) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and its decoded mapping."""
    document = decode_document(data, path)
    if not isinstance(document, dict):
        raise DocumentError("a plugin must be a mapping with `commands`", place=Place(path))
    return data.decode(errors="replace"), document


def _beside(path: str, included: str) -> str:
    """Return the path of an included file. A relative path starts in the folder of the including file."""
    return str(Path(path).parent / included)


def _refusal(spec: CommandSpec) -> str:
    for key in ("transform", "secrets"):
        if getattr(spec, key):
            return f"`{key}` is not supported; {_BUILDER}"
    return ""


def _check(command: PluginCommand) -> None:
    """
    Refuse a command that cannot be called or run.

    Raises:
        DocumentError: The command is not valid; the error includes its name.
    """
    spec = command.spec

    def refuse(why: str) -> None:
        raise DocumentError(f"command `{spec.name}`: {why}", place=Place(command.file))

    if not all(_NAME.fullmatch(one) for one in (spec.name, *spec.aliases)):
        refuse("its name and aliases may contain letters, digits, `.`, `_` and `-`")
    if command.below and (spec.arguments or spec.flags):
        refuse("a command with subcommands cannot have `arguments` or `flags`")
    if spec.type == "exec" and not command.below and bool(spec.command) == bool(spec.script):
        refuse("an exec needs either `command` or `script`")
    if spec.type == "form" and not spec.properties:
        refuse("a form needs `properties`")
    for one in (*spec.arguments, *spec.flags):
        if not _NAME.fullmatch(one.name):
            refuse(f"`{one.name}` is not a valid name of an argument or flag")
    for flag in spec.flags:
        if len(flag.short) > 1:
            refuse(f"flag `{flag.name}`: `short` must be one character")
