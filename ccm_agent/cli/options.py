"""Flags that several verbs share, and how their values become what the engine takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ccm_agent.model import merge
from ccm_agent.model.codec import decode_document
from ccm_agent.model.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

DATA_LIMIT_BYTES = 16 << 20


def decorated(made: Any, decorators: tuple[Callable[[Any], Any], ...]) -> Any:
    """A function or command with options added, so that help shows them in this order."""
    for decorate in decorators if isinstance(made, click.Command) else reversed(decorators):
        made = decorate(made)
    return made


def log_flags(function: F) -> F:
    """`--debug` and `--info`, which every verb takes, before its name or behind it."""
    flags: F = decorated(function, LOG_FLAGS)
    return flags


def context_flag(function: F) -> F:
    """`--context`: which context of the `nats` program to connect with."""
    return click.option(
        "--context",
        "nats_context",
        envvar="NATS_CONTEXT",
        default="CCM",
        metavar="NAME",
        help="NATS context to connect with.",
    )(function)


def env_flag(function: F) -> F:
    """`--read-env`."""
    return click.option(
        "--read-env/--no-read-env", default=True, help="Read further variables from the file .env."
    )(function)


def registration_flag(function: F) -> F:
    """`--registration`, which CCM has everywhere."""
    return click.option(
        "--registration",
        "-R",
        default="REGISTRATION",
        metavar="NAME",
        help="Stream that holds registrations.",
    )(function)


def pairs(texts: tuple[str, ...], flag: str) -> dict[str, str]:
    """`K=V` texts as a mapping, the last one of a key winning; UsageError for one without `=`."""
    found = {}
    for text in texts:
        key, mark, value = text.partition("=")
        if not mark or not key:
            raise UsageError(f"{flag} {text}: write NAME=VALUE")
        found[key] = value
    return found


def read_text(path: str, flag: str) -> str:
    """A file that a flag names; UsageError when it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            if not os.path.isfile(path):  # noqa: PTH113
                raise UsageError(f"{flag} {path}: it is no regular file")
            data = file.read(DATA_LIMIT_BYTES + 1)
    except OSError as err:
        raise UsageError(f"{flag} {path}: {err.strerror}") from err
    if len(data) > DATA_LIMIT_BYTES:
        raise UsageError(f"{flag} {path}: it is larger than {DATA_LIMIT_BYTES >> 20} MiB")
    try:
        return data.decode()
    except UnicodeDecodeError as err:
        raise UsageError(f"{flag} {path}: it is not UTF-8 text") from err


def read_mapping(path: str, flag: str) -> dict[str, Any]:
    """The mapping in a JSON or YAML file; {} for an empty one. UsageError or DocumentError when it holds something else."""
    value = decode_document(read_text(path, flag), path)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"{flag} {path}: it must hold a mapping, as in `env: prod`")
    return value


def more_facts(fact: tuple[str, ...], facts: str | None) -> Mapping[str, Any]:
    """What `--facts FILE` and `--fact K=V` say; the latter win, and their values stay text."""
    from_file = read_mapping(facts, "--facts") if facts else {}
    return merge.deep(from_file, pairs(fact, "--fact"))


def environment(read_env: bool) -> dict[str, str]:
    """
    What expressions see as `Environ`: the process environment, and the file `.env` over it.

    Empty variables are left out, as in the reference, so that a default takes their place.
    """
    found = dict(os.environ)
    if read_env and os.path.isfile(".env"):  # noqa: PTH113 - pathlib is slow to import
        found.update(parse_env(read_text(".env", "--read-env")))
    return {key: value for key, value in found.items() if value}


def parse_env(text: str) -> dict[str, str]:
    """The variables of an `.env` file: NAME=VALUE lines, values perhaps in quotes; other lines say nothing."""
    found = {}
    for line in text.splitlines():
        name, mark, value = line.removeprefix("export ").partition("=")
        if not mark or not name or name.lstrip().startswith("#"):
            continue
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    return found


def _set_level(name: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def set_level(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if not value:
            return
        import logging

        level = logging.DEBUG if name == "debug" else logging.INFO
        logging.basicConfig(level=level, format="%(levelname)-5s %(name)s: %(message)s")
        context.find_root().meta[f"ccm.{name}"] = True

    return set_level


LOG_FLAGS: tuple[Callable[[Any], Any], ...] = tuple(
    click.option(
        f"--{name}", is_flag=True, expose_value=False, callback=_set_level(name), help=help_text, hidden=True
    )
    for name, help_text in (
        ("info", "Log what happens inside."),
        ("debug", "Log even more, and show tracebacks."),
    )
)
