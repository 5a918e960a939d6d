"""Properties and state of an exec resource."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.formats.field_rules import (
    Alias,
    Deferred,
    Extension,
    NeededByLookAhead,
    PublishNames,
    RunsCommand,
)
from ccm_agent.model.resource import CommonProperties, CommonState


class ExecProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command that runs when needed."""

    name: Annotated[str, Meta(description="The command, or a name for it. Both must be valid shell words.")]
    command: Annotated[
        str, Deferred, RunsCommand, Meta(description="The command, if the name is not the command.")
    ] = ""
    cwd: Annotated[str, Deferred, Meta(description="Working directory. Default: `/`.")] = ""
    environment: Annotated[
        list[str],
        Deferred,
        PublishNames,
        Meta(
            description="Environment variables as `NAME=value`, in addition to PATH, LANG=C and LC_ALL=C. No others are set."
        ),
    ] = []
    path: Annotated[
        str, Meta(description="Search path for programs: absolute directories separated by colons.")
    ] = ""
    returns: Annotated[list[int], Meta(description="Exit codes that mean success. Default: `[0]`.")] = []
    timeout: Annotated[
        str,
        Meta(
            description="Time limit for the command and each guard, such as `30s` or `5m`. After that it is killed and fails."
        ),
    ] = ""
    creates: Annotated[
        str,
        Deferred,
        NeededByLookAhead,
        Meta(description="A file that the command creates. The command does not run while the file exists."),
    ] = ""
    onlyif: Annotated[
        str,
        Deferred,
        NeededByLookAhead,
        RunsCommand,
        Meta(description="Guard command: run only if it exits with 0."),
    ] = ""
    unless: Annotated[
        str,
        Deferred,
        NeededByLookAhead,
        RunsCommand,
        Meta(description="Guard command: do not run if it exits with 0."),
    ] = ""
    refreshonly: Annotated[
        bool, Alias("refresh_only"), Meta(description="Run only when a resource in `subscribe` changes.")
    ] = False
    subscribe: Annotated[
        list[str],
        Meta(
            description="Resources (`type#name`) whose changes trigger the command, regardless of `creates` and the guards."
        ),
    ] = []
    logoutput: Annotated[
        bool, Meta(description="Log the command's standard output, and keep more of the output in the event.")
    ] = False
    sensitive: Annotated[
        bool,
        Extension,
        Meta(
            description="The output may contain secrets: it is never logged or published, even if the command or a guard fails."
        ),
    ] = False

    @property
    def command_line(self) -> str:
        """The command to run."""
        return self.command or self.name

    @property
    def success_codes(self) -> list[int]:
        """The exit codes that mean success."""
        return self.returns or [0]


class ExecState(CommonState, kw_only=True):
    """
    The conditions for running a command, or its result. `ensure` is always "present".

    Attributes:
        exitcode: The command's exit code; unset if it did not run.
        creates_satisfied: Whether the path of `creates` exists.
        onlyif_satisfied, unless_satisfied: Whether the guard exited with 0. False without a guard and after the command has
            run.
    """

    exitcode: int | UnsetType = UNSET
    creates_satisfied: bool = False
    onlyif_satisfied: bool = False
    unless_satisfied: bool = False


class Execution(Struct, frozen=True, kw_only=True):
    """
    The result of a command.

    Attributes:
        exitcode: The command's exit code; -N if signal N ended the command.
        output: The end of the command's output; "" if it may contain secrets.
        is_cut: Whether the beginning of the output was removed.
        timed_out: Whether the command exceeded its time limit and was killed.
        creates_satisfied: Whether the path of `creates` now exists.
    """

    exitcode: int
    output: str = ""
    is_cut: bool = False
    timed_out: bool = False
    creates_satisfied: bool = False
