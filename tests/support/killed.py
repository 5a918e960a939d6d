"""
`ccm` or `ccmctl` as a process that ends itself with SIGKILL at one of its steps, and counts them.

    python -m tests.support.killed ccm join TOKEN ...

Everything else is the program as it is. A step is a directory that is made, a file that is renamed or removed, or a message
that is sent; the process dies before it. Reads and entries of the audit trail are no steps. The environment says what is
wanted: KILL_AT, the number of the step (0: none), and KILL_STEPS, the file to which each step is written as a line.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ccm_agent.bus.connection.connection import Connection

FILE_STEPS = {"os.rename": 1, "os.remove": 0, "os.mkdir": 0}
"""Audit events of Python, and which of their arguments names the file that they change."""

NO_STEPS = ("$JS.API", "choria.ccm.audit")

MODULES = {"ccm": "ccm_agent.__main__", "ccmctl": "ccm_ctl.__main__"}


class Steps:
    """The steps of this process."""

    def __init__(self, kill_at: int, path: Path) -> None:
        self._kill_at = kill_at
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._count = 0

    def take(self, step: str) -> None:
        """Count a step, and die if it is the one."""
        self._count += 1
        os.write(self._fd, f"{step}\n".encode())
        if self._count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """See `sys.addaudithook`."""
        place = FILE_STEPS.get(event)
        if place is not None and "__pycache__" not in str(arguments[place]):
            self.take(f"{event.removeprefix('os.')} {Path(os.fsdecode(arguments[place])).name}")


def main() -> int:
    """Run the program; its exit code."""
    steps = Steps(int(os.environ["KILL_AT"]), Path(os.environ["KILL_STEPS"]))
    publish = Connection.publish

    async def counted(
        self: Connection, subject: str, body: bytes, headers: Mapping[str, str] | None = None, **others: Any
    ) -> None:
        if not subject.startswith(NO_STEPS):
            steps.take(f"send {subject}")
        await publish(self, subject, body, headers, **others)

    Connection.publish = counted  # type: ignore[method-assign]
    program = importlib.import_module(MODULES[sys.argv[1]])
    sys.addaudithook(steps.audit)
    del sys.argv[1]
    return int(program.main())


if __name__ == "__main__":
    sys.exit(main())
