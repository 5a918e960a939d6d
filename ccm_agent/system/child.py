"""Runs one program from start to end. A thread waits in poll(2) for output, the program's end, or a request to stop."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import IO

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed
from ccm_agent.system.output import Lines, LineSink, Tail
from ccm_agent.system.which import find_program

BASE_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin",
    "LANG": "C",
    "LC_ALL": "C",
}
"""The environment of every child. This process's own environment is not passed on, because it may contain credentials."""

OUTPUT_GRACE_S = 0.25
"""The time for reading output after the program has ended, in seconds. Children of the program may still write."""
STRAGGLER_GRACE_S = 0.3
"""
The time in which other processes of the group may end, in seconds. It is short, because an unreaped zombie looks like a running
process.
"""
KILL_GRACE_S = 5.0
"""The time to wait after SIGKILL, in seconds. Only a process that hangs in the kernel takes longer."""
LOOK_AGAIN_S = 0.02
LONGEST_WAIT_S = 86_400.0
"""
The maximum timeout of one poll(2) call, in seconds. Its argument is a 32-bit number of milliseconds, but a time limit may be a
year.
"""
READ_BYTES = 1 << 16


class ChildProcess:
    """A program and its process group. Call `run` in a thread; `stop` may be called from any other thread."""

    def __init__(self, command: Command, sink: LineSink | None, term_grace_s: float) -> None:
        self._command = command
        self._lines = Lines(sink) if sink else None
        self._term_grace_s = term_grace_s
        self._out = Tail(command.output_limit_bytes)
        self._err = Tail(command.output_limit_bytes)
        self._input = memoryview(command.stdin or b"")
        self._poll = select.poll()
        self._streams: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._wake = -1
        self._is_unwanted = False
        self._timed_out = False
        self._signalled = 0
        self._kill_at = inf

    def stop(self) -> None:
        """Request that the process group ends. `run` returns when it has ended."""
        with self._lock:
            self._is_unwanted = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def run(self) -> Completed:
        """
        Run the program until it ends.

        Raises:
            CommandError: The program could not be started.
        """
        with self._lock:
            if self._is_unwanted:
                return Completed(code=-signal.SIGTERM)
            self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        try:
            code = self._run()
        finally:
            with self._lock:
                os.close(self._wake)
                self._wake = -1
        if self._lines:
            self._lines.close()
        return Completed(
            code=code,
            stdout=self._out.value(),
            stderr=self._err.value(),
            dropped_bytes=self._out.dropped_bytes + self._err.dropped_bytes,
            timed_out=self._timed_out,
        )

    def _run(self) -> int:
        process = self._start()
        pidfd = _pidfd(process.pid)
        try:
            self._watch(process, pidfd)
            self._follow(process, pidfd)
        finally:
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()
            if pidfd >= 0:
                os.close(pidfd)
        code = process.poll()
        if self._signalled:
            self._end_stragglers(process.pid)
        return -signal.SIGKILL if code is None else code

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._command
        name = command.argv[0] if command.argv else ""
        try:
            program = find_program(name, command.search_path)
            return subprocess.Popen(
                command.argv,
                executable=program,
                stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if command.merge_stderr else subprocess.PIPE,
                cwd=command.cwd,
                env={**BASE_ENVIRONMENT, **command.env},
                start_new_session=True,
                bufsize=0,
            )
        except OSError as err:
            if err.filename == command.cwd and command.cwd != program:
                raise CommandError(f"{name}: cannot be run in {command.cwd}: {err.strerror}") from err
            raise CommandError(f"{name}: cannot be started: {err.strerror}") from err
        except ValueError as err:  # a NUL in an argument, or text that cannot be encoded for the file system
            raise CommandError(f"{name!r}: cannot be started: {err}") from err

    def _watch(self, process: subprocess.Popen[bytes], pidfd: int) -> None:
        for fd in (self._wake, pidfd):
            if fd >= 0:
                self._poll.register(fd, select.POLLIN)
        if process.stdout:
            self._streams[process.stdout.fileno()] = partial(
                self._read, process.stdout, self._out, self._lines
            )
        if process.stderr:
            self._streams[process.stderr.fileno()] = partial(self._read, process.stderr, self._err, None)
        for fd in self._streams:
            self._poll.register(fd, select.POLLIN)
        if process.stdin:
            fd = process.stdin.fileno()
            os.set_blocking(fd, False)
            self._streams[fd] = partial(self._write, process.stdin)
            self._poll.register(fd, select.POLLOUT)

    def _read(self, stream: IO[bytes], tail: Tail, lines: Lines | None) -> None:
        data = os.read(stream.fileno(), READ_BYTES)
        if not data:
            self._close(stream)
            return
        tail.add(data)
        if lines:
            lines.add(data)

    def _write(self, stream: IO[bytes]) -> None:
        try:
            self._input = self._input[os.write(stream.fileno(), self._input) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # a program need not read its input
            self._input = self._input[:0]
        if not self._input:
            self._close(stream)

    def _close(self, stream: IO[bytes]) -> None:
        self._poll.unregister(stream.fileno())
        del self._streams[stream.fileno()]
        stream.close()

    def _follow(self, process: subprocess.Popen[bytes], pidfd: int) -> None:
        """Wait until the program has ended and its output is read, or until it cannot be ended."""
        limit_s = self._command.time_limit_s
        due = time.monotonic() + limit_s if limit_s > 0 else inf
        has_ended = False
        while self._streams or not has_ended:
            ready = self._wait(due, is_blind=pidfd < 0 and not has_ended)
            for fd in ready:
                if handle := self._streams.get(fd):
                    handle()
            if not has_ended and (pidfd in ready or (pidfd < 0 and process.poll() is not None)):
                has_ended = True
                if pidfd >= 0:
                    self._poll.unregister(pidfd)
                if not self._signalled:
                    due = time.monotonic() + OUTPUT_GRACE_S
            if self._wake in ready:
                os.eventfd_read(self._wake)
                if not self._signalled:
                    due = self._signal(process.pid, signal.SIGTERM)
            elif time.monotonic() >= due:
                if self._signalled == signal.SIGKILL or (has_ended and not self._signalled):
                    return  # the program cannot be killed, or it has ended but a child keeps the output open
                self._timed_out |= not self._signalled
                due = self._signal(process.pid, signal.SIGKILL if self._signalled else signal.SIGTERM)

    def _wait(self, due: float, *, is_blind: bool) -> list[int]:
        wait_s = min(max(0.0, due - time.monotonic()), LONGEST_WAIT_S)
        if is_blind:  # an older kernel has no pidfd
            wait_s = min(wait_s, LOOK_AGAIN_S)
        # round up to whole milliseconds, because otherwise poll would repeatedly return too early
        return [fd for fd, _ in self._poll.poll(int(wait_s * 1000) + 1)]

    def _signal(self, group: int, number: signal.Signals) -> float:
        """Send the signal to the group. Return the time at which to send the next signal."""
        _signal_group(group, number)
        self._signalled = number
        if number == signal.SIGKILL:
            return time.monotonic() + KILL_GRACE_S
        self._kill_at = time.monotonic() + self._term_grace_s
        return self._kill_at

    def _end_stragglers(self, group: int) -> None:
        """
        Wait briefly for the other processes of the group, because the whole group received the signal. Kill those that remain.
        """
        kill_at = min(self._kill_at, time.monotonic() + STRAGGLER_GRACE_S)
        while self._signalled != signal.SIGKILL and _signal_group(group, 0):
            if time.monotonic() >= kill_at:
                self._signal(group, signal.SIGKILL)
            time.sleep(LOOK_AGAIN_S)


def _signal_group(group: int, number: int) -> bool:
    """Send the signal to the group. Return False if it has no processes."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # a process of the group now runs as another user
        pass
    return True


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # Linux before 5.3, or a sandbox without this system call
        return -1
