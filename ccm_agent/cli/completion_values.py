"""Completions for values of arguments and options: files, types, states, facts, and names on this host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from ccm_agent.clikit.completion import FILES, offer, offer_files
from ccm_agent.clikit.help_command import HELP_WORDS, offer_commands
from ccm_agent.model.errors import CcmError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ccm_agent.model.ports import Runner
    from ccm_agent.resources.contract import AnyType

WITHIN_S = 1.0
"""The maximum wait for a program after the operator presses Tab, in seconds."""

_OF_FILES = frozenset({"file", "edit", "config", "archive", "scaffold"})
"""Types whose resources are named after a path."""

_PROGRAMS = {
    "package": (
        ("apt-cache", "--no-generate", "pkgnames", "@"),
        ("dpkg-query", "-W", "-f", "${Package}\n", "@*"),
        ("rpm", "-qa", "--queryformat", "%{NAME}\n", "@*"),
    ),
    "service": (("systemctl", "list-unit-files", "--type=service", "--plain", "--no-legend", "@*"),),
}
"""Programs that list names. The first one that exists and lists any is used. `@` is replaced by the typed text."""


def complete(ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
    """Return completions for the last word of a command line, based on its metavar."""
    if metavar == HELP_WORDS:
        return offer_commands(ctx, incomplete)
    if metavar.removesuffix("...").strip("[]") in FILES or metavar == "DIR":
        return offer_files(incomplete, "dir" if metavar == "DIR" else "file")
    if metavar in ("TYPE", "[TYPE]"):
        return offer((kind.name for kind in _kinds()), incomplete)
    if metavar in ("QUERY", "K=V"):
        mark = "=" if metavar == "K=V" else ""
        return offer((f"{path}{mark}" for path in _fact_paths()), incomplete)
    if metavar not in ("NAME", "[ENSURE]") or incomplete.startswith("-"):
        return []
    kind = _kind(ctx)
    if kind is None:
        return []
    if metavar == "[ENSURE]":
        return offer(kind.ensure or _states(ctx), incomplete)
    if kind.name in _OF_FILES:
        return offer_files(incomplete)
    return offer(_known_names(kind.name, incomplete), incomplete)


def _kind(ctx: click.Context) -> AnyType | None:
    """Return the type in a command line such as `ccm ensure TYPE` or `ccm status TYPE`."""
    name = ctx.params.get("type_name") or ctx.info_name
    return next((kind for kind in _kinds() if kind.name == name), None)


def _kinds() -> list[AnyType]:
    from ccm_agent.resources.catalog import Catalog

    return list(Catalog().all())


def _states(ctx: click.Context) -> tuple[str, ...]:
    from ccm_agent.clikit.commands import Argument
    from ccm_agent.clikit.properties import Property

    about = next(
        (one.about for one in ctx.command.params if isinstance(one, Argument) and one.name == "ensure"), ""
    )
    return Property(about=about, kind="").states


def _fact_paths() -> Iterator[str]:
    from ccm_agent.app import App

    yield from _leaves(App(os.environ).facts())


def _leaves(facts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in facts.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")


def _known_names(type_name: str, incomplete: str) -> list[str]:
    """Return the names that a program on this host lists; [] if the program is missing or slow."""
    from ccm_agent.app import App

    try:
        return asyncio.run(list_names(App(os.environ).deps().runner, type_name, incomplete))
    except (CcmError, OSError, TimeoutError):
        return []


async def list_names(runner: Runner, type_name: str, incomplete: str) -> list[str]:
    """
    Return names of resources of a type that begin with the typed text, from the first program that lists any.

    Raises:
        TimeoutError: A program is slow.
    """
    from ccm_agent.model.ports import Command

    for words in _PROGRAMS.get(type_name, ()):
        argv = tuple(word.replace("@", incomplete) for word in words)
        try:
            async with asyncio.timeout(WITHIN_S):
                done = await runner.run(Command(argv=argv))
        except CcmError:
            continue
        lines = done.stdout.decode(errors="replace").splitlines()
        if names := [line.split()[0] for line in lines if line.strip()]:
            return names
    return []
