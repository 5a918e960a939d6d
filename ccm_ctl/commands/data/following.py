"""Before a document changes, ask whether the nodes that follow it should converge again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.errors import BusError
from ccm_agent.model.exits import Exit

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.ports import Fleet

NOT_STORED = Exit.COULD_NOT_RUN
"""The exit code if the operator declines. Nothing was stored."""


def yes_to_followers() -> click.Option:
    """Return the option `--yes` for commands that change a document."""
    return click.Option(
        ["--yes", "-y"],
        is_flag=True,
        help="Skip the confirmation prompt about nodes that follow the document. Without a terminal, there is no prompt.",
    )


async def find_followers(fleet: Fleet, key: str) -> dict[str, list[str]]:
    """Return the nodes that apply an assignment again when a document changes, by the assignment's name."""
    from ccm_ctl.commands.assignments.assignment_options import read_fleet
    from ccm_ctl.fleet.assignments.followed_data import followers

    inventory, known = await read_fleet(fleet)
    found = followers(inventory.nodes.values(), known, key)
    return {name: sorted(node.name for node in nodes) for name, nodes in sorted(found.items())}


async def agree_to_followers(application: Application, fleet: Fleet, key: str, *, yes: bool) -> bool:
    """
    Print the nodes that follow a document. On a terminal, ask whether to change them, and return the answer.

    Scripts are not asked, because earlier versions did not ask.
    """
    terminal = application.terminal
    try:
        found = await find_followers(fleet, key)
    except BusError as err:
        terminal.note(f"{key}: cannot determine which nodes follow it: {err}")
        return True
    for name, nodes in found.items():
        terminal.note(
            f"the assignment {name} follows it: {plural(len(nodes), 'node')} will apply it again: {fold_names(nodes)}"
        )
    if not found or yes or not terminal.can_ask:
        return True
    count = len({node for nodes in found.values() for node in nodes})
    return await terminal.ask(f"store {key}, which changes {plural(count, 'node')}?", otherwise="use --yes")
