"""
What an agent asks of the world, in one place: `app_agent.py` makes the real ones, tests make others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from ccm_agent.agent.desired.source import SourcePorts
from ccm_agent.agent.runs.run_report import Shorten
from ccm_agent.bus.node_key import NodeKey
from ccm_agent.bus.trust import Trust
from ccm_agent.engine.request import Engine
from ccm_agent.metrics.registry import Reading
from ccm_agent.model.ports import BrokerConnection, Clock, Events, KeyValue, Objects, Requests
from ccm_agent.model.secret import Masker
from ccm_agent.sessions.refresh_store import RefreshStore
from ccm_agent.templates.target_matcher import Matches


async def _cannot_say(_node: str) -> None:
    """Without a broker."""


class AgentPorts(Struct, frozen=True, kw_only=True):
    """
    What an agent asks of the world; `app.py` makes the real ones.

    Attributes:
        link, requests, events, objects: The bus.
        bucket: A bucket by name.
        make_engine: The engine, given buckets to read data from, and the numbers of documents that were seen.
        gather_facts: All facts of this host; blocking.
        matches: Whether targets and expression of a request mean a node with these facts.
        shorten: Makes of an event what may stand on the bus.
        clock: Time.
        sources: Where manifests of the configuration come from; None: there are none.
        readings: Numbers of the process and its connection, for the metrics.
        trust: The trust block of this node's credentials; None: it has none.
        node_key: What events are signed with.
        close: Ends what the engine has left running.
        waits_for: Locks of this host that the current resource waits for, each with its holder.
        resource_types: Names of the resource types there are, for the node's policy.
        secrets: What runs learn to be secret, for the log.
        can_read_own: Whether a node can read documents that are stored for it alone; None when that cannot be said now.
        refreshes: Where the engine keeps which refreshes are pending; None: it forgets them.
    """

    link: BrokerConnection
    requests: Requests
    events: Events
    objects: Objects
    bucket: Callable[[str], KeyValue]
    make_engine: Callable[[Callable[[str], Awaitable[KeyValue]], dict[str, int]], Engine]
    gather_facts: Callable[[], Mapping[str, Any]]
    matches: Matches
    shorten: Shorten
    clock: Clock
    sources: SourcePorts | None = None
    trust: Trust | None = None
    readings: Sequence[Reading] = ()
    node_key: NodeKey = field(default_factory=NodeKey)
    waits_for: Callable[[], Mapping[str, str]] = dict
    resource_types: Callable[[], Collection[str]] = tuple
    close: Callable[[], None] = lambda: None
    secrets: Masker | None = None
    can_read_own: Callable[[str], Awaitable[bool | None]] = _cannot_say
    refreshes: RefreshStore | None = None
