"""`ccmctl report`: write a run as an HTML page for people or as a JUnit file for pipelines."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from pathlib import Path

import click

from ccm_agent.clikit.text import natural
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.runs.node_results import format_reason
from ccm_ctl.commands.runs.run_view import RunView
from ccm_ctl.commands.runs.stored_runs import format_heading, look, pick_up, run_argument
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import Recorded
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.whole_file import write_whole
from ccm_ctl.render.record_types.administration import MadeLine
from ccm_ctl.render.report_page import ReportedNode, ReportedRun, render_page

NEW_MODE = 0o666
"""The mode of a new report before the umask is applied."""


@verb(
    "report",
    examples=["ccmctl report last --html run.html", "ccmctl report 3HAAgFJs --junit run.xml"],
    options=[
        run_argument(),
        click.Option(
            ["--html", "html_path"],
            type=click.Path(),
            metavar="FILE",
            help="Write one HTML page that needs no other file.",
        ),
        click.Option(
            ["--junit", "junit_path"],
            type=click.Path(),
            metavar="FILE",
            help="Write a JUnit XML file for a pipeline.",
        ),
    ],
)
def report(application: Application, run: str, html_path: str | None, junit_path: str | None) -> Exit:
    """
    Write a report of a run: each node's result, times, errors and the output of commands.

    Events are read from the stream. An existing FILE is replaced.
    """
    if not (html_path or junit_path):
        raise UsageError("name a file with --html or --junit")

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.render.report_junit import render_junit

        recorded, state, watch, follower = await pick_up(application, fleet, run, offline_ok=True)
        await look(follower, state, recorded)
        page = _build(fleet, recorded, state, watch)
        await _write(application, html_path, render_page, page)
        await _write(application, junit_path, render_junit, page)
        return Exit.OK

    return application.run(work)


def _build(fleet: Fleet, recorded: Recorded, state: Run, watch: RunView) -> ReportedRun:
    now = fleet.clock.now()
    nodes = []
    for node in sorted(state.nodes.values(), key=lambda one: natural(one.node)):
        events = [node.events[number] for number in sorted(node.events)]
        summary = node.summary
        nodes.append(
            ReportedNode(
                node=node.node,
                state=node.state,
                reason=format_reason(node),
                seconds=summary.total_duration / 1e9 if summary else 0,
                stable=summary.stable_resources if summary else 0,
                events=events,
                missing=len(node.lacking),
                verdict=str(watch.result_fields(node).get("verdict", "")),
            )
        )
    return ReportedRun(
        run=recorded.record.run,
        heading=format_heading(recorded, None).splitlines(),
        counts=state.counts(),
        plan=watch.is_plan,
        nodes=nodes,
        made=now,
    )


async def _write(
    application: Application, path: str | None, render: Callable[[ReportedRun], str], page: ReportedRun
) -> None:
    if path is None:
        return
    text = await asyncio.to_thread(render, page)
    try:
        await asyncio.to_thread(_save, Path(path), text.encode())
    except OSError as err:
        raise UsageError(f"{path}: cannot be written: {err.strerror}") from err
    application.terminal.record(MadeLine, name=path, kind="report", action="created")
    application.terminal.show(f"{path}: written\n")


def _save(path: Path, body: bytes) -> None:
    """Replace a report atomically, keeping its mode. Other kinds of files, such as /dev/stdout, are written directly."""
    path.parent.stat()  # do not create a missing folder, because the path may contain a typo
    if path.exists() and not path.is_file():
        path.write_bytes(body)
        return
    before = path.lstat() if path.is_file() and not path.is_symlink() else None
    write_whole(path, body, mode=stat.S_IMODE(before.st_mode) if before else NEW_MODE)
