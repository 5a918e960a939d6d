"""Functions that the commands for documents share: they read, check, store and show documents."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.bus.signatures.verified import Base
from ccm_agent.bus.subjects import owner_of
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import clock, one_line, size
from ccm_agent.model.codec import as_text, decode_document
from ccm_agent.model.errors import BusError, DocumentError, InputError, NotFoundError, Place
from ccm_agent.model.exits import Exit
from ccm_agent.model.suggestions import did_you_mean
from ccm_ctl.app import Application
from ccm_ctl.commands.data.following import NOT_STORED, agree_to_followers
from ccm_ctl.commands.data.protecting import exposed_note
from ccm_ctl.fleet.assignments.pinned_data import reads
from ccm_ctl.fleet.data.document_history import read_history
from ccm_ctl.fleet.data.documents import Documents, StoredDocument
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.diff import diff
from ccm_ctl.render.record_types.data import DocumentLine

DATA_BUCKET = "CCM_DATA"

LISTING = "ccmctl data list"


def read_source(source: str) -> str:
    """
    Return the text of a file, or the text from standard input for `-`.

    Raises:
        InputError: The file cannot be read.
    """
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as err:
        raise InputError(f"{source}: cannot be read: {err.strerror}") from err
    return as_text(raw, source)


def checked_data(text: str, source: str) -> str:
    """
    Check that a text is Hiera data, and return it.

    `@require` and `@validate` apply to the merged data of a node, so only agents can check them.

    Raises:
        DocumentError: The text does not parse, or its top-level keys are not valid.
    """
    root = decode_document(text, source)
    if not isinstance(root, dict):
        raise DocumentError(
            "not Hiera data: its top-level value is not a mapping", place=Place(source=source)
        )
    for name in ("data", "hierarchy", "overrides"):
        if root.get(name) is not None and not isinstance(root[name], dict):
            place = Place(source=source, path=f"$.{name}")
            raise DocumentError("not Hiera data: expected a mapping", place=place)
    return text


async def store_data(
    application: Application,
    fleet: Fleet,
    key: str,
    text: str,
    revision: int | None = None,
    *,
    base: Sequence[Base] = (),
    yes: bool,
    message: str = "",
) -> Exit:
    """
    Store Hiera data and show the changes. Before that, the operator confirms the affected nodes.

    `base` is the document from which the text was made, by default the stored document.
    """
    terminal = application.terminal
    documents = Documents(fleet, fleet.data, DATA_BUCKET)
    is_same = (await documents.read(key)).body == text
    if not is_same and not await agree_to_followers(application, fleet, key, yes=yes):
        return NOT_STORED
    old, new = await documents.change(key, lambda _: text, base=base, revision=revision, message=message)
    is_changed = new.revision != old.revision
    print_document(terminal, new, changed=is_changed)
    if not is_changed:
        terminal.show(f"{key}: unchanged, revision {old.revision}\n")
        return Exit.OK
    if old.body is not None:
        names = f"{key} {old.revision}", f"{key} {new.revision}"
        terminal.show(diff(format_document(old), text, *names, terminal.style))
    terminal.show(f"{key}: revision {new.revision}\n")
    if owner_of(key) and not await fleet.data.is_kept_apart(key):
        terminal.note(exposed_note(key))
    await _tell_pinned(application, fleet, key)
    return Exit.OK


async def _tell_pinned(application: Application, fleet: Fleet, key: str) -> None:
    """Print the assignments that read a document but remain pinned to an earlier revision."""
    from ccm_ctl.fleet.assignments.assignments import read_assignments

    try:
        standing = (await read_assignments(fleet)).standing
    except BusError:
        return  # this note is optional, and the document is already stored
    for one in standing:
        pinned = one.assignment.data_revision
        if pinned and reads(one.assignment, key):
            application.terminal.note(
                f"the assignment {one.name} still uses its revision {pinned}; "
                f"update it with `ccmctl assign {one.name} --refresh`"
            )


async def read_document_history(fleet: Fleet, key: str) -> list[StoredDocument]:
    """
    Return the stored revisions of Hiera data, oldest first.

    Raises:
        NotFoundError: The document never existed. The message contains the most similar key.
    """
    try:
        return await read_history(fleet, fleet.data, DATA_BUCKET, key, "document", LISTING)
    except NotFoundError as err:
        raise await no_document(fleet, key) from err


async def no_document(fleet: Fleet, key: str) -> NotFoundError:
    """Return the error for a missing document. It contains the most similar key, or the command that lists all keys."""
    near = did_you_mean(key, await fleet.data.keys())
    return NotFoundError(f"{key}: there is no such document{near or f'; see `{LISTING}`'}")


def format_document(document: StoredDocument) -> str:
    """Format a document as text; "" if it does not exist."""
    body: Any = document.body
    if body is None:
        return ""
    return body if isinstance(body, str) else msgspec.json.format(msgspec.json.encode(body)).decode() + "\n"


def print_document(
    terminal: Terminal,
    document: StoredDocument,
    *,
    changed: bool | None = None,
    removed: bool | None = None,
    body: Any = None,
    readers: str | None = None,
    exposed: bool | None = None,
) -> None:
    """Print the record of a document, without its body unless `body` is given."""
    terminal.record(
        DocumentLine,
        key=document.key,
        revision=document.revision,
        number=document.number or None,
        written_by=document.written_by or None,
        time=document.time,
        message=document.message or None,
        plain=document.is_plain or None,
        unverified=document.unverified or None,
        changed=changed,
        removed=removed,
        body=body,
        readers=readers,
        exposed=exposed,
    )


def author_cell(written_by: str, unverified: str) -> str | Cell:
    """Return a table cell with the author of a document, or with the reason why the document is not verified."""
    return Cell(f"unverified: {unverified}", "bad") if unverified else written_by


def show_history(application: Application, history: Sequence[StoredDocument], *, shown: bool = False) -> None:
    """Show the stored revisions of a document, newest first. With `shown`, also show the content of each revision as a line."""
    terminal = application.terminal
    rows = []
    for document in reversed(history):
        is_gone = document.body is None
        print_document(terminal, document, removed=is_gone or None, body=document.body if shown else None)
        words = "" if is_gone or not shown else msgspec.json.encode(document.body).decode()
        row: list[str | Cell] = [
            str(document.revision),
            "removed" if is_gone else size(len(format_document(document).encode())),
            author_cell(document.written_by or ("(plain)" if document.is_plain else ""), document.unverified),
            clock(document.time),
            one_line(document.message),
            words,
        ]
        rows.append(row)
    columns = [Column("REVISION", right=True), Column("SIZE", right=True), Column("BY"), Column("WHEN")]
    columns += [Column("MESSAGE", fold=True), Column("FACTS", fold=True)]
    terminal.table(columns, rows)
