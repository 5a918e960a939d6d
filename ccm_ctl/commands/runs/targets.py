"""The options that select the target nodes, and the confirmation prompt for a change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import click

from ccm_agent.clikit.commands import Option
from ccm_agent.clikit.durations import Duration, TimeOption
from ccm_agent.clikit.options import Options
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_agent.model.wire import NodeRecord
from ccm_agent.templates.selector import parse_selector, parse_where
from ccm_ctl.app import Application
from ccm_ctl.commands.runs.manifest_check import force_option
from ccm_ctl.fleet.nodes.discovery import TargetSpec
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.runs.run_request import check_message

TARGETS = "Targets"
"""The help section of options that select nodes."""


class TargetOptions(Options, frozen=True, kw_only=True):
    """The options of `target_options`."""

    targets: tuple[str, ...]
    where: str
    all: bool = False

    def spec(self, *, limit: int | None = None, node: str = "") -> TargetSpec:
        """Return the nodes that the options select."""
        return TargetSpec(
            targets=self.targets, where=self.where, everybody=self.all, limit=limit or 0, node=node
        )


def target_options(*, everybody: bool = True) -> list[click.Parameter]:
    """Return the options of commands for several nodes. If `everybody` is false, all nodes are selected by default."""
    options: list[click.Parameter] = [
        Option(
            ["--targets", "-t"],
            section=TARGETS,
            multiple=True,
            metavar="SELECTOR",
            callback=check_selectors,
            help="Select nodes by facts: role=web,env!=dev; node=web*; env in (a,b); role=db*. A list matches if any item does. "
            "@NAME is a saved selector. Repeat to match any of several selectors.",
        ),
        Option(
            ["--where", "-w"],
            section=TARGETS,
            metavar="EXPR",
            default="",
            callback=_check_where,
            help="Also require this expression to be true for the node.",
        ),
    ]
    if everybody:
        options.append(Option(["--all"], section=TARGETS, is_flag=True, help="Select all nodes."))
    return options


def diff_option() -> click.Option:
    """Return the option `--diff` for commands that change resources."""
    return click.Option(["--diff"], is_flag=True, help="Show what changes, line by line.")


def yes_option() -> click.Option:
    """Return the option `--yes` for commands that ask before a change."""
    return click.Option(
        ["--yes", "-y"], is_flag=True, help="Skip the confirmation prompt (required in scripts)."
    )


def message_option(used: str = "Reason, shown in the history. Nodes can read it.") -> click.Option:
    """Return the option `--message` for commands that write a revision or start a run. `used` is its help text."""
    return click.Option(["--message", "-m"], default="", metavar="TEXT", callback=_check_message, help=used)


def run_message_option() -> click.Option:
    """Return the option `--message` for commands that start a run."""
    return message_option("Reason, shown with the run.")


def _check_message(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    return check_message(value, "--message") if value else ""


def no_fold_option() -> click.Option:
    """Return the option `--no-fold` for commands that print a table of nodes."""
    return click.Option(
        ["--no-fold"],
        is_flag=True,
        expose_value=False,
        callback=_keep_rows,
        help="Show each node in its own row.",
    )


def _keep_rows(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    application = ctx.find_object(Application)
    if value and application is not None:
        application.terminal.merges = False


class ManifestOptions(Options, frozen=True, kw_only=True):
    """The options of `manifest_options`."""

    manifest: str
    data: tuple[str, ...]
    force: bool


def manifest_options() -> list[click.Parameter]:
    """Return the options of every command that sends a manifest."""
    return [
        click.Option(
            ["--manifest"],
            default="",
            metavar="PATH",
            help="Path of the manifest within the directory. [manifest.yaml]",
        ),
        click.Option(
            ["--data", "-d"],
            multiple=True,
            metavar="URL",
            help="Hiera data that overrides the manifest's own, such as kv://CCM_DATA/common. May be repeated.",
        ),
        force_option(),
    ]


def check_selectors(_ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Check selectors before connecting to the broker. UsageError for a malformed selector."""
    if value:
        for text in value:
            parse_selector(text)
    return value


def _check_where(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Check an expression before connecting to the broker. UsageError for a malformed expression."""
    if value:
        parse_where(value)
    return value


class RunOptions(Options, frozen=True, kw_only=True):
    """The options of `run_options`. `--timeout` is not included, because each command declares its own."""

    nodes: TargetOptions
    limit: int | None = None
    deadline: GivenTime
    message: str
    yes: bool = False
    offline: str

    @property
    def spec(self) -> TargetSpec:
        """Return the nodes that the options select."""
        return self.nodes.spec(limit=self.limit)

    @property
    def offline_ok(self) -> bool:
        """Whether offline nodes do not affect the exit code."""
        return self.offline == "ok"


def run_options(*, asks: bool = True) -> list[click.Parameter]:
    """Return the options of commands that start a run. `asks` is whether the command asks for confirmation."""
    return [
        *target_options(),
        Option(
            ["--limit"],
            section=TARGETS,
            type=click.IntRange(1),
            metavar="N",
            help="Limit the run to at most N nodes.",
        ),
        click.Option(
            ["--deadline"],
            type=TimeOption(),
            default="1h",
            show_default=True,
            help="Nodes that have not started by this time, such as 30m or 2026-12-01T02:00Z, will not start.",
        ),
        click.Option(
            ["--timeout"],
            type=Duration(),
            help="Stop waiting after this time. Nodes without a result count as lost. [24h after the deadline]",
        ),
        run_message_option(),
        *([yes_option()] if asks else []),
        no_fold_option(),
        click.Option(
            ["--offline"],
            type=click.Choice(["fail", "ok"]),
            default="fail",
            help="With `ok`, offline nodes do not cause exit code 3.",
        ),
    ]


def parse_deadline(given: GivenTime, now: datetime, option: str = "--deadline") -> datetime:
    """
    Return the time of an option, in UTC.

    Raises:
        UsageError: The time has passed.
    """
    moment = given.after(now)
    if moment <= now:
        raise UsageError(f"{option} {given.written}: this time has passed")
    return moment


def refuse_older_agents(resolved: TargetSet, what: str) -> None:
    """
    Refuse selectors that older agents interpret differently. This is for documents that also apply to nodes that match later.

    Raises:
        UsageError: Some agents are too old. The message contains the names of their nodes.
    """
    if resolved.older:
        raise UsageError(
            f"{fold_names(resolved.older)}: the agent is too old for `*`, `?` or list values in the targets of {what}; "
            "upgrade it, or select by other facts"
        )


async def confirm(
    application: Application,
    what: str,
    resolved: TargetSet,
    *,
    yes: bool,
    preview: Callable[[], Awaitable[object]] | None = None,
) -> bool:
    """
    Ask the operator to confirm a change of these nodes. With `yes`, return True without asking.

    Args:
        application: Asks the operator.
        what: The change, as in "apply site to".
        resolved: The nodes.
        yes: Whether the operator confirmed the change on the command line.
        preview: Shows the changes. It is called for the answer `d`, and the question is repeated. If None, `d` is not offered.

    Raises:
        UsageError: There is no terminal on which to ask.
    """
    if yes:
        return True
    offline = f", {len(resolved.offline)} of them offline" if resolved.offline else ""
    application.terminal.note(f"nodes: {fold_names(resolved.nodes)}{offline}")
    question = f"{what} {plural(len(resolved.nodes), 'node')}?"
    choices = "y/N/d = show diff" if preview is not None else "y/N"
    while True:
        answer = await application.terminal.answer(question, otherwise="use --yes", choices=choices)
        if answer not in ("d", "diff") or preview is None:
            return answer in ("y", "yes")
        await preview()


NOT_AGREED = Exit.COULD_NOT_RUN
"""The exit code if the operator declines. Nothing was done."""


def require_agents(
    inventory: Inventory, resolved: TargetSet, knows: Callable[[NodeRecord], bool], problem: str
) -> None:
    """
    Refuse nodes whose agents are too old for a request.

    Args:
        inventory: The fleet.
        resolved: The target nodes of the request.
        knows: Returns whether the agent with a record supports the request. Nodes without a record are not refused.
        problem: The end of the message: the feature that the agents do not support, and a remedy.

    Raises:
        UsageError: Some agents are too old. The message contains the names of their nodes.
    """
    nodes = (inventory.nodes[name] for name in resolved.nodes)
    older = [node.name for node in nodes if node.record is not None and not knows(node.record)]
    if older:
        raise UsageError(f"{fold_names(older)}: {problem}")
