"""`ccmctl data`: manage the Hiera documents of manifests."""

from __future__ import annotations

import click

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import check_key, owner_of
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import ago, plural, size
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.data.checks import check_before_storing, force_option
from ccm_ctl.commands.data.data_history import diff, edit, history, rollback
from ccm_ctl.commands.data.data_removal import remove
from ccm_ctl.commands.data.documents import (
    DATA_BUCKET,
    author_cell,
    checked_data,
    format_document,
    no_document,
    print_document,
    read_source,
    store_data,
)
from ccm_ctl.commands.data.following import yes_to_followers
from ccm_ctl.commands.data.hiera import explain
from ccm_ctl.commands.data.protecting import EVERY_NODE, protect
from ccm_ctl.commands.runs.targets import message_option
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet

NOTHING_YET = "no data yet; `ccmctl data put common FILE` stores some\n"


@group(
    "data",
    no_args_is_help=True,
    examples=[
        "ccmctl data put common common.yaml",
        "ccmctl data get role/web",
        "ccmctl data explain port --node web1",
    ],
)
def data(application: Application) -> None:
    """
    Manage Hiera data and its revisions, and explain where a value comes from.

    A manifest reads the document of a key as kv://CCM_DATA/KEY; keys such as common, role/web or node/web1 form the layers.
    """


@verb(
    "put",
    examples=[
        'ccmctl data put common common.yaml --message "raise the limit"',
        "sops -d secret.yaml | ccmctl data put role/web -",
    ],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Argument(["source"], metavar="FILE|-"),
        click.Option(
            ["--if-revision"],
            type=click.IntRange(0),
            metavar="N",
            help="Store the document only if the newest revision is N.",
        ),
        message_option(),
        force_option(),
        yes_to_followers(),
    ],
)
def _put(
    application: Application,
    key: str,
    source: str,
    if_revision: int | None,
    message: str,
    force: bool,
    yes: bool,
) -> Exit:
    """
    Store a YAML or JSON document under a key and show what changed.

    The document's rules (@require, @validate) are first checked with the facts of each node. Nodes whose assignment follows
    the document apply it again. They are listed, and on a terminal you are asked to confirm.
    """
    check_key(key)
    text = checked_data(read_source(source), source)

    async def work(fleet: Fleet) -> Exit:
        await check_before_storing(application, fleet, key, text, source, force=force)
        own = [Authored.from_files()]
        return await store_data(
            application, fleet, key, text, if_revision, base=own, yes=yes, message=message
        )

    return application.run(work)


@verb(
    "get",
    examples=["ccmctl data get common", "ccmctl data get common --json"],
    options=[click.Argument(["key"], metavar="KEY")],
)
def _get(application: Application, key: str) -> Exit:
    """Print the document of a key."""
    check_key(key)

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        document = await Documents(fleet, fleet.data, DATA_BUCKET).read(key)
        if document.body is None:
            raise await no_document(fleet, key)
        print_document(terminal, document, body=document.body)
        if document.unverified:
            terminal.warn(f"{key}: unverified: {document.unverified}")
        if not terminal.json:
            text = format_document(document)
            terminal.raw(text if text.endswith("\n") else f"{text}\n")
        return Exit.OK

    return application.run(work)


@verb(
    "list",
    examples=["ccmctl data list", "ccmctl data list role/"],
    options=[click.Argument(["prefix"], metavar="[PREFIX]", default="")],
)
def _list(application: Application, prefix: str) -> Exit:
    """List keys, optionally only those with a prefix, and the nodes that can read each document."""

    async def work(fleet: Fleet) -> Exit:
        terminal = application.terminal
        documents = await Documents(fleet, fleet.data, DATA_BUCKET).read_all(prefix)
        exposed = await fleet.data.exposed(prefix) if any(owner_of(one.key) for one in documents) else {}
        rows: list[list[str | Cell]] = []
        for document in documents:
            is_exposed = document.key in exposed
            readers = (owner_of(document.key) if not is_exposed else "") or EVERY_NODE
            print_document(terminal, document, readers=readers, exposed=is_exposed or None)
            rows.append(
                [
                    document.key,
                    str(document.revision),
                    size(len(format_document(document).encode())),
                    author_cell(
                        document.written_by or ("(plain)" if document.is_plain else ""), document.unverified
                    ),
                    ago(document.time, fleet.clock.now()),
                    Cell(readers, "bad" if is_exposed else ""),
                ]
            )
        columns = [Column("KEY"), Column("REVISION", right=True), Column("SIZE", right=True)]
        columns += [Column("BY"), Column("WHEN"), Column("READABLE BY")]
        none = f"no key begins with {prefix}; `ccmctl data list` lists all keys\n" if prefix else NOTHING_YET
        terminal.table(columns, rows, none)
        if exposed:
            terminal.note(
                f"every node can read {plural(len(exposed), 'document')} meant for single nodes, or earlier revisions; "
                "`ccmctl data protect` moves them"
            )
        return Exit.OK

    return application.run(work)


for _command in (_put, _get, _list, explain, edit, diff, history, rollback, remove, protect):
    data.add_command(_command)
