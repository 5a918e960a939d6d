"""
Messages on the bus, except the events of `outcome.py`. `protocol` is the id at the start of the subject.

Decoding is tolerant: unknown fields are ignored, and new fields have defaults. A field's type never changes,
and a new meaning requires a new protocol id. Times are RFC 3339 in UTC. Durations have their unit in the name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct

from ccm_agent.model.bundle import Bundle, PartialManifest
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import Count, Moment, Seconds
from ccm_agent.model.records.maintenance import LockChange, ResourceLock

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
RESOURCE_IMPORT = f"{PROTOCOL}.resource.import.request"
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
AGENT_DECISION = f"{PROTOCOL}.agent.decision"

DUPLICATE_IDENTITY = "another agent uses this identity"
"""The value of `NodeRecord.conflict` if two agents use the same name."""

EVENT_LIMIT_BYTES = 64 * 1024
"""
Events are shortened to this size, because an event that is too large to send would block all later events.
"""

PROGRESS_INTERVAL_S = 5.0
"""The interval of progress messages of a run."""

PROGRESS_MISSED = 3
"""A node that accepted a run is considered lost after this number of missing progress messages."""


MESSAGE_LIMIT = 1000
"""The maximum number of characters in an operator's message, such as the reason for a run."""


class Request(Struct, kw_only=True, omit_defaults=True):
    """
    The common fields of all requests to agents.

    Attributes:
        protocol: Id of its subject.
        run: KSUID of the run; "" in a scheduled request, where it is derived from the schedule's headers.
        time: The time of its creation; None in a scheduled request.
        targets: Selectors, of which a node must match at least one; empty means all nodes that the subject reaches.
        where: An expression that must be true as well; "" is always true.
        named: Nodes that must answer even if they no longer match. Set in a repeated request.
        requester: The requester's name, for display only; the broker and signatures decide about permissions.
        deadline: A node that has not started by this time does not start, and its state is `expired`. None
            means no limit.
        deadline_s: The deadline of a scheduled request, as a duration after the due time; 0 means no limit.
        catch_up: Whether a node that was offline at the due time of a scheduled request runs it when it is
            online again.
        rollout: Whether the request is a step of a rollout. If the agent restarts before the run has begun, the
            run does not begin, because the agent may have missed an abort.
        message: The reason that the requester gave, for display. Older agents ignore it.
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
    rollout: bool = False
    message: str = ""


class AssignmentStage(Struct, frozen=True, kw_only=True):
    """
    The next revision of an assignment, which a rollout releases to nodes.

    Attributes:
        key: Key of the assignment in CCM_ASSIGNMENTS.
        number: The number of the revision in the document's `next` field.
    """

    key: str
    number: Count


class ManifestRequest(Request, kw_only=True, omit_defaults=True):
    """
    Apply, plan (noop) or check (health checks only) a manifest; the protocol id determines which.

    Attributes:
        name: The manifest's name; a newer request with the same name supersedes a waiting one.
        manifest, bundle: The manifest's text, up to 64 KiB, or the packed directory.
        digest: SHA-256 (hex) of the text or bundle.
        events: "changes", or "all" to also publish stable resources.
        data: URLs of hiera documents that override the manifest's own data, such as `kv://CCM_DATA/common`.
        cause: "request", "schedule" or "assignment".
        diff: Whether events contain diffs, unless the node's policy withholds them. Older agents ignore it.
        part: The part of the manifest to apply; None for the whole manifest. If set, `manifest` and `bundle`
            are empty.
        undo: The run to undo; "" for none. If set, there is no manifest, and the node restores the earlier
            states that it stored.
        keep: Whether to save this plan.
        plan: The run of a saved plan. The apply does not change anything if the node no longer matches the plan.
        stage: The next revision of an assignment, which this request releases and applies. If set, `manifest`
            and `bundle` are empty.
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
    stage: AssignmentStage | None = None

    @property
    def content(self) -> ManifestRequest | PartialManifest:
        """Return the part, or this request itself. Either has `manifest` and `bundle`."""
        return self.part or self


class EnsureRequest(Request, kw_only=True, omit_defaults=True):
    """
    Bring one resource into its desired state.

    Attributes:
        type: Resource type.
        properties: Its properties, including `name`.
        diff: See ManifestRequest.
    """

    type: str = ""
    properties: dict[str, Any] = {}
    diff: bool = False


class ExecRequest(Request, kw_only=True, omit_defaults=True):
    """
    Run one command, without a manifest. The node runs it as an `exec` resource without templates.

    Attributes:
        argv: The program and its arguments, without a shell.
        timeout_s: The command is killed after this time; 0 means no limit.
    """

    argv: list[str] = []
    timeout_s: Seconds = 0


class ImportRequest(Request, kw_only=True, omit_defaults=True):
    """
    Report the existing resources of some types. The node accepts the request, and answers with
    `records.host_import.ResourcesPart`s.

    Attributes:
        types: Types from `records.host_import.SITE_ORDER`. `file`, `directory` and `config` have a path, as in
            `file:/etc/nginx`.
        contents: Digests from an earlier answer. The answer then contains only the contents with these digests.
            Older agents refuse types with contents.
    """

    types: list[str] = []
    contents: list[str] = []


class StopRequest(Request, kw_only=True, omit_defaults=True):
    """
    Stop a run: agents finish the current resource and skip the rest.

    Attributes:
        stop: The run to stop.
        kill: Whether to kill the programs of the current resource. Older agents wait for it to finish.
    """

    stop: str = ""
    kill: bool = False


class MaintenanceRequest(Request, kw_only=True, omit_defaults=True):
    """
    Disable or enable the node, or converge now; the protocol id determines which.

    Attributes:
        why: The reason, for display; required to disable a node.
        until: When a disabled node is enabled again; None if only an operator enables it. For locks, their end.
        lock: Resources to lock or unlock instead of disabling the node. `why` is then empty, so that an agent
            without support for locks refuses the request.
    """

    why: str = ""
    until: Moment | None = None
    lock: LockChange | None = None


class AnswerState(StrEnum):
    """The state in an agent's answer to a request."""

    ACCEPTED = "accepted"
    QUEUED = "queued"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    DONE = "done"
    """
    Completely answered (ping, facts, status, stop, converge), or handled earlier. `outcome` is set for a
    convergence or an earlier run.
    """


class RunAhead(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The current run of the node, for which a queued run waits.

    Attributes:
        run: The id of the run.
        action, name: Its action, and the manifest or resource.
        requester: Its requester.
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
        reason, code: Why the agent refused the request.
        position: Position in the queue, from 1; 0 if it starts immediately.
        ahead: The node's current run if the requested run is queued; None from older agents.
        outcome: End state of a run that was handled earlier, from the request log; for a convergence that has
            ended, the worst end state.
        machine, started: Machine id, and start of the agent process; they distinguish two agents with the same identity.
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
"""The run has ended on the node, and its events have not been acknowledged by the stream yet."""


class Progress(Struct, kw_only=True, omit_defaults=True):
    """
    The progress of a run, on `session.progress.<run>.<node>`, every five seconds.

    Attributes:
        state: "queued", "running" or "reporting": the run has ended, and its events wait for the stream.
        resource: The current resource, `type#name`.
        position: Position of the current resource, from 1.
        total: Number of resources.
        resource_s: Time that the current resource has taken so far.
        run_s: Time that the run has taken so far on this node; after its end, the time that its events have waited.
        changed: Resources changed so far.
        failed: Resources failed so far.
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
    An event of the agent itself, on `agent.<word>.<node>`; the protocol id ends with the word.

    Attributes:
        message: One sentence for display.
        details: Machine-readable fields, which depend on the word.
    """

    protocol: str
    event_id: str
    timestamp: Moment
    node: str
    message: str = ""
    details: dict[str, Any] = {}


class Assignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The desired state of nodes, until the assignment is changed or removed. It is the body of a stamped document
    in CCM_ASSIGNMENTS.

    The stamp's number orders revisions, and its count is for display. Among assignments with the same name,
    scope `node` takes precedence, then `fact`, then the newest assignment.

    Attributes:
        name: Its name; one token of its key encodes it.
        scope: "all", "node.<node>" or "fact.<key>.<value>", as in the key.
        targets: Selectors, of which a node must also match at least one; empty means all nodes in the scope.
        where: An expression that must be true as well; "" is always true.
        manifest: The manifest's name, for display.
        bundle: The packed directory, pinned.
        data: URLs of hiera documents that override the manifest's own data, such as `kv://CCM_DATA/common`.
        data_revision: The revision of CCM_DATA at which documents are read; 0 for the current documents.
        data_numbers: The numbers of those documents, by key. Documents with keys from templates are missing;
            empty from older controllers.
        mode: "apply" or "plan".
        interval_s: Time between convergences; 0 for the node's own interval.
        deadline: A node that has not started with this revision by this time does not start. None means no limit.
        requester, time: Its author and time.
        rolled_back_from: The revision (count) that this rollback replaced; 0 if it is not a rollback.
        commit: The git commit that the bundle was packed from, for display; "" if unknown.
        commit_dirty: Whether the bundle differs from that commit.
        number: The number by which nodes identify this revision if its document was rewritten without a change;
            0 for the stamp's number.
        rollout: The run of the rollout of this revision; "" without a rollout.
        next: The revision that is being rolled out. It applies to a node once a request has released it there.
            Older agents ignore it.
    """

    name: str
    scope: str
    bundle: Bundle
    targets: list[str] = []
    where: str = ""
    manifest: str = ""
    data: list[str] = []
    data_revision: int = 0
    data_numbers: dict[str, Count] = {}
    mode: str = "apply"
    interval_s: float = 0
    deadline: Moment | None = None
    requester: str = ""
    time: Moment | None = None
    rolled_back_from: int = 0
    commit: str = ""
    commit_dirty: bool = False
    number: Count = 0
    rollout: str = ""
    next: Assignment | None = None


WAITING = "waiting"
DISABLED = "disabled"
"""States of an assignment in addition to the end states of runs: it waits for its turn, or the node is disabled."""


class AssignmentState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The status of one assignment on a node, in its NodeRecord.

    Attributes:
        key: Key in CCM_ASSIGNMENTS of the assignment that takes precedence on this node.
        revision, count: Its stamp's number known to the node, and the revision for display; the latter is 0
            from older agents: use the number.
        digest: SHA-256 (hex) of the last applied bundle; "" if no bundle has been applied yet.
        data_revision: The revision of CCM_DATA that was applied with the bundle.
        data_revisions: For unpinned data, the revision of each document that the last run read, by URL; otherwise empty.
        state: "waiting" for its turn, the final NodeState of its last run, or "disabled".
        reason, code: Why the assignment is not in its desired state; "" if it is.
        since: When the node first reached this state with this revision.
        run: The run in which the node reached this state; later runs with the same result do not change the field.
        next_time: The time of the next attempt if the node is not in the desired state; None if unknown or never.
        refresh_pending: The first 20 resources with a pending refresh. A node with a pending refresh has not converged.
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
        since, until: Start and end. Without `until`, it lasts until an operator enables the node.
        why, by: The reason that an operator gave, and that operator's name.
    """

    since: Moment
    until: Moment | None = None
    why: str = ""
    by: str = ""

    @property
    def sentence(self) -> str:
        """Format for people: `disabled until 2026-11-21 18:00:00Z by maria: the disk is replaced`."""
        until = f" until {format_moment(self.until)}" if self.until else ""
        by = f" by {self.by}" if self.by else ""
        return f"disabled{until}{by}: {self.why or 'no reason given'}"


class SecretUse(Struct, frozen=True, kw_only=True):
    """
    A secret that a node uses.

    Attributes:
        revision: The revision that the last successful run opened. If several sources use the secret, this is
            the oldest revision.
        since: The start of this use, by the node's clock.
    """

    revision: Count
    since: Moment


class NodeRecord(Struct, kw_only=True, omit_defaults=True, gc=False):
    """
    `node.<n>` in CCM_NODES: a small record, written when it changes.

    Attributes:
        machine, started, version: Machine id of the host, start time of the agent process, and the agent's version.
        facts: Routed facts only.
        last_run, last_state, last_time: The last finished run, its end state and time.
        disabled: Why and until when the agent does not converge; None if enabled.
        assignments: The status of each matching assignment, by name.
        conflict: A conflict of the node's assignments or identity; "" without one.
        signatures: Whether the node accepts only signed requests and documents.
        refresh_pending: The first 20 resources with pending refreshes, each with its manifest, assignment or source.
        key, certificate: The nkey with which the node signs events, and the root's certificate of that key
            (`bus.signatures.trust`).
        policy: Whether the node has a usable `policy.yaml`; None from an agent that does not report it.
        unsigned: The kinds of unsigned documents that the node accepts although it requires signatures: "data", "objects".
        own_data: Whether the node's version and credentials allow it to read documents that are stored only for this node.
        own_schedules: Whether the node supports several schedules in one scope, each with a separate subject.
        partial_runs: Whether the node can apply parts of manifests.
        resource_locks: Whether the node supports locks of resources.
        selector_patterns: Whether the node supports `*` and `?` in fact values, and compares the items of lists.
        locks: The resources that the node skips. Some locks may have ended.
        undo: Whether the node can undo runs.
        incomplete_undos: The newest runs with an undo on this node that was stopped or killed before its end.
        staged_assignments: Whether the node keeps the current revision of an assignment until a rollout releases the next one.
        plans_only: Why the node accepts only plans, which happens if its signers list was not confirmed for too
            long; "" if it accepts all requests.
        disk: Why the node cannot write its state to disk; "" if it can. If it cannot, events stay in memory,
            and runs cannot be undone.
        wrong_clock: Evidence that the node's clock is slow; "" without such evidence. With it, the node does
            not accept anything new.
        secrets: The revisions of secrets that the node uses, by name; None from an agent that does not report them.
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
    incomplete_undos: list[str] = []
    staged_assignments: bool = False
    plans_only: str = ""
    disk: str = ""
    wrong_clock: str = ""
    secrets: dict[str, SecretUse] | None = None


class FactsRecord(Struct, kw_only=True, omit_defaults=True):
    """`facts.<n>` in CCM_NODES: all facts, written only when they change."""

    node: str
    time: Moment | None = None
    digest: str = ""
    facts: dict[str, Any] = {}


class Presence(Struct, kw_only=True, omit_defaults=True, gc=False):
    """
    `presence.<n>` in CCM_NODES. It expires unless a heartbeat renews it.

    Attributes:
        run: The current run; "" for none.
        ttl_s: Seconds from a heartbeat to the expiry, which is three intervals; 0 from agents that do not report it.
    """

    node: str
    machine: str = ""
    started: Moment | None = None
    time: Moment | None = None
    run: str = ""
    ttl_s: Count = 0


UNRECEIVED_CODE = "run.unreceived"
"""
Code of a run that was stopped before the node received its request. The node refuses the request if it
arrives later.
"""


class NodeState(StrEnum):
    """The state of a node in a run. The final state of every expected node is one of those after RUNNING."""

    PLANNED = "planned"
    """The node is in a later wave of a rollout, and the request has not been sent to it yet."""
    EXPECTED = "expected"
    """The node has not answered yet."""
    ACCEPTED = "accepted"
    QUEUED = "queued"
    RUNNING = "running"

    STABLE = "stable"
    CHANGED = "changed"
    """The node was changed, or in a plan, it would be changed."""
    FAILED = "failed"
    STOPPED = "stopped"
    """An operator stopped the run before its end. Older agents report `failed`."""
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    LOST = "lost"
    """The node accepted the run, and then three progress messages were missing."""
    UNREACHABLE = "unreachable"
    """The node was present but did not answer."""
    OFFLINE = "offline"
    SKIPPED = "skipped"
    """The rollout ended before the request was sent to this node."""

    @property
    def is_final(self) -> bool:
        """Whether the node has ended in this run."""
        return self not in _OPEN_STATES


_OPEN_STATES = frozenset(
    (NodeState.PLANNED, NodeState.EXPECTED, NodeState.ACCEPTED, NodeState.QUEUED, NodeState.RUNNING)
)

COMPLIANT_STATES = (NodeState.STABLE, NodeState.CHANGED)
"""End states that require no further action."""

FAILED_STATES = (NodeState.FAILED, NodeState.STOPPED, NodeState.REFUSED)
"""End states that a node reported and that an operator must check."""

CARRIED_OUT = (*COMPLIANT_STATES, NodeState.FAILED, NodeState.STOPPED)
"""End states of a run that has started. The node's summary is then in the stream."""
