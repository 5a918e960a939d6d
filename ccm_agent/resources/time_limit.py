"""`timeout`: the time limit of a resource whose type does not have its own time limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ccm_agent.model.errors import DocumentError, TimeLimitError
from ccm_agent.model.formats.durations import format_duration, parse_duration
from ccm_agent.model.resource import CommonProperties
from ccm_agent.resources.checks import refuse
from ccm_agent.resources.contract import AnyType

T = TypeVar("T")

LONGEST_S = 24 * 3600.0
"""The maximum `timeout`. It reveals mistakes such as `5M`, which means five months."""


class TimeLimit:
    """
    The remaining time of a resource. Waiting for a slot of the fleet is not included.

    Args:
        written: The value of `timeout`.
    """

    def __init__(self, written: str) -> None:
        self._whole_s = self._left_s = parse_duration(written)

    async def run(self, work: Awaitable[T]) -> T:
        """
        Run a part of a resource's work within the remaining time.

        A cancellation kills the programs that the work runs, with their process groups. A file operation in progress is
        completed first.

        Raises:
            TimeLimitError: The time limit was exceeded.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(self._left_s) as limit:
                return await work
        except TimeoutError as err:
            if not limit.expired():
                raise
            raise TimeLimitError(
                f"it took longer than its `timeout` of {format_duration(self._whole_s)} and was stopped"
            ) from err
        finally:
            self._left_s = max(0.0, self._left_s - (loop.time() - begun))


def check_timeout(kind: AnyType, wanted: CommonProperties) -> None:
    """
    Refuse a time limit that is invalid or too long.

    Raises:
        PropertyError: The time limit is refused. The error includes its position.
    """
    if kind.contains_manifest:
        refuse(f"`{kind.name}` has no `timeout`: set it for the resources of the child manifest", "timeout")
    try:
        seconds = parse_duration(wanted.timeout)
    except DocumentError as err:
        refuse(err.message, "timeout")
    if not 0 < seconds <= LONGEST_S:
        refuse(
            f"`timeout` is `{wanted.timeout}`: it must be more than 0 and at most {format_duration(LONGEST_S)}",
            "timeout",
        )
