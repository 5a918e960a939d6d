"""What the controller asks of the bus: the project's ports, put together as one fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ccm_agent.model.ports import Clock, Events, KeyHistory, KeyValue, Objects, Requests

if TYPE_CHECKING:
    from ccm_agent.model.errors import BusError


class Bucket(KeyValue, KeyHistory, Protocol):
    """A bucket as an operator sees it: keys, history and changes."""


class Link(Protocol):
    """The connection itself: whether the broker is there."""

    @property
    def connected(self) -> bool:
        """The broker is there, and all subscriptions with it."""
        ...

    def why_not(self) -> BusError:
        """What to say of a broker that is not there."""
        ...


class Fleet(Struct, frozen=True, kw_only=True):
    """
    Everything that the controller reaches over one connection.

    Attributes:
        operator: Who asks, as requests and records say it.
        link: The connection.
        requests, events: Requests to agents, and what they say.
        nodes, facts, data, runs: The buckets CCM_NODES, CCM_FACTS, CCM_DATA and CCM_RUNS.
        manifests: Bundles by digest.
        clock: What time it is.
    """

    operator: str
    link: Link
    requests: Requests
    events: Events
    nodes: Bucket
    facts: Bucket
    data: Bucket
    runs: Bucket
    manifests: Objects
    clock: Clock
