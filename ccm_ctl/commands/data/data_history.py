"""`ccmctl data edit|diff|history|rollback`: edit, compare and restore Hiera data."""

from __future__ import annotations

import os
import tempfile

import click

from ccm_agent.bus.subjects import check_key
from ccm_agent.clikit.table import Style
from ccm_agent.model.errors import CcmError, InputError, RevisionError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.data.checks import check_before_storing, force_option
from ccm_ctl.commands.data.documents import (
    DATA_BUCKET,
    checked_data,
    format_document,
    read_document_history,
    read_source,
    show_history,
    store_data,
)
from ccm_ctl.commands.data.following import NOT_STORED, yes_to_followers
from ccm_ctl.commands.runs.targets import message_option
from ccm_ctl.fleet.data.document_history import before_newest, find_revision
from ccm_ctl.fleet.data.documents import Documents, StoredDocument
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.diff import diff as difference
from ccm_ctl.render.record_types.data import DocumentLine


@verb(
    "edit",
    examples=["ccmctl data edit common", "EDITOR=nano ccmctl data edit role/web"],
    options=[
        click.Argument(["key"], metavar="KEY"),
        message_option(),
        force_option(),
        yes_to_followers(),
    ],
)
def edit(application: Application, key: str, message: str, force: bool, yes: bool) -> Exit:
    """
    Edit a document in $VISUAL or $EDITOR. It is not stored if another operator changed it in the meantime.

    The editor is started only on a terminal. With --yes, it is always started, which allows a script as the editor.
    """
    check_key(key)
    if not yes and not application.terminal.can_edit:
        raise UsageError(
            f"cannot start an editor without a terminal; use `ccmctl data put {key} FILE`, or --yes if $EDITOR is a script"
        )
    read: list[StoredDocument] = []

    async def look(fleet: Fleet) -> Exit:
        [stored] = [await Documents(fleet, fleet.data, DATA_BUCKET).read(key)]
        if stored.body is not None:
            stored.verified(f"`ccmctl data put {key} FILE` stores the document from your own file")
        read.append(stored)
        return Exit.OK

    application.run(look)
    if not read:  # the read was interrupted
        return Exit.COULD_NOT_RUN
    [old] = read
    environ = application.environ
    text = click.edit(
        format_document(old) or "data:\n",
        editor=environ.get("VISUAL") or environ.get("EDITOR"),
        extension=".yaml",
    )
    if text is None:
        application.terminal.show(f"{key}: not saved in the editor, so nothing is changed\n")
        return Exit.OK

    async def store(fleet: Fleet) -> Exit:
        await check_before_storing(application, fleet, key, text, key, force=force)
        return await store_data(application, fleet, key, text, old.revision, yes=yes, message=message)

    try:
        checked_data(text, key)
        code = application.run(store)
        if code == NOT_STORED:  # the operator declined, or pressed Ctrl-C
            application.terminal.note(f"your text is saved in {_keep(text)}")
        return code
    except CcmError as err:
        kept = _keep(text)
        kind = RevisionError if isinstance(err, RevisionError) else InputError
        raise kind(f"{err}\nyour text is saved in {kept}") from err


@verb(
    "diff",
    examples=[
        "ccmctl data diff common            # the newest revision and the one before",
        "ccmctl data diff common 12 15",
        "ccmctl data diff common --file common.yaml",
    ],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Argument(["revisions"], metavar="[REVISION [REVISION]]", nargs=-1, type=click.IntRange(1)),
        click.Option(["--file", "source"], metavar="FILE|-", help="Compare with this file."),
    ],
)
def diff(application: Application, key: str, revisions: tuple[int, ...], source: str | None) -> Exit:
    """Compare two revisions, a revision with the newest one, or a revision with a file."""
    check_key(key)
    if len(revisions) > (1 if source else 2):
        raise UsageError("too many revisions; specify at most two, or one and --file")
    text = read_source(source) if source else None

    async def work(fleet: Fleet) -> Exit:
        kept = await read_document_history(fleet, key)
        named = [find_revision(kept, revision) for revision in revisions]
        old = named[0] if named else kept[-1] if source else before_newest(kept)
        new = named[1] if len(named) > 1 else kept[-1]
        new_text, new_name = (
            (format_document(new), f"{key} {new.revision}") if text is None else (text, source or "")
        )
        terminal = application.terminal
        style = Style() if terminal.json else terminal.style
        told = difference(format_document(old), new_text, f"{key} {old.revision}", new_name, style)
        terminal.record(DocumentLine, key=key, revision=old.revision, changed=bool(told), diff=told)
        terminal.show(told or f"{key}: no difference\n")
        return Exit.OK

    return application.run(work)


@verb("history", examples=["ccmctl data history common"], options=[click.Argument(["key"], metavar="KEY")])
def history(application: Application, key: str) -> Exit:
    """List the stored revisions, newest first, with author and time."""
    check_key(key)

    async def work(fleet: Fleet) -> Exit:
        show_history(application, await read_document_history(fleet, key))
        return Exit.OK

    return application.run(work)


@verb(
    "rollback",
    examples=["ccmctl data rollback common", "ccmctl data rollback common 12"],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Argument(["revision"], metavar="[REVISION]", type=click.IntRange(1), required=False),
        message_option(),
        force_option(),
        yes_to_followers(),
    ],
)
def rollback(
    application: Application, key: str, revision: int | None, message: str, force: bool, yes: bool
) -> Exit:
    """Restore an older revision as a new revision. Without REVISION, the previous one is restored."""
    check_key(key)

    async def work(fleet: Fleet) -> Exit:
        kept = await read_document_history(fleet, key)
        old = before_newest(kept) if revision is None else find_revision(kept, revision)
        if old.body is None:
            raise UsageError(f"{key}: revision {old.revision} is a removal, so it cannot be restored")
        base = [old.verified(f"`ccmctl data put {key} FILE` stores the document from your own file")]
        newest, name = kept[-1], f"{key} {old.revision}"
        await check_before_storing(application, fleet, key, format_document(old), name, force=force)
        expected = newest.revision if newest.body is not None else 0
        why = message or f"rollback to revision {old.revision}"
        text = format_document(old)
        return await store_data(application, fleet, key, text, expected, base=base, yes=yes, message=why)

    return application.run(work)


def _keep(text: str) -> str:
    """Write a text to a new file with mode 0600, and return its name."""
    number, name = tempfile.mkstemp(prefix="ccmctl-", suffix=".yaml")  # mode 0600
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
    return name
