"""The duration of an option."""

from __future__ import annotations

import click

from ccm_agent.model.durations import parse_duration
from ccm_agent.model.errors import DocumentError


class Duration(click.ParamType[int]):
    """A duration in seconds, at least one."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Seconds of the text."""
        if isinstance(value, int):
            return value
        try:
            seconds = parse_duration(str(value))
        except DocumentError as err:
            self.fail(err.message, param, ctx)
        if seconds < 1:
            self.fail(f"{value}: at least one second", param, ctx)
        return int(seconds)
