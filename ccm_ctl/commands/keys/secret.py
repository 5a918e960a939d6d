"""`ccmctl secret`: manage secrets that only their nodes can read."""

from __future__ import annotations

from datetime import datetime

import click

from ccm_agent.bus.signatures.sealing import check_secret_name
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import ago, one_line, plural, size
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.data.documents import author_cell
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.commands.keys.secret_rotate import rotate
from ccm_ctl.commands.keys.secret_values import open_value
from ccm_ctl.commands.runs.targets import NOT_AGREED, message_option, yes_option
from ccm_ctl.fleet.keys.sealing_keys import FleetSealingKeys
from ccm_ctl.fleet.keys.secret_rotation import NodeUse, SecretRotation
from ccm_ctl.fleet.keys.secrets import FleetSecrets, SealResult
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.administration import MadeLine
from ccm_ctl.render.record_types.secrets import SecretLine, SecretNodeLine, SecretRevisionLine

NAMES_SHOWN = 5
"""The maximum number of nodes named in a line."""


@group(
    "secret",
    no_args_is_help=True,
    examples=["ccmctl secret put db-password --for role=db"],
)
def secret(application: Application) -> None:
    """
    Store secrets that only selected nodes can read.

    The broker never stores the plain value. Manifests read it as
    {{ secret("NAME") }}, and Hiera data as secret://NAME.
    """


@verb("init", examples=["ccmctl secret init"], options=[keys_option()])
def _init(application: Application, keys: str) -> Exit:
    """
    Create the fleet's sealing key, and publish its public half.

    `secret sync` uses it to seal secrets to new nodes. The key opens every secret.
    """
    folder = _keys_in(application, keys)
    is_new = folder.make_sealing()
    public_key = folder.sealing_key().public_key

    async def work(fleet: Fleet) -> Exit:
        is_published = await FleetSecrets(fleet).add_sealing_key(public_key)
        action = "created" if is_new else "published" if is_published else "unchanged"
        application.terminal.record(MadeLine, name="sealing", kind="key", action=action)
        application.terminal.show(f"sealing key: {action}, {folder.folder / 'sealing.seed'}\n")
        return Exit.OK

    return application.run(work)


@verb(
    "put",
    examples=[
        "ccmctl secret put db-password --for role=db",
        "openssl rand -hex 24 | ccmctl secret put db-password",
        "ccmctl secret put db-password --from vault:kv/db#password",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--for", "targets"],
            multiple=True,
            metavar="SELECTOR",
            help="Nodes that can read the secret, by name or assigned fact; repeatable. [as in the previous revision]",
        ),
        click.Option(["--file"], metavar="FILE", help="Read the value from a file, unchanged."),
        click.Option(
            ["--from", "source"],
            metavar="SOURCE",
            help="Read the value from age:FILE#KEY, sops:FILE#KEY or vault:MOUNT/PATH#FIELD.",
        ),
        click.Option(
            ["--identity"], metavar="FILE", default="", help="The age or SSH key that decrypts --from."
        ),
        message_option(),
    ],
)
def _put(
    application: Application,
    name: str,
    targets: tuple[str, ...],
    file: str | None,
    source: str | None,
    identity: str,
    message: str,
) -> Exit:
    """
    Store a value and seal it to the selected nodes.

    The value is read from a prompt, or from standard input without its last newline.
    """
    check_secret_name(name)
    value = open_value(file, source, identity, application.environ)

    async def work(fleet: Fleet) -> Exit:
        done = await FleetSecrets(fleet).put(name, await value.read(), targets, message)
        _show_result(application, done)
        return Exit.OK

    return application.run(work)


@verb(
    "sync",
    examples=["ccmctl secret sync"],
    options=[click.Argument(["names"], metavar="[NAME]...", nargs=-1), keys_option()],
)
def _sync(application: Application, names: tuple[str, ...], keys: str) -> Exit:
    """Seal secrets to nodes that now match, and remove them from nodes that no longer match."""
    for name in names:
        check_secret_name(name)
    sealing = _keys_in(application, keys).sealing_key()

    async def work(fleet: Fleet) -> Exit:
        found = FleetSecrets(fleet)
        for name in names or await found.names():
            _show_result(application, await found.sync(name, sealing))
        return Exit.OK

    return application.run(work)


@verb(
    "list",
    examples=["ccmctl secret list", "ccmctl secret list --stale"],
    options=[
        click.Option(
            ["--stale"],
            is_flag=True,
            help="List only secrets whose value is known to a node that no longer has access. Replace these values.",
        )
    ],
)
def _list(application: Application, stale: bool) -> Exit:
    """List secrets, without their values."""

    async def work(fleet: Fleet) -> Exit:
        rows: list[list[str | Cell]] = []
        for one in await FleetSecrets(fleet).read_all():
            if stale and not one.stale:
                continue
            newest = one.head.newest
            able = [each.node for each in one.nodes if each.revision == one.revision and not each.problem]
            unverified = one.document.unverified
            by, time = one.document.written_by, one.document.time
            application.terminal.record(
                SecretLine,
                name=one.head.name,
                revision=one.revision,
                targets=list(one.head.targets),
                by=by,
                time=time,
                message=(newest.message if newest is not None else "") or None,
                nodes=len(able),
                stale=one.stale or None,
                unverified=unverified or None,
            )
            rows.append(
                [
                    one.head.name,
                    str(one.revision),
                    one_line(" or ".join(one.head.targets)),
                    str(len(able)),
                    Cell(_named(one.stale), "bad" if one.stale else ""),
                    author_cell(one_line(by), unverified),
                    ago(time, fleet.clock.now()),
                ]
            )
        columns = [Column("SECRET"), Column("REVISION", right=True), Column("FOR", fold=True)]
        columns += [Column("NODES", right=True), Column("STALE ON", fold=True), Column("BY", spare=1)]
        none = (
            "no secret is known to a node without access\n"
            if stale
            else "no secret yet; `ccmctl secret put NAME --for SELECTOR` stores one\n"
        )
        application.terminal.table([*columns, Column("WHEN", spare=2)], rows, none)
        return Exit.OK

    return application.run(work)


@verb(
    "history",
    examples=["ccmctl secret history db-password"],
    options=[click.Argument(["name"], metavar="NAME")],
)
def _history(application: Application, name: str) -> Exit:
    """List the revisions of a secret, newest first. Earlier values are no longer stored."""
    check_secret_name(name)

    async def work(fleet: Fleet) -> Exit:
        stored = await FleetSecrets(fleet).read(name)
        unverified, rows = stored.document.unverified, []
        for one in reversed(stored.head.revisions):
            application.terminal.record(
                SecretRevisionLine,
                name=name,
                revision=one.revision,
                by=one.by,
                time=one.time,
                message=one.message or None,
                size_bytes=one.size_bytes,
                purged=not one.sealed or None,
                unverified=unverified or None,
            )
            by = author_cell(one_line(one.by), unverified)
            when = ago(one.time, fleet.clock.now())
            rows.append([str(one.revision), size(one.size_bytes), by, when, one_line(one.message)])
        columns = [Column("REVISION", right=True), Column("SIZE", right=True), Column("BY"), Column("WHEN")]
        application.terminal.table([*columns, Column("MESSAGE", fold=True)], rows)
        return Exit.OK

    return application.run(work)


@verb("who", examples=["ccmctl secret who db-password"], options=[click.Argument(["name"], metavar="NAME")])
def _who(application: Application, name: str) -> Exit:
    """
    List the nodes that have, had or should have access to a secret, and the revision in use according to their signed records.
    """
    check_secret_name(name)

    async def work(fleet: Fleet) -> Exit:
        found = SecretRotation(fleet)
        stored = await found.read(name)
        uses = await found.uses(name, [one.node for one in stored.nodes])
        missing = {one.node: one for one in await found.missing(stored)}
        nodes = [one for one in stored.nodes if one.node not in missing or one.revision or one.known]
        nodes += [one for one in missing.values() if one.node not in {each.node for each in nodes}]
        rows: list[list[str | Cell]] = []
        for one in sorted(nodes, key=lambda each: each.node):
            problem = one.problem or (missing[one.node].problem if one.node in missing else "")
            use = uses.get(one.node)
            if one.node in stored.stale and not problem:
                problem = "knows the value but no longer has access; replace the value"
            application.terminal.record(
                SecretNodeLine,
                name=name,
                node=one.node,
                revision=one.revision or None,
                known=one.known or None,
                since=one.since,
                by=one.by or None,
                problem=problem or None,
                next=one.next or None,
                uses=use.revision or None if use is not None else None,
                uses_since=use.since if use is not None else None,
                doubt=use.doubt or None if use is not None else None,
            )
            revision = str(one.revision or "") or (f"knew {one.known}" if one.known else "none")
            when = ago(one.since, fleet.clock.now()) if one.since is not None else ""
            rows.append(
                [
                    one.node,
                    f"{revision}, next {one.next}" if one.next else revision,
                    _format_use(use, fleet.clock.now()),
                    when,
                    one_line(one.by),
                    Cell(one_line(problem), "bad" if problem else ""),
                ]
            )
        columns = [Column("NODE", fold=True), Column("REVISION"), Column("USES", fold=True)]
        application.terminal.table(
            [*columns, Column("SEALED"), Column("BY", spare=1), Column("PROBLEM", fold=True)],
            rows,
            f"no node matches {name}\n",
        )
        if missing:
            application.terminal.show(f"  seal it:  ccmctl secret sync {name}\n")
        return Exit.OK

    return application.run(work)


@verb(
    "remove",
    examples=["ccmctl secret remove db-password"],
    options=[click.Argument(["name"], metavar="NAME"), yes_option()],
)
def _remove(application: Application, name: str, yes: bool) -> Exit:
    """
    Remove a secret and its values from the broker.

    Resources that read it will fail. Files that contain it remain on the nodes.
    """
    check_secret_name(name)

    async def work(fleet: Fleet) -> Exit:
        found = FleetSecrets(fleet)
        able = [one.node for one in (await found.read(name)).nodes if one.revision]
        question = f"{plural(len(able), 'node')} can open {name}: {_named(able)}. Remove it?"
        if not yes and able and not await application.terminal.ask(question, otherwise="--yes"):
            return NOT_AGREED
        _show_result(application, await found.remove(name), done_word="removed")
        return Exit.OK

    return application.run(work)


def _keys_in(application: Application, folder: str) -> FleetSealingKeys:
    return FleetSealingKeys(keys_in(application, folder).folder)


def _show_result(application: Application, done: SealResult, *, done_word: str = "") -> None:
    terminal = application.terminal
    terminal.record(
        SecretLine,
        name=done.name,
        revision=done.revision,
        sealed=list(done.sealed),
        removed=list(done.removed) or None,
        nodes=len(done.sealed) + len(done.kept),
    )
    parts = [f"sealed to {plural(len(done.sealed), 'node')}"] if not done_word else [done_word]
    if done.kept:
        parts.append(f"{plural(len(done.kept), 'node')} had it already")
    if done.removed:
        parts.append(f"access removed from {_named(done.removed)}")
    terminal.show(f"{done.name}: revision {done.revision}, {', '.join(parts)}\n")
    for node, problem in sorted(done.problems.items()):
        terminal.warn(f"{node}: {done.name} is not sealed to it: {problem}")
    if done.removed and not done_word:
        terminal.note(
            f"{_named(done.removed)} may still know the value of {done.name}; replace it with "
            f"`ccmctl secret rotate {done.name}`"
        )


def _format_use(use: NodeUse | None, now: datetime) -> str:
    if use is None or (not use.doubt and not use.revision):
        return "none"
    since = f", {ago(use.since, now)}" if use.since is not None else ""
    return f"{use.revision}{since}" if not use.doubt else "unknown"


def _named(nodes: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(nodes) - NAMES_SHOWN} more" if len(nodes) > NAMES_SHOWN else ""
    return f"{', '.join(nodes[:NAMES_SHOWN])}{more}"


for _command in (_init, _put, rotate, _sync, _list, _history, _who, _remove):
    secret.add_command(_command)
