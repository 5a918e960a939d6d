"""Decides whether a command runs, and whether it succeeded. No I/O."""

from __future__ import annotations

import re
import signal
from collections.abc import Awaitable, Callable

from ccm_agent.model.errors import CommandError, DocumentError, PropertyError
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.outcome import LOGGED_OUTPUT_TAIL, OUTPUT_TAIL
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step, StepResult
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution
from ccm_agent.resources.exec.provider import ExecProvider

PROTOCOL = "io.choria.ccm.v1.resource.exec.state"
VARIABLE = re.compile(r"[A-Za-z_][^=]*")
SHELL_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ENSURE = (PRESENT, ABSENT)  # `absent` is accepted and has no effect


def check(wanted: ExecProperties) -> None:
    """Refuse invalid properties. At this point, deferred properties may still contain templates."""
    check_each(wanted, _check_name, _check_timeout, _check_subscribe, _check_path, _check_environment)


def _check_name(wanted: ExecProperties) -> None:
    try:
        words = split_words(wanted.name)
    except PropertyError as err:
        refuse(f"the name of an exec must be shell words: {err.message}", "name")
    if not words:
        refuse("the name of an exec must be shell words, and this one is blank", "name")


def _check_timeout(wanted: ExecProperties) -> None:
    if wanted.timeout:
        try:
            parse_duration(wanted.timeout)
        except DocumentError as err:
            refuse(err.message, "timeout")


def _check_subscribe(wanted: ExecProperties) -> None:
    for number, reference in enumerate(wanted.subscribe):
        if reference.count("#") != 1:
            refuse(
                f"invalid subscribe format `{reference}`: write `type#name`, with one `#`",
                f"subscribe[{number}]",
            )


def _check_environment(wanted: ExecProperties) -> None:
    for number, entry in enumerate(wanted.environment):
        _check_variable(entry, f"environment[{number}]")


def check_in_manifest(wanted: ExecProperties) -> None:
    """Refuse properties that Choria CCM refuses in a manifest but accepts in a request."""
    check_each(wanted, _check_ensure, _check_names)


def _check_ensure(wanted: ExecProperties) -> None:
    if wanted.ensure not in ENSURE:
        refuse(
            f"`ensure` can only be `present` for a command, not `{wanted.ensure}`; omit it",
            "ensure",
        )


def _check_names(wanted: ExecProperties) -> None:
    for number, entry in enumerate(wanted.environment):
        name = entry.partition("=")[0]
        if not SHELL_VARIABLE.fullmatch(name) and not _holds_markers(entry):
            message = f"invalid environment variable `{name}`: its name has characters other than letters, digits and underscores"
            refuse(message, f"environment[{number}]")


def _holds_markers(text: str) -> bool:
    return "{{" in text or "${" in text


def _check_path(wanted: ExecProperties) -> None:
    path = wanted.path
    for directory in path.split(":") if path else ():
        if not directory:
            refuse(f"invalid path `{path}`: a directory in it is empty", "path")
        if not directory.startswith("/"):
            refuse(f"invalid path: `{directory}` is not an absolute path", "path")


def _check_variable(entry: str, field: str) -> None:
    name, mark, value = entry.partition("=")
    if not mark:
        refuse(f"invalid environment variable `{name}`: it has no `=`, write NAME=value", field)
    if not name:
        refuse("invalid environment variable: it has no name, write NAME=value", field)
    if not VARIABLE.fullmatch(name) and not name.startswith(("{{", "${")):
        refuse(
            f"invalid environment variable `{name}`: its name must begin with a letter or an underscore",
            field,
        )
    if not value:
        refuse(f"invalid environment variable `{name}`: its value is empty", field)


def reach(wanted: ExecProperties) -> HostAccess:
    """Return no host objects, because a command may access anything. A policy forbids or allows the whole type."""
    return HostAccess()


def decide(wanted: ExecProperties, found: ExecState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the exec type; see docs/resources/exec.md."""
    if context.is_restricted and _needs_guards(wanted, found, context):
        return Decision(unknown="the guards are not run")
    is_stable = (
        found.creates_satisfied
        or (wanted.onlyif != "" and not found.onlyif_satisfied)
        or found.unless_satisfied
        or wanted.refreshonly
    )
    if context.triggered_by:
        step = Step(noop="Would have executed via subscribe", action=_execution(wanted))
        return Decision(steps=(step,), refreshed=True, stable=is_stable, command=wanted.command_line)
    if is_stable:
        return Decision()
    step = Step(noop="Would have executed", action=_execution(wanted))
    return Decision(steps=(step,), command=wanted.command_line)


def _needs_guards(wanted: ExecProperties, found: ExecState, context: DecisionContext) -> bool:
    """Whether the decision depends on the guards."""
    is_settled = context.triggered_by != "" or found.creates_satisfied or wanted.refreshonly
    return not is_settled and bool(wanted.onlyif or wanted.unless)


def _execution(wanted: ExecProperties) -> Callable[[ExecProvider], Awaitable[StepResult]]:
    async def execute(provider: ExecProvider) -> StepResult:
        done = await provider.execute(wanted)
        state, error = None, None
        try:
            state = judge(wanted, done)
        except CommandError as err:
            error = err
        output = done.output[-(LOGGED_OUTPUT_TAIL if wanted.logoutput else OUTPUT_TAIL) :]
        return StepResult(
            state=state,
            output=output,
            is_output_cut=done.is_cut or len(output) < len(done.output),
            exit_code=None if done.timed_out else done.exitcode,
            error=error,
        )

    return execute


def judge(wanted: ExecProperties, done: Execution) -> ExecState:
    """
    Return the state after a successful command.

    Only the exit code is checked, because the path of `creates` may exist although the command failed halfway. A command that
    created the path and exited with 0 succeeded, even if `returns` lists other codes.

    Raises:
        CommandError: The command failed. The error contains the end of its output.
    """
    if done.timed_out:
        raise CommandError(
            f"the command took longer than {format_duration(parse_duration(wanted.timeout))} and was killed",
            output=done.output,
        )
    if done.exitcode < 0:
        raise CommandError(f"the command was killed by {_signal_name(-done.exitcode)}", output=done.output)
    made_it = done.creates_satisfied and done.exitcode == 0
    if done.exitcode not in wanted.success_codes and not made_it:
        codes = ", ".join(str(code) for code in wanted.success_codes)
        raise CommandError(
            f"exit code {done.exitcode} is not a success code: expected {codes}", output=done.output
        )
    return ExecState(
        protocol=PROTOCOL,
        type="exec",
        name=wanted.name,
        ensure=PRESENT,
        exitcode=done.exitcode,
        creates_satisfied=done.creates_satisfied,
    )


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
