"""
Limits on steps, memory and CPU time, shared by all expressions of one manifest, or for one selector.

A step is one element that a predicate visits. A function on a large value costs more steps. Steps do not depend
on the machine's speed, so an expression that is refused on one machine is refused on every machine. CPU time is
the second limit.
"""

from __future__ import annotations

import time

from ccm_agent.model.errors import ExpressionLimitError

# the limit of one evaluation; four million steps take a second or two
STEP_LIMIT = 4_000_000
# the limit of all expressions of one manifest, or of one hiera document; real ones need far less
STEPS = 5 * STEP_LIMIT
MEMORY_BYTES = 256 * 1024 * 1024
CPU_S = 10.0

LONG_TEXT = 1024  # texts up to this size are not counted
ELEMENT_BYTES = 40  # bytes that are charged for one element of a list


class Allowance:
    """
    The remaining steps, memory and CPU time of the evaluations that share this object.

    Args:
        steps: The number of steps. For each argument, None means the limit of one manifest.
        memory_bytes: Approximate size of all values that are created.
        cpu_s: CPU time of the evaluating threads; evaluations below a thousand steps are not measured.
        is_timed: Whether to start measuring the CPU time of the calling thread. Use it only for a single
            evaluation in this thread.
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
        Charge steps for a function that an expression calls.

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
        Charge the bytes of a new value.

        Raises:
            ExpressionLimitError: The memory limit is exceeded.
        """
        self.memory -= size_bytes
        if self.memory < 0:
            raise ExpressionLimitError(f"the expressions make more than {self._limits[1]} bytes of values")

    def check(self) -> None:
        """
        Check that no limit is used up.

        Raises:
            ExpressionLimitError: A limit is used up.
        """
        self.spend(0)
        self.hold(0)

    def rest(self) -> None:
        """End the measurement, because the next evaluation may run in another thread."""
        self._since = None

    def check_clock(self) -> None:
        """
        Charge the CPU time that this thread has used since the last call.

        Raises:
            ExpressionLimitError: The CPU time limit is exceeded.
        """
        now = time.thread_time()
        if self._since is not None:
            self._cpu_s -= max(now - self._since, 0)
        self._since = now
        if self._cpu_s < 0:
            raise ExpressionLimitError(f"the expressions take more than {self._limits[2]:g} s of CPU time")


def size_of(text: str) -> int:
    """Return an upper bound of the size of a text in bytes."""
    return len(text) if text.isascii() else 4 * len(text)
