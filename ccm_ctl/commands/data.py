"""`ccmctl data`: hiera documents that manifests look things up in."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from ccm_agent.bus.subjects import check_key
from ccm_agent.model.codec import as_text, decode_document
from ccm_agent.model.errors import DocumentError, InputError, Place
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.tree import group, verb
from ccm_ctl.render import records

if TYPE_CHECKING:
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.documents import Document
    from ccm_ctl.fleet.ports import Fleet

BUCKET = "CCM_DATA"


@group(
    "data", no_args_is_help=True, examples=["ccmctl data put common common.yaml", "ccmctl data get role/web"]
)
def data(application: Application) -> None:
    """
    Put, get and list hiera data.

    A manifest reads the document of a key as kv://CCM_DATA/KEY; keys such as common, role/web or node/web1 make the layers.
    """


@verb(
    "put",
    examples=["ccmctl data put common common.yaml", "sops -d secret.yaml | ccmctl data put role/web -"],
    options=[
        click.Argument(["key"], metavar="KEY"),
        click.Argument(["source"], metavar="FILE|-"),
        click.Option(["--if-revision"], type=click.IntRange(0), metavar="N", help="Only if that is the newest revision."),
    ],
)  # fmt: skip
def _put(application: Application, key: str, source: str, if_revision: int | None) -> Exit:
    """Store a YAML or JSON document under a key, and show what changed in it."""
    check_key(key)
    text = _read(source)
    if not isinstance(decode_document(text, source), dict):
        raise DocumentError("not hiera data: its outermost value is no mapping", place=Place(source=source))

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.documents import Documents
        from ccm_ctl.render.diff import diff

        terminal = application.terminal
        documents = Documents(fleet, fleet.data, BUCKET)
        old, new = await documents.change(key, lambda _: text, revision=if_revision)
        is_changed = new.revision != old.revision
        terminal.record(records.DOCUMENT, **_fields(new), changed=is_changed)
        if not is_changed:
            terminal.show(f"{key}: unchanged, revision {old.revision}\n")
            return Exit.OK
        if old.body is not None:
            terminal.show(
                diff(_text(old), text, f"{key} {old.revision}", f"{key} {new.revision}", terminal.style)
            )
        terminal.show(f"{key}: revision {new.revision}\n")
        return Exit.OK

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
        from ccm_ctl.fleet.documents import Documents, must_exist

        terminal = application.terminal
        document = must_exist(
            await Documents(fleet, fleet.data, BUCKET).read(key), "document", "ccmctl data ls"
        )
        terminal.record(records.DOCUMENT, **_fields(document), body=document.body)
        if not terminal.json:
            text = _text(document)
            terminal.raw(text if text.endswith("\n") else f"{text}\n")
        return Exit.OK

    return application.run(work)


@verb(
    "ls",
    examples=["ccmctl data ls", "ccmctl data ls role/"],
    options=[click.Argument(["prefix"], metavar="[PREFIX]", default="")],
)
def _ls(application: Application, prefix: str) -> Exit:
    """List the keys, or those that begin with a prefix."""

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.fleet.documents import Documents
        from ccm_ctl.render.table import Column
        from ccm_ctl.render.text import ago, size

        terminal = application.terminal
        rows = []
        for document in await Documents(fleet, fleet.data, BUCKET).read_all(prefix):
            terminal.record(records.DOCUMENT, **_fields(document))
            rows.append(
                [
                    document.key,
                    str(document.revision),
                    size(len(_text(document).encode())),
                    document.written_by or ("(plain)" if document.is_plain else ""),
                    ago(document.time, fleet.clock.now()),
                ]
            )
        columns = [Column("KEY"), Column("REVISION", right=True), Column("SIZE", right=True)]
        columns += [Column("BY"), Column("WHEN")]
        terminal.table(columns, rows, "no data yet; `ccmctl data put common FILE` stores some\n")
        return Exit.OK

    return application.run(work)


for _command in (_put, _get, _ls):
    data.add_command(_command)


def _read(source: str) -> str:
    try:
        raw = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as err:
        raise InputError(f"{source}: cannot be read: {err.strerror}") from err
    return as_text(raw, source)


def _text(document: Document) -> str:
    body = document.body
    return body if isinstance(body, str) else msgspec.json.format(msgspec.json.encode(body)).decode() + "\n"


def _fields(document: Document) -> dict[str, object]:
    return {
        "key": document.key,
        "revision": document.revision,
        "number": document.number or None,
        "written_by": document.written_by or None,
        "time": document.time,
        "plain": document.is_plain or None,
    }
