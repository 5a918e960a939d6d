"""
Sprig's functions for Go templates, by what they are about: a module each, and in each a table `FUNCTIONS`.

docs/reference/go-templates.md lists them, and those that are not supported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


@cache
def functions() -> dict[str, Callable[..., Any]]:
    """Every function of Sprig by name, but `env` and `expandenv`, which need the environment. Do not change it."""
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
