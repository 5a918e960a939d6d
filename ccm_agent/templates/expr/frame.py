"""What one evaluation of an expression holds, and how much it may still do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.templates.expr.faults import Fault

# An element that a predicate is asked about, or a comparison of two elements, is a step; two million take a second or two.
STEP_LIMIT = 4_000_000
# Elements of all lists and maps that an evaluation makes, as the reference has it.
ELEMENT_LIMIT = 1_000_000
# Characters of all long texts that an evaluation makes.
TEXT_LIMIT = 64 * 1024 * 1024
LONG_TEXT = 1024


class Frame:
    """
    One evaluation.

    Attributes:
        variables: The names of the environment.
        functions: Its functions.
        slots: The values of `let`.
        item: `#`; `index` and `acc` are `#index` and `#acc`.
    """

    __slots__ = ("acc", "elements", "functions", "index", "item", "slots", "steps", "text", "variables")

    def __init__(
        self, variables: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]], slots: int
    ) -> None:
        self.variables = variables
        self.functions = functions
        self.slots: list[Any] = [None] * slots
        self.item: Any = None
        self.index: Any = None
        self.acc: Any = None
        self.steps = STEP_LIMIT
        self.elements = ELEMENT_LIMIT
        self.text = TEXT_LIMIT

    def spend(self, steps: int) -> None:
        """Count steps; each evaluation has a number of them."""
        self.steps -= steps
        if self.steps < 0:
            raise Fault(f"the expression takes more than {STEP_LIMIT} steps")

    def grow(self, elements: int) -> None:
        """Count elements that were made."""
        self.elements -= elements
        if self.elements <= 0:
            raise Fault(f"the expression makes lists of {ELEMENT_LIMIT} elements and more")

    def write(self, characters: int) -> None:
        """Count the characters of a text before or after it was made; short ones cost nothing."""
        if characters > LONG_TEXT:
            self.text -= characters
            if self.text < 0:
                raise Fault(f"the expression makes more than {TEXT_LIMIT} characters of text")


def weight(value: Any) -> int:
    """Steps that looking through a value costs."""
    kind = type(value)
    if kind is str:
        return len(value) >> 8
    return len(value) if kind is list or kind is dict else 0
