"""A synthetic fleet on a real server: the time and memory of every reading command of `ccmctl`. `--nodes N` sets the size."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from fcntl import ioctl
from pathlib import Path

import msgspec
from msgspec import Struct

from bench.measure import TOP, Line, ratio
from bench.secured import secured_server
from bench.synthetic import OFFLINE, ROLES, fill, node_name, read_keys, register
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.clikit.table import Column, Style, table

COUNT = int(os.environ.get("BENCH_NODES", "20000"))
"""The number of nodes. 100,000 take 400 MB in the temporary folder, and some minutes to write."""

WITHIN_S = float(os.environ.get("BENCH_WITHIN", "inf"))
"""After this many seconds, no further command is started."""

COMMAND_S = 120.0
"""A command that takes longer than this has failed."""

ANSWER_S = 60.0
"""How long an acknowledgment may take on a busy machine."""

ASSIGNMENT = "bench"
"""The assignment for all nodes. No node reports anything about it."""

MANIFEST = """
ccm:
  resources:
    - file:
        - /etc/motd:
            ensure: present
            content: hello
            owner: root
            group: root
            mode: "0644"
"""

ROW = r"^node\d{6} "
"""The beginning of a node's row."""

ONE_RATIO, ONE_MB = 1.5, 60.0
"""The limits for commands that name one node: CPU time as a multiple of that of BARE, and memory in MB."""

# VmHWM and not ru_maxrss, because the kernel includes the memory of the process before `exec` in ru_maxrss
_MEASURED = """
import resource, runpy, sys
try:
    runpy.run_module("ccm_ctl", run_name="__main__", alter_sys=True)
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    [peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    with open(REPORT, "w") as report:
        report.write(f"{used.ru_utime + used.ru_stime} {peak}")
"""


class WrongOutputError(RuntimeError):
    """A command failed, or the number of nodes in its output differs from the fleet."""


class Command(Struct, frozen=True, kw_only=True):
    """
    A command, and its expected output.

    Attributes:
        words: The command, without `ccmctl`.
        shows: Matches the output about nodes.
        count: The number of matches or, if the pattern has a group, the number in the group.
        code: Its exit code.
        is_one: Whether it names one node.
    """

    words: list[str]
    shows: str
    count: int = 1
    code: int = 0
    is_one: bool = False

    @property
    def name(self) -> str:
        """Its words. Only the last part of paths is included."""
        return " ".join(Path(word).name for word in self.words)


class Cost(Struct, frozen=True):
    """The cost of a command: elapsed and CPU seconds, and its peak memory in MB."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def list_commands(manifest: Path, count: int) -> list[Command]:
    """Return the commands that read the whole fleet, followed by BARE. The first command writes the cache."""
    present, everywhere = count - len(range(0, count, OFFLINE)), ["--all"]
    of_role = len(range(7, count, ROLES))
    return [
        Command(words=["node", "list"], shows=ROW, count=count),
        Command(words=["node", "list"], shows=ROW, count=count),
        Command(words=["node", "list", "--json"], shows=r'^\{"record":"node",', count=count),
        Command(words=["node", "list", "-t", "role=role7"], shows=ROW, count=of_role),
        Command(
            words=["assign", ASSIGNMENT, str(manifest), *everywhere, "--yes"],
            shows=r"for (\d+) nodes",
            count=count,
        ),
        Command(words=["assignment", "list"], shows=r" 0 of (\d+) ", count=count),
        Command(words=["assignment", "status", ASSIGNMENT], shows=ROW, count=count, code=3),
        Command(
            words=["plan", str(manifest), *everywhere, "--impact", "--stored"],
            shows=r"(?s)bench/http/web +1 +1 .* treated as changed: (\d+) nodes",
            count=present,
        ),
        Command(words=["doctor"], shows=r"on \d+ of (\d+) nodes", count=count),
        BARE,
    ]


BARE = Command(words=["slots"], shows="no node holds a slot")
"""A command that connects, reads a bucket and prints, without reading the nodes."""


def name_one(node: str) -> list[Command]:
    """Return commands that name one node, which should be offline, because no agent answers for the synthetic nodes."""
    target = ["-t", f"node={node}"]
    found = [
        Command(words=["node", "show", node], shows=f"^node: {node}$", is_one=True),
        Command(words=["facts", "show", node], shows=r"^role: role\d+$", is_one=True),
        Command(words=["why", node], shows=f"^{node} is off", is_one=True),
        Command(words=["node", "list", *target], shows=ROW, is_one=True),
        Command(words=["ping", *target], shows=r"0 of (\d+) node answered", code=3, is_one=True),
        Command(
            words=["exec", *target, "--yes", "true"], shows=r": (\d+) node: 1 offline", code=3, is_one=True
        ),
    ]
    return found


def measure() -> list[Line]:
    """
    Print a table of the commands. Those that name one node have limits that do not depend on the number of nodes.

    Raises:
        WrongOutputError: A command failed, or shows a different number of nodes.
    """
    began, costs, left = time.monotonic(), dict[str, Cost](), list[str]()
    with secured_server([]) as server, tempfile.TemporaryDirectory(prefix="bench-cache-") as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        settings = settings_for(
            server.url, identity="bench", creds=os.environ["CCM_CREDS"], answer_s=ANSWER_S
        )
        asyncio.run(fill(settings, read_keys(), COUNT))
        asyncio.run(register(settings, read_keys(), OFFLINE + 1))
        print(f"  {COUNT} nodes written in {time.monotonic() - began:.0f} s", flush=True)
        try:
            for name, run in _runs(server.url, Path(cache)):
                if time.monotonic() - began > WITHIN_S:
                    left.append(name)
                else:
                    costs[f"{name}, again" if name in costs else name] = run()
        finally:  # also print the measurements before a failed command
            print(cost_table(costs))
    if left:
        print(f"  not begun within {WITHIN_S:g} s: {', '.join(left)}")
    return _judge(costs)


def _runs(url: str, folder: Path) -> Iterator[tuple[str, Callable[[], Cost]]]:
    """Return all measurements by name, in order."""
    manifest = folder / "manifest.yaml"
    manifest.write_text(MANIFEST)
    for command in [*list_commands(manifest, COUNT), *name_one(node_name(OFFLINE))]:
        yield command.name, lambda command=command: run_measured(url, command)  # type: ignore[misc]
    yield "node list, a terminal, first screen", lambda: run_list_on_terminal(url)
    yield "top, first picture", lambda: run_top(url)
    yield "dashboard, first page", lambda: run_dashboard(url, folder)


def _judge(costs: Mapping[str, Cost]) -> list[Line]:
    bare, lines = costs.get(BARE.name), []
    for command in name_one(node_name(OFFLINE)):
        cost = costs.get(command.name)
        if bare is not None and cost is not None:
            name = f"ccmctl {command.name}, CPU time"
            lines.append(ratio(name, cost.cpu_s, bare.cpu_s, ONE_RATIO, f"`{BARE.name}`"))
            lines.append(Line("its memory", cost.peak_mb, "MB", ONE_MB))
    return lines


def cost_table(costs: Mapping[str, Cost]) -> str:
    """Return a table of the costs of each command."""
    columns = [Column("COMMAND"), *(Column(title, right=True) for title in ("SECONDS", "OF CPU", "MB"))]
    rows = [
        [f"ccmctl {name}", f"{one.wall_s:.2f}", f"{one.cpu_s:.2f}", f"{one.peak_mb:.0f}"]
        for name, one in costs.items()
    ]
    return table(columns, rows, Style())


def run_measured(url: str, command: Command) -> Cost:
    """
    Run a command.

    Raises:
        WrongOutputError: It failed, or its output is not the expected one.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        report = Path(folder, "report")
        program = f"REPORT = {str(report)!r}\n{_MEASURED}"
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [sys.executable, "-c", program, "--server", url, *command.words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                cwd=TOP,
                check=False,
                timeout=COMMAND_S,
            )
        except subprocess.TimeoutExpired as err:
            raise WrongOutputError(f"{command.name}: not finished after {COMMAND_S:g} s") from err
        wall_s = time.perf_counter() - began
        if done.returncode != command.code:
            raise WrongOutputError(f"{command.name}: {done.returncode}: {done.stderr.decode()[-500:]}")
        check_output(command, done.stdout.decode())
        cpu_s, peak_kib = report.read_text().split()
    return Cost(wall_s, float(cpu_s), float(peak_kib) * 1024 / 1e6)


def check_output(command: Command, printed: str) -> None:
    """
    Compare the number of nodes that a command shows with that of the fleet.

    Raises:
        WrongOutputError: The numbers differ.
    """
    found = list(re.finditer(command.shows, printed, re.MULTILINE))
    count = int(found[0][1]) if found and found[0].re.groups else len(found)
    if count != command.count:
        raise WrongOutputError(f"{command.name}: shows {count} and not {command.count} of `{command.shows}`")


def run_list_on_terminal(url: str) -> Cost:
    """
    Measure `ccmctl node list` on a terminal with 24 lines until its first screen is complete, and its memory at the end.

    Raises:
        WrongOutputError: It failed, or shows a different number of nodes.
    """
    words = ["node", "list"]
    screen = Command(words=words, shows=r"the first \d+ of ([\d,]+) nodes")
    took, cost, printed = run_on_terminal(url, words, re.compile(screen.shows.encode()))
    for pattern in (screen.shows, r"(\d+) nodes, \d+ not present"):
        found = re.search(pattern, printed)
        if found is None or int(found[1].replace(",", "")) != COUNT:
            raise WrongOutputError(f"node list on a terminal: {printed[-500:]!r}")
    print(f"  node list on a terminal ended after {took:.2f} s")
    return cost


def run_top(url: str) -> Cost:
    """
    Measure `ccmctl top` until it has counted the nodes.

    Raises:
        WrongOutputError: It never shows their number.
    """
    return run_on_terminal(url, ["top"], re.compile(rf"(?<!\d){COUNT} nodes".encode()), typed=b"q")[1]


def run_on_terminal(
    url: str, words: Sequence[str], wanted: re.Pattern[bytes], *, typed: bytes = b""
) -> tuple[float, Cost, str]:
    """
    Run a command on a terminal with 24 lines until it ends, and type `typed` when the expected text is shown.

    Returns:
        The seconds until it ended, the cost until the expected text was shown, and the output.

    Raises:
        WrongOutputError: The text does not appear, or the command does not end.
    """
    from bench.top import cpu_s

    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    began, printed, cost = time.perf_counter(), b"", None
    process = subprocess.Popen(
        [sys.executable, "-m", "ccm_ctl", "--server", url, *words],
        stdin=slave, stdout=slave, stderr=slave, cwd=TOP,
    )  # fmt: skip
    os.close(slave)
    try:
        while time.perf_counter() - began < COMMAND_S:
            piece = _read_piece(master)
            printed += piece or b""
            if cost is None and wanted.search(printed):
                cost = Cost(time.perf_counter() - began, cpu_s(process.pid), peak_mb(process.pid))
                os.write(master, typed)
            if piece is None:
                break
    finally:
        process.kill()
        process.wait()
        os.close(master)
    if cost is None or piece is not None:
        raise WrongOutputError(f"{' '.join(words)} on a terminal: {printed[-500:]!r}")
    return time.perf_counter() - began, cost, printed.decode(errors="replace")


def _read_piece(master: int) -> bytes | None:
    """Read the output of up to one second. None: the program has closed its terminal."""
    ready, _, _ = select.select([master], [], [], 1.0)
    try:
        return os.read(master, 65_536) if ready else b""
    except OSError:  # on Linux: no process has the other side open
        return None


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process in MB."""
    from bench.dashboard import rss_mib

    return rss_mib(pid) * 2**20 / 1e6


def run_dashboard(url: str, folder: Path) -> Cost:
    """
    Measure the response from which the dashboard draws its first page, for the first browser.

    Raises:
        WrongOutputError: It shows a different number of nodes.
    """
    from http.cookiejar import CookieJar
    from urllib.request import HTTPCookieProcessor, Request, build_opener

    from bench.dashboard import served
    from bench.top import cpu_s

    with served({**os.environ, "CCM_SERVER": url}, folder) as (process, printed):
        address, _, token = printed.partition("/#token=")
        opener = build_opener(HTTPCookieProcessor(CookieJar()))
        headers = {"Origin": address, "Content-Type": "application/json"}
        body = msgspec.json.encode({"token": token})
        opener.open(Request(f"{address}/api/session", body, headers), timeout=ANSWER_S).read()
        before, began = cpu_s(process.pid), time.perf_counter()
        found = msgspec.json.decode(opener.open(f"{address}/api/fleet", timeout=ANSWER_S).read())
        cost = Cost(time.perf_counter() - began, cpu_s(process.pid) - before, peak_mb(process.pid))
    if len(found["rows"]) != COUNT:
        raise WrongOutputError(f"the dashboard has {len(found['rows'])} nodes")
    return cost
