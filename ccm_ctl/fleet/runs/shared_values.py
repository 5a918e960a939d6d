"""
Values that the nodes of a run have in common. Each is kept once, because thousands of nodes send the same diffs, texts and
summaries.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.formats.untrusted_json import Moment, Nanoseconds
from ccm_agent.model.outcome import SessionSummary

if TYPE_CHECKING:
    from ccm_agent.model.outcome import TransactionEvent
    from ccm_agent.model.resource_diff import ResourceDiff

SHARED_BYTES = 200
"""The maximum size of an encoded value that is compared with those of other nodes."""

_ALIKE = ("protocol", "type", "provider", "name", "requested_ensure", "final_ensure")
"""Fields whose value is often the same in the events of many nodes, or in all events of one node."""

_NO_TIME = datetime.fromtimestamp(0, UTC)


class _OwnFields(Struct, frozen=True, array_like=True):
    """The fields of a summary that differ for each node."""

    node: str = ""
    event_id: str = ""
    timestamp: Moment = _NO_TIME
    start_time: Moment | None = None
    end_time: Moment | None = None
    total_duration: Nanoseconds = 0


_DECODER = msgspec.json.Decoder(_OwnFields)
_BLANK = msgspec.structs.asdict(_OwnFields())


class KeptSummary(Struct, frozen=True, gc=False):
    """
    A summary in little memory.

    Attributes:
        alike: The summary without the fields that differ for each node. It is shared by all nodes with equal ones.
        own: Those fields, encoded.
    """

    alike: SessionSummary
    own: bytes

    def read(self) -> SessionSummary:
        """Return the summary."""
        own = msgspec.structs.asdict(_DECODER.decode(self.own))
        return msgspec.structs.replace(self.alike, **own)


class SharedValues:
    """The values of one run."""

    def __init__(self) -> None:
        self._texts: dict[bytes, object] = {}
        self._diffs: dict[bytes, ResourceDiff] = {}
        self._summaries: dict[bytes, SessionSummary] = {}

    def share(self, event: TransactionEvent) -> None:
        """Replace values of an event with equal ones in memory."""
        for name in _ALIKE:
            value = getattr(event, name)
            encoded = msgspec.json.encode(value)
            if len(encoded) <= SHARED_BYTES:
                setattr(event, name, self._texts.setdefault(encoded, value))
        if event.diff is not None:
            event.diff = self._diffs.setdefault(_digest(event.diff), event.diff)

    def keep(self, summary: SessionSummary) -> KeptSummary:
        """Return a summary in little memory."""
        own = _OwnFields(*(getattr(summary, name) for name in _OwnFields.__struct_fields__))
        alike = msgspec.structs.replace(summary, **_BLANK)
        return KeptSummary(self._summaries.setdefault(_digest(alike), alike), msgspec.json.encode(own))


def _digest(value: Any) -> bytes:
    return hashlib.sha256(msgspec.json.encode(value)).digest()
