"""The options that say which nodes are meant, and the question whether that is what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ccm_agent.model.exits import Exit
from ccm_ctl.commands.durations import Duration
from ccm_ctl.fleet.discovery import Wish
from ccm_ctl.render.text import fold_names, plural

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.discovery import Resolved


def target_options(*, everybody: bool = True) -> list[click.Parameter]:
    """Options of every command that is about several nodes; without `everybody` saying nothing means all."""
    options: list[click.Parameter] = [
        click.Option(
            ["--targets", "-t"],
            multiple=True,
            metavar="SELECTOR",
            help="Nodes by facts: role=web,env!=dev; node=web*; env in (a,b). Given again it means or.",
        ),
        click.Option(
            ["--where", "-w"], metavar="EXPR", default="", help="And where this expression is true."
        ),
    ]
    if everybody:
        options.append(click.Option(["--all"], is_flag=True, help="All nodes."))
    return options


def run_options() -> list[click.Parameter]:
    """Options of every command that starts a run."""
    return [
        *target_options(),
        click.Option(["--limit"], type=click.IntRange(1), metavar="N", help="No more than so many of them."),
        click.Option(
            ["--deadline"],
            default="1h",
            metavar="TIME",
            show_default=True,
            help="Nodes that have not begun by then do not begin: 30m, or 2026-12-01T02:00Z.",
        ),
        click.Option(
            ["--timeout"],
            type=Duration(),
            metavar="TIME",
            help="Stop watching after this time; nodes that have not ended count as lost. [24h after the deadline]",
        ),
        click.Option(["--yes", "-y"], is_flag=True, help="Do not ask; a script must say it."),
        click.Option(
            ["--offline"],
            type=click.Choice(["fail", "ok"]),
            default="fail",
            help="`ok`: nodes that are offline do not make the exit code 3.",
        ),
    ]


def wish_of(options: dict[str, Any], *, otherwise_all: bool = False) -> Wish:
    """Which nodes the options mean."""
    wish = Wish(
        targets=tuple(options["targets"]),
        where=options["where"],
        everybody=bool(options.get("all")),
        limit=options.get("limit") or 0,
    )
    return Wish(everybody=True) if otherwise_all and wish.is_empty else wish


async def agreed(application: Application, what: str, resolved: Resolved, *, yes: bool) -> bool:
    """
    Ask whether a change is to be made on so many nodes; True without a question when `yes` was said.

    Raises:
        UsageError: Nobody is there to be asked.
    """
    if yes:
        return True
    offline = f", {len(resolved.offline)} of them offline" if resolved.offline else ""
    application.terminal.note(f"nodes: {fold_names(resolved.nodes)}{offline}")
    question = f"{what} {plural(len(resolved.nodes), 'node')}?"
    return await application.terminal.ask(question, otherwise="say --yes")


NOT_AGREED = Exit.COULD_NOT_RUN
"""Somebody said no: nothing was done."""
