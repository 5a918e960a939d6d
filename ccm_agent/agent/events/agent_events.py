"""
What an agent says about itself: that it started, what it refused, how much it lost. These events belong to no run.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from ccm_agent.agent.desired.drift import Drift
from ccm_agent.agent.events.spool import Spool
from ccm_agent.bus.node_key import NodeKey
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.json_text import encode_told
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import (
    AGENT_DISABLED,
    AGENT_DRIFT,
    AGENT_DUPLICATE,
    AGENT_ENABLED,
    AGENT_KEY,
    AGENT_LOST_EVENTS,
    AGENT_REFUSED,
    AGENT_SHUTDOWN,
    AGENT_STARTUP,
    AgentEvent,
    Disabled,
)

REFUSALS_A_MINUTE = 10
"""Refusals are told, but somebody who sends nothing else must not fill the spool with them."""

MESSAGE_LIMIT = 2000
"""In characters; what is refused was written by somebody else."""


class AgentEventPublisher:
    """The events of one agent about itself, on their way by its spool."""

    def __init__(self, node: str, version: str, machine: str, spool: Spool, clock: Clock) -> None:
        self._node = node
        self._version = version
        self._machine = machine
        self._spool = spool
        self._clock = clock
        self._started = clock.now()
        self._refusals: deque[float] = deque(maxlen=REFUSALS_A_MINUTE)

    def started(self, key: NodeKey) -> None:
        """The agent is here. Its certificate goes along, for readers of old events to find when it has another key."""
        details = {"version": self._version, "machine": self._machine, **_key_details(key)}
        self._tell(AGENT_STARTUP, f"agent {self._version} started", details)

    def stopped(self) -> None:
        """The agent goes."""
        self._tell(AGENT_SHUTDOWN, f"agent {self._version} stopped", {"version": self._version})

    def refused(self, what: str, why: str) -> None:
        """A request or a document is not obeyed."""
        now = self._clock.monotonic()
        if len(self._refusals) == REFUSALS_A_MINUTE and now - self._refusals[0] < 60:
            return
        self._refusals.append(now)
        self._tell(AGENT_REFUSED, why[:MESSAGE_LIMIT], {"refused": what[:MESSAGE_LIMIT]})

    def lost(self, count: int) -> None:
        """Events were given up; the spool does not count them any more."""
        details = {"events": count, "places": self._spool.lost_places}
        self._spool.reported(count)
        self._tell(AGENT_LOST_EVENTS, f"{count} events were given up: the spool was full", details)

    def key_changed(self, key: NodeKey) -> None:
        """The node signs with another key, or with another certificate, from here on."""
        if key.public_key:
            self._tell(AGENT_KEY, f"events are signed with {key.public_key}", _key_details(key))

    def drifted(self, source: str, run: str, drift: Drift) -> None:
        """A run corrected what somebody else had changed."""
        details = {"run": run, "manifest": source, "count": drift.corrections, "resources": drift.corrected}
        self._tell(AGENT_DRIFT, f"{source}: {drift.corrections} resources had drifted, corrected", details)

    def duplicated(self, is_so: bool, message: str) -> None:
        """Another agent uses our name, or has ceased to."""
        details = {"machine": self._machine, "started": self._started, "duplicate": is_so}
        self._tell(AGENT_DUPLICATE, message, details)

    def disabled(self, disabled: Disabled | None, message: str) -> None:
        """An operator disabled the node; None: it is enabled again, or its time has come."""
        details = msgspec.to_builtins(disabled) if disabled else {}
        self._tell(AGENT_DISABLED if disabled else AGENT_ENABLED, message, details)

    def _tell(self, protocol: str, message: str, details: dict[str, Any]) -> None:
        event = AgentEvent(
            protocol=protocol,
            event_id=new_id(),
            timestamp=self._clock.now(),
            node=self._node,
            message=message,
            details=details,
        )
        self._spool.append(
            subject=event_subject(protocol, self._node),
            event_id=event.event_id,
            body=encode_told(event),
        )


def _key_details(key: NodeKey) -> dict[str, str]:
    details = {"key": key.public_key, "certificate": key.certificate}
    return {name: value for name, value in details.items() if value}
