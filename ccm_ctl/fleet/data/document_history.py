"""The earlier revisions of a document that are stored on the broker."""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.bus.layout import FACTS
from ccm_agent.model.errors import NotFoundError
from ccm_ctl.fleet.data.documents import WAY_OUT, StoredDocument, judged_document
from ccm_ctl.fleet.ports import DocumentBucket, Fleet
from ccm_ctl.fleet.trust.stored_snapshot import StoredSnapshot
from ccm_ctl.fleet.trust.verified_reader import open_reader


async def read_history(
    fleet: Fleet, bucket: DocumentBucket, name: str, key: str, what: str, listing: str
) -> list[StoredDocument]:
    """
    Read the stored revisions of a document, oldest first, with the results of checking their signatures. A removal has no body.

    Raises:
        NotFoundError: The document has no revisions. `listing` is the command that lists the existing documents.
    """
    entries = await bucket.history(key)
    judged, gap = await StoredSnapshot(fleet, await open_reader(fleet)).judge_history(name, key, entries)
    found = [judged_document(one) for one in judged]
    if not found and gap:
        raise NotFoundError(f"{key}: no revision of the {what} is stored: {gap}")
    if not found:
        raise NotFoundError(f"{key}: there is no such {what}; see `{listing}`")
    return found


async def read_facts_history(fleet: Fleet, node: str) -> list[StoredDocument]:
    """Read the facts that were assigned to a node. See `read_history`."""
    return await read_history(fleet, fleet.facts, FACTS, node, "node with assigned facts", "ccmctl node list")


def find_revision(history: Sequence[StoredDocument], revision: int) -> StoredDocument:
    """
    Find a document by its revision.

    Raises:
        NotFoundError: It is not stored. The error lists the stored revisions.
    """
    for document in history:
        if document.revision == revision:
            return document
    kept = ", ".join(str(one.revision) for one in history)
    raise NotFoundError(f"{history[0].key}: revision {revision} is not stored; stored revisions: {kept}")


def before_newest(history: Sequence[StoredDocument]) -> StoredDocument:
    """
    Return the newest verified revision with a body before the newest of all.

    Raises:
        NotFoundError: There is no such revision.
        SignatureError: The newest revisions are missing, so the previous one is unknown.
    """
    for document in history:
        if document.is_outdated:
            document.verified(WAY_OUT)
    for document in reversed(history[:-1]):
        if document.body is not None and not document.unverified:
            return document
    newest = history[-1]
    raise NotFoundError(f"{newest.key}: no revision before {newest.revision} is kept")
