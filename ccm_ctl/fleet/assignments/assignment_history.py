"""The stored revisions of an assignment, and rollback to one of them."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.layout import ASSIGNMENTS, MANIFESTS
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.verified import Verified
from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.errors import NotFoundError, RevisionError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import Assignment
from ccm_ctl.fleet.assignments.assignments import LATEST, LISTING, Assignments, Standing, build_standing
from ccm_ctl.fleet.assignments.pinned_data import lost_data
from ccm_ctl.fleet.data.document_history import read_history
from ccm_ctl.fleet.ports import Fleet


class Revision(Struct, frozen=True, kw_only=True):
    """
    One revision of an assignment.

    Attributes:
        standing: The assignment. None: the revision is a removal.
        time: When it was written.
        written_by, message: The author and reason of a removal. "": an older `ccmctl` removed it.
        unverified: The reason why its signature is not valid. "": it is valid.
        is_outdated: Whether its signature is valid but a newer revision exists that the broker does not show.
    """

    standing: Standing | None
    time: datetime | None = None
    written_by: str = ""
    message: str = ""
    unverified: str = ""
    is_outdated: bool = False


class Past(Struct, frozen=True, kw_only=True):
    """
    The stored revisions of one assignment, oldest first.

    Attributes:
        name: Its name.
        revisions: All revisions, including removals.
    """

    name: str
    revisions: list[Revision]

    @property
    def current(self) -> Standing | None:
        """The current assignment, or None if it was removed."""
        return self.revisions[-1].standing

    @property
    def stood(self) -> list[Standing]:
        """
        The verified revisions, and always the newest one. Removals and revisions that only began a rollout are left out.

        An unverified revision is shown but never restored, because a program other than `ccmctl` may have written it.
        """
        stood = [one.standing for one in self.revisions if one.standing is not None and not one.unverified]
        return [one for one in stood if one.assignment.next is None or one is stood[-1]]

    @property
    def newest(self) -> Standing:
        """The current assignment, or the last one before its removal."""
        return self.stood[-1]

    def check_whole(self) -> None:
        """
        Check that the newest revisions are stored, so that the previous one is known.

        Raises:
            SignatureError: The newest revisions are not stored, or no revision is verified.
        """
        for one in self.revisions:
            if one.is_outdated:
                raise SignatureError(
                    f"{self.name}: {one.unverified}; choose an earlier revision with --to, or assign it from its files"
                )
        if not self.stood:
            raise SignatureError(f"{self.name}: no revision is verified; assign it from its files")

    def pick(self, revision: int | None) -> Standing:
        """
        Choose the revision to restore: the given one, or the previous one if none is given.

        The previous revision is the newest that differs from the current one. After a rollback, the search starts before the
        restored revision, so that repeated rollbacks restore ever earlier revisions.

        Raises:
            NotFoundError: The revision is not stored, or there is no other one.
            SignatureError: The revision is not verified.
        """
        if revision is not None:
            for one in self.stood:
                if one.revision == revision:
                    return one
            self._refuse_unverified(revision)
            kept = ", ".join(str(one.revision) for one in self.stood)
            raise NotFoundError(f"{self.name}: revision {revision} is not stored; stored revisions: {kept}")
        if self.current is None:
            return self.newest
        if self.current.assignment.next is not None:
            return self.current  # without the revision that a rollout deployed to some nodes
        now = self.current.assignment
        before = [one for one in self.stood if one is not self.current]
        if now.rolled_back_from:
            restored = [
                one.revision
                for one in before
                if one.revision < now.rolled_back_from and is_same(one.assignment, now)
            ]
            before = [one for one in before if one.revision < max(restored, default=0)]
        for one in reversed(before):
            if not is_same(one.assignment, now):
                return one
        raise NotFoundError(
            f"{self.name}: no different verified revision before {self.current.revision} is stored"
        )

    def _refuse_unverified(self, revision: int) -> None:
        for one in self.revisions:
            if one.standing is not None and one.unverified and one.standing.revision == revision:
                raise SignatureError(
                    f"{self.name}: revision {revision} is not verified: {one.unverified}; assign it from its files"
                )


async def find_past(fleet: Fleet, known: Assignments, name: str, scope: str = "") -> Past:
    """
    Find the revisions of an assignment, current or removed, by name and scope.

    Raises:
        NotFoundError: There is no such assignment.
        UsageError: The name has several scopes, and no scope was given.
    """
    if not scope and not known.named(name):
        near = did_you_mean(name, (one.name for one in known.standing))
        raise NotFoundError(
            f"{name}: there is no such assignment{near or f'; see `{LISTING}`'}"
            f"{' For' if near else '; for'} a removed one, add --scope"
        )
    key = assignment_key(scope or known.one(name).assignment.scope, name)
    history = await read_history(fleet, fleet.assignments, ASSIGNMENTS, key, "assignment", LISTING)
    revisions = [
        Revision(
            standing=build_standing(one),
            time=one.time,
            written_by=one.written_by,
            message=one.message,
            unverified=one.unverified,
            is_outdated=one.is_outdated,
        )
        for one in history
    ]
    past = Past(name=name, revisions=revisions)
    if not any(one.standing for one in revisions):
        raise NotFoundError(f"{name}: no revision is stored")
    return past


async def verify_newest(fleet: Fleet, standing: Standing) -> Verified[None]:
    """
    Return the proof of the current revision of an assignment, as the base of the next one.

    A valid signature is not sufficient, because an earlier revision that was written again also has a valid signature.

    Raises:
        SignatureError: It is not verified, or it is older than another stored revision.
        RevisionError: It was changed after it was read.
    """
    proof = standing.verified()
    history = await read_history(fleet, fleet.assignments, ASSIGNMENTS, standing.key, "assignment", LISTING)
    if history[-1].revision != standing.written:
        raise RevisionError(
            f"{standing.name}: another operator has changed it in the meantime; check it first"
        )
    history[-1].verified(f"`ccmctl rollback {standing.name}` or `assign` from its files replaces it")
    return proof


async def check_there(fleet: Fleet, standing: Standing) -> None:
    """
    Check that a revision can be restored completely.

    Raises:
        NotFoundError: Its bundle or its data are no longer stored.
    """
    digest = standing.assignment.bundle.digest
    what = f"{standing.name}: revision {standing.revision} cannot be restored"
    if await fleet.manifests.digest(digest) != digest:
        raise NotFoundError(
            f"{what}: its bundle {digest[:12]} is no longer in {MANIFESTS}; assign it from its files"
        )
    lost = await lost_data(fleet.data, standing.assignment)
    if lost:
        raise NotFoundError(
            f"{what}: {', '.join(lost)} as of data revision {standing.assignment.data_revision} is no longer stored; "
            "store it again, and assign the manifest from its files"
        )


def revived(fleet: Fleet, old: Standing, newest: Standing) -> Standing:
    """Return an old revision as a new one. A deadline that has passed is removed, because otherwise no node would start."""
    now = fleet.clock.now()
    deadline = old.assignment.deadline
    is_kept = newest.assignment.next is not None and old.number == newest.number
    assignment = msgspec.structs.replace(
        old.assignment,
        # nodes without the revision of the aborted rollout already have this one
        number=old.number if is_kept else 0,
        next=None,
        rollout="",
        deadline=deadline if deadline and deadline > now else None,
        requester=fleet.operator,
        time=now,
        rolled_back_from=newest.revision,
    )
    return msgspec.structs.replace(old, assignment=assignment, written=LATEST)


def is_same(one: Assignment, other: Assignment) -> bool:
    """Whether both assign the same content to the same nodes, regardless of author, time and git commit."""

    def bare(assignment: Assignment) -> Assignment:
        return msgspec.structs.replace(
            assignment,
            requester="",
            time=None,
            deadline=None,
            rolled_back_from=0,
            commit="",
            commit_dirty=False,
            data_numbers={},
            number=0,
            rollout="",
            next=None,
        )

    return bare(one) == bare(other)
