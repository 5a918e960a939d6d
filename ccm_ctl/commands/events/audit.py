"""`ccmctl audit`: show and verify the actions that operators signed, and the decisions of nodes about requests."""

from __future__ import annotations

from collections.abc import Sequence

import click

from ccm_agent.bus.subjects import check_node
from ccm_agent.clikit.durations import TimeOption
from ccm_agent.clikit.table import Cell, Column
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import clock, one_line, plural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_ctl.app import Application, Broker
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.fleet.runs.find_run import find_id
from ccm_ctl.fleet.trust.audit_trail import AuditAuthor, AuditRecord, AuditStatus, AuditTrail, read_trail
from ccm_ctl.render.record_types.audit import AuditAuthorLine, AuditLine, NumberRange

KINDS = ("request", "schedule", "document", "deletion", "object", "rollout", "record", "order", "decision")

REFUSED = ("refused", "expired", "superseded")
"""The decisions after which a request has no effect."""

_NEWEST = 200
"""The maximum number of entries that are shown without a filter."""


@verb(
    "audit",
    examples=[
        "ccmctl audit",
        "ccmctl audit --by bob --since 7d",
        "ccmctl audit --run last                    # who sent it, and what each node decided",
        "ccmctl audit --refused --since 24h",
        "ccmctl audit --verify                      # is every entry genuine, and none missing?",
        "ccmctl audit --since 30d --json > audit.jsonl",
    ],
    options=[
        click.Option(["--by"], metavar="NAME", default="", help="Show only entries of this operator."),
        click.Option(["--node", "-n"], metavar="NODE", default="", help="Show only decisions of this node."),
        click.Option(["--run", "-r"], metavar="RUN", default="", help="Show only entries about this run."),
        click.Option(
            ["--kind", "kinds"],
            multiple=True,
            type=click.Choice(KINDS),
            help="Show only this kind of entry. May be repeated.",
        ),
        click.Option(["--refused"], is_flag=True, help="Show only requests that nodes did not accept."),
        click.Option(
            ["--since"], type=TimeOption(), help="Show only entries stored since this time, such as 7d."
        ),
        click.Option(["--verify"], is_flag=True, help="Show only the result of the check for each author."),
    ],
)
def audit(
    application: Application,
    by: str,
    node: str,
    run: str,
    kinds: tuple[str, ...],
    refused: bool,
    since: GivenTime | None,
    verify: bool,
) -> Exit:
    """
    Show the audit trail, newest first: the actions that operators signed, and the decisions of nodes about requests.

    Operators and nodes can add entries, but not remove them. The signatures and numbers of all entries are checked.

    Exit codes: 0 success; 1 the command could not run; 2 an entry is missing, changed or forged.
    """
    if by and node:
        raise UsageError("--by and --node both select authors; use one of them")

    async def work(broker: Broker) -> Exit:
        assert broker.connection is not None
        fleet = broker.fleet
        wanted = await find_id(fleet, run) if run else ""
        begin = since.before(fleet.clock.now()) if since else None
        trail = await read_trail(
            fleet, broker.connection, operator=by, node=check_node(node) if node else "", since=begin
        )
        if verify:
            _show_authors(application, trail.authors)
        else:
            fitting = [
                one for one in reversed(trail.records) if _fits(one, wanted, kinds, is_refused=refused)
            ]
            is_filtered = bool(by or node or wanted or kinds or refused or since)
            _show_records(
                application, fitting, limit=0 if is_filtered or application.terminal.json else _NEWEST
            )
        _report(application, trail)
        return Exit.FAILED if any(one.is_bad for one in trail.authors) else Exit.OK

    return application.run_on_broker(work)


def _fits(one: AuditRecord, run: str, kinds: Sequence[str], *, is_refused: bool) -> bool:
    about = one.run, one.details.get("stop", "")
    return (
        (not run or run in about)
        and (not kinds or one.kind in kinds)
        and (not is_refused or one.state in REFUSED)
    )


def _show_records(application: Application, found: Sequence[AuditRecord], *, limit: int) -> None:
    terminal = application.terminal
    shown = found[:limit] if limit else found
    for one in shown:
        _print_entry(terminal, one)
    columns = [
        Column("TIME"),
        Column("AUTHOR", names=True),
        Column("ENTRY"),
        Column("TARGET", spare=1),
        Column("RUN"),
        Column("DECISION"),
        Column("CHECK"),
    ]
    rows = [_row(one) for one in shown]
    if any(one.details.get("message") for one in shown):
        columns.append(Column("MESSAGE", fold=True))
        rows = [
            [*row, one_line(one.details.get("message", ""))] for row, one in zip(rows, shown, strict=True)
        ]
    terminal.table(columns, rows, "no entry\n")
    if len(shown) < len(found):
        terminal.note(f"the newest {len(shown)} of {len(found)} entries; --since shows more")


def _print_entry(terminal: Terminal, one: AuditRecord) -> None:
    terminal.record(
        AuditLine,
        author_kind=one.author_kind,
        author=one.author,
        stored=one.stored,
        time=one.time,
        number=one.number or None,
        verdict=str(one.status),
        reason=one.reason or None,
        kind=one.kind or None,
        action=one.action or None,
        target=one.target or None,
        run=one.run or None,
        requester=one.requester or None,
        state=one.state or None,
        code=one.code or None,
        message=one.message or None,
        key=one.key or None,
        digest=one.digest or None,
        details=one.details or None,
    )


def _row(one: AuditRecord) -> list[str | Cell]:
    entry = f"{one.kind} {one.action}".strip() if one.kind != "decision" else one.action
    is_good = one.status == "verified"
    decision = f"{one.state} ({one.code})" if one.code else one.state
    return [
        clock(one.stored),
        one.author,
        entry or "?",
        one.target,
        one.run,
        Cell(
            f"{decision}: {one.requester}" if one.requester else decision,
            "bad" if one.state in REFUSED else "",
        ),
        Cell("" if is_good else str(one.status), "bad" if one.status == "forged" else "quiet"),
    ]


def _show_authors(application: Application, authors: Sequence[AuditAuthor]) -> None:
    terminal = application.terminal
    rows: list[list[str | Cell]] = []
    for one in authors:
        _print_author(terminal, one)
        verified = one.counts.get(AuditStatus.VERIFIED, 0)
        rows.append(
            [
                one.kind,
                one.name,
                Cell("incomplete or forged" if one.is_bad else "complete", "bad" if one.is_bad else "good"),
                str(one.entries),
                str(verified),
                f"{one.first}-{one.last}" if one.last else "",
            ]
        )
    columns = [
        Column("KIND"),
        Column("AUTHOR", names=True),
        Column("CHECK"),
        Column("ENTRIES", right=True),
        Column("VERIFIED", right=True),
        Column("NUMBERS", right=True),
    ]
    terminal.table(columns, rows, "no entry\n")


def _print_author(terminal: Terminal, one: AuditAuthor) -> None:
    terminal.record(
        AuditAuthorLine,
        author_kind=one.kind,
        author=one.name,
        ok=not one.is_bad,
        entries=one.entries,
        counts={str(status): count for status, count in one.counts.items()},
        first=one.first or None,
        last=one.last or None,
        gaps=[NumberRange(first=first, last=last) for first, last in one.gaps] or None,
        missing=one.missing or None,
        changed=one.changed or None,
        restarts=one.restarts or None,
    )


def _report(application: Application, trail: AuditTrail) -> None:
    for one in trail.authors:
        for sentence in author_sentences(one):
            application.terminal.note(sentence)


def author_sentences(one: AuditAuthor) -> list[str]:
    """Describe the problems with an author's entries, and add notes."""
    found = []
    if one.missing:
        ranges = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in one.gaps)
        found.append(f"{one.name}: {_entries(one.missing)} missing: {ranges}")
    if one.changed:
        numbers = ", ".join(str(number - 1) for number in one.changed)
        found.append(f"{one.name}: changed after it was written: {numbers}")
    if forged := one.counts.get(AuditStatus.FORGED, 0):
        found.append(f"{one.name}: {_entries(forged)} not written by this {one.kind}")
    if unknown := one.counts.get(AuditStatus.UNKNOWN_KEY, 0):
        found.append(f"{one.name}: {_entries(unknown)} signed with an unknown key")
    if one.restarts:
        found.append(f"{one.name}: numbering restarted {plural(one.restarts, 'time')}")
    return found


def _entries(count: int) -> str:
    return "1 entry is" if count == 1 else f"{count} entries are"
