"""What an exec resource may say, and what is found of it."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.resource import CommonProperties, CommonState


class ExecProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command that runs when it is needed."""

    name: Annotated[str, Meta(description="The command, or a name for it; shell words in any case.")]
    command: Annotated[str, Meta(description="The command, when the name is not it.")] = ""
    cwd: Annotated[str, Meta(description="Working directory; `/` when it is not given.")] = ""
    environment: Annotated[
        list[str],
        Meta(
            description="Variables as `NAME=value`, over and besides PATH, LANG=C and LC_ALL=C. Nothing else is passed on."
        ),
    ] = []
    path: Annotated[
        str, Meta(description="Directories to look for programs in, absolute and separated by colons.")
    ] = ""
    returns: Annotated[
        list[int], Meta(description="Exit codes that mean success; `[0]` when none are given.")
    ] = []
    timeout: Annotated[
        str,
        Meta(
            description="How long the command, and each guard, may take, such as `30s` or `5m`; then it is ended and has failed."
        ),
    ] = ""
    creates: Annotated[
        str, Meta(description="A file that the command makes: while it is there the command does not run.")
    ] = ""
    onlyif: Annotated[str, Meta(description="A guard: the command runs only if this one exits with 0.")] = ""
    unless: Annotated[
        str, Meta(description="A guard: the command does not run if this one exits with 0.")
    ] = ""
    refreshonly: Annotated[bool, Meta(description="Run only when a resource in `subscribe` has changed.")] = (
        False
    )
    subscribe: Annotated[
        list[str],
        Meta(
            description="Resources (`type#name`) whose change makes it run, whatever `creates` and the guards say."
        ),
    ] = []
    logoutput: Annotated[bool, Meta(description="Log what the command writes to standard output.")] = False

    @property
    def command_line(self) -> str:
        """What is run."""
        return self.command or self.name

    @property
    def success_codes(self) -> list[int]:
        """Exit codes that mean success."""
        return self.returns or [0]


class ExecState(CommonState, kw_only=True):
    """
    What decides whether a command runs, or what came of it. `ensure` is always "present".

    Attributes:
        exitcode: What the command ended with; unset when it did not run.
        creates_satisfied: `creates` names something that is there.
        onlyif_satisfied, unless_satisfied: The guard exited with 0. False when there is none, and after the command ran.
    """

    exitcode: int | UnsetType = UNSET
    creates_satisfied: bool = False
    onlyif_satisfied: bool = False
    unless_satisfied: bool = False


class Execution(Struct, frozen=True, kw_only=True):
    """
    How a command ended.

    Attributes:
        exitcode: Its exit code; -N when signal N ended it.
        output: The end of what it wrote.
        timed_out: It was ended because it took too long.
        creates_satisfied: `creates` names something that is there now.
    """

    exitcode: int
    output: str = ""
    timed_out: bool = False
    creates_satisfied: bool = False
