"""The state of one node in a run, and its changes."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import NodeState, Progress, RunAhead
from ccm_ctl.fleet.events.gaps import Gaps

READS = 4
"""How often a gap is read from the stream: a replica may lag, but an event that was never stored does not appear later."""

Event = SessionStart | TransactionEvent | SessionSummary
"""What is numbered and stored."""


class NodeRun(Struct, kw_only=True, gc=False):
    """
    The state of one node; mutable, changed only by `Run`.

    Attributes:
        node: Its name.
        state: Its state.
        reason, code: The reason, if the state alone is not enough.
        joined: It answered and had not been expected, and its assigned facts fit what the run is for.
        position: Its place in the node's queue of runs.
        ahead: The run that it finishes or finished first, as the node says.
        heard_at: When anything came from it last (monotonic seconds).
        asked_at: When it was asked (monotonic seconds).
        progress: Its last report of progress.
        summary: The end of its session.
        events: What changed, failed or was skipped, by number.
        missing: Numbers that exist and are not in the stream either.
        shown: Hashes of the events that were given on before the summary was proven, by number.
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
    """The number and the hash of the session's start. Nothing else of it is needed, and there are thousands."""
    seen: dict[int, Event] = {}
    """Events that wait for earlier ones."""
    known: int = 0
    """The highest number that is known to exist."""
    given: int = 0
    """Numbers up to this one have been given on or are known to be missing."""
    reads: int = 0
    read_at: float = 0
    suspected: bool = False
    resends: int = 0
    wants_summary: bool = False

    @property
    def lacking(self) -> Gaps:
        """Numbers that exist and have not been seen."""
        lacking = self.missing.copy()
        lacking.add_between(self.given, self.known, self.seen)
        return lacking

    @property
    def has_gap(self) -> bool:
        """Whether events are still to be read from the stream."""
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
        resend: Nodes to name when the request goes out again now; empty: it does not.
        read: Nodes whose events are to be read from the stream, to be followed by `read_done`.
        read_all: The events of all nodes of the run are to be read.
    """

    resend: list[str] = []
    read: list[str] = []
    read_all: bool = False
