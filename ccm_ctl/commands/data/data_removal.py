"""`ccmctl data rm`: remove a document but keep its history."""

from __future__ import annotations

import click

from ccm_agent.bus.subjects import check_key
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.data.documents import DATA_BUCKET, read_document_history
from ccm_ctl.commands.data.following import find_followers
from ccm_ctl.commands.runs.targets import NOT_AGREED, yes_option
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.data import DocumentLine


@verb(
    "rm",
    examples=["ccmctl data rm role/old", "ccmctl data rollback role/old   # restores it"],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Option(["--force"], is_flag=True, help="Remove the document even if assignments follow it."),
        yes_option(),
    ],
)
def remove(application: Application, key: str, force: bool, yes: bool) -> Exit:
    """
    Remove a document. Its revisions stay in the history, and `ccmctl data rollback KEY` restores the last one.

    Assignments that pinned the data keep their pinned revision. Removing a document that an assignment follows requires
    --force: its nodes would keep the last revision, and new nodes would fail. To provide no data, store `{}` instead.
    """
    check_key(key)

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        kept = await read_document_history(fleet, key)
        if kept[-1].body is None:
            terminal.record(DocumentLine, key=key, revision=kept[-1].revision, removed=True, changed=False)
            terminal.show(f"{key}: already removed, in revision {kept[-1].revision}\n")
            return Exit.OK
        followers = await find_followers(fleet, key)
        if followers and not force:
            raise UsageError(_refusal(key, followers))
        question = f"remove {key}, revision {kept[-1].revision}?"
        if not yes and not await terminal.ask(question, otherwise="use --yes"):
            return NOT_AGREED
        await Documents(fleet, fleet.data, DATA_BUCKET).remove(key)
        terminal.record(DocumentLine, key=key, revision=kept[-1].revision, removed=True, changed=True)
        terminal.show(f"{key}: removed\n  restore:  ccmctl data rollback {key}\n")
        return Exit.OK

    return application.run(work)


def _refusal(key: str, followers: dict[str, list[str]]) -> str:
    name, nodes = next(iter(followers.items()))
    others = f", and {plural(len(followers) - 1, 'other assignment')}" if len(followers) > 1 else ""
    return (
        f"{key}: the assignment {name} follows it on {plural(len(nodes), 'node')} ({fold_names(nodes)}){others}: they would keep "
        "the last revision, and a new node would fail; store `{}` for no data, or remove it with --force"
    )
