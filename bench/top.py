"""
`ccmctl top` on a fleet of 1,000 nodes: time to its first screen, in a real terminal, compared with a one-line Textual program.
"""

from __future__ import annotations

import asyncio
import os
import pty
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Mapping
from fcntl import ioctl
from pathlib import Path

from bench.dashboard import fill
from bench.fleet import initialized_fleet
from bench.measure import Line

NODES = 1000
ROUNDS = 7
WITHIN_S = 120.0
PICTURE = f"{NODES} nodes".encode()
BARE = """
from textual.app import App
from textual.widgets import Static

class Hello(App):
    BINDINGS = [("q", "quit", "quit")]

    def compose(self):
        yield Static("hello")

Hello().run(mouse=False)
"""


def measure() -> list[Line]:
    """Measure elapsed and CPU time until the node counts are on the screen."""
    with initialized_fleet() as (server, environ, _):
        asyncio.run(fill(server.url, NODES))
        top, bare = [sys.executable, "-m", "ccm_ctl", "top"], [sys.executable, "-c", BARE]
        once(top, environ, PICTURE)  # from now on, compiled modules are cached
        once(bare, environ, b"hello")
        picture, keys, hello = zip(
            *(
                (
                    once(top, environ, PICTURE),
                    once(top, environ, b"newest runs", typed=b"2"),
                    once(bare, environ, b"hello"),
                )
                for _ in range(ROUNDS)
            ),
            strict=True,
        )
    first, obeyed, floor = (middle(taken) for taken in (picture, keys, hello))
    return [
        Line(f"ccmctl top with {NODES} nodes, until its first picture", first[0], "s", 0.5),
        Line("its CPU time until then", first[1], "s"),
        Line("until a key that was typed at once has its effect", obeyed[0], "s"),
        Line("its CPU time until then", obeyed[1], "s"),
        Line("a Textual program that says hello, until it does", floor[0], "s"),
        Line("its CPU time until then", floor[1], "s"),
    ]


def middle(taken: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the medians of elapsed and CPU time."""
    wall, cpu = (statistics.median(values) for values in zip(*taken, strict=True))
    return wall, cpu


def once(
    command: list[str], environ: Mapping[str, str], wanted: bytes, *, typed: bytes = b""
) -> tuple[float, float]:
    """Return elapsed and CPU seconds until `wanted` is on the screen. `q` ends the program."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environ, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    try:
        os.write(master, typed)
        read_until(master, wanted, began)
        took, used = time.perf_counter() - began, cpu_s(process.pid)
        os.write(master, b"q")
        drain(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return took, used


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far. See proc_pid_stat(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def read_until(master: int, wanted: bytes, began: float) -> None:
    """Read the program's output until it contains `wanted`."""
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([master], [], [], 1.0)
        if ready:
            seen += os.read(master, 65536)
        if time.perf_counter() - began > WITHIN_S:
            raise RuntimeError(
                f"no picture within {WITHIN_S:g} s; the end of what was drawn: {seen[-300:]!r}"
            )


def drain(master: int, process: subprocess.Popen[bytes]) -> None:
    """Read the remaining output until the program ends, because a full terminal would block it."""
    end = time.perf_counter() + WITHIN_S
    while process.poll() is None and time.perf_counter() < end:
        ready, _, _ = select.select([master], [], [], 0.05)
        if ready:
            try:
                os.read(master, 65536)
            except OSError:
                return
