"""What one evaluation of an expression holds, and how much it may still do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.templates.allowance import ELEMENT_BYTES, LONG_TEXT, STEP_LIMIT, Allowance
from ccm_agent.templates.expr.evaluation_errors import EvaluationLimitError

# Elements of all lists and maps that an evaluation makes, as the reference has it.
ELEMENT_LIMIT = 1_000_000
# Bytes of all long texts, and of what a map needs beside its elements, that an evaluation makes.
TEXT_LIMIT = 64 * 1024 * 1024

MAP_BYTES = 240

# How often an evaluation asks its allowance: every few tenths of a millisecond.
_CHUNK = 1000


class Frame:
    """
    One evaluation.

    Attributes:
        variables: The names of the environment.
        functions: Its functions.
        slots: The values of `let`.
        item: `#`; `index` and `acc` are `#index` and `#acc`.
        steps: Steps until the allowance is asked again.
    """

    __slots__ = (
        "_allowance",
        "_granted",
        "_memory",
        "acc",
        "elements",
        "functions",
        "index",
        "item",
        "slots",
        "steps",
        "text",
        "variables",
    )

    def __init__(
        self,
        variables: Mapping[str, Any],
        functions: Mapping[str, Callable[..., Any]],
        slots: int,
        allowance: Allowance,
    ) -> None:
        self.variables = variables
        self.functions = functions
        self.slots: list[Any] = [None] * slots
        self.item: Any = None
        self.index: Any = None
        self.acc: Any = None
        self.steps = _CHUNK
        self.elements = ELEMENT_LIMIT
        self.text = TEXT_LIMIT
        self._allowance = allowance
        self._granted = _CHUNK
        self._memory = 0
        if allowance.steps < 0 or allowance.memory < 0:
            allowance.check()

    def spend(self, steps: int) -> None:
        """Count steps; each evaluation has a number of them."""
        self.steps -= steps
        if self.steps < 0:
            self._refill()

    @property
    def left(self) -> int:
        """Steps that are left altogether."""
        return min(STEP_LIMIT, self._allowance.steps) - self._granted + self.steps

    def grow(self, elements: int, size_bytes: int = ELEMENT_BYTES) -> None:
        """Count elements that were made, and the bytes that each needs."""
        self.elements -= elements
        self._memory += elements * size_bytes
        if self.elements <= 0:
            raise EvaluationLimitError(f"the expression makes lists of {ELEMENT_LIMIT} elements and more")
        if elements > _CHUNK:
            self._check_memory()

    def write(self, size_bytes: int) -> None:
        """Count the bytes of a text before or after it was made; short ones cost nothing."""
        if size_bytes > LONG_TEXT:
            self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count bytes that a value needs."""
        self.text -= size_bytes
        self._memory += size_bytes
        if self.text < 0:
            raise EvaluationLimitError(f"the expression makes more than {TEXT_LIMIT} bytes of text")
        self._check_memory()

    def settle(self) -> None:
        """Count what was used against the allowance; the evaluation is over."""
        self._allowance.steps -= self._granted - self.steps
        self._allowance.memory -= self._memory
        self._allowance.rest()

    def _check_memory(self) -> None:
        if self._memory > self._allowance.memory:
            self._allowance.hold(self._memory)

    def _refill(self) -> None:
        self._granted += _CHUNK - self.steps
        self.steps = _CHUNK
        used = self._granted - _CHUNK
        if used > STEP_LIMIT:
            raise EvaluationLimitError(f"the expression takes more than {STEP_LIMIT} steps")
        if used > self._allowance.steps:
            self._allowance.spend(used)
        self._allowance.check_clock()


def weight(value: Any) -> int:
    """Steps that looking through a value costs."""
    kind = type(value)
    if kind is str:
        return len(value) >> 8
    return len(value) if kind is list or kind is dict else 0
