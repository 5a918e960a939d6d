"""
Slots limit the number of nodes in the whole fleet that change something at the same time.

Each node has one entry for each slot, and only that node writes it. An entry either holds the slot or waits for
it. To take a slot, a node writes its entry with the revision of the newest entry that it has read. If any node
has written a newer entry, the broker refuses the write, and the node reads again.

An entry expires unless it is renewed. All times are from the broker's clock, not from the nodes' clocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import HostError, PropertyError
from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign

BUCKET = "CCM_SLOTS"

LEASE_S = 300.0
"""The broker removes an entry that is not renewed within this time."""

RENEW_S = 60.0
"""The interval at which a holder renews its entry."""

HOLD_S = 3600.0
"""
The time for which a node keeps a slot after its resource has failed. This keeps the failure from spreading to
other nodes.
"""

WAITER_S = 30.0
"""A waiting node that has not written its entry for this time is ignored."""

COUNT_LIMIT = 10_000

_SLOT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<count>[0-9]{1,5})")


class SlotError(HostError):
    """A resource could not get its slot, so it was not changed."""

    code = "slot.unavailable"


class Slot(Struct, frozen=True):
    """The name of a slot, and the number of nodes that may hold it at the same time."""

    name: str
    count: int


def parse_slot(text: str) -> Slot:
    """
    Parse a slot such as `pg-restart/1`.

    Raises:
        PropertyError: The text is not `NAME/COUNT`.
    """
    found = _SLOT.fullmatch(text)
    count = int(found["count"]) if found else 0
    if found is None or not 1 <= count <= COUNT_LIMIT:
        raise PropertyError(
            f"`slots` is `{text}`: write NAME/COUNT, such as pg-restart/1; "
            "a name has letters, digits, `-` and `_`, and a count is at least 1"
        )
    return Slot(found["name"], count)


class SlotEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    `<slot>.<node>` in CCM_SLOTS: a node holds a slot or waits for it.

    Attributes:
        is_held: Whether the node holds the slot. Otherwise it waits for the slot.
        count: The number of nodes that may hold the slot, from this node's manifest.
        place: Place in the queue: the revision of the first entry of this wait; 0 means the revision of this entry.
        since: When the node began to hold or to wait, by its own clock, for display.
        resource, run: The resource that needs the slot, and its run.
        has_failed: Whether the resource failed and the node keeps the slot for a while.
    """

    is_held: bool = False
    count: int = 0
    place: int = 0
    since: Moment | None = None
    resource: str = ""
    run: str = ""
    has_failed: bool = False


class SlotState(Struct, frozen=True, kw_only=True):
    """
    One entry as stored.

    Attributes:
        node: The node of the entry.
        revision: Its revision in the bucket.
        written: When it was written, by the broker's clock.
        entry: The decoded entry. An unreadable entry is treated as a holder.
    """

    node: str
    revision: int
    written: datetime
    entry: SlotEntry

    @property
    def place(self) -> int:
        """Return the place in the queue: lower places come first."""
        return self.entry.place or self.revision


class SlotDecision(Struct, frozen=True, kw_only=True):
    """
    Whether a node may take a slot now.

    Attributes:
        is_free: Whether the node may take the slot.
        holders: Other nodes that hold the slot.
        ahead: The number of nodes that wait before it.
    """

    is_free: bool
    holders: tuple[str, ...] = ()
    ahead: int = 0


def decode_entry(value: bytes) -> SlotEntry:
    """Decode an entry. An unreadable entry is treated as a holder, because it might be one."""
    try:
        return decode_foreign(value, SlotEntry)
    except msgspec.DecodeError:
        return SlotEntry(is_held=True)


def judge_turn(states: Sequence[SlotState], node: str, count: int) -> SlotDecision:
    """
    Decide whether a node may take a slot.

    Args:
        states: All entries of the slot.
        node: The node that requests the slot.
        count: The number of nodes that may hold the slot.
    """
    holders = tuple(sorted(one.node for one in states if one.entry.is_held and one.node != node))
    own = next((one for one in states if one.node == node), None)
    if own is not None and own.entry.is_held:
        return SlotDecision(is_free=len(holders) < count, holders=holders)
    # the newest write is the best available approximation of the broker's time
    now = max((one.written for one in states), default=datetime.min)
    waiting = [
        one.place
        for one in states
        if not one.entry.is_held and one.node != node and now - one.written <= timedelta(seconds=WAITER_S)
    ]
    ahead = sum(place < own.place for place in waiting) if own is not None else len(waiting)
    return SlotDecision(is_free=len(holders) + ahead < count, holders=holders, ahead=ahead)
