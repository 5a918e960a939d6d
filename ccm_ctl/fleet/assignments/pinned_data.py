"""The data that an assignment reads, and whether its pinned revisions are still stored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ccm_agent.bus.layout import DATA
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.verified import Unverified
from ccm_agent.bus.subjects import check_key
from ccm_agent.model.errors import DataError
from ccm_ctl.fleet.data.documents import decode_document
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import number_of, open_reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ccm_agent.model.wire import Assignment
    from ccm_ctl.fleet.ports import DocumentBucket, Fleet

URL_PREFIX = f"kv://{DATA}/"

# no possessive groups: in Python 3.11.2 (Debian 12), they match too little
_TEMPLATE = re.compile(r"\{\{(?:(?!\}\}|\{\{).)*\}\}|\$\{(?:(?!\$\{)[^}\n])*\}")


def reads(assignment: Assignment, key: str) -> bool:
    """Whether the assignment reads a document. A template in a URL can result in any key, so such an assignment may read it."""
    return any(_pattern(url).fullmatch(f"{URL_PREFIX}{key}") for url in assignment.data)


async def read_documents(bucket: DocumentBucket, assignment: Assignment) -> dict[str, int]:
    """Return the revision of each document that an assignment reads. Documents that are named by a template are left out."""
    found = {}
    for key in _plain_keys(assignment.data):
        kept = [entry for entry in await bucket.history(key) if is_seen(assignment, entry.revision)]
        if kept and kept[-1].value:
            found[key] = kept[-1].revision
    return found


async def absent_data(bucket: DocumentBucket, assignment: Assignment) -> list[str]:
    """Return the keys of missing documents that the assignment pins. Empty for followed data."""
    if not assignment.data_revision and await bucket.revision():
        return []
    there = await read_documents(bucket, assignment)
    return [key for key in _plain_keys(assignment.data) if key not in there]


def is_seen(assignment: Assignment, revision: int) -> bool:
    """Whether an assignment reads the text of this revision, unless a newer revision has replaced it."""
    return not assignment.data_revision or revision <= assignment.data_revision


async def lost_data(bucket: DocumentBucket, assignment: Assignment) -> list[str]:
    """Return the keys whose pinned revision is no longer stored. Keys from templates are not checked."""
    if not assignment.data_revision:
        return []
    lost = []
    for key in _plain_keys(assignment.data):
        kept = await bucket.history(key)
        is_older_kept = any(is_seen(assignment, entry.revision) for entry in kept)
        if kept and not is_older_kept and decode_document(kept[0]).count > 1:
            lost.append(key)
    return lost


async def check_pinned(fleet: Fleet, assignment: Assignment) -> dict[str, int]:
    """
    Check that the documents that an assignment pins are verified.

    Returns:
        The numbers of the documents, by key. Keys from templates, and documents without a number, are left out.

    Raises:
        SignatureError: A document is not verified.
    """
    numbers: dict[str, int] = {}
    if not assignment.data_revision:
        return numbers
    snapshot = StoredSnapshot(fleet, await open_reader(fleet))
    for key in _plain_keys(assignment.data):
        judged, gap = await snapshot.judge_history(DATA, key, await fleet.data.history(key))
        if gap and not judged:
            raise SignatureError(
                f"{URL_PREFIX}{key}: {gap}; `ccmctl data put {key} FILE` stores the document from your own file"
            )
        pinned = [one for one in judged if is_seen(assignment, one.value.revision)]
        if pinned and isinstance(pinned[-1], Unverified):
            raise SignatureError(
                f"{URL_PREFIX}{key}: revision {pinned[-1].value.revision} is not verified: {pinned[-1].reason}; "
                f"`ccmctl data put {key} FILE` stores the document from your own file"
            )
        if pinned and (number := number_of(pinned[-1].value)):
            numbers[key] = number
    return numbers


def _plain_keys(urls: Iterable[str]) -> list[str]:
    found = []
    for url in urls:
        key = url.removeprefix(URL_PREFIX)
        if url.startswith(URL_PREFIX) and not _TEMPLATE.search(key):
            try:
                found.append(check_key(key))
            except DataError:
                continue
    return found


def _pattern(url: str) -> re.Pattern[str]:
    first, *rest = (re.escape(part) for part in _TEMPLATE.split(url))
    if not rest:
        return re.compile(first)
    # each part matches at its first possible position, without backtracking
    middle = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{middle}.*{rest[-1]}")
