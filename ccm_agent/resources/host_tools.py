"""
Runs host tools for several types. Runs the shadow tools (groupadd, usermod and so on) one at a time. Creates
temporary folders in which tools check new files before they replace existing files.

Source: the manual pages of shadow 4.13 (Debian 12), section "exit values".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ccm_agent.model.errors import CommandError, FileError, LockError
from ccm_agent.model.ports import Command, Completed, Files, Locks, Runner
from ccm_agent.resources.registry import SEARCH_PATH

LIMIT_S = 120
"""
The time limit of a shadow tool. The tools wait 15 s for a lock. usermod changes the owner of all files in a home directory,
which takes longer.
"""

SAID_CHARACTERS = 1000

LOCK_WORDS = ("cannot lock", "try again later")


async def run_tool(runner: Runner, what: str, *argv: str, limit_s: float = LIMIT_S) -> str:
    """
    Run a tool and return its standard output.

    Args:
        runner: Runs the tool.
        what: The beginning of an error: "/srv cannot be mounted".
        argv: The tool and its arguments.
        limit_s: Its time limit, in seconds.

    Raises:
        CommandError: The tool failed, or was killed because it hung.
    """
    done = await runner.run(Command(argv=argv, search_path=SEARCH_PATH, time_limit_s=limit_s))
    output = done.stdout.decode(errors="replace")
    said = (output + done.stderr.decode(errors="replace")).strip()
    if done.timed_out:
        raise CommandError(
            f"{what}: `{argv[0]}` ran for {limit_s:g} s and was killed because it hung", output=said
        )
    if done.code:
        raise CommandError(f"{what}: {said[-SAID_CHARACTERS:] or f'exit status {done.code}'}", output=said)
    return output


@asynccontextmanager
async def trial_folder(
    files: Files, locks: Locks, path: str, *, lock: str, why: str, mode: int = 0o700, way_out: str = ""
) -> AsyncIterator[None]:
    """
    Provide a folder that is empty at the beginning and is removed at the end.

    If the process is killed, the folder remains. The next process that holds the lock removes it.

    Args:
        files: Creates and removes the folder.
        locks: Provides the lock.
        path: The path of the folder. Only root can write in its parent directory.
        lock: The name of the lock.
        why: The beginning of an error: "the unit cannot be verified, so nothing was written".
        mode: The folder's permissions.
        way_out: The end of an error, which suggests an action.

    Raises:
        FileError: The folder cannot be created.
    """
    async with locks.hold(lock):
        try:
            await files.remove(path, recursive=True)
            await files.set_attributes(path, mode=mode, directory=True)
        except FileError as err:
            raise FileError(f"{why}: {err.message}{way_out}", errno=err.errno) from err
        try:
            yield
        finally:
            await files.remove(path, recursive=True)


class AccountRunner:
    """
    Runs the shadow tools of a host.

    Args:
        runner: Runs the tools.
        locks: Provides the host's lock for accounts, so that two runs of this program wait for each other.
    """

    def __init__(self, runner: Runner, locks: Locks) -> None:
        self._runner = runner
        self._locks = locks

    async def run(self, what: str, *argv: str, stdin: bytes | None = None, limit_s: float = LIMIT_S) -> None:
        """
        Run a tool.

        Args:
            what: The beginning of an error: "could not create the group web".
            argv: The tool and its arguments. Errors do not quote them.
            stdin: The tool's input, which may be secret.

        Raises:
            LockError: Another program holds the lock of the account files.
            CommandError: The tool failed, or was killed because it hung.
        """
        async with self._locks.hold("accounts"):
            done = await self._runner.run(
                Command(argv=argv, search_path=SEARCH_PATH, stdin=stdin, time_limit_s=limit_s)
            )
        if done.timed_out:
            raise CommandError(f"{what}: {argv[0]} ran for {limit_s:g} s and was killed because it hung")
        if done.code:
            _refuse(done, what, argv[0])


def _refuse(done: Completed, what: str, tool: str) -> None:
    said = (done.stderr + done.stdout).decode(errors="replace").strip()[-SAID_CHARACTERS:]
    if any(word in said for word in LOCK_WORDS):
        raise LockError(
            f"{what}: another process holds the lock of the account files: {said}; try again later"
        )
    raise CommandError(f"{what}: {said or f'{tool} failed with exit status {done.code}'}", output=said)
