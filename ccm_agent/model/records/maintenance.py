"""Locks of resources, which a node leaves unchanged at an operator's request."""

from __future__ import annotations

from msgspec import Struct

from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import Moment

LONGEST_LOCK_S = 30 * 86_400
"""The longest duration of a lock. A forgotten lock must not hide drift."""

LOCKS_LIMIT = 100
"""The maximum number of locks on one node."""


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
        """Format for people: `locked until 2026-11-21 18:00:00Z by maria: the disk is replaced`."""
        by = f" by {self.by}" if self.by else ""
        return f"locked until {format_moment(self.until)}{by}: {self.why or 'no reason given'}"


class LockChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A request to lock or unlock resources.

    Attributes:
        resources: `type#name` of each resource; to unlock, an empty list means all.
        why: The reason.
        release: Whether to unlock the resources.
    """

    resources: list[str] = []
    why: str = ""
    release: bool = False
