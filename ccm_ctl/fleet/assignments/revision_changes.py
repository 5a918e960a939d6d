"""The differences between two revisions of an assignment: its description, and the lines of the text files in its bundle."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import NotFoundError
from ccm_agent.model.secret import mask_urls
from ccm_agent.model.wire import Assignment
from ccm_ctl.fleet.assignments.assignment_description import describe, short
from ccm_ctl.fleet.assignments.assignment_history import Past, Revision, check_there, revived
from ccm_ctl.fleet.assignments.assignments import Standing
from ccm_ctl.fleet.assignments.bundles import Inside, read_inside
from ccm_ctl.fleet.assignments.pinned_data import read_documents
from ccm_ctl.fleet.assignments.staging import is_first
from ccm_ctl.fleet.ports import Fleet

DIFF_LINES = 500
"""The maximum number of displayed lines of a difference."""


class TextChange(Struct, frozen=True, kw_only=True):
    """
    A text that differs between two revisions.

    Attributes:
        path: The file in the bundle. "": the description of the assignment.
        action: "create", "change" or "remove".
        before, after: The content without secrets. If both are equal, only masked values differ.
    """

    path: str
    action: str = "change"
    before: str = ""
    after: str = ""


class ComparedRevisions(Struct, frozen=True, kw_only=True):
    """
    Two revisions of an assignment that are compared.

    Attributes:
        old: The earlier content. None: there is no earlier content.
        new: The later content.
        before: The number of the earlier revision. 0: there is no earlier revision.
        unverified: Revisions that were skipped because they are not verified.
    """

    old: Assignment | None
    new: Assignment
    before: int
    unverified: list[int]


async def compare_assignments(
    fleet: Fleet, old: Assignment | None, new: Assignment, held: Inside, inside: Inside
) -> list[TextChange]:
    """
    Return the differences between two revisions: first the description, then each text file by path.

    Args:
        fleet: The bus.
        old, held: The earlier revision, and the content of its bundle. If None, all content is new.
        new, inside: The later revision, and the content of its bundle.
    """
    before, after = await _describe(fleet, old, held), await _describe(fleet, new, inside)
    found = [TextChange(path="", before=before, after=after)] if before != after else []
    for path in sorted(held.texts.keys() | inside.texts.keys()):
        if held.files.get(path) == inside.files.get(path):
            continue
        action = "create" if path not in held.files else "remove" if path not in inside.files else "change"
        texts = held.texts.get(path, ""), inside.texts.get(path, "")
        found.append(TextChange(path=path, action=action, before=texts[0], after=texts[1]))
    return found


async def compare_revisions(fleet: Fleet, pair: ComparedRevisions) -> list[TextChange]:
    """
    Return the differences between two stored revisions. See `compare_assignments`.

    Raises:
        NotFoundError: A bundle is no longer stored.
    """
    held = await _read_stored(fleet, pair.old.bundle) if pair.old is not None else Inside()
    inside = await _read_stored(fleet, pair.new.bundle)
    return await compare_assignments(fleet, pair.old, pair.new, held, inside)


def find_change(past: Past, number: int) -> ComparedRevisions:
    """
    Return a revision and the verified one before it. If the revision begins a rollout, the new content is that of the rollout.

    Raises:
        NotFoundError: It is not stored.
        SignatureError: It is not verified.
    """
    place, new = _find(past, number)
    following = new.assignment.next
    if following is not None:
        return _compared(new, following, [])
    before, unverified = _newest_verified(past.revisions[:place])
    return _compared(before, new.assignment, unverified)


async def find_rollback(fleet: Fleet, past: Past, number: int) -> ComparedRevisions:
    """
    Return the content that nodes have now and the content after a rollback to a revision.

    Raises:
        NotFoundError: The revision is not stored, or cannot be restored.
        SignatureError: The revision is not verified.
    """
    old = past.pick(number)
    await check_there(fleet, old)
    now, unverified = _newest_verified(past.revisions)
    return _compared(now, revived(fleet, old, past.newest).assignment, unverified)


def _find(past: Past, number: int) -> tuple[int, Standing]:
    """
    Return the position of the revision with a number, and the revision. An unverified revision may have the number of a genuine
    one.
    """
    found = [
        (place, one.standing)
        for place, one in enumerate(past.revisions)
        if one.standing is not None and one.standing.revision == number
    ]
    if not found:
        raise NotFoundError(f"{past.name}: revision {number} is not stored")
    place, standing = next((one for one in found if not one[1].unverified), found[0])
    standing.verified()
    return place, standing


def _newest_verified(revisions: Sequence[Revision]) -> tuple[Standing | None, list[int]]:
    """
    Return the newest verified revision (None for a removal), and the numbers of the later revisions, which are not verified.
    """
    unverified: list[int] = []
    for one in reversed(revisions):
        if not one.unverified:
            return one.standing, unverified
        if one.standing is not None:
            unverified.append(one.standing.revision)
    return None, unverified


def _compared(before: Standing | None, new: Assignment, unverified: list[int]) -> ComparedRevisions:
    if before is None or is_first(before):
        return ComparedRevisions(old=None, new=new, before=0, unverified=unverified)
    return ComparedRevisions(old=before.assignment, new=new, before=before.revision, unverified=unverified)


async def _read_stored(fleet: Fleet, bundle: Bundle) -> Inside:
    inside = await read_inside(fleet, bundle)
    if not inside.files:
        raise NotFoundError(
            f"the files cannot be compared: the bundle {short(bundle.digest)} is no longer stored, or is unreadable"
        )
    return inside


async def _describe(fleet: Fleet, assignment: Assignment | None, inside: Inside) -> str:
    if assignment is None:
        return ""
    return mask_urls(describe(assignment, inside, await read_documents(fleet.data, assignment)))
