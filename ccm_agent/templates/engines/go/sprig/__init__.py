"""
Sprig's functions for Go templates, one module for each topic; each module has a table `FUNCTIONS`.

docs/reference/go-templates.md lists the supported and the unsupported functions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """
    Return all Sprig functions by name, except `env` and `expandenv`, which need the environment. Callers
    must not change the mapping.
    """
    from ccm_agent.templates.engines.go.sprig import (
        cases,
        dates,
        defaults,
        encoding,
        lists,
        maps,
        missing,
        numbers,
        paths,
        patterns,
        text,
        url,
    )

    modules = (cases, dates, defaults, encoding, lists, maps, missing, numbers, paths, patterns, text, url)
    return {name: function for module in modules for name, function in module.FUNCTIONS.items()}
