"""
Times in command-line options: RFC 3339, or a duration relative to now.

`2026-12-01T02:00Z`, `2026-12-01 04:00:00+02:00`, `2026-12-01`; `2h`, `30m`. A time without a zone is in the
local zone. Times in output (`format_moment`) are valid in options.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.formats.durations import parse_duration


class GivenTime(Struct, frozen=True):
    """
    A time, or a duration relative to now.

    Attributes:
        written: The text of the option.
        time: The time, UTC; None for a relative duration.
        seconds: The relative duration.
    """

    written: str
    time: datetime | None = None
    seconds: float = 0.0

    def after(self, now: datetime) -> datetime:
        """Return the time in UTC; a duration is added to now."""
        return self._at(now, 1)

    def before(self, now: datetime) -> datetime:
        """Return the time in UTC; a duration is subtracted from now."""
        return self._at(now, -1)

    def _at(self, now: datetime, direction: int) -> datetime:
        if self.time is not None:
            return self.time
        try:
            return (now + timedelta(seconds=direction * self.seconds)).astimezone(UTC)
        except OverflowError:
            raise _not_a_time(self.written) from None


def format_moment(moment: datetime) -> str:
    """Format a time for display and options, in UTC, to the second: `2026-12-01 02:00:00Z`."""
    try:
        return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:  # a node may report any time
        return str(moment)


def parse_moment(text: str) -> GivenTime:
    """
    Parse a time or a duration.

    Raises:
        DocumentError: The text is not a time or a duration.
    """
    try:
        return GivenTime(text, seconds=parse_duration(text))
    except DocumentError:
        pass
    try:
        time = datetime.fromisoformat(text.strip())
        return GivenTime(text, time=(time if time.tzinfo else time.astimezone()).astimezone(UTC))
    except (ValueError, OverflowError):
        raise _not_a_time(text) from None


def _not_a_time(text: str) -> DocumentError:
    return DocumentError(
        f"`{text}` is not a time: write a duration such as 30m, or a time such as 2026-12-01T02:00Z"
    )
