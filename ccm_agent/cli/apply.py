"""`ccm apply`: apply a manifest to this host."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
from collections.abc import Sequence
from typing import IO, Any

import click

from ccm_agent.app import App, ApplyOptions
from ccm_agent.cli import options, output
from ccm_agent.cli.inputs import environment, more_facts
from ccm_agent.cli.terminal import HostTerminal
from ccm_agent.clikit.commands import Option, examples
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.selection import SelectionOptions
from ccm_agent.model.codec import encode_json
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.outcome import NOT_SELECTED, SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.selection import ResourceSelection

GARBAGE_THRESHOLD = (20_000, 20, 20)
"""See `gc.set_threshold`. All events stay until the end of the run, so frequent collections would scan them without result."""


class ApplyFlags(Options, frozen=True, kw_only=True):
    """The options of `ccm apply`."""

    manifest: str
    fact: tuple[str, ...]
    facts: str | None
    hiera: str | None
    selected: SelectionOptions
    module_path: str
    noop: bool
    diff: bool
    monitor_only: bool
    render: bool
    report: bool | None
    as_json: bool
    events: str | None
    read_env: bool | None
    nats_context: str
    registration: str
    registration_settle: str | None


@click.command(
    "apply",
    cls=options.CcmCommand,
    epilog=examples(
        "ccm apply site.yaml --noop --diff      # what would change, line by line?",
        "ccm apply site.yaml",
        "ccm apply site.yaml --only service#nginx --tags tls",
        "ccm apply site.yaml --fact role=web --render",
    ),
)
@click.argument("manifest", metavar="MANIFEST")
@click.option(
    "--fact", multiple=True, metavar="K=V", help="Set a fact, overriding this host's. May be repeated."
)
@click.option(
    "--facts", metavar="FILE", help="File of facts that override this host's; --fact overrides the file."
)
@click.option(
    "--data",
    "-d",
    "hiera",
    cls=Option,
    former=options.FORMER_DATA,
    envvar="CCM_HIERA_DATA",
    metavar="URL",
    help="Hiera data that overrides the manifest's own.",
)
@options.selection_flags
@click.option(
    "--module-path",
    default="",
    metavar="DIR|URL",
    help="Location of a TinyCM manifest's templates. [the manifest's directory]",
)
@click.option("--noop", is_flag=True, help="Change nothing; show what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("--monitor-only", is_flag=True, help="Run only the health checks.")
@click.option("--render", is_flag=True, help="Print the resolved manifest and exit.")
@click.option(
    "--report/--no-report",
    default=None,
    help="Print the full summary, or no summary. [one line on a terminal or after a failure, otherwise full]",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per resource, and a summary at the end."
)
@click.option(
    "--events",
    metavar="FILE",
    help="Write each event as a line of JSON to this file; - means standard output.",
)
@options.env_flag
@options.context_flag
@options.registration_flag
@options.settle_flag
@takes(ApplyFlags)
def command(given: ApplyFlags) -> int:
    """
    Apply a manifest.

    MANIFEST is a file, or the URL of an archive that contains manifest.yaml: http(s)://HOST/FILE.tar.gz or
    obj://BUCKET/KEY. A TinyCM manifest may also be a plain file at an http(s) URL. #sha256=DIGEST at the end of an http(s)
    URL verifies the download.
    """
    selection = given.selected.selection()
    if given.as_json and (given.render or given.events == "-"):
        other = "--render" if given.render else "--events -"
        raise UsageError(f"--json and {other} both write to standard output; use one of them")
    if os.path.isdir(given.manifest):  # noqa: PTH112 -- pathlib is not needed on this way
        raise UsageError(f"{given.manifest}: is a directory; name the manifest in it, such as manifest.yaml")
    return asyncio.run(_apply(given, selection))


async def _apply(given: ApplyFlags, selection: ResourceSelection | None) -> int:
    app = App(
        os.environ,
        context=given.nats_context,
        stream=given.registration,
        settle_s=options.settle_s(given.registration_settle),
    )
    terminal = HostTerminal(data_on_stdout=given.events == "-", json=given.as_json)
    sink = _open_sink(given.events, terminal)

    def on_start(event: SessionStart) -> None:
        if sink is not None:
            _write(sink, event)

    failed: list[TransactionEvent] = []

    def on_event(event: TransactionEvent) -> None:
        if event.outcome in output.NOT_REACHED:
            failed.append(event)
        is_shown = event.code != NOT_SELECTED or terminal.json
        if is_shown and (not event.health_check_only or event.health_check or event.failed):
            terminal.event(event)
        if sink is not None:
            _write(sink, event)

    asked = ApplyOptions(
        selection=selection,
        noop=given.noop,
        checks_planned=True,
        health_check_only=given.monitor_only,
        diff=given.diff,
        on_diff=terminal.on_diff if terminal.has_reader else None,
        hiera=(given.hiera,) if given.hiera else (),
        more_facts=more_facts(given.fact, given.facts),
        environ=environment(given.read_env),
        on_start=on_start,
        on_event=on_event,
        on_note=lambda level, message, fields: terminal.report(level, message, dict(fields)),
    )
    try:
        summary = await _run(app, given, asked, terminal)
        if summary is not None and sink is not None:
            _write(sink, summary)
    except InputError as err:
        from ccm_agent.cli.error_report import report_manifest

        raise report_manifest(app, err) from err
    finally:
        await app.close()
        if sink is not None and sink is not terminal.out:
            sink.close()
    return Exit.OK if summary is None else _finish(app, summary, terminal, given, failed)


async def _run(
    app: App, given: ApplyFlags, asked: ApplyOptions, terminal: HostTerminal
) -> SessionSummary | None:
    """Run the manifest and return the summary of the run; None if the manifest was only rendered."""
    async with app.source(given.manifest, given.module_path) as source:
        engine = app.engine()
        plan = await engine.load(source, asked)
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLD)
        gc.enable()
        if given.render:
            terminal.data(app.rendered(plan))
            return None
        if plan.loaded.pre_message:
            terminal.text(f"\n{plan.loaded.pre_message}\n")
        summary = await engine.execute(plan)
        if plan.loaded.post_message and not summary.total_errors and not summary.reason:
            terminal.text(f"{plan.loaded.post_message}\n")
        return summary


def _finish(
    app: App,
    summary: SessionSummary,
    terminal: HostTerminal,
    given: ApplyFlags,
    failed: Sequence[TransactionEvent],
) -> int:
    if summary.reason:
        from ccm_agent.cli.error_report import report_reason

        terminal.flush()
        terminal.fail(report_reason(app, summary.reason))
        terminal.end(Exit.COULD_NOT_RUN, summary)
        return Exit.COULD_NOT_RUN
    code = Exit.FAILED if summary.state == "failed" else Exit.OK
    has_line = terminal.has_reader or (code is Exit.FAILED and failed)
    if given.report or (given.report is None and not has_line):
        terminal.text("\n" + output.summary_text(summary))
    elif given.report is None:
        listed = "" if terminal.has_reader else output.failure_lines(failed)
        terminal.text(f"\n{listed}{output.summary_line(given.manifest, summary, terminal.log_style)}")
    terminal.end(code, summary)
    terminal.flush()
    return code


def _open_sink(path: str | None, terminal: HostTerminal) -> IO[str] | None:
    if not path:
        return None
    if path == "-":
        return terminal.out
    try:
        # mode 0600, because events contain the contents of files
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_mode & 0o077:
            os.fchmod(handle, 0o600)  # correct the mode of an existing file
    except OSError as err:
        raise UsageError(f"--events {path}: {err.strerror}") from err
    return os.fdopen(handle, "w", encoding="utf-8")


def _write(sink: IO[str], event: Any) -> None:
    sink.write(encode_json(event).decode() + "\n")
    sink.flush()
