"""
Processes of this tree's programs for tests: forks of one process that has imported everything (`warm_ccm`), which start at once.

`start` and `run` take the command line that would start the real program, and start that where it is not one of this tree's.
A fork has a process, a session, an environment and standard streams of its own; it is signaled and waited for as any other.
What it does not show is that the program starts: tests/e2e/test_cold_start.py and tests of installations do.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TypeAlias

from tests.support.warm_ccm import MODULES, NUMBER_BYTES, TOP, warm_server

WARM = (*MODULES.values(), "tests.support.faulty_agent")
"""Modules whose `main` runs in a fork."""


class WarmProcess:
    """A fork; the part of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], call: socket.socket) -> None:
        self.args = list(args)
        self.returncode: int | None = None
        self._call = call
        self._said = b""
        self.pid = int.from_bytes(self._read(None), "little")

    def poll(self) -> int | None:
        """See `Popen.poll`."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """See `Popen.wait`."""
        if self.returncode is None:
            self.returncode = int.from_bytes(self._read(timeout), "little", signed=True)
            self._call.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """See `Popen.send_signal`."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """See `Popen.kill`."""
        self.send_signal(signal.SIGKILL)

    def _read(self, timeout: float | None) -> bytes:
        self._call.settimeout(timeout)
        try:
            while len(self._said) < NUMBER_BYTES:
                more = self._call.recv(NUMBER_BYTES - len(self._said))
                if not more:
                    raise RuntimeError("the process that forks for the tests has ended")
                self._said += more
        except (TimeoutError, BlockingIOError) as err:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from err
        said, self._said = self._said, b""
        return said


Process: TypeAlias = subprocess.Popen[bytes] | WarmProcess


def start(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: IO[bytes],
    stderr: IO[bytes],
    start_new_session: bool = False,
) -> Process:
    """Start a command; the options are those of `subprocess.Popen`."""
    python, *words = command
    if (
        python != sys.executable
        or words[:1] != ["-m"]
        or words[1] not in WARM
        or env.get("PYTHONPATH") != str(TOP)
    ):
        return subprocess.Popen(
            command,
            cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=start_new_session,
        )  # fmt: skip
    module, *arguments = words[1:]
    session = "new" if start_new_session else ""
    parts = [module, module, str(cwd), session, str(len(arguments)), *arguments]
    data = "\0".join([*parts, *(f"{name}={value}" for name, value in env.items())])
    encoded = data.encode("utf-8", "surrogateescape")
    call = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    call.connect(_address())
    with Path(os.devnull).open("rb") as nothing:
        streams = (nothing if stdin == subprocess.DEVNULL else stdin, stdout, stderr)
        fds = [one if isinstance(one, int) else one.fileno() for one in streams]
        socket.send_fds(call, [len(encoded).to_bytes(8, "little")], fds)
    call.sendall(encoded)
    return WarmProcess(command, call)


def run(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], stdin: str = "", timeout: float
) -> subprocess.CompletedProcess[str]:
    """
    Run a command to its end; what it writes is captured.

    Raises:
        TimeoutExpired: It took longer than `timeout` seconds, and was killed.
    """
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(stdin.encode())
        given.seek(0)
        process = start(command, cwd=cwd, env=env, stdin=given, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            process.wait()
            raise
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(), err.read().decode())


@functools.cache
def _address() -> str:
    """Where the process listens that forks; it starts with the first call, and ends with the tests."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ccm-tests-warm-"))
    return stack.enter_context(warm_server(Path(folder), list(MODULES)))
