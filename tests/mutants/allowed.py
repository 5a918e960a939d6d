"""Checks that may survive, each with the reason: by `Check.name`, or by its beginning, such as a function."""

from __future__ import annotations

ALLOWED: dict[str, str] = {}
