"""
The ports of an agent, and the state from which `composition` builds its services.

`app_agent.py` creates the ports for the real host and broker; tests create their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from ccm_agent.agent.cache.bundle_cache import BundleCache
from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.cache.facts import AssignedFacts, FactCache
from ccm_agent.agent.desired.origins import SourcePorts
from ccm_agent.agent.events.publisher import AgentEventPublisher, Author
from ccm_agent.agent.events.run_report import Shorten
from ccm_agent.agent.requests.resource_imports import FindResources
from ccm_agent.agent.runs.admission import Admission, Maintenance, NodePolicy, ResourceLocks
from ccm_agent.agent.runs.run_queue import RunQueue
from ccm_agent.agent.runs.run_records import Checkpoints
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.state.request_log import DecisionLog, RequestLog
from ccm_agent.agent.state.settings import Settings
from ccm_agent.agent.state.state_folder import (
    LEDGER,
    determine_identity,
    machine_id,
    read_status,
    state_began,
)
from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.agent.trust.revision_guard import RevisionGuard, SnapshotReader
from ccm_agent.bus.signatures.node_key import NodeKey
from ccm_agent.bus.signatures.node_state import StateReaderRef
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, Trust
from ccm_agent.engine.request import Engine
from ccm_agent.engine.slots import NodeSlots
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.metrics.registry import CallbackMetric, MetricsRegistry
from ccm_agent.model.ports import BrokerConnection, Clock, Events, KeyReader, KeyValue, Objects, Requests
from ccm_agent.model.records.host_import import HostResources
from ccm_agent.model.secret import Masker
from ccm_agent.model.wire import NodeRecord
from ccm_agent.policy.grant import Grant
from ccm_agent.sessions.pending_refreshes import PendingRefreshes
from ccm_agent.sessions.refresh_store import RefreshStore
from ccm_agent.storage.plan_store import PlanStore
from ccm_agent.storage.secret_uses import SecretUses
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.templates.target_matcher import Matches


async def _unknown(_node: str) -> None:
    """Return None: without a broker, it is unknown which documents a node can read."""


async def _nothing(_types: Sequence[str], _contents: Sequence[str], _grant: Grant | None) -> HostResources:
    """Return no resources: without a host there is nothing to import."""
    return HostResources()


class AgentPorts(Struct, frozen=True, kw_only=True):
    """
    The interfaces of an agent to its host and its broker.

    Attributes:
        link, requests, events, objects: The interfaces to the bus.
        bucket: Returns a bucket by name.
        nodes: The bucket for the node's own entries: CCM_NODES.
        make_engine: Creates the engine, given a function that opens data buckets, and the document numbers seen so far.
        gather_facts: Returns all facts of this host; blocking.
        matches: Returns whether the targets and expression of a request select a node with these facts.
        shorten: Reduces an event to the form that may be published.
        clock: Returns the current time, and waits.
        sources: The sources of the configured manifests; None if there are none.
        readings: Metrics of the process and its connection.
        trust: The trust block of this node's credentials; None: it has none.
        node_key: The key that signs events.
        states: Verifies entries of other nodes; the agent sets it.
        close: Ends programs that the engine has left running.
        find_resources: Finds the resources of the host, for an import.
        keep_credentials: Renews the node's credentials, and calls a function after each renewal; None: no renewal.
        waits_for: Returns the locks of this host that the current resource waits for, each with its holder.
        resource_types: Returns the names of the resource types, for the node's policy.
        secrets: Masks, in the log, the secrets that runs have read.
        can_read_own: Returns whether a node can read the documents that only it may read; None if that is currently unknown.
        refreshes: The engine's store of pending refreshes; None: it does not store them.
        slots: Renews the slots that runs hold; None: runs do not use slots.
    """

    link: BrokerConnection
    requests: Requests
    events: Events
    objects: Objects
    bucket: Callable[[str], KeyReader]
    nodes: KeyValue
    make_engine: Callable[[Callable[[str], Awaitable[KeyReader]], dict[str, int]], Engine]
    gather_facts: Callable[[], Mapping[str, Any]]
    matches: Matches
    shorten: Shorten
    clock: Clock
    sources: SourcePorts | None = None
    trust: Trust | None = None
    readings: Sequence[CallbackMetric] = ()
    node_key: NodeKey = field(default_factory=NodeKey)
    states: StateReaderRef = field(default_factory=StateReaderRef)
    waits_for: Callable[[], Mapping[str, str]] = dict
    resource_types: Callable[[], Collection[str]] = tuple
    close: Callable[[], None] = lambda: None
    secrets: Masker | None = None
    can_read_own: Callable[[str], Awaitable[bool | None]] = _unknown
    refreshes: RefreshStore | None = None
    slots: NodeSlots | None = None
    find_resources: FindResources = _nothing
    keep_credentials: Callable[[Callable[[], None]], Coroutine[Any, Any, None]] | None = None


class AgentContext:
    """
    The state of one agent that its services share. It does not start any service.

    Attributes:
        settings: The current configuration; `Agent.reload` replaces it.
        current_settings: Returns `settings`; services call it.
        ports, clock, link: The ports, including the clock and the broker connection.
        node, version, machine, started: This agent; `machine` and `started` distinguish two agents with the same name.
        state: The state folder.
        spool, events: The queue of events for the broker; the publisher of the agent's events about itself.
        request_log, run_queue, checkpoints: The accepted runs, the waiting runs, and the runs that continue after a restart.
        decisions: The decisions about requests, for the audit trail.
        plans: The saved plans, which an operator may apply.
        undo: The saved data for undoing runs of this node.
        authenticator, revision_guard: Decide which requests and documents are accepted.
        admission: Decides whether a run may start now.
        assigned, facts_bucket, facts: The assigned facts, their bucket, and all facts of the node.
        record, presence: This node's entry in the inventory.
        author: Signs events and answers.
        refreshes: Pending refreshes.
        secret_uses: The revisions of secrets that this node uses.
        bundles, documents, engine: The files and data that runs use, and the engine that executes runs.
        metrics: The agent's metrics; None if metrics are off.
    """

    def __init__(self, settings: Settings, ports: AgentPorts, *, version: str) -> None:
        """Read the identity and the node's key. Blocking."""
        state, clock = Path(settings.state_dir), ports.clock
        self.settings, self.ports, self.clock, self.link, self.state = (
            settings,
            ports,
            clock,
            ports.link,
            state,
        )
        self.current_settings: Callable[[], Settings] = partial(getattr, self, "settings")
        self.node, self.version = determine_identity(settings.identity, state), version
        self.machine, self.started = machine_id(state), clock.now()
        self.metrics = AgentMetrics(MetricsRegistry()) if settings.monitor_port else None
        self.authenticator = Authenticator(
            ports.trust, clock, state / "signers.json", settings.trusted_signers
        )
        ports.states.get = self.authenticator.make_state_reader
        snapshot = SnapshotReader(ports.bucket(TRUST_BUCKET), self.authenticator)
        self.revision_guard = RevisionGuard(state / "documents.json", self.authenticator, snapshot)
        limits = settings.spool_limit_bytes, settings.spool_segment_bytes
        self.spool = Spool(state / "spool", limit_bytes=limits[0], segment_bytes=limits[1])
        self.events = AgentEventPublisher(self.node, version, self.machine, self.spool, clock)
        self.request_log = RequestLog(state / LEDGER, keep_s=settings.ledger_keep_s, clock=clock)
        self.decisions = DecisionLog(state / "decisions.json", self.request_log, self.events, clock)
        self.run_queue = RunQueue(settings.queue_limit)
        self.checkpoints = Checkpoints(state / "continuation.json")
        self.plans = PlanStore(state / "plans", clock)
        self.undo = UndoStore(
            state / "undo", clock, keep_s=settings.undo_keep_s, limit_bytes=settings.undo_limit_bytes
        )
        self.facts_bucket = ports.bucket("CCM_FACTS")
        self.assigned = AssignedFacts(
            self.node, self.facts_bucket, self.revision_guard, state / "assigned.json"
        )
        self.facts = FactCache(ports.gather_facts, self.assigned, clock, self.current_settings, self.metrics)
        record = NodeRecord(node=self.node, machine=self.machine, started=self.started, version=version)
        record.signatures, record.unsigned = self.authenticator.is_demanded, settings.accepted_unsigned
        self.record = record
        self.presence = NodePresence(ports.nodes, record, clock, ttl_s=settings.presence_ttl_s)
        self.locks = ResourceLocks(state, self.presence, clock)
        self.admission = Admission(
            Maintenance(state, clock), NodePolicy(ports.resource_types, clock), self.locks, self.presence
        )
        self.author = Author(ports.node_key, record, self.events, clock)
        self.refreshes = PendingRefreshes(ports.refreshes, record, self.presence.request_heartbeat)
        self.secret_uses = SecretUses(
            state / "secret-uses.json", record, clock, self.presence.request_heartbeat
        )
        self.bundles = BundleCache(ports.objects, state / "bundles")
        self.documents = CachedBuckets(
            ports.bucket,
            self.revision_guard,
            state / "data",
            self.events.refused,
            demand_stamps=settings.stamped_data,
        )
        self.engine = ports.make_engine(self.documents.open, self.revision_guard.numbers)

    def open(self) -> None:
        """Read the files of an earlier process. Blocking."""
        self.load_policy()
        self.admission.maintenance.open()
        self.locks.open()
        self.undo.open()
        self.record.undo, self.record.incomplete_undos = True, self.undo.incomplete
        self.authenticator.open()
        self.authenticator.began_ms = state_began(self.state, self.authenticator.earliest_ms)
        self.revision_guard.open()
        self.assigned.open()
        self.presence.recall(read_status(self.state))
        self.refreshes.open()
        self.secret_uses.open()
        self.checkpoints.open()
        self.decisions.open()

    def load_policy(self) -> None:
        """Read the node's policy (a file of a few kilobytes). Blocking."""
        settings = self.settings
        self.admission.policy.load(settings.policy_file, is_required=settings.is_policy_required)
