"""The state of one node in a run, and its changes."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import NodeState, Progress, RunAhead
from ccm_ctl.fleet.events.gaps import Gaps

READS = 4
"""
How many times a gap is read again from the stream. A replica may lag, but an event that was never stored does not appear later.
"""

Event = SessionStart | TransactionEvent | SessionSummary
"""The messages that are numbered and stored."""


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
        summary: The summary of its session.
        events: The events about changes, failures and skips, by number.
        missing: Numbers of events that exist but are not in the stream.
        shown: Hashes of the events that were passed on before the summary was proven, by number.
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
    summary: SessionSummary | None = None
    events: dict[int, TransactionEvent] = {}
    missing: Gaps = msgspec.field(default_factory=Gaps)
    shown: dict[int, int] = {}

    started: tuple[int, int] | None = None
    """The number and the hash of the session's start. The event itself is not kept, because there are thousands of nodes."""
    seen: dict[int, Event] = {}
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
    def lacking(self) -> Gaps:
        """Numbers that exist and have not been received."""
        lacking = self.missing.copy()
        lacking.add_between(self.given, self.known, self.seen)
        return lacking

    @property
    def has_gap(self) -> bool:
        """Whether some events must still be read from the stream."""
        return self.reads < READS and (self.given < self.known or (self.wants_summary and not self.summary))


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
