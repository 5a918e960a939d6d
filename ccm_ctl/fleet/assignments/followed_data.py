"""Data that assignments follow. The module compares the revisions that nodes have applied with the newest revisions."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from ccm_agent.bus.subjects import check_key
from ccm_agent.model.errors import DataError
from ccm_ctl.fleet.assignments.pinned_data import URL_PREFIX, reads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ccm_agent.model.wire import AssignmentState
    from ccm_ctl.fleet.assignments.assignments import Assignments, Standing
    from ccm_ctl.fleet.data.node_data import OperatorData
    from ccm_ctl.fleet.nodes.nodes import Node

REPORTED_LIMIT = 100
"""The maximum number of documents whose revisions are read from one node's record."""

KEYS_AT_ONCE = 500
"""The maximum number of keys read with one request. The broker rejects requests about more than roughly a thousand subjects."""

NAMED = 3
"""The maximum number of documents named in a message."""


class FollowedData:
    """The newest revisions of documents in CCM_DATA. They are read again only when the bucket has changed."""

    def __init__(self, bucket: OperatorData) -> None:
        self._bucket = bucket
        self._sequence = 0
        self._newest: dict[str, int] = {}
        self._known: set[str] = set()

    async def newest(self, keys: Iterable[str]) -> Mapping[str, int]:
        """
        Return the newest revision of each stored document. A removed document is left out, because nodes keep its last
        revision.
        """
        wanted = sorted(set(keys))
        if not wanted:
            return {}
        # the first read does not need the bucket's revision, so a command that reads only once saves a request
        sequence = await self._bucket.revision() if self._known else 0
        if not self._known or sequence != self._sequence or not self._known.issuperset(wanted):
            self._newest = await self._read(wanted)
            self._sequence, self._known = sequence, set(wanted)
        return self._newest

    async def _read(self, keys: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for begin in range(0, len(keys), KEYS_AT_ONCE):
            entries = await self._bucket.matching(keys[begin : begin + KEYS_AT_ONCE])
            found |= {entry.key: entry.revision for entry in entries}
        return found


def reported(standing: Standing, told: AssignmentState | None) -> dict[str, int]:
    """
    Return the revisions of documents in CCM_DATA, by key, that a node's last run under an assignment read, according to the
    node's report.
    """
    if told is None or told.key != standing.key or standing.assignment.data_revision:
        return {}
    found = {}
    for url, revision in islice(told.data_revisions.items(), REPORTED_LIMIT):
        key = url.removeprefix(URL_PREFIX)
        if url.startswith(URL_PREFIX) and _is_key(key):
            found[key] = revision
    return found


def followed_keys(nodes: Iterable[Node], assignments: Assignments) -> set[str]:
    """Return the documents that nodes have read under assignments that follow data, according to their reports."""
    found: set[str] = set()
    for node in nodes:
        for name, standing in assignments.of_node(node).items():
            found |= reported(standing, _told(node, name)).keys()
    return found


def older_data(
    standing: Standing, told: AssignmentState | None, newest: Mapping[str, int]
) -> dict[str, tuple[int, int]]:
    """Return, by key, the revision that a node has applied and the newest one, if they differ."""
    has = reported(standing, told)
    return {key: (has[key], newest[key]) for key in sorted(has) if newest.get(key, has[key]) != has[key]}


def format_older_data(older: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return a message about documents of which a node has an older revision, or an empty list."""
    if not older:
        return []
    named = [f"revision {has} of {key}, not {newest}" for key, (has, newest) in islice(older.items(), NAMED)]
    more = f" and {len(older) - NAMED} more" if len(older) > NAMED else ""
    return [f"has {', '.join(named)}{more}"]


def followers(nodes: Iterable[Node], assignments: Assignments, key: str) -> dict[str, list[Node]]:
    """
    Return the nodes that read a document again when it changes, by the name of the assignment that follows it.

    A node reports the documents that its last run read. For a node without such a report, the assignment's URLs are used. A
    template in a URL may match any document.
    """
    found: dict[str, list[Node]] = {}
    for node in nodes:
        for name, standing in assignments.of_node(node).items():
            if standing.assignment.data_revision:
                continue
            has = reported(standing, _told(node, name))
            if key in has or (not has and reads(standing.assignment, key)):
                found.setdefault(name, []).append(node)
    return found


def _told(node: Node, name: str) -> AssignmentState | None:
    return node.record.assignments.get(name) if node.record else None


def _is_key(key: str) -> bool:
    try:
        check_key(key)
    except DataError:
        return False
    return True
