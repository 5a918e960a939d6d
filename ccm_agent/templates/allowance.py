"""
What all expressions of one manifest may use together, or a selector by itself.

Steps are what an evaluation costs: one for each element that a predicate looks at, more for a function that works on a large
value. So the same expression on the same values is refused on every machine. CPU time is the second bound.
"""

from __future__ import annotations

import time

from ccm_agent.model.errors import ExpressionLimitError

# One evaluation. Four million steps take a second or two.
STEP_LIMIT = 4_000_000
# All expressions of one manifest, or of one hiera document. None needs nearly as much.
STEPS = 5 * STEP_LIMIT
MEMORY_BYTES = 256 * 1024 * 1024
CPU_S = 10.0

LONG_TEXT = 1024  # a text of no more bytes is not counted
ELEMENT_BYTES = 40  # what an element of a list is counted as


class Allowance:
    """
    What is left to all evaluations that share it.

    Args:
        steps: Steps; None for what one manifest has, as with the others.
        memory_bytes: About the bytes of all values that are made.
        cpu_s: CPU time of the threads that evaluate; only what takes more than a thousand steps is measured.
        is_timed: The CPU time of the calling thread is measured from now on. For one evaluation in this thread.
    """

    __slots__ = ("_cpu_s", "_limits", "_since", "memory", "steps")

    def __init__(
        self,
        steps: int | None = None,
        memory_bytes: int | None = None,
        cpu_s: float | None = None,
        *,
        is_timed: bool = False,
    ) -> None:
        self.steps = STEPS if steps is None else steps
        self.memory = MEMORY_BYTES if memory_bytes is None else memory_bytes
        self._cpu_s = CPU_S if cpu_s is None else cpu_s
        self._limits = self.steps, self.memory, self._cpu_s
        self._since = time.thread_time() if is_timed else None

    def spend(self, steps: int) -> None:
        """
        Count steps of a function that is given to expressions.

        Raises:
            ExpressionLimitError: There are none left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionLimitError(f"the expressions take more than {self._limits[0]} steps")
        if self._since is not None:
            self.check_clock()

    def hold(self, size_bytes: int) -> None:
        """
        Count bytes of a value that was made.

        Raises:
            ExpressionLimitError: It is too much.
        """
        self.memory -= size_bytes
        if self.memory < 0:
            raise ExpressionLimitError(f"the expressions make more than {self._limits[1]} bytes of values")

    def check(self) -> None:
        """
        See that something is left.

        Raises:
            ExpressionLimitError: Nothing is.
        """
        self.spend(0)
        self.hold(0)

    def rest(self) -> None:
        """The next CPU time that is measured may be another thread's."""
        self._since = None

    def check_clock(self) -> None:
        """
        Count the CPU time of this thread since the last call.

        Raises:
            ExpressionLimitError: It is too much.
        """
        now = time.thread_time()
        if self._since is not None:
            self._cpu_s -= max(now - self._since, 0)
        self._since = now
        if self._cpu_s < 0:
            raise ExpressionLimitError(f"the expressions take more than {self._limits[2]:g} s of CPU time")


def size_of(text: str) -> int:
    """The bytes that a text needs at most."""
    return len(text) if text.isascii() else 4 * len(text)
