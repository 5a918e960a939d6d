"""`ccmctl data protect`: make documents of one node unreadable to other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from ccm_agent.bus.layout import DATA
from ccm_agent.bus.subjects import check_key, owner_of
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import fold_names
from ccm_agent.model.errors import NotFoundError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import Judged, open_reader
from ccm_ctl.render.record_types.data import DocumentLine

EVERY_NODE = "every node"
"""The text that is shown for documents that all nodes can read."""


@verb(
    "protect",
    examples=[
        "ccmctl data protect --noop   # list them",
        "ccmctl data protect",
        "ccmctl data protect node/db1",
    ],
    options=[
        click.Argument(["keys"], metavar="[KEY...]", nargs=-1),
        click.Option(["--noop"], is_flag=True, help="Only list the documents."),
    ],
)
def protect(application: Application, keys: tuple[str, ...], noop: bool) -> Exit:
    """
    Make documents under node/NAME readable only by that node.

    Earlier versions stored these documents and their past revisions where every node can read them. This command keeps the
    text, author and number of a document, and the revisions that assignments pin. Documents that their node could not read
    afterwards are skipped and listed. Requires credentials with `--admin`. On a broker without accounts, every program can
    still read everything.
    """
    for key in keys:
        if not owner_of(check_key(key)):
            raise UsageError(f"{key}: not a document of a single node: its key does not start with node/NAME")

    async def work(fleet: Fleet) -> Exit:
        exposed = await fleet.data.exposed()
        if unknown := [key for key in keys if key not in exposed and not await fleet.data.history(key)]:
            raise NotFoundError(f"{unknown[0]}: there is no such document; see `ccmctl data list node/`")
        wanted = {key: count for key, count in exposed.items() if not keys or key in keys}
        left = [key for key in wanted if not await fleet.data.is_kept_apart(key)]
        if not noop:
            snapshot = StoredSnapshot(fleet, await open_reader(fleet))
            for key in wanted:
                if key not in left:
                    await fleet.data.protect(key, partial(_judge, snapshot, key))
        _show(application, wanted, left, noop=noop)
        if not noop and len(left) < len(wanted):
            await _note_sites(application, fleet)
        return Exit.MISSING if left else Exit.OK

    return application.run(work)


async def _judge(snapshot: StoredSnapshot, key: str, entries: Sequence[KeyValueEntry]) -> list[Judged]:
    """Return the verdict on each revision of a document, oldest first."""
    judged, _ = await snapshot.judge_history(DATA, key, entries)
    return judged


def exposed_note(key: str) -> str:
    """Return the note that every node can read a document of one node."""
    owner = owner_of(key)
    return (
        f"every node can read {key}, because {owner} has an older agent or older credentials; upgrade the agent, replace the "
        f"credentials (`ccmctl node add {owner}`), restart it, then run `ccmctl data protect {key}`"
    )


async def _note_sites(application: Application, fleet: Fleet) -> None:
    """Note which sites keep the old copies: a mirror does not copy purges."""
    sites = await fleet.sites.read() if fleet.sites is not None else []
    if sites:
        application.terminal.note(
            f"the old copies are still at {fold_names(one.site for one in sites)}; for each site, run `ccmctl init --site NAME` "
            "here, and `ccmctl data protect` there"
        )


def _show(application: Application, wanted: dict[str, int], left: list[str], *, noop: bool) -> None:
    terminal = application.terminal
    rows = []
    for key, count in wanted.items():
        readers = EVERY_NODE if noop or key in left else owner_of(key)
        terminal.record(DocumentLine, key=key, revisions=count, readers=readers, movable=key not in left)
        rows.append([key, str(count), readers])
    columns = [Column("KEY"), Column("REVISIONS", right=True), Column("READABLE BY")]
    terminal.table(columns, rows, "no document under node/ can be read by other nodes\n")
    if len(left) == 1:
        terminal.note(exposed_note(left[0]))
    elif left:
        terminal.note(
            f"every node can read {len(left)} documents, because their nodes have older agents or older credentials; upgrade "
            "the agents, replace the credentials (`ccmctl node add`), restart them, then run `ccmctl data protect` again"
        )
