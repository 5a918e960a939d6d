"""One node's part in a run, and what a run says of it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from ccm_agent.model.outcome import SessionStart, SessionSummary, TransactionEvent
from ccm_agent.model.wire import NodeState, Progress, RunAhead
from ccm_ctl.fleet.gaps import Gaps

READS = 4
"""How often a gap is looked for in the stream: a follower of a cluster may lag, but what it never held is not there later."""

Event = SessionStart | TransactionEvent | SessionSummary
"""What is numbered and stored."""


class NodeRun(Struct, kw_only=True):
    """
    One node's part; mutable, changed by `Run` only.

    Attributes:
        node: Its name.
        state: Where it is.
        reason, code: Why it is there, where the state alone does not say.
        joined: It answered and had not been expected, and its assigned facts fit what the run is for.
        position: Its place in the node's queue of runs.
        ahead: The run that it finishes or finished first, as the node says.
        heard_at: When anything came from it last (monotonic seconds).
        asked_at: When it was asked (monotonic seconds).
        progress: What it said last about where it is.
        start, summary: The two ends of its session.
        events: What changed, failed or was skipped, by number.
        missing: Numbers that exist and are not in the stream either.
        shown: Events that were given on before the summary was proven, by number.
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
    start: SessionStart | None = None
    summary: SessionSummary | None = None
    events: dict[int, TransactionEvent] = {}
    missing: Gaps = msgspec.field(default_factory=Gaps)
    shown: dict[int, Event] = {}

    seen: dict[int, Event] = {}
    """What has come and waits for what stands before it."""
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
        """Something of it is still to be looked for in the stream."""
        return self.reads < READS and (self.given < self.known or (self.wants_summary and not self.summary))


class StateChange(Struct, frozen=True, kw_only=True):
    """A node came into a state."""

    node: str
    state: NodeState


class EventReceived(Struct, frozen=True, kw_only=True):
    """The next event of a node, in the order of its numbers."""

    node: str
    event: Event


News = StateChange | EventReceived


class PendingActions(Struct, frozen=True, kw_only=True):
    """
    What the time asks for.

    Attributes:
        resend: Nodes to name when the request goes out again now; empty: it does not.
        read: Nodes whose events are to be read from the stream, to be followed by `read_done`.
        read_all: The events of all nodes of the run are to be read.
    """

    resend: list[str] = []
    read: list[str] = []
    read_all: bool = False
