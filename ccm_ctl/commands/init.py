"""`ccmctl init`: what the fleet needs on the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ccm_agent.model.durations import format_duration
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.commands.access import keys_option, prepare_security
from ccm_ctl.commands.durations import Duration
from ccm_ctl.commands.tree import verb
from ccm_ctl.render import records

if TYPE_CHECKING:
    from ccm_agent.bus.layout import Made
    from ccm_ctl.app import Application, Broker


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
    ],
    options=[
        _number(
            "--replicas",
            0,
            "Copies of everything. [3 where the cluster has 3 servers, else 1]",
            most=5,
            shown=False,
        ),
        _number("--history", 20, "Revisions kept of facts, data and assignments.", most=64, least=1),
        _age("--events-age", "30d", "How long events are kept."),
        _number("--events-size", 2048, "And how much of them, in MiB.", least=1),
        _age("--duplicate-window", "1h", "How long the broker knows an event again."),
        _age("--runs-age", "90d", "How long runs stay on record."),
        click.Option(
            ["--security"], is_flag=True, help="For a broker that knows each node: make keys first."
        ),
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
    keys: str,
) -> Exit:
    """
    Make the streams, buckets and object store that agents and controller use, and say what was done.

    Run again it changes nothing, or what the options say differently; it never shrinks and never deletes.
    With --security the first call only makes keys, and says what the servers need; once they have it, call it again.
    """
    if duplicate_window > events_age:
        raise UsageError(
            f"--duplicate-window {format_duration(duplicate_window)}: an event cannot be known longer than "
            f"it is kept ({format_duration(events_age)})"
        )

    if security and not prepare_security(application, keys):
        return Exit.OK

    async def work(broker: Broker) -> Exit:
        from ccm_agent.bus.layout import Layout, make

        assert broker.connection is not None
        layout = Layout(
            replicas=replicas,
            history=history,
            events_age_s=events_age,
            events_bytes=events_size << 20,
            duplicate_window_s=duplicate_window,
            runs_age_s=runs_age,
            secure=True if security else None,
        )
        show_made(application, await make(broker.connection, layout))
        return Exit.OK

    return application.run_on_broker(work)


def show_made(application: Application, made: list[Made]) -> None:
    """Say what was done about each thing."""
    from ccm_ctl.render.table import Cell, Column

    meanings = {"created": "change", "updated": "change", "unchanged": "good", "skipped": "quiet"}
    rows: list[list[str | Cell]] = []
    for one in made:
        application.terminal.record(
            records.MADE,
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
    columns = [Column("NAME"), Column("KIND"), Column("COPIES", right=True), Column("DONE")]
    terminal = application.terminal
    terminal.table([*columns, Column("DETAILS", fold=True)], rows)
