"""`ccmctl signers`: manage the operators whose signatures nodes accept."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, Signer, SignersList, read_signers
from ccm_agent.bus.subjects import format_scope
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.errors import ProtocolError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.moments import format_moment
from ccm_ctl.app import Application, Broker
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.fleet.keys.signers import Signers, publish, published
from ccm_ctl.fleet.keys.signers_timestamp import LEAST_MAX_AGE_S, RenewalState, renew
from ccm_ctl.render.record_types.access import SignerLine
from ccm_ctl.render.record_types.administration import MadeLine


@group(
    "signers",
    no_args_is_help=True,
    examples=[
        "ccmctl signers list",
        "ccmctl signers publish",
        "ccmctl signers renew",
        "ccmctl signers max-age 3d",
        "ccmctl signers allow-unsigned 30d",
    ],
)
def signers(application: Application) -> None:
    """Manage the signers list: the operators whose signatures nodes accept. The fleet's root key signs it."""


@verb("list", examples=["ccmctl signers list", "ccmctl signers list --json"], options=[keys_option()])
def _list(application: Application, keys: str) -> Exit:
    """List the operators in the signers list of this folder, with role and expiry."""
    found = signers_in(application, keys)
    listed = found.read()

    rows: list[list[Any]] = []
    for one in sorted(listed.signers, key=lambda one: one.name):
        _print_record(application.terminal, one)
        ends = datetime.fromtimestamp(one.expires, UTC).strftime("%Y-%m-%d") if one.expires else ""
        rows.append([one.name, _role(one), ends, one.key])
    columns = [Column("NAME"), Column("MAY", fold=True), Column("EXPIRES"), Column("KEY", spare=1)]
    application.terminal.table(columns, rows, "no signers\n")
    for note in _notes(listed):
        application.terminal.note(note)
    return Exit.OK


@verb("publish", examples=["ccmctl signers publish"], options=[keys_option()])
def _publish(application: Application, keys: str) -> Exit:
    """Publish the signers list, and confirm it. Nodes read it within seconds, and never return to an older list."""
    found = signers_in(application, keys)
    listed = found.read()

    async def work(broker: Broker) -> Exit:
        is_new = await publish_list(broker, found)
        number = listed.number
        application.terminal.record(MadeLine, name="signers", kind="list", action="published", number=number)
        done = "published" if is_new else "already published"
        application.terminal.show(f"signers list {number}: {done}\n")
        return Exit.OK

    return application.run_on_broker(work)


@verb(
    "allow-unsigned",
    examples=["ccmctl signers allow-unsigned 30d", "ccmctl signers allow-unsigned --end"],
    options=[
        click.Argument(["time"], metavar="DURATION", type=Duration(), required=False),
        click.Option(
            ["--end"], is_flag=True, help="End it now: nodes accept only signed requests and documents."
        ),
        keys_option(),
    ],
)
def _allow_unsigned(application: Application, time: int | None, end: bool, keys: str) -> Exit:
    """
    Let nodes accept unsigned requests and documents, and `ccmctl` accept unsigned events, for a limited time.

    Use it while some agents or controllers of a fleet cannot sign yet. Run `ccmctl signers publish` afterwards. With --end,
    `ccmctl` also does not rely on presence, facts and registrations that a node did not sign.
    """
    if (time is None) != end:
        raise UsageError("specify a duration such as 30d, or --end")
    listed = signers_in(application, keys).allow_unsigned(time or 0)
    return _show_updated(application, listed, without_limit="nodes accept only what is signed")


@verb(
    "max-age",
    examples=["ccmctl signers max-age 3d", "ccmctl signers max-age --end"],
    options=[
        click.Argument(["time"], metavar="DURATION", type=Duration(), required=False),
        click.Option(
            ["--end"], is_flag=True, help="Remove the limit: nodes rely on their newest list forever."
        ),
        keys_option(),
    ],
)
def _max_age(application: Application, time: int | None, end: bool, keys: str) -> Exit:
    """
    Limit how long nodes rely on the signers list after an administrator last confirmed it. After that, they obey plans only.

    The `ccmctl` commands of administrators confirm it automatically. Run `ccmctl signers publish` afterwards.
    """
    if (time is None) != end:
        raise UsageError("specify a duration such as 3d, or --end")
    if time is not None and time < LEAST_MAX_AGE_S:
        raise UsageError(
            "the maximum age must be at least 1h, because `ccmctl` renews the timestamp only occasionally"
        )
    listed = signers_in(application, keys).limit_age(time or 0)
    return _show_updated(
        application, listed, without_limit="nodes rely on the newest list that they have, forever"
    )


@verb(
    "renew",
    examples=["ccmctl signers renew", "ccmctl signers renew --force"],
    options=[
        click.Option(
            ["--force"],
            is_flag=True,
            help="Accept the stored documents as the newest ones. Check them first.",
        ),
    ],
)
def _renew(application: Application, force: bool) -> Exit:
    """
    Confirm now that the published signers list is the newest one. The `ccmctl` of administrators also does so automatically.

    It fails if the broker has older timestamps or lower document numbers than before. After you have checked the stored
    documents, --force makes a new snapshot from them. Nodes without state then accept them, even if newer ones existed.
    """

    async def work(broker: Broker) -> Exit:
        assert broker.connection is not None
        state = await renew(broker.fleet, broker.connection, is_forced=True, begins_anew=force)
        if state == RenewalState.NOT_ALLOWED:
            raise UsageError(
                "nothing to confirm: the signers list has no maximum age (`ccmctl signers max-age`), or your "
                "key may not sign timestamps, as only administrators can"
            )
        application.terminal.record(MadeLine, name="timestamp", kind="timestamp", action="updated")
        application.terminal.show("signers list: confirmed\n")
        return Exit.OK

    return application.run_on_broker(work)


for _command in (_list, _publish, _renew, _max_age, _allow_unsigned):
    signers.add_command(_command)


def signers_in(application: Application, folder: str) -> Signers:
    """Return the signers list from the folder with the fleet's keys."""
    return keys_in(application, folder).signers


async def publish_list(broker: Broker, found: Signers) -> bool:
    """
    Publish the list unless it is already published. Return whether it was published now.

    Raises:
        ProtocolError: A newer list is published, or the published list is signed by another root key.
    """
    assert broker.connection is not None
    trust, listed = found.trust(), found.read()
    there = await published(NatsKeyValue(broker.connection, TRUST_BUCKET))
    if there is not None:
        now_ms = int(broker.fleet.clock.now().timestamp() * 1000)
        newest = read_signers(there.body.encode(), there.signature, trust.root, now_ms=now_ms)
        if newest.number > listed.number:
            raise ProtocolError(
                f"signers list {newest.number} is published, but the one here is {listed.number}; "
                "copy trust.json from the folder where the newest one was created"
            )
        if newest.number == listed.number:
            await _renew_published(broker)
            return False
    await _renew_published(broker, await publish(broker.connection, trust))
    return True


async def _renew_published(broker: Broker, revision: int = 0) -> None:
    """
    Confirm the published list. If the broker has older data than before, only print a warning, because the list is published.
    """
    assert broker.connection is not None
    try:
        await renew(broker.fleet, broker.connection, at_least=revision)
    except ProtocolError as err:
        broker.fleet.warn(f"the signers list is published, but not confirmed: {err.message}")


def _show_updated(application: Application, listed: SignersList, *, without_limit: str) -> Exit:
    notes = _notes(listed) or [without_limit]
    application.terminal.record(
        MadeLine, name="signers", kind="list", action="updated", number=listed.number, details=notes
    )
    for note in notes:
        application.terminal.show(f"{note}\n")
    application.terminal.note("run `ccmctl signers publish` to publish this to the nodes")
    return Exit.OK


def _notes(listed: SignersList) -> list[str]:
    notes = []
    if listed.max_age_s:
        notes.append(
            f"nodes rely on this list for {format_duration(listed.max_age_s)} after the last timestamp, then they obey plans only"
        )
    if not listed.allow_unsigned_until:
        return notes
    until = datetime.fromtimestamp(listed.allow_unsigned_until / 1000, UTC)
    word = "accept" if until > datetime.now(UTC) else "accepted"
    return [*notes, f"nodes {word} unsigned requests and documents until {format_moment(until)}"]


def _print_record(terminal: Terminal, one: Signer) -> None:
    terminal.record(
        SignerLine,
        name=one.name,
        key=one.key,
        plan=list(one.plan) or None,
        apply=list(one.apply) or None,
        exec=list(one.exec) or None,
        maintain=list(one.maintain) or None,
        data=one.data or None,
        facts=one.facts or None,
        schedules=one.schedules or None,
        join=one.join or None,
        admin=one.admin or None,
        timestamp=one.timestamp or None,
        roles=list(one.roles) or None,
        expires=datetime.fromtimestamp(one.expires, UTC) if one.expires else None,
    )


def _role(one: Signer) -> str:
    def scopes(found: tuple[str, ...]) -> str:
        return ", ".join("all" if scope == ">" else format_scope(scope) for scope in found)

    scoped = {"plan": one.plan, "apply": one.apply, "exec": one.exec, "maintain": one.maintain}
    parts = [f"{verb} {scopes(found)}" for verb, found in scoped.items() if found]
    parts += [
        word for word in ("data", "facts", "schedules", "join", "admin", "timestamp") if getattr(one, word)
    ]
    return ", ".join(parts) or "look"
