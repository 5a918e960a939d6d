"""Locks: resources that an operator wants left alone on a node."""

from __future__ import annotations

from msgspec import Struct

from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import Moment

LONGEST_LOCK_S = 30 * 86_400
"""The longest time of a lock. A lock that an operator forgot must not hide drift."""

LOCKS_LIMIT = 100
"""The number of locks on one node."""


class ResourceLock(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A resource that a node skips.

    Attributes:
        resource: `type#name`, by name or alias.
        since, until: Start and end, by the node's clock.
        why, by: The reason that an operator gave, and that operator's name.
    """

    resource: str
    since: Moment
    until: Moment
    why: str = ""
    by: str = ""

    @property
    def sentence(self) -> str:
        """For people: `locked until 2026-11-21 18:00:00Z by maria: the disk is replaced`."""
        by = f" by {self.by}" if self.by else ""
        return f"locked until {format_moment(self.until)}{by}: {self.why or 'no reason given'}"


class LockChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A request to lock or unlock resources.

    Attributes:
        resources: `type#name` of each; to unlock, empty means all.
        why: The reason.
        release: Unlock the resources.
    """

    resources: list[str] = []
    why: str = ""
    release: bool = False
