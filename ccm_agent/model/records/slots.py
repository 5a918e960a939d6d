"""
Slots: how many nodes may change something at the same time, in the whole fleet.

Each node has one entry for each slot, which it alone writes. An entry holds a slot or waits for one. A node that takes a slot
names the newest entry that it has read of all nodes. If there is a newer one, the broker refuses the write, and the node reads
again.

An entry expires unless it is renewed. All times are the broker's; the nodes' clocks are not used.
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
"""How often a holder renews its entry."""

HOLD_S = 3600.0
"""How long a node keeps a slot after its resource failed, so that the failure does not spread to other nodes."""

WAITER_S = 30.0
"""A waiting node that has not written for this time is ignored."""

COUNT_LIMIT = 10_000

_SLOT = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<count>[0-9]{1,5})")


class SlotError(HostError):
    """A resource could not get its slot, so it was not changed."""

    code = "slot.unavailable"


class Slot(Struct, frozen=True):
    """A name, and how many nodes may hold it at the same time."""

    name: str
    count: int


def parse_slot(text: str) -> Slot:
    """
    The slot in a text such as `pg-restart/1`.

    Raises:
        PropertyError: It is not `NAME/COUNT`.
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
        is_held: The node holds the slot; otherwise it waits for it.
        count: How many nodes may hold it, as this node's manifest says.
        place: Place in the queue: the revision of the first entry of this wait; 0: the revision of this entry.
        since: When the node began to hold or to wait, by its own clock; for display.
        resource, run: The resource that needs the slot, and its run.
        has_failed: The resource failed, and the node keeps the slot for a while.
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
    One entry as it is stored.

    Attributes:
        node: The node of the entry.
        revision: Its revision in the bucket.
        written: When it was written, by the broker's clock.
        entry: The decoded entry; an unreadable one counts as holding the slot.
    """

    node: str
    revision: int
    written: datetime
    entry: SlotEntry

    @property
    def place(self) -> int:
        """Its place in the queue: lower ones come first."""
        return self.entry.place or self.revision


class SlotDecision(Struct, frozen=True, kw_only=True):
    """
    Whether a node may take a slot now.

    Attributes:
        is_free: The node may take the slot.
        holders: Nodes that hold it, without the node itself.
        ahead: How many nodes wait before it.
    """

    is_free: bool
    holders: tuple[str, ...] = ()
    ahead: int = 0


def decode_entry(value: bytes) -> SlotEntry:
    """Decode an entry. An unreadable one counts as a holder, because it might be one."""
    try:
        return decode_foreign(value, SlotEntry)
    except msgspec.DecodeError:
        return SlotEntry(is_held=True)


def judge_turn(states: Sequence[SlotState], node: str, count: int) -> SlotDecision:
    """
    Whether a node may take a slot.

    Args:
        states: All entries of the slot.
        node: The node that wants it.
        count: How many nodes may hold it.
    """
    holders = tuple(sorted(one.node for one in states if one.entry.is_held and one.node != node))
    own = next((one for one in states if one.node == node), None)
    if own is not None and own.entry.is_held:
        return SlotDecision(is_free=len(holders) < count, holders=holders)
    # the newest write is the best known approximation of the broker's time
    now = max((one.written for one in states), default=datetime.min)
    waiting = [
        one.place
        for one in states
        if not one.entry.is_held and one.node != node and now - one.written <= timedelta(seconds=WAITER_S)
    ]
    ahead = sum(place < own.place for place in waiting) if own is not None else len(waiting)
    return SlotDecision(is_free=len(holders) + ahead < count, holders=holders, ahead=ahead)
