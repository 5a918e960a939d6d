"""The program that a command of type `exec` runs."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from ccm_agent.model.errors import DocumentError, Place, PropertyError, UsageError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.plugins.definition import BackoffSetting, PluginCommand
from ccm_agent.plugins.rendering import PluginRenderer

SHELLS = ("/bin/bash", "/bin/sh")
ATTEMPTS_LIMIT = 1_000

HELPER = """\
# Functions for scripts of plugins: ab_say, ab_announce, ab_error and ab_panic.
AB_SAY_PREFIX='>>>'
AB_ERROR_PREFIX='!!!'

_ab_line() {
  case "${AB_HELPER_TIME_STAMP:-}" in
    T) printf '%s %s %s\\n' "$(date +%H:%M:%S)" "$1" "$2" ;;
    D) printf '%s %s %s\\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$1" "$2" ;;
    *) printf '%s %s\\n' "$1" "$2" ;;
  esac
}

ab_say() { _ab_line "$AB_SAY_PREFIX" "$*"; }

ab_announce() {
  printf '%s\\n' "$AB_SAY_PREFIX"
  ab_say "$@"
  printf '%s\\n' "$AB_SAY_PREFIX"
}

ab_error() {
  printf '%s\\n' "$AB_ERROR_PREFIX"
  _ab_line "$AB_ERROR_PREFIX" "$*"
  printf '%s\\n' "$AB_ERROR_PREFIX"
}

ab_panic() { ab_error "$@"; exit 1; }
"""
"""The content of the file at `BashHelperPath`."""


class PluginProgram(Struct, frozen=True, kw_only=True):
    """
    A program to run on the caller's terminal.

    Attributes:
        argv: The program and its arguments.
        environ: All variables of the program.
        directory: The directory in which it runs; None for the working directory.
    """

    argv: tuple[str, ...]
    environ: Mapping[str, str]
    directory: str | None


def prepare(command: PluginCommand, templates: PluginRenderer, environ: Mapping[str, str]) -> PluginProgram:
    """
    Return the program of a command. Only a `script` uses a shell.

    Raises:
        TemplateError: A text of the command cannot be rendered.
        UsageError: The rendered command cannot be run.
    """
    spec = command.spec
    variables = dict(environ)
    for text in spec.environment:
        name, mark, value = templates.render(text, "environment").partition("=")
        if not mark or not name:
            raise UsageError(f"{command.file}: `environment` of `{spec.name}`: write NAME=VALUE")
        variables[name] = value
    if spec.script:
        argv = [*_shell(spec.shell, environ), templates.render(spec.script, "script")]
    else:
        argv = _words(templates.render(spec.command, "command"), f"`command` of `{spec.name}`")
    if any("\0" in text for text in (*argv, *variables, *variables.values())):
        raise UsageError(f"`{spec.name}`: arguments and environment cannot contain a zero byte")
    return PluginProgram(
        argv=tuple(argv), environ=variables, directory=templates.render(spec.dir, "dir") or None
    )


def _words(text: str, what: str) -> list[str]:
    try:
        words = split_words(text)
    except PropertyError:
        # the error of `split_words` contains the text, which may include a secret
        raise UsageError(f"{what}: a quote is not closed, or nothing follows a backslash") from None
    if not words:
        raise UsageError(f"{what} is empty")
    return words


def _shell(written: str, environ: Mapping[str, str]) -> list[str]:
    if written:
        words = _words(written, "`shell`")
        return words if len(words) > 1 else [*words, "-c"]
    found = environ.get("SHELL") or next(one for one in SHELLS if one == SHELLS[-1] or Path(one).exists())
    return [found, "-c"]


def pauses(command: PluginCommand) -> Iterator[float]:
    """
    Yield the seconds to wait after each failed attempt except the last.

    Raises:
        DocumentError: `backoff` is not valid.
    """
    backoff = command.spec.backoff
    if backoff is None:
        return iter(())
    place = Place(command.file)
    steps = backoff.steps or backoff.max_attempts
    if steps < 2 or not 1 <= backoff.max_attempts <= ATTEMPTS_LIMIT:
        raise DocumentError(
            f"`backoff` of `{command.spec.name}`: `steps` must be 2 or more, and `max_attempts` at most {ATTEMPTS_LIMIT}",
            place=place,
        )
    low, high = sorted(parse_duration(one) for one in (backoff.min_sleep, backoff.max_sleep))
    return _growing(backoff, low, (high - low) / steps, steps)


def _growing(backoff: BackoffSetting, low: float, step: float, steps: int) -> Iterator[float]:
    for number in range(1, backoff.max_attempts):
        # randomized to prevent simultaneous attempts by many hosts
        yield (low + step * min(number, steps - 1)) * random.uniform(0.5, 1.5)


def is_dry_run(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether App Builder's variable for a dry run is set."""
    return bool(environ.get("BUILDER_DRY_RUN"))
