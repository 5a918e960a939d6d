"""
The assignments of this node: reads them from the bucket, stores them on disk, and selects the ones that apply.

They are read by direct get, and stored for a start without a network. Untrusted content changes nothing. If an entry was
copied into the bucket, the whole read is discarded. If a document is outdated or belongs under another key, the last good
document of its key is used. A deleted key means that the assignment was removed.

If several assignments have the same name, the order of precedence is node, fact, all nodes, and then the newest. Two
assignments that manage the same resource are both refused, because neither author could know the intent of the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.agent.cache.document_cache import CachedBuckets
from ccm_agent.agent.cache.facts import FactCache
from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.subjects import assignment_key, assignment_rank, subject_matches
from ccm_agent.model.errors import CcmError, ProtocolError, Refusal
from ccm_agent.model.ports import KeyReader, KeyValueEntry
from ccm_agent.model.records.policy import Principal
from ccm_agent.model.secret import MASK
from ccm_agent.model.wire import Assignment, AssignmentStage
from ccm_agent.storage.state_file import StateFile
from ccm_agent.templates.target_matcher import Matches

log = logging.getLogger(__name__)

BUCKET = "CCM_ASSIGNMENTS"
DATA_BUCKET = "CCM_DATA"

CAUSE = "assignment"
"""The cause of runs of assignments, and their action in the node's policy."""

MODES = ("apply", "plan")
"""The modes that an assignment may have. Any other mode is refused, because it may not allow an apply."""

CONFLICT = "assignment.conflict"
"""Error code of an assignment that is refused because another one manages the same resource."""

VANISHED = "assignment.vanished"
"""Error code of an assignment that is refused because it and the data that it pins are no longer in the bucket."""

NAMED_LIMIT = 3
"""The maximum number of resources in the message of a conflict; one is enough to find the others."""


class StoredAssignment(Struct, frozen=True, kw_only=True):
    """
    An assignment as it was read.

    Attributes:
        key: The assignment's key in the bucket.
        number: Its revision: the stamp's number, or the earlier number if its document was written again without a change.
        count: The stamp's count, which is displayed as the revision; 0: the number is displayed.
        sequence: The bucket's revision of the key, for comparing assignments under different keys.
        assignment: The content.
        principal: The signer.
        stamp: The stamp's number. Documents of the key with a lower number are refused.
    """

    key: str
    number: int
    sequence: int
    assignment: Assignment
    count: int = 0
    stamp: int = 0
    principal: Principal = Principal()

    @property
    def requester(self) -> str:
        """The operator who assigned it: the name that the signature proves, otherwise the name in the document."""
        return self.principal.name or self.assignment.requester

    @property
    def asked_by(self) -> Principal:
        """The operator who assigned it, for the node's policy: the signer, or the unproven name in the document."""
        return self.principal if self.principal.is_verified else Principal(name=self.assignment.requester)

    @property
    def pins(self) -> dict[str, int]:
        """The pinned revisions by bucket."""
        revision = self.assignment.data_revision
        return {DATA_BUCKET: revision} if revision else {}


class MatchingAssignment(Struct, frozen=True, kw_only=True):
    """
    An assignment that selects this node.

    Attributes:
        known: The assignment.
        refusal: Why it is refused; None if it is accepted.
    """

    known: StoredAssignment
    refusal: Refusal | None = None


def read_assignment(revision_guard: RevisionGuard, entry: KeyValueEntry) -> StoredAssignment:
    """
    Return the assignment in an entry.

    Raises:
        ProtocolError: It is not an assignment, belongs under another key, or is older than one that was seen.
    """
    document = revision_guard.check(BUCKET, entry)
    try:
        assignment = msgspec.convert(document.body, Assignment)
    except msgspec.ValidationError as err:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: not a valid assignment: {err}; write it with `ccmctl assign`"
        ) from err
    if assignment_key(assignment.scope, assignment.name) != entry.key:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: the document is for {assignment.name} of {assignment.scope}, which is stored under "
            "another key"
        )
    if assignment.mode not in MODES:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: unknown mode {assignment.mode}; upgrade the agent if it is older than the `ccmctl` "
            "that wrote it"
        )
    if assignment.data_revision < 0:
        raise ProtocolError(f"{BUCKET}/{entry.key}: its revision is negative; write it with `ccmctl assign`")
    if assignment.next is not None and not _can_follow(assignment.next, assignment):
        raise ProtocolError(f"{BUCKET}/{entry.key}: its next revision is not valid for {assignment.name}")
    return StoredAssignment(
        key=entry.key,
        number=assignment.number or document.number,
        stamp=document.number,
        sequence=entry.revision,
        assignment=assignment,
        count=document.count,
        principal=revision_guard.author(BUCKET, entry),
    )


def _can_follow(revision: Assignment, current: Assignment) -> bool:
    """Whether a revision can replace the current one under its key."""
    is_of_key = (revision.name, revision.scope) == (current.name, current.scope)
    is_single = revision.next is None and revision.number not in (0, current.number)
    return is_of_key and is_single and revision.mode == "apply" and revision.data_revision >= 0


def staged(known: StoredAssignment) -> StoredAssignment | None:
    """Return the next revision of an assignment, as nodes have it after its release; None if there is none."""
    following = known.assignment.next
    if following is None:
        return None
    return replace(known, number=following.number, assignment=following)


def select_by_precedence(candidates: Iterable[MatchingAssignment]) -> dict[str, MatchingAssignment]:
    """Return the assignment of each name that takes precedence."""
    best: dict[str, MatchingAssignment] = {}
    for one in candidates:
        name = one.known.assignment.name
        if name not in best or _rank(one.known) > _rank(best[name].known):
            best[name] = one
    return best


def _rank(known: StoredAssignment) -> tuple[int, int]:
    return assignment_rank(known.assignment.scope, known.sequence)


def conflicts(managed: Mapping[str, Mapping[str, str]]) -> dict[str, Refusal]:
    """
    Return a refusal for each assignment that manages the same resource as another assignment; the message names both.

    Args:
        managed: The resources that each assignment manages, by its name; see `engine.request.Engine.managed`.
    """
    found: dict[str, Refusal] = {}
    names = sorted(managed)
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            if both := managed[first].keys() & managed[second].keys():
                shown = [_masked_one(managed[first][one], managed[second][one]) for one in both]
                refusal = Refusal(CONFLICT, _sentence(first, second, shown))
                found.setdefault(first, refusal)
                found.setdefault(second, refusal)
    return found


def _masked_one(one: str, other: str) -> str:
    """Return the one of two names of a resource in which a secret is masked."""
    return one if MASK in one else other


def _sentence(first: str, second: str, both: Collection[str]) -> str:
    named = sorted(both)[:NAMED_LIMIT]
    more = f" and {len(both) - len(named)} more" if len(both) > len(named) else ""
    return (
        f"the assignments {first} and {second} both manage {', '.join(named)}{more}: "
        "neither is applied here; remove the resource from one of them, or unassign one"
    )


class _StoredAssignments(Struct, kw_only=True):
    node: str
    known: list[StoredAssignment] = []


class AssignmentCache:
    """
    The assignments to the scopes of one node.

    Attributes:
        known: The assignments by key, as last read.
        vanished: Keys of known assignments that are no longer stored, although there is no sign that they were deleted.
        is_dirty: Whether there are changes that have not been saved yet.
    """

    def __init__(
        self,
        node: str,
        bucket: KeyReader,
        revision_guard: RevisionGuard,
        documents: CachedBuckets,
        path: Path,
        on_refused: Callable[[str, str], None],
    ) -> None:
        """
        Args:
            node: The node's identity.
            bucket: The bucket in which they are stored.
            revision_guard: Decides which documents are accepted.
            documents: The data that they pin.
            path: The file on disk.
            on_refused: Called with a key that is refused, and the reason.
        """
        self.known: dict[str, StoredAssignment] = {}
        self.vanished: set[str] = set()
        self.is_dirty = False
        self._node = node
        self._bucket = bucket
        self._revision_guard = revision_guard
        self._documents = documents
        self._file = StateFile(path, _StoredAssignments)
        self._on_refused = on_refused
        self._reported: dict[str, str] = {}

    def open(self) -> None:
        """Load the assignments that an earlier process saved. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self._node:
            self.known = {one.key: one for one in kept.known}
        self._file.mark_saved(self._stored())

    async def read(self, scopes: list[str], at_least: int = 0) -> bool:
        """
        Read the bucket; `save` then stores the result on disk.

        Args:
            scopes: The node's scopes.
            at_least: A revision that is known to be stored, from a notification.

        Returns:
            Whether anything changed.

        Raises:
            BusError: The broker is unreachable, or its reply cannot be trusted; nothing changes.
        """
        found = await self._found([f"{scope}.*" for scope in scopes], at_least)
        self._reported.pop("", None)
        return self._adopt(found)

    async def read_one(self, key: str, at_least: int) -> bool:
        """
        Read one assignment after it was written; the others do not change. See `read`.

        This takes only one request and one reply, because the whole fleet reads when a change is announced.
        """
        found = await self._found([key], at_least)
        others = {name: one for name, one in self.known.items() if name != key}
        return self._adopt(others | {name: one for name, one in found.items() if name == key})

    async def _found(self, patterns: list[str], at_least: int) -> dict[str, StoredAssignment]:
        """Return the assignments in the bucket; for a key that cannot be trusted, the known assignment."""
        try:
            entries = await self._bucket.matching(patterns, obeyed=True, at_least=at_least, deletions=True)
            await self._revision_guard.prepare(BUCKET, [entry.key for entry in entries if entry.value])
        except ProtocolError as err:
            self._report("", str(err))
            raise
        stored = {entry.key: entry for entry in entries}
        asked = {key for key in self.known if any(subject_matches(pattern, key) for pattern in patterns)}
        found: dict[str, StoredAssignment] = {}
        self.vanished &= self.known.keys()
        for key in sorted(asked | stored.keys()):
            (self.vanished.discard if key in stored else self.vanished.add)(key)
            try:
                known = self._read_or_deleted(key, stored.get(key))
            except ProtocolError as err:
                self._report(key, str(err))
                known = self.known.get(key)
            if known is not None:
                found[key] = known
        return found

    def _read_or_deleted(self, key: str, entry: KeyValueEntry | None) -> StoredAssignment | None:
        """Return the assignment of a key; None if it was deleted. Raises ProtocolError if neither can be trusted."""
        if entry is not None and entry.value:
            return self._read(entry)
        self._revision_guard.check_absence(BUCKET, key, entry)
        self._reported.pop(key, None)
        return None

    def _adopt(self, found: dict[str, StoredAssignment]) -> bool:
        if found == self.known:
            return False
        self.known = found
        self.is_dirty = True
        return True

    async def save(self) -> None:
        """Save the assignments and document numbers that were read. This happens before an assignment is applied."""
        # First remove data from the disk that only former assignments pinned.
        await self._documents.drop_unused()
        await self._revision_guard.save()
        known = self.known
        if await self._file.save(self._stored()):
            self.is_dirty = self.is_dirty and self.known is not known

    def _stored(self) -> _StoredAssignments:
        return _StoredAssignments(node=self._node, known=list(self.known.values()))

    def _read(self, entry: KeyValueEntry) -> StoredAssignment:
        known = read_assignment(self._revision_guard, entry)
        self._revision_guard.numbers[f"{BUCKET}/{entry.key}"] = known.stamp
        self._reported.pop(entry.key, None)
        return known

    def _report(self, key: str, why: str) -> None:
        if self._reported.get(key) == why:
            return
        self._reported[key] = why
        what = f"{BUCKET}/{key}" if key else BUCKET
        log.error("an assignment is refused", extra={"key": what, "reason": why})
        self._on_refused(what, why)


class AssignmentSelection:
    """
    Selects the assignments that apply to one node.

    Attributes:
        cache: The assignments in the node's scopes.
    """

    def __init__(
        self,
        cache: AssignmentCache,
        presence: NodePresence,
        facts: FactCache,
        matches: Matches,
        is_released: Callable[[str, int], bool],
        on_refused: Callable[[str, str], None],
    ) -> None:
        """
        Args:
            cache: The assignments.
            presence: The node and its scopes.
            facts: The node's facts.
            matches: Returns whether targets and an expression select a node with these facts.
            is_released: Returns whether a rollout has released a revision of a key to this node.
            on_refused: Called with the key of an assignment whose selector cannot be read, and the reason.
        """
        self.cache = cache
        self._presence = presence
        self._facts = facts
        self._matches = matches
        self._is_released = is_released
        self._on_refused = on_refused
        self._reported: dict[str, str] = {}

    @property
    def depends_on_facts(self) -> bool:
        """Whether a change of facts may change which assignments apply."""
        return any(_depends_on_facts(self.current(one)) for one in self.cache.known.values())

    async def best(self, releasing: AssignmentStage | None = None) -> dict[str, MatchingAssignment]:
        """Return the assignment of each name that applies here; with `releasing`, as if that stage were released."""
        scopes = self._presence.scopes
        current = (self.current(one, releasing) for one in self.cache.known.values())
        known = [one for one in current if one.assignment.scope in scopes]
        facts = await self._facts.current() if any(map(_depends_on_facts, known)) else {}
        return select_by_precedence(
            [candidate for one in known if (candidate := await self._matching(one, facts))]
        )

    def current(self, known: StoredAssignment, releasing: AssignmentStage | None = None) -> StoredAssignment:
        """Return the revision of an assignment for this node: the next one, if it was released here."""
        following = staged(known)
        if following is None:
            return known
        is_releasing = releasing is not None and (releasing.key, releasing.number) == (
            known.key,
            following.number,
        )
        is_released = is_releasing or self._is_released(known.key, following.number)
        return following if is_released else known

    async def find_staged(self, stage: AssignmentStage) -> StoredAssignment | None:
        """
        Return the revision of a stage: the next one, or the current one if the rollout has completed.

        None if there is no such revision.

        Raises:
            BusError: This node does not have the revision yet, and cannot read it now.
        """
        if stage.key.rpartition(".")[0] in self._presence.scopes and self._staged(stage) is None:
            await self.cache.read_one(stage.key, 0)
        return self._staged(stage)

    def _staged(self, stage: AssignmentStage) -> StoredAssignment | None:
        known = self.cache.known.get(stage.key)
        found = staged(known) or known if known is not None else None
        return found if found is not None and found.number == stage.number else None

    async def _matching(self, known: StoredAssignment, facts: Mapping[str, Any]) -> MatchingAssignment | None:
        """
        Return the assignment if it selects this node. If its selector is invalid, the assignment is refused, not ignored.
        """
        assignment = known.assignment
        if not _depends_on_facts(known):
            return MatchingAssignment(known=known)
        try:
            node = self._presence.record.node
            matches = await self._matches(assignment.targets, assignment.where, node, facts)
        except CcmError as err:
            if self._reported.get(known.key) != str(err):
                self._reported[known.key] = str(err)
                self._on_refused(known.key, str(err))
            return MatchingAssignment(known=known, refusal=Refusal(err.code, str(err)))
        self._reported.pop(known.key, None)
        return MatchingAssignment(known=known) if matches else None


def _depends_on_facts(known: StoredAssignment) -> bool:
    """Whether the assignment selects nodes by more than its scope."""
    return bool(known.assignment.targets or known.assignment.where)
