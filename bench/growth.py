"""The cost of a fleet for its broker and controller by number of nodes: a line through 500 to 5,000, checked at 10,000."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from bench.measure import Line
from bench.secured import secured_server
from bench.simulate import ANSWER_S, ASSIGNMENT, MANIFEST, ROW, Command, peak_mb, run_measured
from bench.synthetic import fill, read_keys
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings, settings_for
from ccm_agent.bus.layout import FACTS, NODES
from ccm_agent.bus.streams import call
from ccm_agent.clikit.table import Column, Style, table
from ccm_agent.testing.nats_server import NatsServer

SIZES = [500, 1_000, 2_000, 5_000]
CHECKED = 10_000
ROUNDS = 3
"""Of this many runs of a command, the one with the least CPU time is used, because other load only adds to it."""

WITHIN = 0.2
"""The allowed deviation of the line from the measurement at CHECKED, as a fraction."""

KB = 1_000

MEMORY = "memory of the broker, MB"
"""This value is not linear, because caches of the server have limits."""


class Size(Struct, frozen=True):
    """The costs of a fleet of one size, by name."""

    nodes: int
    costs: dict[str, float]


def measure() -> list[Line]:
    """Print the measurements by size, and the prediction for CHECKED next to its measurement."""
    with secured_server([]) as server, tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        settings = settings_for(
            server.url, identity="bench", creds=os.environ["CCM_CREDS"], answer_s=ANSWER_S
        )
        sizes, written = list[Size](), 0
        for count in [*SIZES, CHECKED]:
            asyncio.run(fill(settings, read_keys(), count, first=written))
            written = count
            sizes.append(measure_size(server, settings, Path(folder), count))
    *fitted, checked = sizes
    lines = {name: fit_line([(one.nodes, one.costs[name]) for one in fitted]) for name in checked.costs}
    print(size_table(sizes, lines))
    return [
        Line(f"{name}: distance of the line", abs(line(CHECKED) / checked.costs[name] - 1), "", WITHIN)
        for name, line in lines.items()
        if name != MEMORY
    ]


def measure_size(server: NatsServer, settings: BusSettings, folder: Path, count: int) -> Size:
    """Measure the costs of this many nodes."""
    manifest = folder / "manifest.yaml"
    manifest.write_text(MANIFEST)
    commands = {
        "node list": Command(words=["--no-cache", "node", "list"], shows=ROW, count=count),
        "assign --all": Command(
            words=["--no-cache", "assign", ASSIGNMENT, str(manifest), "--all", "--yes", "--json"],
            shows=r'"nodes":(\d+),',
            count=count,
        ),
    }
    costs = asyncio.run(read_streams(settings))
    costs["files of the broker, MB"] = sum(
        path.stat().st_size for path in server.settings.directory.rglob("*") if path.is_file()
    ) / (KB * KB)
    for name, command in commands.items():
        best = min((run_measured(server.url, command) for _ in range(ROUNDS)), key=lambda cost: cost.cpu_s)
        costs[f"{name}, s of CPU"] = best.cpu_s
        costs[f"{name}, MB"] = best.peak_mb
    costs[MEMORY] = peak_mb(server.pid)
    return Size(count, costs)


async def read_streams(settings: BusSettings) -> dict[str, float]:
    """Return the numbers of keys and bytes in the buckets of nodes."""
    async with Connection(settings) as connection:
        await connection.connect_now()
        states = [(await call(connection, f"STREAM.INFO.KV_{name}", {}))["state"] for name in (NODES, FACTS)]
    return {
        "keys": sum(state["messages"] for state in states),
        "bytes in streams, MB": sum(state["bytes"] for state in states) / (KB * KB),
    }


def fit_line(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """Return the least-squares line through some points."""
    count = len(points)
    mean_x, mean_y = (sum(values) / count for values in zip(*points, strict=True))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return lambda x: mean_y + slope * (x - mean_x)


def size_table(sizes: Sequence[Size], lines: dict[str, Callable[[float], float]]) -> str:
    """Return a row for each cost: base and growth of the line, then each size, the prediction and the measurement."""
    columns = [Column("COST"), Column("BASE", right=True), Column("PER 1,000", right=True)]
    columns += [Column(f"{one.nodes:,}", right=True) for one in sizes[:-1]]
    columns += [Column(f"{CHECKED:,} PREDICTED", right=True), Column("MEASURED", right=True)]
    rows = []
    for name, line in lines.items():
        base = line(0)
        values = [base, line(KB) - base, *(one.costs[name] for one in sizes[:-1]), line(CHECKED)]
        rows.append([name, *(f"{value:.4g}" for value in [*values, sizes[-1].costs[name]])])
    return table(columns, rows, Style())
