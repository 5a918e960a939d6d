"""
Fetch the contents of the files that nodes reported. Equal contents are fetched once.

The request for a content is sent to a node that reported its digest. If that node does not send the content, or sends a different
one, the next node that reported the digest gets the request. The digest verifies a content, so any of these nodes can send it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import BATCH_BYTES, BATCH_FILES, FoundResource, content_words
from ccm_ctl.fleet.imports.answers import ask_resources
from ccm_ctl.fleet.nodes.discovery import narrowed

if TYPE_CHECKING:
    from ccm_ctl.fleet.imports.answers import ImportAnswer
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet

SITE_BYTES = 48 << 20
SITE_FILES = 9_000
"""The maximum number of contents in a site. The limit for a directory that is sent to nodes is only slightly higher."""

NODES_AT_ONCE = 8
"""The maximum number of nodes that send contents at the same time. Each answer is kept in memory."""

TRIES = 3
"""The maximum number of nodes that get a request for the same content."""


class FetchedContents(Struct, frozen=True, kw_only=True):
    """
    Contents that nodes sent.

    Attributes:
        found: The contents, by digest.
        missing: The reasons why contents are missing, by digest.
    """

    found: dict[str, bytes]
    missing: dict[str, str]


def narrow(resolved: TargetSet, nodes: list[str]) -> TargetSet:
    """Return the targets limited to some of the nodes, which must be present."""
    if nodes == resolved.nodes:
        return resolved
    targets = narrowed(resolved.targets, nodes)
    return msgspec.structs.replace(resolved, nodes=nodes, offline=[], targets=targets)


def check_size(sizes: Sequence[int]) -> None:
    """
    Check that contents fit into a site.

    Raises:
        InputError: They do not fit.
    """
    if sum(sizes) > SITE_BYTES or len(sizes) > SITE_FILES:
        raise InputError(
            f"{len(sizes)} files with {(sum(sizes) >> 20) + 1} MiB are too many for a site: at most {SITE_FILES} files with "
            f"{SITE_BYTES >> 20} MiB; select smaller directories or fewer nodes"
        )


async def fetch_contents(
    fleet: Fleet, types: Sequence[str], resolved: TargetSet, hosts: Mapping[str, Sequence[FoundResource]]
) -> FetchedContents:
    """
    Fetch the contents to which the resources of nodes refer.

    Args:
        fleet: The bus.
        types: The types that were requested from the nodes.
        resolved: The nodes.
        hosts: The resources of each node, by the node's name.

    Raises:
        InputError: The contents are too large for a site.
        BusError: The broker cannot be reached.
    """
    holders: dict[str, list[str]] = defaultdict(list)
    sizes: dict[tuple[str, str], int] = {}
    for node, resources in hosts.items():
        for digest, size in _digests(resources):
            if (digest, node) not in sizes:
                holders[digest].append(node)
            sizes[digest, node] = size
    check_size([max(sizes[digest, node] for node in nodes) for digest, nodes in holders.items()])
    fetched = FetchedContents(found={}, missing={})
    slots = asyncio.Semaphore(NODES_AT_ONCE)

    async def ask(node: str, digests: list[str]) -> None:
        async with slots:
            for batch in _batches(digests, {digest: sizes[digest, node] for digest in digests}):
                answer = await ask_resources(
                    fleet, content_words(types), narrow(resolved, [node]), contents=batch
                )
                for digest in batch:
                    _take(fetched, digest, sizes[digest, node], answer[node])

    for turn in range(TRIES):
        waiting: dict[str, list[str]] = defaultdict(list)
        for digest, nodes in holders.items():
            if digest not in fetched.found and turn < len(nodes):
                waiting[nodes[turn]].append(digest)
        try:
            async with asyncio.TaskGroup() as group:
                for node, digests in waiting.items():
                    group.create_task(ask(node, digests), name=f"contents:{node}")
        except ExceptionGroup as failed:  # they are alike, so the first one is sufficient
            raise failed.exceptions[0] from None
    return fetched


def why_incomplete(one: FoundResource, fetched: FetchedContents) -> str:
    """Return why contents of a resource are missing, or "" if it has all of them."""
    return next((fetched.missing[digest] for digest, _ in _digests([one]) if digest in fetched.missing), "")


def _digests(resources: Sequence[FoundResource]) -> Iterator[tuple[str, int]]:
    for one in resources:
        for each in one.contents:
            if each.sha256:
                yield each.sha256, each.size_bytes


def _batches(digests: Sequence[str], sizes: Mapping[str, int]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for digest in digests:
        if batch and (len(batch) >= BATCH_FILES or size + sizes[digest] > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(digest)
        size += sizes[digest]
    if batch:
        yield batch


def _take(fetched: FetchedContents, digest: str, size: int, answer: ImportAnswer) -> None:
    content = answer.found.contents.get(digest) if answer.found is not None else None
    if content is None:
        fetched.missing[digest] = f"its content was not sent: {answer.reason or 'it has changed'}"
    elif len(content) != size or hashlib.sha256(content).hexdigest() != digest:
        fetched.missing[digest] = "its content does not match the reported digest"
    else:
        fetched.found[digest] = content
        fetched.missing.pop(digest, None)
