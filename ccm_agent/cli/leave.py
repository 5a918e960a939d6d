"""`ccm leave`: remove this host from its fleet."""

from __future__ import annotations

import json

import click

from ccm_agent.cli import options
from ccm_agent.cli.terminal import PROGRAM
from ccm_agent.clikit.commands import examples
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit


@click.command("leave", cls=options.CcmCommand, epilog=examples("ccm leave"))
@click.option(
    "--state",
    default="",
    metavar="DIR",
    help="Directory for configuration, credentials and state. [/etc/choria/ccm and /var/lib/ccm]",
)
@click.option(
    "--wait",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long to wait for the fleet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(state: str, wait: int, as_json: bool) -> Exit:
    """
    Leave the fleet. Stop the agent first.

    The fleet deletes its data about the node, and this command deletes the files that `ccm join` wrote. The state directory is
    kept. Works without a broker.
    """
    from ccm_agent.joining.leave import leave_fleet
    from ccm_agent.joining.membership import JoinPlaces, is_root

    terminal = Terminal(PROGRAM)
    if not state and not is_root():
        raise UsageError("only root can write /etc/choria/ccm; use sudo, or name a directory with --state")
    left = leave_fleet(JoinPlaces.below(state) if state else JoinPlaces(), wait_s=wait)
    todo = []
    if left.was_member and not left.is_told:
        todo = [f"ccmctl node rm {left.name}", f"ccmctl node revoke {left.name}"]
    if as_json:
        found = {
            "node": left.name,
            "left": left.was_member,
            "told": left.is_told,
            "reason": left.reason or None,
            "removed": list(left.removed),
            "kept": list(left.kept),
            "next": todo,
        }
        terminal.raw(f"{json.dumps(found)}\n")
        return Exit.OK
    if not left.was_member:
        terminal.show(f"{left.name}: this host is not in a fleet; nothing was changed\n")
        return Exit.OK
    lines = [f"{left.name}: {'left the fleet' if left.is_told else 'the files of this host are removed'}"]
    lines += [f"removed: {', '.join(left.removed)}"] if left.removed else []
    lines += [f"kept: {', '.join(left.kept)}"] if left.kept else []
    if todo:
        lines.append(f"the fleet was not notified: {left.reason}")
        lines += [f"next, an operator runs: {word}" for word in todo]
    terminal.show("\n".join(lines) + "\n")
    return Exit.OK
