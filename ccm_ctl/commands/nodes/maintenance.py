"""Functions that `disable`, `enable` and `run-now` share: their options, and the display of the nodes' replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click

from ccm_agent.clikit.options import Options
from ccm_agent.clikit.text import fold_names, one_line, plural
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.maintenance import LockChange
from ccm_agent.model.wire import AnswerState
from ccm_ctl.app import Application
from ccm_ctl.commands.runs.targets import NOT_AGREED, TargetOptions, confirm, target_options, yes_option
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.node_commands import OFFLINE, REFUSED, SILENT, send_command
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.gather import Reply
from ccm_ctl.render.record_types.nodes import ReplyLine


class MaintenanceOptions(Options, frozen=True, kw_only=True):
    """The options of `maintenance_options`."""

    nodes: TargetOptions
    why: str
    yes: bool


def maintenance_options(*, is_why_required: bool) -> list[click.Parameter]:
    """Return the options of all three commands."""
    why = click.Option(
        ["--why"],
        metavar="TEXT",
        help="The reason, shown to operators and in the nodes' events.",
        **({"required": True} if is_why_required else {"default": ""}),
    )
    return [*target_options(), why, yes_option()]


async def command_nodes(
    application: Application,
    fleet: Fleet,
    protocol: str,
    spec: TargetSpec,
    why: str,
    *,
    yes: bool,
    verb: str,
    done: str,
    until: datetime | None = None,
    lock: LockChange | None = None,
    check: Callable[[Inventory, TargetSet], None] | None = None,
    describe: Callable[[Mapping[str, Any]], tuple[str, str]] | None = None,
) -> Exit:
    """
    Disable or enable the selected nodes, and show their replies.

    Args:
        application: Shows the replies.
        fleet: The bus.
        protocol: Either NODE_DISABLE or NODE_ENABLE.
        spec: The nodes.
        why: The operator's reason.
        yes: Whether the operator confirmed the change on the command line.
        verb: The action: "disable" or "enable".
        done: The state of a node after the action, such as "disabled".
        until: The time when disabled nodes are enabled again, or when locks end.
        lock: The resource locks to set or to end; the whole node if None.
        check: Called before the request is sent. Refuses nodes that do not support it.
        describe: Returns the state of a node and the reason from the body of its reply. If None, the state is `done`.
    """
    inventory, resolved = await resolve(fleet, spec)
    if check is not None:
        check(inventory, resolved)
    if not await confirm(application, verb, resolved, yes=yes):
        return NOT_AGREED
    replies, silent = await send_command(fleet, protocol, resolved, why, until, lock)
    _show(application, resolved, replies, silent, describe or (lambda _body: (done, "")))
    if any(reply.answer.state == AnswerState.REFUSED for reply in replies.values()):
        return Exit.FAILED
    return Exit.MISSING if silent or resolved.offline else Exit.OK


def _show(
    application: Application,
    resolved: TargetSet,
    replies: Mapping[str, Reply],
    silent: Sequence[str],
    describe: Callable[[Mapping[str, Any]], tuple[str, str]],
) -> None:
    terminal = application.terminal
    states = dict.fromkeys(resolved.offline, (OFFLINE, "")) | dict.fromkeys(silent, (SILENT, ""))
    is_bad = dict.fromkeys(states, True)
    for name, reply in replies.items():
        answer = reply.answer
        is_bad[name] = answer.state == AnswerState.REFUSED
        states[name] = (REFUSED, one_line(answer.reason)) if is_bad[name] else describe(answer.body)
    for name, (state, reason) in sorted(states.items()):
        terminal.record(ReplyLine, node=name, state=state, reason=reason or None)
    groups: dict[tuple[bool, str, str], list[str]] = {}
    for name, key in states.items():
        groups.setdefault((is_bad[name], *key), []).append(name)
    for (_, state, reason), names in sorted(groups.items()):
        why = {OFFLINE: "not reached", SILENT: "no answer"}.get(state, reason)
        count = f" ({plural(len(names), 'node')})" if len(names) > 1 else ""
        text = f"{state}: {fold_names(names)}{count}"
        terminal.show(f"{text}; {why}\n" if why else f"{text}\n")
