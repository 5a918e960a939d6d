"""`ccmctl init`: create the streams and buckets of the fleet on the broker."""

from __future__ import annotations

import click
from click.core import ParameterSource

from ccm_agent.bus.layout import LayoutOptions, make_audit
from ccm_agent.bus.stream_creation import LayoutChange
from ccm_agent.clikit.durations import Duration
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.text import plural
from ccm_agent.model.errors import BusError, CcmError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.durations import format_duration
from ccm_ctl.app import Application, Broker
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.keys.certificates import prepare_certificates, server_name_option
from ccm_ctl.commands.keys.credentials import prepare_security
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.commands.keys.migration import begin_migration, go_on_migrating
from ccm_ctl.commands.keys.signers import publish_list, signers_in
from ccm_ctl.commands.keys.site import (
    make_site_streams,
    make_streams,
    prepare_site,
    renew_leaf_credentials,
    site_options,
)
from ccm_ctl.render.record_types.administration import MadeLine


def _number(
    name: str, default: int, text: str, *, most: int | None = None, least: int = 0, shown: bool = True
) -> click.Option:
    kind = click.IntRange(least, most)
    return click.Option([name], type=kind, default=default, show_default=shown, metavar="N", help=text)


def _age(name: str, default: str, text: str) -> click.Option:
    return click.Option([name], type=Duration(), default=default, show_default=True, help=text)


@verb(
    "init",
    examples=[
        "ccmctl init",
        "ccmctl init --replicas 3 --events-age 90d",
        "ccmctl init --server nats://broker:4222",
        "ccmctl init --security",
        "ccmctl init --security --server-name nats1.example.net   # and certificates",
        "ccmctl init --security --migrate                          # from the old one-account layout",
        "ccmctl init --site paris --leaf nats-leaf://nats1.example.net:7422",
    ],
    options=[
        _number(
            "--replicas",
            0,
            "Replicas of each stream and bucket. [3 if the cluster has 3 servers, else 1]",
            most=5,
            shown=False,
        ),
        _number("--history", 20, "Revisions kept of facts, data and assignments.", most=64, least=1),
        _age("--events-age", "30d", "How long events are kept."),
        _number("--events-size", 2048, "Maximum size of all events, in MiB.", least=1),
        _age("--duplicate-window", "1h", "How long the broker recognizes a repeated event."),
        _age("--runs-age", "90d", "How long records of runs are kept."),
        click.Option(
            ["--security"], is_flag=True, help="Set up a broker where each node and operator has credentials."
        ),
        server_name_option(),
        click.Option(
            ["--migrate"],
            is_flag=True,
            help="Migrate from one account to several: start, list the users that are left, or finish.",
        ),
        click.Option(
            ["--migrate-within"],
            type=Duration(),
            default="30d",
            show_default=True,
            help="Maximum time that old credentials stay valid.",
        ),
        click.Option(
            ["--finish"], is_flag=True, help="End the migration, even if some users have not migrated."
        ),
        click.Option(
            ["--allow-unsigned"],
            type=Duration(),
            help="Let nodes also accept unsigned requests for this long, while some agents or controllers cannot sign.",
        ),
        *site_options(),
        keys_option(),
    ],
)
def init(
    application: Application,
    replicas: int,
    history: int,
    events_age: int,
    events_size: int,
    duplicate_window: int,
    runs_age: int,
    security: bool,
    server_name: tuple[str, ...],
    migrate: bool,
    migrate_within: int,
    finish: bool,
    allow_unsigned: int | None,
    site: str,
    leaf: str,
    new_leaf: bool,
    keys: str,
) -> Exit:
    """
    Create the streams, buckets and the object store on the broker, and report what changed.

    Run it again to apply new settings. It never lowers a limit, and never deletes anything. With --security, the first call only
    creates keys and prints what to install on the servers; then run it again.
    """
    if duplicate_window > events_age:
        raise UsageError(
            f"--duplicate-window {format_duration(duplicate_window)}: must not be longer than "
            f"events are kept ({format_duration(events_age)})"
        )

    if server_name and not security:
        raise UsageError("--server-name requires --security")
    if allow_unsigned is not None and not security:
        raise UsageError("--allow-unsigned requires --security")
    if (migrate and not security) or (finish and not migrate):
        raise UsageError("--migrate requires --security, and --finish requires --migrate")
    if (leaf or new_leaf) and not site:
        raise UsageError("--leaf and --new-leaf require --site")
    if new_leaf and (others := _given_besides("site", "new_leaf", "keys")):
        raise UsageError(f"--new-leaf only creates credentials; run it without {', '.join(others)}")
    if site and migrate:
        raise UsageError("--site and --migrate: finish the migration first")
    if new_leaf:
        renew_leaf_credentials(application, keys, site)
        return Exit.OK
    is_secure = security or bool(site)
    if migrate and begin_migration(application, keys, migrate_within):
        return Exit.OK
    if security:
        has_new = bool(server_name) and prepare_certificates(application, keys, server_name)
        is_there = prepare_security(application, keys)
        if allow_unsigned is not None:
            signers_in(application, keys).allow_unsigned(allow_unsigned)
        if not is_there or has_new:
            return Exit.OK
    if site and not prepare_site(application, keys, site, leaf):
        return Exit.OK

    async def work(broker: Broker) -> Exit:
        assert broker.connection is not None
        layout = LayoutOptions(
            replicas=replicas,
            history=history,
            events_age_s=events_age,
            events_bytes=events_size << 20,
            duplicate_window_s=duplicate_window,
            runs_age_s=runs_age,
            secure=True if is_secure else None,
        )
        if site:
            made = await make_site_streams(application, broker, layout, keys, site)
        else:
            made = await make_streams(application, broker, layout, keys)
        if is_secure:
            made += await _make_audit(application, layout, keys)
        show_made(application, made)
        if migrate:
            await go_on_migrating(application, keys, finish=finish)
        if security:
            await _publish_signers(application, broker, keys)
        return Exit.OK

    return application.run_on_broker(work)


def _given_besides(*names: str) -> list[str]:
    """Return the options on the command line, without those with these names."""
    context = click.get_current_context()
    return [
        one.opts[0]
        for one in context.command.params
        if one.name not in names
        and context.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
    ]


async def _make_audit(application: Application, layout: LayoutOptions, folder: str) -> list[LayoutChange]:
    """Create the audit streams in their own account. If this is not possible here or yet, print a note and return []."""
    from ccm_ctl.fleet.keys.system_account import audit_connection

    keys = keys_in(application, folder)
    if keys.has_one_account:
        return []
    try:
        async with audit_connection(application.settings(), keys) as connection:
            return await make_audit(connection, layout)
    except BusError as err:
        fix = f"copy {keys.configuration} to each server, run `nats-server --signal reload`, then run this again"
        application.terminal.note(f"the audit streams were not created: {err}\n    {fix}")
    except CcmError as err:
        application.terminal.note(
            f"the audit streams were not created: {err}; run this again with the folder of all seeds"
        )
    return []


async def _publish_signers(application: Application, broker: Broker, folder: str) -> None:
    found = signers_in(application, folder)
    if found.exist() and await publish_list(broker, found):
        signers = plural(len(found.read().signers), "operator")
        application.terminal.record(MadeLine, name="signers", kind="list", action="published")
        application.terminal.show(f"signers list: published, {signers}\n")


def show_made(application: Application, made: list[LayoutChange]) -> None:
    """Print the changes of the streams and buckets."""
    meanings = {"created": "change", "updated": "change", "unchanged": "good", "skipped": "quiet"}
    rows: list[list[str | Cell]] = []
    for one in made:
        application.terminal.record(
            MadeLine,
            name=one.name,
            kind=one.kind,
            action=str(one.action),
            replicas=one.replicas,
            details=list(one.details),
        )
        rows.append(
            [
                one.name,
                one.kind,
                str(one.replicas or ""),
                Cell(str(one.action), meanings[one.action]),
                "; ".join(one.details),
            ]
        )
    columns = [Column("NAME"), Column("KIND"), Column("REPLICAS", right=True), Column("RESULT")]
    terminal = application.terminal
    terminal.table([*columns, Column("DETAILS", fold=True)], rows)
