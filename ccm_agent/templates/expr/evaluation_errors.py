"""Errors of expressions and their places."""

from __future__ import annotations

from ccm_agent.model.errors import ExpressionError, ExpressionLimitError

_SHOWN = 80


class EvaluationError(Exception):
    """
    An error at a place in an expression; `located` converts it to an ExpressionError.

    Operators and functions raise it without a place; the calling node adds its place with `at`. The message
    never contains values, because they may be secret.
    """

    def __init__(self, message: str, offset: int | None = None) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message)

    def at(self, offset: int) -> EvaluationError:
        """Return the same error with this place, unless it already has a place."""
        if self.offset is None:
            self.offset = offset
        return self


class EvaluationLimitError(EvaluationError):
    """An evaluation exceeds its limits of steps, time or memory."""


def located(expression: str, fault: EvaluationError) -> ExpressionError:
    """Return the user-facing error: the message, the character position and the expression."""
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
    """Return the expression on one line, truncated if it is long."""
    flat = " ".join(expression.split())
    return flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…"


def point(error: ExpressionError) -> str:
    """Return two lines for a terminal: the erroneous line of the expression, and a caret below it."""
    start = error.expression.rfind("\n", 0, error.offset) + 1
    end = error.expression.find("\n", error.offset)
    line = error.expression[start : end if end >= 0 else None]
    margin = "".join("\t" if char == "\t" else " " for char in line[: error.offset - start])
    return f"{line}\n{margin}^"
