"""
Messages on the bus, other than the events of `outcome.py`.

Each repeats in `protocol` the id that its subject begins with. Decoding is tolerant: unknown fields are ignored, new fields
have defaults, a field's type never changes, and a new meaning gets a new protocol id. Times are RFC 3339 in UTC; durations
say their unit in the name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from ccm_agent.model.bundle import Bundle, PartialManifest
from ccm_agent.model.maintenance import LockChange, ResourceLock
from ccm_agent.model.untrusted_json import Count, Moment, Seconds

PROTOCOL = "io.choria.ccm.v1"

MANIFEST_APPLY = f"{PROTOCOL}.manifest.apply.request"
MANIFEST_PLAN = f"{PROTOCOL}.manifest.plan.request"
MANIFEST_CHECK = f"{PROTOCOL}.manifest.check.request"
RESOURCE_ENSURE = f"{PROTOCOL}.resource.ensure.request"
RESOURCE_EXEC = f"{PROTOCOL}.resource.exec.request"
NODE_PING = f"{PROTOCOL}.node.ping.request"
NODE_FACTS = f"{PROTOCOL}.node.facts.request"
NODE_STATUS = f"{PROTOCOL}.node.status.request"
NODE_DISABLE = f"{PROTOCOL}.node.disable.request"
NODE_ENABLE = f"{PROTOCOL}.node.enable.request"
NODE_CONVERGE = f"{PROTOCOL}.node.converge.request"
RUN_STOP = f"{PROTOCOL}.run.stop.request"

SESSION_ANSWER = f"{PROTOCOL}.session.answer"
SESSION_PROGRESS = f"{PROTOCOL}.session.progress"

AGENT_STARTUP = f"{PROTOCOL}.agent.startup"
AGENT_SHUTDOWN = f"{PROTOCOL}.agent.shutdown"
AGENT_DRIFT = f"{PROTOCOL}.agent.drift"
AGENT_REFUSED = f"{PROTOCOL}.agent.refused"
AGENT_LOST_EVENTS = f"{PROTOCOL}.agent.lost_events"
AGENT_DUPLICATE = f"{PROTOCOL}.agent.duplicate"
AGENT_DISABLED = f"{PROTOCOL}.agent.disabled"
AGENT_ENABLED = f"{PROTOCOL}.agent.enabled"
AGENT_CONVERGE = f"{PROTOCOL}.agent.converge"
AGENT_LOCKED = f"{PROTOCOL}.agent.locked"
AGENT_UNLOCKED = f"{PROTOCOL}.agent.unlocked"
AGENT_KEY = f"{PROTOCOL}.agent.key"

DUPLICATE_IDENTITY = "another agent uses this identity"
"""What `NodeRecord.conflict` says of a node whose name two agents use."""

EVENT_LIMIT_BYTES = 64 * 1024
"""An event is cut to this size; one that cannot be sent would block all behind it."""

PROGRESS_INTERVAL_S = 5.0
"""A run says where it is after this time, and then each time it has passed again."""

PROGRESS_MISSED = 3
"""A node that accepted and then missed so many progress messages is lost."""


class Request(Struct, kw_only=True, omit_defaults=True):
    """
    What all requests to agents say.

    Attributes:
        protocol: Id of the subject it is sent on.
        run: KSUID of the run; "" in a scheduled request, where it derives from the schedule's headers.
        time: When it was made. In a scheduled request None.
        targets: Selectors, any of which a node must match; empty means all nodes that the subject reaches.
        where: An expression that must be true as well; "" is always true.
        named: Nodes that must answer, if only that they no longer match: set when a request goes out again.
        requester: Who asks, for people to read; who may is decided by the broker and by signatures.
        deadline: A node that has not begun by then does not begin: `expired`. None: no limit.
        deadline_s: The same as a duration from the time it is due, for scheduled requests; 0: no limit.
        catch_up: Of a scheduled request: a node that was away when it was due takes it when it is back.
    """

    protocol: str
    run: str = ""
    time: Moment | None = None
    targets: list[str] = []
    where: str = ""
    named: list[str] = []
    requester: str = ""
    deadline: Moment | None = None
    deadline_s: float = 0
    catch_up: bool = False


class ManifestRequest(Request, kw_only=True, omit_defaults=True):
    """
    Apply, plan (noop) or check (health checks only) a manifest; which of them is the protocol's word.

    Attributes:
        name: What the manifest is called; a newer request of this name supersedes one that waits.
        manifest, bundle: The manifest's text, up to 64 KiB, or the packed directory.
        digest: SHA-256 (hex) of the text or bundle.
        events: "changes" or "all": whether stable resources are published too.
        data: URLs of hiera documents over the manifest's own data, such as `kv://CCM_DATA/common`.
        cause: "request", "schedule" or "assignment".
        diff: Events say what changes, if the node's policy does not withhold it. Older agents ignore it.
        part: Only a part of the manifest is applied; then `manifest` and `bundle` are empty. None: all of it.
        undo: The run that is undone; then there is no manifest, and the node takes the earlier states that it kept. "": none.
        keep, plan: The node keeps this plan; the run of a kept plan: an apply changes nothing unless the node is as it found it.
    """

    name: str = ""
    manifest: str = ""
    bundle: Bundle | None = None
    digest: str = ""
    events: str = "changes"
    data: list[str] = []
    cause: str = "request"
    diff: bool = False
    part: PartialManifest | None = None
    keep: bool = False
    plan: str = ""
    undo: str = ""

    @property
    def content(self) -> ManifestRequest | PartialManifest:
        """Where `manifest` and `bundle` are."""
        return self.part or self


class EnsureRequest(Request, kw_only=True, omit_defaults=True):
    """
    Ensure one resource.

    Attributes:
        type: Resource type.
        properties: Its properties, `name` among them.
        diff: As in a ManifestRequest.
    """

    type: str = ""
    properties: dict[str, Any] = {}
    diff: bool = False


class ExecRequest(Request, kw_only=True, omit_defaults=True):
    """
    Run one command, without a manifest. It becomes an `exec` resource whose properties contain no templates.

    Attributes:
        argv: The program and its arguments; no shell reads them.
        timeout_s: The command is killed after this time; 0: no limit.
    """

    argv: list[str] = []
    timeout_s: Seconds = 0


class StopRequest(Request, kw_only=True, omit_defaults=True):
    """
    Stop a run: agents finish the current resource and skip the rest.

    Attributes:
        stop: The run to stop.
        kill: End the programs of the current resource. Older agents wait for it to finish.
    """

    stop: str = ""
    kill: bool = False


class MaintenanceRequest(Request, kw_only=True, omit_defaults=True):
    """
    Disable or enable the node, or converge now; which of them is the protocol's word.

    Attributes:
        why: The reason, for all who wonder; a node is not disabled without one.
        until: When a disabled node is enabled again; None: when an operator enables it. When locks end.
        lock: Resources are locked or unlocked, and the node is not disabled. `why` is empty then, so that an agent that does not
            know locks refuses the request.
    """

    why: str = ""
    until: Moment | None = None
    lock: LockChange | None = None


class AnswerState(StrEnum):
    """What an agent says to a request."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    DONE = "done"
    """Answered in full (ping, facts, status, stop), or handled before: the ledger has its end state in `outcome`."""


class RunAhead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The run that a queued one waits for: the current run of the node.

    Attributes:
        run: Its id.
        action, name: What it does with which manifest or resource.
        requester: Who asked for it.
    """

    run: str
    action: str = ""
    name: str = ""
    requester: str = ""


class Answer(Struct, kw_only=True, omit_defaults=True):
    """
    An agent's answer to a request, on `session.answer.<run>.<node>`.

    Attributes:
        state: See AnswerState.
        reason, code: Why it refused.
        position: Place in the queue, from 1; 0 when it begins at once.
        ahead: The node's current run, if this one is queued; None from older agents.
        outcome: End state of a run handled before, from the ledger.
        machine, started: Machine id, and when the agent process began: both tell two agents of one identity apart.
        body: Facts, status or versions, for the requests that ask for them.
    """

    protocol: str
    run: str = ""
    node: str = ""
    time: Moment | None = None
    state: str = AnswerState.ACCEPTED
    reason: str = ""
    code: str = ""
    position: Count = 0
    outcome: str = ""
    machine: str = ""
    started: Moment | None = None
    body: dict[str, Any] = {}
    ahead: RunAhead | None = None


REPORTING = "reporting"
"""The run has ended on the node, and its events wait for the stream's acknowledgement."""


class Progress(Struct, kw_only=True, omit_defaults=True):
    """
    Where a run is, on `session.progress.<run>.<node>`, every five seconds.

    Attributes:
        state: "queued", "running" or "reporting": the run has ended, and its events wait for the stream.
        resource: The current resource, `type#name`.
        position: Place of the current resource, from 1.
        total: Number of resources.
        resource_s: How long it has been at this resource.
        run_s: How long the run has gone on here; of a run that has ended, how long its events have waited.
        changed: Resources that were changed so far.
        failed: Resources that failed so far.
    """

    protocol: str
    run: str = ""
    node: str = ""
    state: str = "running"
    resource: str = ""
    position: Count = 0
    total: Count = 0
    resource_s: Seconds = 0
    run_s: Seconds = 0
    changed: Count = 0
    failed: Count = 0


class AgentEvent(Struct, kw_only=True, omit_defaults=True):
    """
    Something about the agent itself, on `agent.<word>.<node>`; the protocol id ends in the word.

    Attributes:
        message: One sentence for people.
        details: Facts for programs, which depend on the word.
    """

    protocol: str
    event_id: str
    timestamp: Moment
    node: str
    message: str = ""
    details: dict[str, Any] = {}


class Assignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    What nodes should be, for as long as it stands: the body of a stamped document in CCM_ASSIGNMENTS.

    Its stamp's number orders revisions; its count is for people. Of one name the node's own wins, then a fact's, then the newest.

    Attributes:
        name: Its name; one token of its key encodes it.
        scope: "all", "node.<node>" or "fact.<key>.<value>", as in the key.
        targets: Selectors, any of which a node must match besides; empty means all nodes that the scope reaches.
        where: An expression that must be true as well; "" is always true.
        manifest: What the manifest is called, for people.
        bundle: The packed directory, pinned.
        data: URLs of hiera documents over the manifest's own data, such as `kv://CCM_DATA/common`.
        data_revision: Documents in CCM_DATA are read as they were at this revision of the bucket; 0: as they are now.
        mode: "apply" or "plan".
        interval_s: Time between convergences; 0: the node's own interval.
        deadline: A node that has not begun with this revision by then does not begin. None: no limit.
        requester, time: By whom it was assigned, and when.
        rolled_back_from: The revision (count) that this one replaced by a rollback; 0: it is not a rollback.
    """

    name: str
    scope: str
    bundle: Bundle
    targets: list[str] = []
    where: str = ""
    manifest: str = ""
    data: list[str] = []
    data_revision: int = 0
    mode: str = "apply"
    interval_s: float = 0
    deadline: Moment | None = None
    requester: str = ""
    time: Moment | None = None
    rolled_back_from: int = 0


WAITING = "waiting"
DISABLED = "disabled"
"""How a node may stand to an assignment besides what a run ends in: its turn comes, or an operator disabled the node."""


class AssignmentState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    How a node stands to one assignment, in its NodeRecord.

    Attributes:
        key: Key of the assignment in CCM_ASSIGNMENTS that won for this node.
        revision, count: Its stamp's number, as the node knows it, and the revision for people; 0, from older agents: the number.
        digest: SHA-256 (hex) of the bundle that was applied last; "" when none was yet.
        data_revision: The revision of CCM_DATA that was applied with it.
        data_revisions: Of an assignment that follows data, the revision of each document that its last run read, by URL; empty
            from older agents.
        state: "waiting" for its turn, a final word of NodeState for how its last run ended, or "disabled".
        reason, code: Why it is not as it should be; "" when it is.
        since: When it first came to this state with this revision.
        run: The run that it came to this state with: a later one that found the same is no news.
        next_time: When it is tried again, of one that is not as it should be; None: not known, or not at all.
        refresh_pending: Resources, the first 20, that an earlier run did not refresh. A node with one has not converged.
    """

    key: str
    revision: Count
    count: Count = 0
    digest: str = ""
    data_revision: Count = 0
    data_revisions: dict[str, Count] = {}
    state: str = WAITING
    reason: str = ""
    code: str = ""
    since: Moment | None = None
    run: str = ""
    next_time: Moment | None = None
    refresh_pending: list[str] = []


class Disabled(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Why and until when a node does not converge; its health checks continue.

    Attributes:
        since, until: From when to when; without `until` it lasts until an operator enables the node.
        why, by: The reason that an operator gave, and that operator's name.
    """

    since: Moment
    until: Moment | None = None
    why: str = ""
    by: str = ""

    @property
    def sentence(self) -> str:
        """For people: `disabled until 2026-11-21 18:00:00Z by maria: the disk is replaced`."""
        until = f" until {self.until.strftime('%Y-%m-%d %H:%M:%SZ')}" if self.until else ""
        by = f" by {self.by}" if self.by else ""
        return f"disabled{until}{by}: {self.why or 'no reason given'}"


class NodeRecord(Struct, kw_only=True, omit_defaults=True):
    """
    `node.<n>` in CCM_NODES: small, written when it changed.

    Attributes:
        machine, started, version: Machine id of its host, when its agent process began, and the agent's version.
        facts: Routed facts only.
        last_run, last_state, last_time: The newest finished run and its end state.
        disabled: Why and until when the agent does not converge; None when it does.
        assignments: How it stands to each assignment that means it, by name.
        conflict: What is wrong with its assignments or identity; "" when nothing is.
        signatures: It obeys signed requests and documents only.
        refresh_pending: Resources, the first 20, that a later run refreshes, each with its manifest, assignment or source.
        key, certificate: The nkey that it signs events with, and the root's word that the key is its own (`bus.trust`).
        policy: It has a usable `policy.yaml`; None from an agent that does not report it.
        unsigned: What it accepts without a signature although it demands signatures: "data", "objects".
        own_data: It can read documents that are stored for it alone: its version and its credentials allow it.
        own_schedules: It takes requests of schedules that have a subject of their own, so a scope can have several schedules.
        partial_runs: It applies parts of manifests.
        resource_locks: It knows locks of resources.
        selector_patterns: It reads `*` and `?` in values of facts, and compares the items of lists.
        locks: The resources that it skips. Some may have ended.
        undo: It can undo runs.
    """

    node: str
    machine: str = ""
    started: Moment | None = None
    version: str = ""
    facts: dict[str, Any] = {}
    last_run: str = ""
    last_state: str = ""
    last_time: Moment | None = None
    disabled: Disabled | None = None
    assignments: dict[str, AssignmentState] = {}
    conflict: str = ""
    signatures: bool = False
    refresh_pending: list[str] = []
    key: str = ""
    certificate: str = ""
    policy: bool | None = None
    unsigned: tuple[str, ...] = ()
    own_data: bool = False
    own_schedules: bool = False
    partial_runs: bool = False
    resource_locks: bool = False
    selector_patterns: bool = False
    locks: list[ResourceLock] = []
    undo: bool = False


class FactsRecord(Struct, kw_only=True, omit_defaults=True):
    """`facts.<n>` in CCM_NODES: all facts, written only when they changed."""

    node: str
    time: Moment | None = None
    digest: str = ""
    facts: dict[str, Any] = {}


class Presence(Struct, kw_only=True, omit_defaults=True):
    """`presence.<n>` in CCM_NODES; it expires by itself, and is kept fresh every heartbeat. `run` is the current run."""

    node: str
    machine: str = ""
    started: Moment | None = None
    time: Moment | None = None
    run: str = ""


STOPPED_CODE = "run.stopped"
"""Code of a run that an operator stopped."""


class NodeState(StrEnum):
    """Where a node is in a run. Every expected node ends in one of those after RUNNING."""

    PLANNED = "planned"
    """In a later wave of a rollout; not asked yet."""
    EXPECTED = "expected"
    """Not heard of yet."""
    ACCEPTED = "accepted"
    QUEUED = "queued"
    RUNNING = "running"

    STABLE = "stable"
    CHANGED = "changed"
    """In a plan: would change."""
    FAILED = "failed"
    STOPPED = "stopped"
    """An operator stopped the run before its end. Older agents say failed."""
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    LOST = "lost"
    """Accepted, then three progress messages missing."""
    UNREACHABLE = "unreachable"
    """Present, but did not answer."""
    OFFLINE = "offline"
    SKIPPED = "skipped"
    """The rollout ended before this node was asked."""

    @property
    def is_final(self) -> bool:
        """The node has come to its end in this run."""
        return self not in _OPEN_STATES


_OPEN_STATES = frozenset(
    (NodeState.PLANNED, NodeState.EXPECTED, NodeState.ACCEPTED, NodeState.QUEUED, NodeState.RUNNING)
)

COMPLIANT_STATES = (NodeState.STABLE, NodeState.CHANGED)
"""Ends of a run after which nothing is left to do."""

CARRIED_OUT = (*COMPLIANT_STATES, NodeState.FAILED, NodeState.STOPPED)
"""Ends of a run that began, and of which the node's summary is in the stream."""
