"""How an expression says what is wrong with it, and where."""

from __future__ import annotations

from ccm_agent.model.errors import ExpressionError, ExpressionLimitError

_SHOWN = 80


class EvaluationError(Exception):
    """
    Something is wrong at a place in an expression; `located` makes the ExpressionError of it.

    Operators and functions raise it without a place, the node that called them adds its own with `at`. Values never
    stand in the message: they may be secret.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message)

    def at(self, offset: int) -> EvaluationError:
        """The same fault, with a place unless it has one already."""
        if self.offset is None:
            self.offset = offset
        return self


class EvaluationLimitError(EvaluationError):
    """An evaluation would take more steps, time or memory than it may."""


def located(expression: str, fault: EvaluationError) -> ExpressionError:
    """The error that a user reads: what is wrong, and at which character of which expression."""
    offset = min(max(fault.offset or 0, 0), len(expression))
    before = expression[:offset]
    column = offset - (before.rfind("\n") + 1) + 1
    line = before.count("\n") + 1
    where = f"character {column}" if "\n" not in expression else f"line {line}, character {column}"
    kind = ExpressionLimitError if isinstance(fault, EvaluationLimitError) else ExpressionError
    return kind(
        f"{fault.message} (at {where} of `{shorten(expression)}`)", expression=expression, offset=offset
    )


def shorten(expression: str) -> str:
    """The expression on one line, cut where it is long."""
    flat = " ".join(expression.split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def point(error: ExpressionError) -> str:
    """Two lines for a terminal: the line of the expression with the trouble, and a caret below it."""
    start = error.expression.rfind("\n", 0, error.offset) + 1
    end = error.expression.find("\n", error.offset)
    line = error.expression[start : end if end >= 0 else None]
    margin = "".join("\t" if char == "\t" else " " for char in line[: error.offset - start])
    return f"{line}\n{margin}^"
