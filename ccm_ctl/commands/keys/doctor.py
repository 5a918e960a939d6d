"""`ccmctl doctor`: report problems with the fleet's security and health."""

from __future__ import annotations

import contextlib
from collections import Counter
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING

import click
import msgspec

from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.trust import TRUST_BUCKET
from ccm_agent.model.errors import BusError
from ccm_agent.model.exits import Exit
from ccm_agent.version import VERSION
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.render.doctor import CheckLine, screen
from ccm_ctl.render.record_types.administration import CheckResultLine, ChecksLine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ccm_ctl.app import Application, Broker
    from ccm_ctl.fleet.doctor.results import CheckResult, DoctorContext

FAILING = ("problem",)
FAILING_STRICT = ("problem", "warning")
"""The check results that lead to exit code 2 with `--strict`."""


@verb(
    "doctor",
    examples=[
        "ccmctl doctor",
        "ccmctl doctor --all                  # list the checks that passed, too",
        "ccmctl doctor --strict --json        # for monitoring: exit code 2 for warnings, too",
        "ccmctl doctor --keys /media/keys     # with the folder that holds the fleet's keys",
    ],
    options=[
        click.Option(["--all", "show_all"], is_flag=True, help="List the checks that passed, too."),
        click.Option(["--strict"], is_flag=True, help="Exit with code 2 for warnings, too."),
        keys_option(),
    ],
)
def doctor(application: Application, show_all: bool, strict: bool, keys: str) -> Exit:
    """
    Report security and health problems of the broker, credentials, keys, signers list, streams and nodes.

    Each finding comes with the command that fixes it. Nothing is changed. Checks that your credentials do not permit are
    `unknown`. Exit code: 0 without problems, 2 with problems, 1 when the checks could not run.
    """

    async def work() -> Exit:
        results = await _examine(application, keys)
        failing = FAILING_STRICT if strict else FAILING
        code = Exit.FAILED if any(one.state in failing for one in results) else Exit.OK
        _show(application, results, code, show_all=show_all)
        return code

    return application.run_alone(work)


async def _examine(application: Application, folder: str) -> list[CheckResult]:
    from ccm_ctl.fleet.doctor import all_checks
    from ccm_ctl.fleet.doctor.broker_checks import no_connection
    from ccm_ctl.fleet.doctor.results import run_checks

    terminal = application.terminal

    def show_progress(done: int, pending: Sequence[str]) -> None:
        text = f"{done} of {done + len(pending)} checks" + "".join(
            f"; waiting for {one}" for one in pending[:1]
        )
        terminal.live(text[: terminal.live_style.width - 1])

    async with contextlib.AsyncExitStack() as stack:
        failed: list[CheckResult] = []
        broker: Broker | None = None
        terminal.live("connecting to the broker")
        try:
            broker = await stack.enter_async_context(application.broker())
        except BusError as err:
            failed.append(no_connection(err))
        context = _context(application, broker, folder)
        results = await run_checks(all_checks(context.server), context, show_progress)
    terminal.live("")
    return [*failed, *results]


def _context(application: Application, broker: Broker | None, folder: str) -> DoctorContext:
    from ccm_ctl.fleet.doctor.results import DoctorContext

    connection = broker.connection if broker is not None else None
    fleet = broker.fleet if broker is not None else None
    return DoctorContext(
        settings=application.settings(),
        keys=keys_in(application, folder),
        keys_option=f" --keys {quote(folder)}" if folder else "",
        now=fleet.clock.now() if fleet is not None else datetime.now(UTC),
        fleet=fleet,
        connection=connection,
        server=connection.server if connection is not None else None,
        trust_bucket=NatsKeyValue(connection, TRUST_BUCKET) if connection is not None else None,
        trust=fleet.trust if fleet is not None else None,
        version=VERSION,
    )


def _show(application: Application, results: Sequence[CheckResult], code: Exit, *, show_all: bool) -> None:
    terminal = application.terminal
    for one in results:
        terminal.record(CheckResultLine, **msgspec.to_builtins(one))
    counts = Counter(str(one.state) for one in results)
    terminal.record(ChecksLine, counts=dict(sorted(counts.items())), exit=int(code))
    lines = [CheckLine(one.id, str(one.state), one.sentence, one.fix) for one in results]
    if not terminal.json:
        terminal.show(screen(lines, terminal.style, show_all=show_all))
