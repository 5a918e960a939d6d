"""The resources of a node, from its stored events: the last result of each, and the number of changes."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

from msgspec import Struct

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.noop_words import noop_words
from ccm_agent.model.outcome import Outcome, SessionStart, TransactionEvent
from ccm_agent.model.ports import StoredEvent
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.verification import read_events

LOOK_BACK = timedelta(days=30)
EVENTS_READ = 20_000
"""The maximum number of events of one node that are used. The newest are used."""

_CHANGES = (Outcome.CHANGED, Outcome.REFRESHED)


class ResourceStatus(Struct, frozen=True, kw_only=True):
    """
    The known state of one resource of a node.

    Attributes:
        resource: `type#name`.
        origin: The assignment, schedule or manifest that manages it, as reported by the node.
        outcome: The outcome in its last event.
        time: The time of that event, by the node's clock.
        run: The run of that event.
        error: The error messages. Empty: it did not fail.
        output: The last part of its command's output.
        noop_message: The change that a real run would have made.
        changes: The number of changes.
        changed: The time of the last change. None: there is none in the events that were read.
        corrective: Whether the last change corrected drift.
    """

    resource: str
    origin: str
    outcome: str
    time: datetime
    run: str
    error: list[str] = []
    output: str = ""
    noop_message: str = ""
    changes: int = 0
    changed: datetime | None = None
    corrective: bool = False


async def read_resources(fleet: Fleet, node: str) -> list[ResourceStatus]:
    """Return the resources of a node with events within LOOK_BACK, sorted by origin and name."""
    found: dict[tuple[str, str], ResourceStatus] = {}
    origins: dict[str, str] = {}
    kept: deque[StoredEvent] = deque(maxlen=EVENTS_READ)
    async for event in read_events(fleet, node, fleet.clock.now() - LOOK_BACK):
        kept.append(event)
    for event in kept:
        try:
            heard = decode_agent_message(event)
        except ProtocolError:
            continue
        said = heard.said
        if isinstance(said, SessionStart):
            origins[heard.run] = said.origin or said.manifest
        elif isinstance(said, TransactionEvent):
            origin = origins.get(heard.run, "")
            key = (origin, f"{said.type}#{said.name}")
            found[key] = _status(said, heard.run, origin, found.get(key))
    return [found[key] for key in sorted(found)]


def _status(said: TransactionEvent, run: str, origin: str, before: ResourceStatus | None) -> ResourceStatus:
    is_change = said.outcome in _CHANGES and not said.noop
    return ResourceStatus(
        resource=f"{said.type}#{said.name}",
        origin=origin,
        outcome=str(said.outcome),
        time=said.timestamp,
        run=run,
        error=said.error,
        output=said.output,
        noop_message=noop_words(said) if said.noop else "",
        changes=(before.changes if before else 0) + is_change,
        changed=said.timestamp if is_change else before.changed if before else None,
        corrective=bool(said.corrective) if is_change else bool(before and before.corrective),
    )
