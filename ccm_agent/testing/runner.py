"""A fake `Runner`, which returns scripted answers and fails on other commands. It does not start programs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed


class UnscriptedCommandError(AssertionError):
    """A test ran a command without a script."""


class _Answer(Struct, frozen=True, kw_only=True):
    code: int
    stdout: bytes
    stderr: bytes
    error: str
    hangs: bool
    effect: Callable[[], None] | None


class FakeRunner:
    """
    A `Runner` with scripted answers.

    Attributes:
        commands: The commands that were run, in order.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._answers: dict[tuple[str, ...], list[_Answer]] = {}

    def when(
        self,
        *argv: str,
        code: int = 0,
        stdout: str | bytes = "",
        stderr: str | bytes = "",
        error: str = "",
        hangs: bool = False,
        effect: Callable[[], None] | None = None,
    ) -> None:
        """
        Script the answer to commands that begin with these words. If several scripts match, the one with the most words is used.

        Several scripts for the same words are used in order. The last one is used repeatedly.

        Args:
            code: The exit code; -N for signal N.
            stdout: The command's standard output.
            stderr: The command's standard error.
            error: The reason why the command cannot be started; "" if it can be.
            hangs: Whether the command runs until its time limit or until it is cancelled.
            effect: Called when the command runs, to simulate its effects.
        """
        answer = _Answer(
            code=code, stdout=_bytes(stdout), stderr=_bytes(stderr), error=error, hangs=hangs, effect=effect
        )
        self._answers.setdefault(argv, []).append(answer)

    @property
    def lines(self) -> list[str]:
        """Return the executed commands, each as one line."""
        return [" ".join(command.argv) for command in self.commands]

    async def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
        """See `Runner.run`."""
        self.commands.append(command)
        answer = self._find(command.argv)
        await asyncio.sleep(0)  # yield to other tasks, as the real runner does
        if answer.error:
            raise CommandError(answer.error)
        if answer.effect:
            answer.effect()
        if on_line:
            for line in answer.stdout.decode(errors="replace").splitlines():
                on_line(line)
        if answer.hangs and not command.time_limit_s:
            await asyncio.Event().wait()
        stdout = answer.stdout + answer.stderr if command.merge_stderr else answer.stdout
        stderr = b"" if command.merge_stderr else answer.stderr
        limit = command.output_limit_bytes
        return Completed(
            code=-15 if answer.hangs else answer.code,
            stdout=stdout[max(0, len(stdout) - limit) :],
            stderr=stderr[max(0, len(stderr) - limit) :],
            dropped_bytes=max(0, len(stdout) - limit) + max(0, len(stderr) - limit),
            timed_out=answer.hangs,
        )

    def _find(self, argv: tuple[str, ...]) -> _Answer:
        for length in range(len(argv), 0, -1):
            if answers := self._answers.get(argv[:length]):
                return answers.pop(0) if len(answers) > 1 else answers[0]
        raise UnscriptedCommandError(f"no script for the command {argv!r}")


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
