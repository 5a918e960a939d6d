"""Calls of the functions that the caller passes to a template."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from ccm_agent.model.errors import TemplateError


def call_plain(name: str, function: Callable[..., Any], values: list[Any]) -> Any:
    """
    Call an external function with plain values.

    Raises:
        TemplateError: The number of arguments is wrong, or the function fails.
    """
    try:
        signature(function).bind(*values)
    except TypeError as err:
        raise TemplateError(f"{name!r} cannot be called like this: {err}") from None
    except ValueError:
        pass  # a C function without a signature checks its arguments itself
    return function(*values)
