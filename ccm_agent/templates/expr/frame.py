"""The state and the remaining limits of one evaluation of an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.templates.allowance import ELEMENT_BYTES, LONG_TEXT, STEP_LIMIT, Allowance
from ccm_agent.templates.expr.evaluation_errors import EvaluationLimitError

# limit of the elements of all lists and maps that an evaluation creates, as in the reference
ELEMENT_LIMIT = 1_000_000
# limit of the bytes of all long texts that an evaluation creates, and of the overhead of maps
TEXT_LIMIT = 64 * 1024 * 1024

MAP_BYTES = 240

# steps between two checks of the allowance: a few tenths of a millisecond
_CHUNK = 1000


class Frame:
    """
    One evaluation.

    Attributes:
        variables: The names of the environment.
        functions: The functions of the environment.
        slots: The values of `let`.
        item: The value of `#`; `index` and `acc` are the values of `#index` and `#acc`.
        steps: Steps until the next check of the allowance.
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
        """Charge steps to the limit of this evaluation."""
        self.steps -= steps
        if self.steps < 0:
            self._refill()

    @property
    def left(self) -> int:
        """Return the number of remaining steps."""
        return min(STEP_LIMIT, self._allowance.steps) - self._granted + self.steps

    def grow(self, elements: int, size_bytes: int = ELEMENT_BYTES) -> None:
        """Charge new elements, and the bytes of each."""
        self.elements -= elements
        self._memory += elements * size_bytes
        if self.elements <= 0:
            raise EvaluationLimitError(f"the expression makes lists of {ELEMENT_LIMIT} elements and more")
        if elements > _CHUNK:
            self._check_memory()

    def write(self, size_bytes: int) -> None:
        """Charge the bytes of a new text, before or after its creation; short texts cost nothing."""
        if size_bytes > LONG_TEXT:
            self.hold(size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Charge the bytes of a value."""
        self.text -= size_bytes
        self._memory += size_bytes
        if self.text < 0:
            raise EvaluationLimitError(f"the expression makes more than {TEXT_LIMIT} bytes of text")
        self._check_memory()

    def settle(self) -> None:
        """End the evaluation: charge its usage to the allowance."""
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
    """Return the cost, in steps, of walking through a value."""
    kind = type(value)
    if kind is str:
        return len(value) >> 8
    return len(value) if kind is list or kind is dict else 0
