"""Runs the package managers' programs: never a question, one at a time, with an error that says what happened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CommandError, LockError
from ccm_agent.model.ports import Command, Completed, Locks, Runner

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCK_WAIT_S = 30
"""How long a package manager waits for another one on this host; then the resource fails and names the holder."""

CHANGE_LIMIT_S = 30 * 60
"""A transaction that takes longer hangs: a question that nobody will answer, a mirror that stalls."""

QUERY_LIMIT_S = 120
"""Looking reads local databases; with dnf perhaps a mirror's metadata."""

TAIL_BYTES = 2000
"""How much of what a tool said stands in an error; the event's `output` holds more."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
}
"""What maintainer scripts may rely on; an agent's own environment may hold less, and secrets."""


class PackageTool:
    """
    One package manager's programs.

    Args:
        runner: Runs them.
        locks: The host's package lock is held while one runs, so that two runs on a host wait for each other.
        environment: Variables that keep them from asking anything.
    """

    def __init__(self, runner: Runner, locks: Locks, environment: Mapping[str, str]) -> None:
        self._runner = runner
        self._locks = locks
        self._environment = {**ENVIRONMENT, **environment}

    async def ask(self, *argv: str) -> Completed:
        """Run a program that only looks; whatever its exit status is."""
        return await self._run(argv, QUERY_LIMIT_S)

    async def change(self, *argv: str) -> Completed:
        """
        Run a program that changes packages; whatever its exit status is, see `refuse`.

        Raises:
            CommandError: It could not be started, or took too long and was ended.
        """
        async with self._locks.hold("package"):
            return await self._run(argv, CHANGE_LIMIT_S)

    async def _run(self, argv: Sequence[str], limit_s: float) -> Completed:
        done = await self._runner.run(
            Command(
                argv=tuple(argv),
                search_path=ENVIRONMENT["PATH"],
                env=self._environment,
                merge_stderr=argv[0] in CHANGERS,
                time_limit_s=limit_s,
            )
        )
        if done.timed_out:
            raise CommandError(
                f"`{' '.join(argv)}` ran for {limit_s:g} s and was ended: it hangs; the last it said: {tail(done)}",
                output=text(done),
            )
        return done


CHANGERS = frozenset({"apt-get", "dnf"})
"""Programs of which people read the output in the order it was written."""


def text(done: Completed) -> str:
    """All that was kept of what a program said."""
    return (done.stdout + done.stderr).decode(errors="replace").strip()


def tail(done: Completed) -> str:
    """The last lines of what a program said, for an error."""
    return text(done)[-TAIL_BYTES:].strip() or "nothing"


ROOT_WORDS = ("are you root?", "superuser privileges")
"""What apt and dnf say to a user who may not change packages."""


def refuse(done: Completed, what: str, lock_words: tuple[str, ...]) -> None:
    """
    Raise for an exit status that is not 0.

    Args:
        what: The sentence's beginning: "could not install zsh".
        lock_words: What the tool says when somebody else holds its lock; the line with it names the holder.

    Raises:
        LockError: Somebody else holds the tool's lock.
        CommandError: The user is not root, or it failed for another reason.
    """
    if done.code == 0:
        return
    said = text(done)
    if any(word in said for word in ROOT_WORDS):
        raise CommandError(
            f"{what}: only root can change packages; run it as root, for example with sudo", output=said
        )
    for line in said.splitlines():
        if any(word in line for word in lock_words):
            raise LockError(
                f"{what}: the package database is in use, waited {LOCK_WAIT_S} s: {line.strip()}; try again when that is done"
            )
    raise CommandError(f"{what}: exit status {done.code}: {tail(done)}", output=said)
