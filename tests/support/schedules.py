"""Schedules that are due soon."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.support.fleet import Done, Fleet

MARGINS_S = (2, 5, 15, 45)
"""A time must not have passed when it is read, however busy the machine is; nor is it waited for longer than need be."""


def add_at(fleet: Fleet, name: str, path: str, *words: str) -> Done:
    """Add a schedule that is due once, as soon as can be."""
    for margin_s in MARGINS_S:
        moment = (datetime.now(UTC) + timedelta(seconds=margin_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
        done = fleet.ctl("schedule", "add", name, path, "--at", moment, "--yes", *words)
        if "has passed" not in done.err:
            break
    return done
