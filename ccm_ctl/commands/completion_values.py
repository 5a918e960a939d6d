"""What a shell completes besides commands and options: files, types, and names of what there is on the broker."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

from ccm_agent.model.errors import CcmError
from ccm_ctl.app import Application

if TYPE_CHECKING:
    from collections.abc import Iterable

    import click

    from ccm_ctl.app import Broker

WITHIN_S = 1.0
"""Whoever pressed Tab waits no longer than this for the broker; without an answer nothing is offered."""

MOST = 200
"""So many names are offered; nobody looks through more, and typing another letter makes them fewer."""

_PLAIN = re.compile(r"(?!-)[A-Za-z0-9._/=-]+")
"""Shells take what they are given apart, and expand it; names on the broker were written by others, one like an option too."""

_FILES = frozenset({"FILE", "FILE|-", "FILE|DIR", "[FILE|DIR]"})
_ASSIGNED = frozenset({"assign", "unassign", "rollback", "assignment"})
_SCHEDULED = frozenset({"rm", "run"})
_HOMES = {
    "runs": "ccm_ctl.fleet.history",
    "assignments": "ccm_ctl.fleet.assignments",
    "schedules": "ccm_ctl.fleet.schedules",
}


def complete(ctx: click.Context, metavar: str, incomplete: str) -> list[CompletionItem]:
    """What the word may become that a command line ends in, by what help calls it."""
    if metavar in _FILES or metavar == "DIR":
        return [CompletionItem(incomplete, type="dir" if metavar == "DIR" else "file")]
    known = _types() if metavar == "TYPE" else _names(ctx, kind_of(ctx.command_path.split()[1:], metavar))
    found = [name for name in known if name.startswith(incomplete) and _PLAIN.fullmatch(name)]
    return [CompletionItem(name) for name in sorted(set(found))[:MOST]]


def kind_of(path: list[str], metavar: str) -> str:
    """The name of what a word of a command names; "" when there is nothing to look up."""
    if metavar in ("NODE", "NODE...", "[NODE... KEY=VALUE...]"):
        return "nodes"
    if metavar == "RUN":
        return "runs"
    if metavar in ("KEY", "[PREFIX]") and path[:1] == ["data"]:
        return "data"
    if metavar == "NAME" and path[:1] and path[0] in _ASSIGNED:
        return "assignments"
    if metavar == "NAME" and path[:1] == ["schedule"] and path[-1] in _SCHEDULED:
        return "schedules"
    return ""


def _types() -> Iterable[str]:
    from ccm_ctl.commands.properties import type_names

    return type_names()


def _names(ctx: click.Context, kind: str) -> Iterable[str]:
    """Names on the broker; none when it is away, slow or not to be reached as things are."""
    import importlib
    import logging

    application = ctx.find_object(Application)
    if not kind or application is None:
        return []
    if home := _HOMES.get(kind):
        importlib.import_module(home)  # before a loop runs, for an import reads files
    logging.disable()
    try:
        return asyncio.run(_ask(application, kind))
    except (CcmError, OSError, TimeoutError):
        return []
    finally:
        logging.disable(logging.NOTSET)


async def _ask(application: Application, kind: str) -> list[str]:
    async with asyncio.timeout(WITHIN_S), application.broker() as broker:
        return await _read(broker, kind)


async def _read(broker: Broker, kind: str) -> list[str]:
    fleet = broker.fleet
    if kind == "nodes":
        return [key.partition(".")[2] for key in await fleet.nodes.keys("node.")]
    if kind == "data":
        return await fleet.data.keys()
    if kind == "runs":
        from ccm_ctl.fleet.history import NEWEST, History

        return [NEWEST, *(record.run for record, *_ in (await History(fleet).newest(MOST)).runs)]
    if kind == "assignments":
        from ccm_ctl.fleet.assignments import read_assignments

        return [one.name for one in (await read_assignments(fleet)).standing]
    from ccm_ctl.fleet.schedules import Schedules

    if broker.connection is None:
        return []
    return [one.name for one in await Schedules(broker.connection).all()]
