"""
The process that renders templates; see the `RenderWorker` port.

The process starts when the first template is rendered, is reused for later templates, and exits when idle. It has no environment,
open files or credentials. It receives jobs through a socket. The kernel limits its CPU time and memory.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from ccm_agent.model.errors import TemplateError, TemplateLimitError

WALL_S = 300.0
"""
The maximum time for one template or directory, in seconds, without the time in which the process waits for replies. A process
that takes longer is stuck.
"""

IDLE_S = 60.0
"""The process exits when it has not received a request for this many seconds."""

MESSAGE_LIMIT_BYTES = 96 << 20
"""The maximum size of a message from the process. Longer messages are not read."""

_HEADER_BYTES = 4
_END_S = 5.0


class RenderLimits(Struct, frozen=True, kw_only=True):
    """
    Limits for one template or one directory of templates.

    Attributes:
        cpu_s: The CPU time in seconds.
        grace_s: Additional CPU time in seconds. When a template has used its CPU time, it fails with an error that contains the
            line number. If this is impossible because C code is running, the kernel kills the process after the additional time.
        memory_bytes: The memory in addition to the memory that the process uses at its start.
    """

    cpu_s: int = 10
    grace_s: int = 3
    memory_bytes: int = 256 << 20


class RenderProcess:
    """
    The `RenderWorker` of this host. It does one job at a time, while other callers wait.

    Args:
        limits: The limits of a job.
        wall_s: See WALL_S.
    """

    def __init__(self, limits: RenderLimits | None = None, *, wall_s: float = WALL_S) -> None:
        self._limits = limits or RenderLimits()
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ending: weakref.finalize[[subprocess.Popen[bytes], socket.socket], RenderProcess] | None = None

    def call(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> None:
        with self._lock:
            try:
                if not self._converse(request, hear):
                    self._end()
                    self._converse(request, hear)
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        process = self._process
        if process is not None:
            process.kill()  # do not wait for a job in progress
        with self._lock:
            self._end()

    def _converse(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> bool:
        """Do the job. Return False if the idle process exited before it received the job."""
        channel, is_new = self._start()
        left_s = self._wall_s
        is_first = True
        answer: bytes | None = request
        while answer != b"":
            begun = time.monotonic()
            try:
                channel.settimeout(left_s)
                if answer is not None:
                    send(channel, answer)
                message = receive(channel, MESSAGE_LIMIT_BYTES)
            except TimeoutError:
                raise TemplateLimitError(f"template takes more than {self._wall_s:g} s") from None
            except OSError:
                message = b""
            if not message:
                error = self._why_gone()
                if error is None and is_first and not is_new:
                    return False
                raise error or TemplateError("the process that renders templates has ended")
            is_first = False
            left_s = max(left_s - (time.monotonic() - begun), 0.001)
            answer = hear(message)
        return True

    def _start(self) -> tuple[socket.socket, bool]:
        """Return the connection to the process, and whether the process was just started."""
        if self._process is not None and self._process.poll() is not None:
            self._end()
        if self._socket is not None:
            return self._socket, False
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    _command(self._limits),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    env={name: os.environ[name] for name in ("TZ",) if name in os.environ},
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as err:
            ours.close()
            raise TemplateError(
                f"the process that renders templates cannot be started: {err.strerror or err}"
            ) from err
        self._socket = ours
        # End the process together with this object, even if the object is never closed.
        self._ending = weakref.finalize(self, _end, self._process, ours)
        return ours, True

    def _why_gone(self) -> TemplateError | None:
        """Return an error if the process ended during a job; None if it exited because it was idle."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        code = self._process.returncode
        if code == 0:
            return None
        if code == -signal.SIGXCPU:
            return TemplateLimitError(f"template takes more than {self._limits.cpu_s} s of CPU time")
        if code == -signal.SIGKILL:
            return TemplateLimitError("template needs more memory than this host has left")
        ended = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return TemplateLimitError(f"template ended the process that rendered it ({ended})")

    def _end(self) -> None:
        self._process = self._socket = None
        if self._ending is not None:
            self._ending()
            self._ending = None


def _end(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):  # the process hangs in the kernel
        process.wait(_END_S)


def _command(limits: RenderLimits) -> list[str]:
    """Return the command for an isolated interpreter with the same module paths as this process."""
    found = [path for path in sys.path if Path(path).is_absolute()]
    ours = str(Path(__file__).parents[2])
    if ours not in found:
        found.append(ours)
    code = (
        "import sys; sys.path[:] = sys.argv[1:]; from ccm_agent.app_render import main; "
        f"main({limits.cpu_s:d}, {limits.grace_s:d}, {limits.memory_bytes:d})"
    )
    options = ["-B"] if sys.dont_write_bytecode else []
    if sys.pycache_prefix:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    return [sys.executable, "-I", "-S", "-X", "utf8", *options, "-c", code, *found]


# ---- used by both processes


def send(channel: socket.socket, message: bytes) -> None:
    """Send a message: its length, then its content."""
    channel.sendall(len(message).to_bytes(_HEADER_BYTES, "big"))
    channel.sendall(message)


def receive(channel: socket.socket, limit_bytes: int = 1 << 32) -> bytes:
    """
    Return the next message; b"" if the peer has closed the connection or the message is too long.

    Raises:
        OSError: The connection failed. TimeoutError if no message arrived in time.
    """
    header = _exactly(channel, _HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        return b""
    length = int.from_bytes(header, "big")
    if length > limit_bytes:
        return b""
    message = _exactly(channel, length)
    return message if len(message) == length else b""


def _exactly(channel: socket.socket, length: int) -> bytes:
    parts: list[bytes] = []
    while length:
        part = channel.recv(min(length, 1 << 20))
        if not part:
            break
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


# ---- used only by the render process


class CpuLimit:
    """
    Limits the CPU time of one job of this process, as a context manager.

    Args:
        seconds: The CPU time in seconds.
        grace_s: Additional CPU time in seconds before the kernel kills the process.
    """

    def __init__(self, seconds: int, grace_s: int) -> None:
        self._seconds = seconds
        self._grace_s = grace_s
        signal.signal(signal.SIGPROF, self._fail)

    def __enter__(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        last = int(used.ru_utime + used.ru_stime) + 1 + self._seconds + self._grace_s
        resource.setrlimit(resource.RLIMIT_CPU, (last, resource.RLIM_INFINITY))
        signal.setitimer(signal.ITIMER_PROF, self._seconds, 1.0)

    def __exit__(self, *exception: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _fail(self, _signal: int, _frame: object) -> None:
        raise TemplateLimitError(
            f"template takes more than {self._seconds} s of CPU time; does a loop never end?"
        )


def confine(memory_bytes: int) -> None:
    """
    Limit the additional memory of this process, and make the kernel kill it first when the host runs out of memory.

    The process ignores signals that are sent to all processes of a service or terminal, because a stopped agent first finishes
    the current resource. The process ends when its parent ends or requests it, or when it reaches a limit.
    """
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    address_space = pages * resource.getpagesize() + memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
