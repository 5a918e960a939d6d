"""
Limits on steps, memory and CPU time that all expressions of one manifest share, or that one selector has.

A step is one element that a predicate visits; a function on a large value costs more steps. Steps do not depend on the machine's
speed, so the same expression on the same values is refused on every machine. CPU time is the second bound.
"""

from __future__ import annotations

import time

from ccm_agent.model.errors import ExpressionLimitError

# One evaluation. Four million steps take a second or two.
STEP_LIMIT = 4_000_000
# All expressions of one manifest, or of one hiera document. Real ones need far less.
STEPS = 5 * STEP_LIMIT
MEMORY_BYTES = 256 * 1024 * 1024
CPU_S = 10.0

LONG_TEXT = 1024  # texts up to this size are not counted
ELEMENT_BYTES = 40  # bytes counted for one element of a list


class Allowance:
    """
    The remaining limits of the evaluations that share this object.

    Args:
        steps: Steps; None for the limit of one manifest (also for the other arguments).
        memory_bytes: Approximate size of all values that are created.
        cpu_s: CPU time of the evaluating threads; evaluations below a thousand steps are not measured.
        is_timed: Measure the CPU time of the calling thread from now on. Only for one evaluation in this thread.
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
        Count the steps of a function that expressions call.

        Raises:
            ExpressionLimitError: No steps are left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise ExpressionLimitError(f"the expressions take more than {self._limits[0]} steps")
        if self._since is not None:
            self.check_clock()

    def hold(self, size_bytes: int) -> None:
        """
        Count the bytes of a new value.

        Raises:
            ExpressionLimitError: The limit is exceeded.
        """
        self.memory -= size_bytes
        if self.memory < 0:
            raise ExpressionLimitError(f"the expressions make more than {self._limits[1]} bytes of values")

    def check(self) -> None:
        """
        Check that some of each limit is left.

        Raises:
            ExpressionLimitError: One of the limits is used up.
        """
        self.spend(0)
        self.hold(0)

    def rest(self) -> None:
        """End the measurement: the next evaluation may run in another thread."""
        self._since = None

    def check_clock(self) -> None:
        """
        Count the CPU time of this thread since the last call.

        Raises:
            ExpressionLimitError: The limit is exceeded.
        """
        now = time.thread_time()
        if self._since is not None:
            self._cpu_s -= max(now - self._since, 0)
        self._since = now
        if self._cpu_s < 0:
            raise ExpressionLimitError(f"the expressions take more than {self._limits[2]:g} s of CPU time")


def size_of(text: str) -> int:
    """The upper bound of the size of a text in bytes."""
    return len(text) if text.isascii() else 4 * len(text)
