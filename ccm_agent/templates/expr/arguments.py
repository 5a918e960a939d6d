"""Argument checks of functions, and their errors."""

from __future__ import annotations

from typing import Any

from ccm_agent.templates.expr.evaluation_errors import EvaluationError
from ccm_agent.templates.expr.operators import describe


def wrong(name: str, value: Any) -> EvaluationError:
    """Return the error of a function that does not accept a value."""
    return EvaluationError(f"{name}() does not take {describe(value)}")


def as_text(name: str, value: Any) -> str:
    """Return the value, which must be text."""
    if type(value) is not str:
        raise wrong(name, value)
    return value


def as_list(name: str, value: Any) -> list[Any] | bytes:
    """Return the value, which must be a list."""
    if not isinstance(value, (list, bytes)):
        raise wrong(name, value)
    return value


def is_number(value: Any) -> bool:
    """Whether the value is an integer or a float, not a boolean."""
    return type(value) is int or type(value) is float
