"""Calls of the functions that a template is given from outside."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from ccm_agent.model.errors import TemplateError


def call_plain(name: str, function: Callable[..., Any], values: list[Any]) -> Any:
    """
    Call a function of the caller's with plain values.

    Raises:
        TemplateError: It does not take so many arguments, or fails.
    """
    try:
        signature(function).bind(*values)
    except TypeError as err:
        raise TemplateError(f"{name!r} cannot be called like this: {err}") from None
    except ValueError:
        pass  # a function of C without a signature: let it judge for itself
    return function(*values)
