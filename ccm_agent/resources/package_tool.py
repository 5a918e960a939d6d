"""
Runs the package managers' programs one at a time, without prompts, and with errors that explain the cause.

Used by the types `package` and `repository`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ccm_agent.model.errors import CommandError, LockError
from ccm_agent.model.ports import Command, Completed, Locks, Runner
from ccm_agent.resources.registry import SEARCH_PATH

LOCK_WAIT_S = 30
"""
The time that a package manager waits for another one on this host, in seconds. Then the resource fails and names the lock's
holder.
"""

LOCK_RETRY_S = 2.0
"""The pause before a tool that does not wait for its lock is run again, in seconds."""

CHANGE_LIMIT_S = 30 * 60
"""
The time limit of a transaction, in seconds. A longer one is assumed to hang, for example at a prompt or on a stalled mirror.
"""

QUERY_LIMIT_S = 120
"""The time limit of a query, in seconds. Reading state uses local databases, but dnf may also read a mirror's metadata."""

TAIL_BYTES = 2000
"""The maximum length of a tool's output in an error. The event's `output` has more."""

ENVIRONMENT = {
    "PATH": SEARCH_PATH,
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
}
"""The environment that maintainer scripts rely on. The agent's own environment may lack variables and contain secrets."""

APT_ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "APT_LISTBUGS_FRONTEND": "none",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "a",  # otherwise needrestart asks which services to restart
    "UCF_FORCE_CONFFOLD": "1",  # like --force-confold for dpkg's own conffiles
}
APT_LOCK_WORDS = ("E: Could not get lock",)

DNF_OPTIONS = ("-y", "--setopt=exit_on_lock=True")
DNF_LOCK_CODE = 200
"""The exit status of dnf if another process holds its lock. `exit_on_lock` makes dnf exit instead of waiting."""
DNF_LOCK_WORDS = ("already locked by", "Waiting for process with pid", "can't create transaction lock")
_DNF_HOLDER = "The application with PID"


class PackageTool:
    """
    Runs the programs of one package manager.

    Args:
        runner: Runs the programs.
        locks: Provides the host's package lock. The lock is held while a program runs, so that two runs on a host wait for each
            other.
        environment: Variables that prevent prompts.
    """

    def __init__(self, runner: Runner, locks: Locks, environment: Mapping[str, str]) -> None:
        self._runner = runner
        self._locks = locks
        self._environment = {**ENVIRONMENT, **environment}

    async def ask(self, *argv: str) -> Completed:
        """Run a program that only reads. No exit status raises an error."""
        return await self._run(argv, QUERY_LIMIT_S)

    async def change(
        self,
        *argv: str,
        limit_s: float = CHANGE_LIMIT_S,
        is_locked: Callable[[Completed], bool] | None = None,
    ) -> Completed:
        """
        Run a program that changes packages. No exit status raises an error; see `refuse`.

        Args:
            argv: The program and its arguments.
            limit_s: The program's time limit.
            is_locked: Whether the program ended because another process holds its lock. If so, it is run again for LOCK_WAIT_S.
                None if the tool itself waits.

        Raises:
            CommandError: The program could not be started, or was killed at its time limit.
        """
        waited_s = 0.0
        while True:
            async with self._locks.hold("package"):
                done = await self._run(argv, limit_s)
            if is_locked is None or not is_locked(done) or waited_s >= LOCK_WAIT_S:
                return done
            await asyncio.sleep(LOCK_RETRY_S)
            waited_s += LOCK_RETRY_S

    async def _run(self, argv: Sequence[str], limit_s: float) -> Completed:
        done = await self._runner.run(
            Command(
                argv=tuple(argv),
                search_path=SEARCH_PATH,
                env=self._environment,
                merge_stderr=argv[0] in CHANGERS,
                time_limit_s=limit_s,
            )
        )
        if done.timed_out:
            raise CommandError(
                f"`{' '.join(argv)}` ran for {limit_s:g} s and was killed because it hung; its last output: {tail(done)}",
                output=text(done),
            )
        return done


CHANGERS = frozenset({"apt-get", "dnf"})
"""Programs whose standard output and error are merged, in the order written."""


def text(done: Completed) -> str:
    """Return all captured output of a program."""
    return (done.stdout + done.stderr).decode(errors="replace").strip()


def tail(done: Completed) -> str:
    """Return the last lines of a program's output, for an error."""
    return text(done)[-TAIL_BYTES:].strip() or "nothing"


ROOT_WORDS = ("are you root?", "superuser privileges")
"""Output of apt and dnf for a user who may not change packages."""


def is_apt_locked(done: Completed) -> bool:
    """
    Return whether apt failed because another process holds its lock.

    apt itself could wait (DPkg::Lock::Timeout), but then its last error does not always name the holder.
    """
    return done.code != 0 and any(word in text(done) for word in APT_LOCK_WORDS)


def refuse(done: Completed, what: str, lock_words: tuple[str, ...]) -> None:
    """
    Raise an error for an exit status that is not 0.

    Args:
        what: The beginning of the message: "could not install zsh".
        lock_words: Words in the tool's output if another process holds its lock. The line with these words names the process.

    Raises:
        LockError: Another process holds the tool's lock.
        CommandError: The user is not root, or the tool failed for another reason.
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
                f"{what}: the package database is in use (waited {LOCK_WAIT_S} s): {line.strip()}; try again later"
            )
    raise CommandError(f"{what}: exit status {done.code}: {tail(done)}", output=said)


async def run_dnf(
    tool: PackageTool, what: str, verb: str, *arguments: str, limit_s: float = CHANGE_LIMIT_S
) -> Completed:
    """
    Run dnf again while another process holds its lock. dnf itself would wait without a limit.

    Args:
        tool: Runs dnf.
        what: The beginning of an error.
        verb, arguments: The command, and the arguments after the options.
        limit_s: The time limit of dnf.

    Raises:
        LockError: The lock was not released in time.
    """
    done = await tool.change(
        "dnf",
        verb,
        *DNF_OPTIONS,
        *arguments,
        limit_s=limit_s,
        is_locked=lambda one: one.code == DNF_LOCK_CODE,
    )
    if done.code == DNF_LOCK_CODE:
        raise LockError(
            f"{what}: the package database is in use (waited {LOCK_WAIT_S} s): {_dnf_holder(done)}; "
            "try again later"
        )
    return done


def _dnf_holder(done: Completed) -> str:
    """Return the holder of dnf's lock from its output: the process id, and the name on a separate line."""
    lines = [line.strip() for line in text(done).splitlines()]
    telling = [line for line in lines if any(word in line for word in (*DNF_LOCK_WORDS, _DNF_HOLDER))]
    return ", ".join(telling or lines[-1:])
