"""Functions that all benchmarks share: running commands, medians, and a result line for a budget."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
ROUNDS = 15
"""Rounds for measurements that take milliseconds. Longer ones define their own number."""


@dataclass(frozen=True)
class Line:
    """
    The measurement of one budget.

    Attributes:
        name: The name of the measurement.
        value, unit: The number and its unit.
        limit: The maximum. None: the number is only recorded.
        against: The reference, with its own number.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    against: str = ""

    @property
    def holds(self) -> bool:
        """Whether the budget is met, or there is none."""
        return self.limit is None or self.value <= self.limit

    def __str__(self) -> str:
        mark = "    " if self.limit is None else ("ok  " if self.holds else "OVER")
        limit = "" if self.limit is None else f" (at most {self.limit:g})"
        return f"{mark} {self.name}: {self.value:.3g} {self.unit}{limit}{'; ' + self.against if self.against else ''}"


def seconds(
    command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> float:
    """Return the elapsed time of one run of a command, which must succeed."""
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        check=False,
    )
    took = time.perf_counter() - begin
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return took


def side_by_side(rounds: int, *runs: Callable[[], float]) -> list[float]:
    """Return the medians of several measurements, taken in turn so that other load affects all of them."""
    taken: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(rounds):
        for i, run in enumerate(runs):
            taken[i].append(run())
    return [statistics.median(values) for values in taken]


def ratio(name: str, ours: float, theirs: float, limit: float | None, what: str) -> Line:
    """Return a budget for the ratio of two times in seconds."""
    return Line(
        name, ours / theirs, "times", limit, f"{ours * 1000:.1f} ms against {theirs * 1000:.1f} ms of {what}"
    )
