"""`ccmctl top` on a fleet of 1,000 nodes: until its first picture, in a real terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import resource
import select
import statistics
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from fcntl import ioctl

from bench.dashboard import fill
from bench.fleet import initialized_fleet
from bench.measure import Line

NODES = 1000
ROUNDS = 7
WITHIN_S = 120.0


def measure() -> list[Line]:
    """Wall-clock and CPU time until the counts of the fleet are on the screen."""
    with initialized_fleet() as (server, environ, _):
        asyncio.run(fill(server.url, NODES))
        first_picture(environ)  # compiled modules are kept from here on
        taken = [first_picture(environ) for _ in range(ROUNDS)]
    wall, cpu = (statistics.median(values) for values in zip(*taken, strict=True))
    return [
        Line(f"ccmctl top with {NODES} nodes, until its first picture", wall, "s", 0.5),
        Line("the same in CPU time, with its end", cpu, "s"),
    ]


def first_picture(environ: Mapping[str, str]) -> tuple[float, float]:
    """Seconds until the number of nodes is on the screen, and seconds of CPU time; `q` ends it."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ccm_ctl", "top"], env=environ, stdin=slave, stdout=slave, stderr=slave
    )
    os.close(slave)
    try:
        read_until(master, f"{NODES} nodes".encode(), began)
        took = time.perf_counter() - began
        os.write(master, b"q")
        drain(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def read_until(master: int, wanted: bytes, began: float) -> None:
    """Read what the program draws until it shows this."""
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
    """Read on until it has ended: a terminal that takes nothing would hold it up."""
    end = time.perf_counter() + WITHIN_S
    while process.poll() is None and time.perf_counter() < end:
        ready, _, _ = select.select([master], [], [], 0.05)
        if ready:
            try:
                os.read(master, 65536)
            except OSError:
                return
