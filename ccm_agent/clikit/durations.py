"""Parameter types for durations and times."""

from __future__ import annotations

import click

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.moments import GivenTime, parse_moment


class Duration(click.ParamType[int]):
    """A duration of at least one second."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the duration in seconds."""
        if isinstance(value, int):
            return value
        try:
            seconds = parse_duration(str(value))
        except DocumentError as err:
            self.fail(err.message, param, ctx)
        if seconds < 1:
            self.fail(f"{value}: must be at least one second", param, ctx)
        return int(seconds)


class TimeOption(click.ParamType[GivenTime]):
    """A time, given as such or as a duration relative to now."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> GivenTime:
        """Return the time in its original form. The command resolves it with its own clock."""
        if isinstance(value, GivenTime):
            return value
        try:
            return parse_moment(str(value))
        except DocumentError as err:
            self.fail(err.message, param, ctx)
