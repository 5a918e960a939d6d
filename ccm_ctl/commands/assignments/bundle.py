"""`ccmctl bundle list|get|gc`: manage the bundles in the object store."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import UNSET

from ccm_agent.clikit.site_writer import check_free
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import ago, one_line, plural, short_id, size
from ccm_agent.engine.bundle import BundleLimits, unpack_bundle
from ccm_agent.model.errors import FileError, ProtocolError, UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.bundle_collection import collect
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.fleet.assignments.bundle_references import (
    ENDED_RUN,
    REVISION,
    ROLLOUT,
    RUN,
    SHORT_DIGEST,
    BundleReference,
    choose_bundle,
    find_bundles,
    read_references,
)
from ccm_ctl.fleet.content import SIZE_LIMIT_BYTES
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.assignments import BundleLine, BundleReferenceFields


@group(
    "bundle",
    no_args_is_help=True,
    examples=[
        "ccmctl bundle list",
        "ccmctl bundle get 3f9a1c07b2de --out site-of-last-week",
        "ccmctl bundle gc --older-than 30d --dry-run",
    ],
)
def bundle(application: Application) -> None:
    """List and extract the bundles on the broker, and remove unused ones."""


@verb("list", examples=["ccmctl bundle list", "ccmctl bundle list --json | jq 'select(.references == null)'"])
def _list(application: Application) -> Exit:
    """
    List bundles, newest first, and the objects that need each one.

    A bundle is needed by an assignment, an earlier revision that `ccmctl rollback` can restore, a schedule, a rollout, or a
    run on record. An ended run needs it for `ccmctl run retry`, and a plan for `ccmctl apply --plan`. `ccmctl bundle gc`
    removes the others.
    """

    async def work(fleet: Fleet) -> Exit:
        terminal, now = application.terminal, fleet.clock.now()
        bundles, references = await find_bundles(fleet), await read_references(fleet)
        rows = []
        for one in bundles:
            needed = references.of(one.name)
            terminal.record(
                BundleLine,
                digest=one.name,
                size_bytes=one.size_bytes,
                stored=one.time,
                references=[
                    BundleReferenceFields(
                        kind=each.kind,
                        name=each.name,
                        revision=each.revision or UNSET,
                        scope=each.scope or UNSET,
                    )
                    for each in needed
                ]
                or None,
            )
            words = one_line(_format_references(needed)) or "nothing"
            rows.append([one.name[:SHORT_DIGEST], size(one.size_bytes), ago(one.time, now), words])
        columns = [Column("DIGEST"), Column("SIZE"), Column("STORED"), Column("NEEDED BY", fold=True)]
        terminal.table(columns, rows, "no bundles are stored\n")
        if references.unreadable:
            more = len(references.unreadable) - 1
            others = f" (and {more} more)" if more else ""
            terminal.warn(
                f"{references.unreadable[0]}{others}: cannot be read, so a bundle that it needs is not marked as needed"
            )
        return Exit.OK

    return application.run(work)


@verb(
    "get",
    examples=["ccmctl bundle get 3f9a1c07b2de --out site-of-last-week"],
    options=[
        click.Argument(["digest"], metavar="DIGEST"),
        click.Option(
            ["--out", "out"],
            metavar="DIR",
            required=True,
            type=click.Path(path_type=Path),
            help="New or empty directory for the files. Its parent must exist.",
        ),
    ],
)
def _get(application: Application, digest: str, out: Path) -> Exit:
    """
    Unpack a bundle into a new or empty directory that only you can read.

    A prefix of the digest is enough. Before anything is written, the bundle is compared with its digest, and checked as on a
    node. Nothing is overwritten.
    """
    _check_target(out)

    async def work(fleet: Fleet) -> Exit:
        found = choose_bundle(await find_bundles(fleet), digest)
        packed = await fleet.manifests.get(found.name, SIZE_LIMIT_BYTES)
        await asyncio.to_thread(_write, packed, found.name, out)
        application.terminal.record(
            BundleLine, digest=found.name, size_bytes=len(packed), stored=found.time, folder=str(out)
        )
        application.terminal.show(one_line(f"{found.name[:SHORT_DIGEST]}: unpacked into {out}") + "\n")
        return Exit.OK

    return application.run(work)


for _command in (_list, _get, collect):
    bundle.add_command(_command)


def _format_references(references: Sequence[BundleReference]) -> str:
    """Describe the objects that need a bundle, such as `assignment web, revisions 2 and 3 of db, schedule nightly`."""
    words: list[str] = []
    revisions: dict[str, list[int]] = {}
    ended = sum(one.kind == ENDED_RUN for one in references)
    for one in references:
        if one.kind == REVISION:
            revisions.setdefault(one.name, []).append(one.revision)
        elif one.kind == ENDED_RUN:
            continue
        else:
            name = short_id(one.name) if one.kind in (RUN, ROLLOUT) else one.name
            words.append(f"{one.kind} {name}")
    for name, numbers in revisions.items():
        shown = ", ".join(map(str, sorted(numbers)))
        words.append(f"{'revision' if len(numbers) == 1 else 'revisions'} {shown} of {name}")
    if ended:
        words.append(plural(ended, "ended run"))
    return "; ".join(words)


def _check_target(out: Path) -> None:
    """
    Check that a directory is new or empty, and that its parent exists.

    Raises:
        UsageError: The directory cannot be used. The current directory is refused, because the rename would replace it.
    """
    check_free(str(out))
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: its parent directory does not exist; create it first")
    if out.exists() and out.samefile(Path.cwd()):
        raise UsageError(f"--out {out}: is the current directory; name a new directory in it")


def _write(packed: bytes, digest: str, out: Path) -> None:
    """
    Unpack a bundle. Blocking.

    The files are unpacked next to the directory, in a folder to which only this user may write, and the folder is then renamed.
    The kernel does not replace a directory that is not empty (rename(2)), so files that another program wrote there remain.
    """
    if hashlib.sha256(packed).hexdigest() != digest:
        raise ProtocolError(f"{digest}: the bundle on the broker does not match this digest; refused")
    target = out.absolute()
    try:
        with tempfile.TemporaryDirectory(prefix=".ccm-bundle-", dir=target.parent) as staging:
            folder = Path(staging) / "content"
            unpack_bundle(packed, folder, BundleLimits(), f"bundle {digest[:12]}")
            folder.rename(target)
    except OSError as err:
        raise FileError(f"{out}: cannot be written: {err.strerror}") from err
