"""The common part of both exec providers. They differ in how they convert a command line to a program with arguments."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Sequence

from ccm_agent.model.errors import CommandError
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.ports import Command, Completed, Files, Runner
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.contract import OutputCallback
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution

PROTOCOL = "io.choria.ccm.v1.resource.exec.state"
OUTPUT_BYTES = 16 * 1024
"""The maximum size of the output kept per stream. An event contains the last 8 KiB of both streams together."""

LOGGED_OUTPUT_BYTES = 64 * 1024
"""The same limit with `logoutput`. An event then contains up to 64 KiB."""


class Commands:
    """
    Runs command lines on this host.

    Args:
        runner, files: The ports.
        say: Logs the output lines of a command with `logoutput`.
        to_argv: Splits a command line into program and arguments. Raises CommandError if the command line is invalid.
        runs_guards: Whether `status` runs the guards. If not, their results are False.
    """

    def __init__(
        self,
        runner: Runner,
        files: Files,
        say: OutputCallback,
        to_argv: Callable[[str], tuple[str, ...]],
        *,
        runs_guards: bool = True,
    ) -> None:
        self._runner = runner
        self._files = files
        self._say = say
        self._to_argv = to_argv
        self._runs_guards = runs_guards

    async def status(self, wanted: ExecProperties) -> ExecState:
        """See `ExecProvider`."""
        state = _state(wanted, await self._created([wanted]))
        if wanted.onlyif and self._runs_guards:
            state.onlyif_satisfied = await self._passes("onlyif", wanted.onlyif, wanted)
        if wanted.unless and self._runs_guards:
            state.unless_satisfied = await self._passes("unless", wanted.unless, wanted)
        return state

    async def look_ahead(self, wanted: Sequence[ExecProperties]) -> list[ExecState | None]:
        """
        Return the result of `status` for each resource. None for a command with guards, which run only just before the command.
        """
        created = await self._created(wanted)
        return [None if one.onlyif or one.unless else _state(one, created) for one in wanted]

    async def execute(self, wanted: ExecProperties) -> Execution:
        """See `ExecProvider`."""
        on_line = self._say if wanted.logoutput and not wanted.sensitive else None
        done = await self._run(wanted.command_line, wanted, on_line)
        created = await self._created([wanted])
        return Execution(
            exitcode=done.code,
            output=_output(done, wanted),
            is_cut=done.dropped_bytes > 0,
            timed_out=done.timed_out,
            creates_satisfied=_path(wanted) in created,
        )

    async def _passes(self, which: str, line: str, wanted: ExecProperties) -> bool:
        try:
            done = await self._run(line, wanted)
        except CommandError as err:
            raise CommandError(f"the guard in `{which}` cannot be run: {err.message}") from err
        if done.timed_out:
            raise CommandError(
                f"the guard in `{which}` took longer than {format_duration(parse_duration(wanted.timeout))} and was killed",
                output=_output(done, wanted),
            )
        if done.code < 0:
            raise CommandError(
                f"the guard in `{which}` was killed by signal {-done.code}", output=_output(done, wanted)
            )
        return done.code == 0

    async def _run(
        self, line: str, wanted: ExecProperties, on_line: Callable[[str], None] | None = None
    ) -> Completed:
        env = {"PATH": wanted.path} if wanted.path else {}
        for entry in wanted.environment:
            name, mark, value = entry.partition("=")
            if not mark or not name:
                raise CommandError("a template produced an environment variable that is not NAME=value")
            env[name] = value
        command = Command(
            argv=self._to_argv(line),
            search_path=wanted.path,
            env=env,
            cwd=_absolute(wanted.cwd or "/"),
            output_limit_bytes=LOGGED_OUTPUT_BYTES if wanted.logoutput else OUTPUT_BYTES,
            merge_stderr=on_line is None,
            time_limit_s=parse_duration(wanted.timeout) if wanted.timeout else 0.0,
        )
        return await self._runner.run(command, on_line)

    async def _created(self, wanted: Sequence[ExecProperties]) -> set[str]:
        """Return the paths of `creates` that exist."""
        paths = list({_path(one) for one in wanted} - {""})
        if not paths:
            return set()
        looks = await self._files.inspect(paths, digest=False)
        return {look.path for look in looks if look.kind not in ("absent", "unreadable")}


def _path(wanted: ExecProperties) -> str:
    return _absolute(wanted.creates) if wanted.creates else ""


def _absolute(path: str) -> str:
    """
    Normalize a path by its text. As in Choria CCM, a relative path starts in the working directory, not in the manifest's
    directory.
    """
    return posixpath.normpath(path if path.startswith("/") else f"{os.getcwd()}/{path}")  # noqa: PTH109 - slow to import


def _state(wanted: ExecProperties, created: set[str]) -> ExecState:
    return ExecState(
        protocol=PROTOCOL,
        type="exec",
        name=wanted.name,
        ensure=PRESENT,
        creates_satisfied=_path(wanted) in created,
    )


def _output(done: Completed, wanted: ExecProperties) -> str:
    """Return the end of a command's output, for events and errors; "" if it may contain secrets."""
    if wanted.sensitive:
        return ""
    return (done.stdout + done.stderr).decode(errors="replace")
