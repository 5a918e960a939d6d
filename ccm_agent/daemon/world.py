"""
What an agent asks of the world, in one place: `app_agent.py` makes the real ones, tests make others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ccm_agent.daemon.report import Shorten
from ccm_agent.daemon.source import SourcePorts
from ccm_agent.engine.request import Engine
from ccm_agent.metrics.registry import Reading
from ccm_agent.model.ports import Clock, Events, KeyValue, Link, Objects, Requests


class Ports(Struct, frozen=True, kw_only=True):
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
        waits_for: Locks of this host that a resource in hand waits for, each with who has it.
    """

    link: Link
    requests: Requests
    events: Events
    objects: Objects
    bucket: Callable[[str], KeyValue]
    make_engine: Callable[[Callable[[str], Awaitable[KeyValue]], dict[str, int]], Engine]
    gather_facts: Callable[[], Mapping[str, Any]]
    matches: Callable[[Sequence[str], str, str, Mapping[str, Any]], bool]
    shorten: Shorten
    clock: Clock
    sources: SourcePorts | None = None
    readings: Sequence[Reading] = ()
    waits_for: Callable[[], Mapping[str, str]] = dict
