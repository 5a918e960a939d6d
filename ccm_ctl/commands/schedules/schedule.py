"""`ccmctl schedule`: schedule manifests."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import format_scope
from ccm_agent.clikit.durations import Duration, TimeOption
from ccm_agent.clikit.options import takes
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import clock, fold_names, one_line
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.cron import shown_fields, six_fields
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.commands.rollouts.rollout_options import rollout_options
from ccm_ctl.commands.rollouts.rollout_servers import tell_servers
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.open_rollouts import alongside_option, warn_of_open
from ccm_ctl.commands.runs.run_view import start_and_watch
from ccm_ctl.commands.runs.targets import (
    NOT_AGREED,
    confirm,
    manifest_options,
    refuse_older_agents,
    run_message_option,
    target_options,
    yes_option,
)
from ccm_ctl.commands.schedules.schedule_rollout import (
    ScheduleAddOptions,
    is_scheduled_rollout,
    make_rollout,
    run_rollout_now,
)
from ccm_ctl.commands.schedules.schedule_status import status_command
from ccm_ctl.fleet.content import as_bundle
from ccm_ctl.fleet.nodes.discovery import requested_targets, resolve
from ccm_ctl.fleet.runs.run_request import prepare
from ccm_ctl.render.record_types.runs import ScheduleLine

if TYPE_CHECKING:
    from ccm_agent.clikit.terminal import Terminal
    from ccm_agent.model.formats.moments import GivenTime
    from ccm_ctl.app import Application, Broker
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.schedules.schedules import Schedules
    from ccm_ctl.fleet.schedules.stored_schedule import Schedule

DEADLINE_S = 3600
"""The default limit for a late start, in seconds."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@group(
    "schedule",
    no_args_is_help=True,
    examples=[
        'ccmctl schedule add nightly site/ --cron "0 2 * * *" --tz Europe/Berlin --targets role=web',
        "ccmctl schedule list",
    ],
)
def schedule(application: Application) -> None:
    """Schedule manifests. The broker sends them on time; `ccmctl` need not be running. Requires NATS 2.14 or newer."""


@verb(
    "add",
    examples=[
        'ccmctl schedule add nightly site/ --cron "0 2 * * *" --tz Europe/Berlin --targets role=web',
        "ccmctl schedule add weekly site/ --every 168h --targets role=web --catch-up   # includes nodes that were offline",
        "ccmctl schedule add often site/ --every 1h --targets role=web --yes",
        "ccmctl schedule add once site/ --at 2026-12-01T02:00Z --all",
        "ccmctl schedule add patch site/ --cron @weekly -t role=web --canary 1 --bake 10m --batch 10%  # a rollout",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Argument(["path"], metavar="FILE|DIR", type=click.Path()),
        *target_options(),
        click.Option(
            ["--cron"],
            default="",
            metavar="FIELDS",
            help="When to run: five crontab fields (minute hour day month weekday), six (second first), or @hourly, @daily, "
            "@weekly, @monthly, @yearly.",
        ),
        click.Option(
            ["--tz"], default="", metavar="ZONE", help="Time zone of --cron, such as Europe/Berlin. [UTC]"
        ),
        click.Option(["--every"], type=Duration(), help="Interval between runs, at least 1s."),
        click.Option(
            ["--at"],
            type=TimeOption(),
            help="Time of a single run, such as 2026-12-01T02:00Z, or 2h from now.",
        ),
        click.Option(
            ["--valid-for"],
            type=Duration(),
            default="365d",
            show_default=True,
            help="How long the signature is valid. Nodes refuse the schedule after that; add it again to renew it.",
        ),
        click.Option(
            ["--deadline"], type=Duration(), help="How late nodes may start. [1h; unlimited with --catch-up]"
        ),
        click.Option(
            ["--catch-up"],
            is_flag=True,
            help="Nodes that were offline at the scheduled time run once when they are back.",
        ),
        click.Option(["--noop"], is_flag=True, help="Change nothing; show what would change."),
        *rollout_options(is_scheduled=True),
        *manifest_options(),
        yes_option(),
    ],
)
@takes(ScheduleAddOptions)
def _add(application: Application, given: ScheduleAddOptions) -> Exit:
    """
    Schedule a manifest in its current form. Replaces a schedule with the same name and targets.

    The broker sends it to all nodes at the same time. With --batch, --canary, --rollout or a limit, it is a rollout, which a
    rollout server (`ccmctl rollout serve`) starts and drives.
    """
    if not _NAME.fullmatch(given.name):
        raise UsageError(f"{given.name!r}: not a valid name for a schedule; use letters, digits, `-` and `_`")
    when, zone = parse_when(given.cron, given.tz, given.every, given.at, datetime.now(UTC))
    store = _store_rollout if is_scheduled_rollout(given) else _store
    content = read_checked(application, given.path, given.source.manifest, force=given.source.force)
    new = _NewSchedule(name=given.name, content=content, when=when, zone=zone, given=given)

    async def work(broker: Broker) -> Exit:
        return await store(application, broker, new)

    return application.run_on_broker(work)


class _NewSchedule(Struct, frozen=True, kw_only=True):
    """The requested schedule. `when` and `zone` are in the broker's format."""

    name: str
    content: Content
    when: str
    zone: str
    given: ScheduleAddOptions

    @property
    def words(self) -> str:
        """The times of the schedule, for people."""
        return format_when(self.when, self.zone)

    def ends(self, fleet: Fleet) -> datetime:
        """Return the time at which the signature would expire if the schedule were stored now."""
        return fleet.clock.now() + timedelta(seconds=self.given.valid_for)


async def _store(application: Application, broker: Broker, new: _NewSchedule) -> Exit:
    """Ask for confirmation, and store a schedule."""
    terminal, schedules, fleet = application.terminal, _open(broker), broker.fleet
    inventory, resolved = await _resolve(fleet, new)
    if len(resolved.scopes) != 1:
        raise UsageError(
            f"a schedule uses one subject, but these nodes need {len(resolved.scopes)}: "
            "add one schedule for each --targets"
        )
    [scope] = resolved.scopes
    request = _request(fleet.operator, new, resolved)
    place = await schedules.place(request.protocol, scope, new.name)
    older = _older_agents(inventory, resolved) if place.has_own_subject else []
    if older:
        terminal.warn(_format_refusal(new.name, scope, older))
    what = f"schedule {new.content.name}, {new.words}, for"
    if not await confirm(application, what, resolved, yes=new.given.yes):
        return NOT_AGREED
    if new.content.bundle is not None:
        await fleet.manifests.put(new.content.digest, new.content.packed)
    ends = new.ends(fleet)
    is_new = not await schedules.put(
        new.name, scope, new.when, new.zone, request, ends=ends, base=[Authored.from_files()]
    )
    _show_stored(application, fleet, new, ends, is_new=is_new, scope=scope, refused_by=older or None)
    return Exit.OK


async def _store_rollout(application: Application, broker: Broker, new: _NewSchedule) -> Exit:
    """Ask for confirmation, and store the schedule of a rollout."""
    schedules, fleet, content = _open(broker), broker.fleet, as_bundle(new.content)
    inventory, resolved = await _resolve(fleet, new)
    rollout = make_rollout(fleet, content, inventory, resolved, new.given)
    await schedules.check_rollout(new.name)
    waves = one_line(str(rollout.definition))
    what = f"schedule a rollout of {content.name}, {new.words}, {waves}, on"
    if not await confirm(application, what, resolved, yes=new.given.yes):
        return NOT_AGREED
    await fleet.manifests.put(content.digest, content.packed)
    ends = new.ends(fleet)
    is_new = not await schedules.put_rollout(
        new.name, new.when, new.zone, rollout, ends=ends, base=[Authored.from_files()]
    )
    servers = await tell_servers(application, fleet, "starts")
    _show_stored(
        application,
        fleet,
        new,
        ends,
        is_new=is_new,
        scope=rollout.scope,
        rollout=waves,
        start_within_s=rollout.start_within_s,
        servers=servers,
    )
    return Exit.OK


async def _resolve(fleet: Fleet, new: _NewSchedule) -> tuple[Inventory, TargetSet]:
    """Return the nodes that match now and whose agents support schedules."""
    inventory, resolved = await resolve(fleet, new.given.nodes.spec())
    refuse_older_agents(resolved, "a schedule")
    return inventory, resolved


def _show_stored(
    application: Application,
    fleet: Fleet,
    new: _NewSchedule,
    ends: datetime,
    *,
    is_new: bool,
    scope: str,
    refused_by: list[str] | None = None,
    rollout: str | None = None,
    start_within_s: float | None = None,
    servers: list[str] | None = None,
) -> None:
    """Print that a schedule was stored, and when it is due next."""
    from ccm_ctl.fleet.schedules.stored_schedule import next_time

    now = fleet.clock.now()
    due = next_time(new.when, new.zone, since=now, now=now)
    application.terminal.record(
        ScheduleLine,
        name=new.name,
        when=new.when,
        zone=new.zone or None,
        new=is_new,
        next=due,
        ends=ends if fleet.signatory else None,
        scope=scope,
        refused_by=refused_by,
        rollout=rollout,
        start_within_s=start_within_s,
        servers=servers,
    )
    next_words = f", next {clock(due)}" if due is not None and not new.when.startswith("@") else ""
    until = f", signed until {ends:%Y-%m-%d}" if fleet.signatory else ""
    stored = "stored" if is_new else "replaced"
    application.terminal.show(f"{new.name}: {stored}, {new.words}{next_words}{until}\n")


def _format_refusal(name: str, scope: str, older: list[str]) -> str:
    return (
        f"{fold_names(older)}: the agent is too old for a second schedule of {format_scope(scope)} and refuses {name}; "
        "upgrade it, or remove the other schedule first"
    )


def _older_agents(inventory: Inventory, resolved: TargetSet) -> list[str]:
    """Return the nodes whose agents do not support schedules with their own subject."""
    nodes = (inventory.nodes[name] for name in resolved.nodes)
    return [node.name for node in nodes if node.record is not None and not node.record.own_schedules]


def _request(operator: str, new: _NewSchedule, resolved: TargetSet) -> ManifestRequest:
    """Build the request that is stored. It has no run ID and no times, because those differ for each run."""
    content, given = new.content, new.given
    return ManifestRequest(
        protocol=MANIFEST_PLAN if given.noop else MANIFEST_APPLY,
        targets=resolved.targets,
        where=resolved.where,
        requester=operator,
        deadline_s=choose_deadline_s(given.deadline, catch_up=given.catch_up),
        catch_up=given.catch_up,
        name=content.name,
        manifest=content.text,
        bundle=content.bundle,
        digest=content.digest,
        data=list(given.source.data),
        cause="schedule",
    )


def choose_deadline_s(given: int | None, *, catch_up: bool) -> float:
    """
    Return the limit for a late start in seconds. 0 means no limit, for nodes that catch up after a long time offline.
    """
    return float(given if given is not None else 0 if catch_up else DEADLINE_S)


@verb("list", examples=["ccmctl schedule list"])
def _list(application: Application) -> Exit:
    """List schedules with their targets and their last and next times."""

    async def work(broker: Broker) -> Exit:
        now = broker.fleet.clock.now()
        rows = []
        for one in await _open(broker).all():
            _print_schedule(application.terminal, one, now)
            action = "plan" if one.protocol == MANIFEST_PLAN else "apply"
            when = format_when(one.when, one.zone) or "once, in the past"
            if one.rollout is not None:
                when += f", rollout with {one_line(str(one.rollout.definition))}"
            if one.request.catch_up:
                when += ", catch up"
            if one.unverified:
                application.terminal.warn(f"{one.name}: the schedule is unverified: {one.unverified}")
            targets = " or ".join(one.request.targets) or one.scope
            rows.append(
                [
                    one.name,
                    f"{action} {one.request.name}",
                    targets,
                    when,
                    clock(one.next_after(now)),
                    clock(one.last),
                ]
            )
        columns = [Column("NAME"), Column("DOES"), Column("TARGETS", fold=True)]
        columns += [Column("WHEN", fold=True), Column("NEXT"), Column("LAST", spare=1)]
        application.terminal.table(
            columns, rows, "no schedules yet; `ccmctl schedule add --help` shows how\n"
        )
        return Exit.OK

    return application.run_on_broker(work)


@verb(
    "rm",
    examples=["ccmctl schedule rm nightly", "ccmctl schedule rm nightly --yes   # in scripts"],
    options=[click.Argument(["name"], metavar="NAME"), yes_option()],
)
def _rm(application: Application, name: str, yes: bool) -> Exit:
    """Remove a schedule. Runs that have started continue."""

    async def work(broker: Broker) -> Exit:
        schedules = _open(broker)
        stored = await schedules.need(name)
        question = (
            f"remove the schedule {name} ({format_when(stored.when, stored.zone) or 'no further run'})?"
        )
        if not yes and not await application.terminal.ask(question, otherwise="use --yes"):
            return NOT_AGREED
        await schedules.remove(name)
        application.terminal.record(ScheduleLine, name=name, removed=True)
        application.terminal.show(f"{name}: removed\n")
        return Exit.OK

    return application.run_on_broker(work)


@verb(
    "run",
    examples=["ccmctl schedule run nightly --yes"],
    options=[
        click.Argument(["name"], metavar="NAME"),
        run_message_option(),
        alongside_option(),
        yes_option(),
    ],
)
def _run(application: Application, name: str, message: str, yes: bool, alongside: bool) -> Exit:
    """Run a schedule now and watch the run. This command drives the waves of a rollout."""

    async def work(broker: Broker) -> Exit:
        fleet = broker.fleet
        stored = await _open(broker).need(name)
        request = stored.request
        inventory, resolved = await resolve(fleet, requested_targets(request))
        action = "plan" if request.protocol == MANIFEST_PLAN else "apply"
        if action == "apply":
            is_refused = stored.rollout is not None and yes and not alongside
            await warn_of_open(application, fleet, resolved.nodes, is_refused=is_refused)
        if action == "apply" and not await confirm(
            application, f"apply {request.name} to", resolved, yes=yes
        ):
            return NOT_AGREED
        late = timedelta(seconds=request.deadline_s or DEADLINE_S)
        request = msgspec.structs.replace(
            request,
            deadline=fleet.clock.now() + late,
            deadline_s=0,
            catch_up=False,
            cause="request",
            message=message,
        )
        launch = prepare(fleet, request, resolved, action, request.name, base=[stored.verified()])
        if stored.rollout is not None:
            return await run_rollout_now(application, fleet, stored.rollout, launch, inventory)
        return await start_and_watch(application, fleet, launch, offline_ok=False)

    return application.run_on_broker(work)


for _command in (_add, _list, status_command, _rm, _run):
    schedule.add_command(_command)


def parse_when(
    cron: str, zone: str, every: int | None, at: GivenTime | None, now: datetime
) -> tuple[str, str]:
    """
    Return the times of the schedule in the broker's format, and the time zone.

    Raises:
        UsageError: None or several of the options were given, or an option is not valid.
    """
    if sum((bool(cron), every is not None, at is not None)) != 1:
        raise UsageError("use exactly one of --cron, --every and --at")
    if zone and not cron:
        raise UsageError("--tz requires --cron")
    if cron:
        _check_zone(zone)
        return six_fields(cron), zone
    if every is not None:
        return f"@every {every}s", ""
    assert at is not None
    moment = at.after(now)
    if moment <= now:
        raise UsageError(
            f"--at {at.written}: this time has passed; the broker would send the request immediately"
        )
    return f"@at {moment.strftime('%Y-%m-%dT%H:%M:%SZ')}", ""


def format_when(when: str, zone: str) -> str:
    """Format the times for people: `every 7d`, `at 2026-12-01T02:00:00Z`, `0 2 * * * Europe/Berlin`."""
    word, _, rest = when.partition(" ")
    if word == "@every":
        return f"every {format_duration(parse_duration(rest))}"
    return f"at {rest}" if word == "@at" else f"{shown_fields(when)} {zone}".strip()


def _check_zone(zone: str) -> None:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(zone or "UTC")
    except (LookupError, ValueError, OSError) as err:
        raise UsageError(f"--tz {zone}: unknown time zone; use a name such as Europe/Berlin") from err


def _open(broker: Broker) -> Schedules:
    from ccm_ctl.fleet.schedules.schedules import Schedules

    assert broker.connection is not None
    return Schedules(broker.connection, broker.fleet)


def _print_schedule(terminal: Terminal, one: Schedule, now: datetime) -> None:
    terminal.record(
        ScheduleLine,
        name=one.name,
        scope=one.scope,
        protocol=one.protocol,
        manifest=one.request.name,
        targets=one.request.targets,
        where=one.request.where or None,
        when=one.when,
        zone=one.zone or None,
        catch_up=one.request.catch_up or None,
        next=one.next_after(now),
        last=one.last,
        ends=one.ends,
        unverified=one.unverified or None,
        rollout=one_line(str(one.rollout.definition)) if one.rollout else None,
        start_within_s=one.rollout.start_within_s if one.rollout else None,
    )
