"""
Continues reading the output of programs that outlive this process.

A program that writes to a pipe without a reader is killed by SIGPIPE. If this kills a package manager, its database may become
inconsistent. Therefore a `cat` process reads each pipe until the program ends, and discards the output.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat

from ccm_agent.model.errors import CommandError
from ccm_agent.system.which import find_program

log = logging.getLogger(__name__)


def hand_over_output() -> int:
    """
    Start a reader for each output stream of running programs. Return the number of streams.

    Call this just before this process exits without waiting for its programs. It must not read their output afterwards.
    """
    pipes = [fd for fd in _descriptors() if fd > 2 and _is_read_end(fd)]
    for fd in pipes:
        try:
            os.posix_spawn(
                find_program("cat", ""),
                ["cat"],
                {},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, fd, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
                setsid=True,
            )
        except (OSError, CommandError) as err:
            log.error("a program's output no longer has a reader", extra={"error": str(err)})
    return len(pipes)


def _descriptors() -> list[int]:
    with os.scandir("/proc/self/fd") as entries:
        return [int(entry.name) for entry in entries]


def _is_read_end(fd: int) -> bool:
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(fd).st_mode)
        return is_pipe and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
    except OSError:  # closed in the meantime, such as the descriptor for listing this directory
        return False
