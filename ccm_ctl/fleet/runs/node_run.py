"""The state of one node in a run, and its changes."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import NodeState, Progress, RunAhead
from ccm_ctl.fleet.events.gaps import Gaps

if TYPE_CHECKING:
    from ccm_ctl.fleet.runs.shared_values import KeptSummary

READS = 4
"""
How many times a gap is read again from the stream. A replica may lag, but an event that was never stored does not appear later.
"""

Event = SessionStart | TransactionEvent | SessionSummary
"""The messages that are numbered and stored."""

NOTHING: Any = MappingProxyType({})
"""The value of empty dicts and sets of thousands of nodes. It cannot be changed, so the first value of a node replaces it."""

NO_GAPS = Gaps()
"""Likewise. It is never changed."""


class NodeRun(Struct, kw_only=True, gc=False):
    """
    The state of one node. It is mutable, and only `Run` changes it.

    Attributes:
        node: Its name.
        state: Its state.
        reason, code: The reason, if the state is not self-explanatory.
        joined: Whether the node was not expected, but answered and has assigned facts that match the run's targets.
        position: Its place in the node's queue of runs.
        ahead: The run that the node finishes first, according to its answer.
        heard_at: When its last message arrived (monotonic seconds).
        asked_at: When the request was sent to it (monotonic seconds).
        progress: Its last report of progress.
        kept_summary: The summary of its session.
        events: The events about changes, failures and skips, by number.
        missing: Numbers of events that exist but are not in the stream.
        shown: Hashes of the events that were passed on before the summary was proven.
    """

    node: str
    state: NodeState = NodeState.EXPECTED
    reason: str = ""
    code: str = ""
    joined: bool = False
    position: int = 0
    ahead: RunAhead | None = None
    heard_at: float = 0
    asked_at: float = 0
    progress: Progress | None = None
    kept_summary: KeptSummary | None = None
    events: dict[int, TransactionEvent] = NOTHING
    missing: Gaps = NO_GAPS
    shown: set[int] = NOTHING

    started: int = 0
    """The hash of the session's start. The event itself is not kept, because there are thousands of nodes."""
    seen: dict[int, Event] = NOTHING
    """Events that wait for earlier ones."""
    known: int = 0
    """The highest number of an event that exists, according to the messages so far."""
    given: int = 0
    """Events up to this number have been passed on or are known to be missing."""
    reads: int = 0
    read_at: float = 0
    suspected: bool = False
    resends: int = 0
    wants_summary: bool = False

    @property
    def summary(self) -> SessionSummary | None:
        """The summary of its session. Each access decodes it, so callers keep it in a variable."""
        return self.kept_summary.read() if self.kept_summary is not None else None

    @property
    def lacking(self) -> Gaps:
        """Numbers that exist and have not been received."""
        lacking = self.missing.copy()
        lacking.add_between(self.given, self.known, self.seen)
        return lacking

    @property
    def has_gap(self) -> bool:
        """Whether some events must still be read from the stream."""
        lacks_summary = self.wants_summary and self.kept_summary is None
        return self.reads < READS and (self.given < self.known or lacks_summary)


class StateChange(Struct, frozen=True, kw_only=True, gc=False):
    """A node entered a state."""

    node: str
    state: NodeState


class EventReceived(Struct, frozen=True, kw_only=True, gc=False):
    """The next event of a node, in the order of its numbers."""

    node: str
    event: Event


News = StateChange | EventReceived


class PendingActions(Struct, frozen=True, kw_only=True):
    """
    Actions that are due.

    Attributes:
        resend: The nodes to name when the request is now sent again. If empty, it is not sent.
        read: The nodes whose events must be read from the stream. The caller then calls `read_done`.
        read_all: Whether the events of all nodes of the run must be read.
    """

    resend: list[str] = []
    read: list[str] = []
    read_all: bool = False
