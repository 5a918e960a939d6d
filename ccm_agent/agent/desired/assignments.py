"""
The assignments of this node: read from the bucket, kept on disk, and which of them apply.

They are read by direct get, and kept for a start without a network. What cannot be trusted changes nothing: for a copied entry
the whole reading is dropped; for an older or foreign document the last good one of its key is used. A key that is gone is an
assignment that was removed.

Of several with one name, the node's own takes precedence over a fact's, and that over one for all nodes; then the newest. Two
that manage the same resource are both refused: neither of their authors could know what the node should be.
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
"""Of runs of assignments, and their action in the node's policy."""

MODES = ("apply", "plan")
"""What an assignment may ask for; anything else is refused, for it may mean less than to apply."""

CONFLICT = "assignment.conflict"
"""Code of what is refused because another assignment manages the same."""

VANISHED = "assignment.vanished"
"""Code of what is refused because it is gone from the bucket, and the data that it pins with it."""

NAMED_LIMIT = 3
"""So many resources are named that two assignments both manage; one is enough to find the rest."""


class StoredAssignment(Struct, frozen=True, kw_only=True):
    """
    An assignment as it was read.

    Attributes:
        key: Its key.
        number: Its revision: its stamp's number, or the number of the revision that was written again.
        count: Its stamp's count: its revision as people know it; 0: the number.
        sequence: The bucket's revision of it, by which those of different keys are compared.
        assignment: What it says.
        principal: Who signed it.
        stamp: Its stamp's number, below which no document of its key is accepted any more.
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
        """Who assigned it: the name that the signature proves, else what the document says."""
        return self.principal.name or self.assignment.requester

    @property
    def asked_by(self) -> Principal:
        """Who assigned it, for the node's policy: the signer, or the unproven name in the document."""
        return self.principal if self.principal.is_verified else Principal(name=self.assignment.requester)

    @property
    def pins(self) -> dict[str, int]:
        """The buckets that it pins, and to which revision."""
        revision = self.assignment.data_revision
        return {DATA_BUCKET: revision} if revision else {}


class MatchingAssignment(Struct, frozen=True, kw_only=True):
    """
    An assignment that means this node.

    Attributes:
        known: It.
        refusal: Why it is not obeyed; None when it is.
    """

    known: StoredAssignment
    refusal: Refusal | None = None


def read_assignment(revision_guard: RevisionGuard, entry: KeyValueEntry) -> StoredAssignment:
    """
    The assignment that an entry holds.

    Raises:
        ProtocolError: It is none, belongs under another key, or is older than one that was seen.
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
            f"{BUCKET}/{entry.key}: the document is for {assignment.name} of {assignment.scope}, which has another key"
        )
    if assignment.mode not in MODES:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: unknown mode {assignment.mode}; upgrade the agent if it is older than the `ccmctl` "
            "that wrote it"
        )
    if assignment.data_revision < 0:
        raise ProtocolError(f"{BUCKET}/{entry.key}: its revision is negative; write it with `ccmctl assign`")
    if assignment.next is not None and not _can_follow(assignment.next, assignment):
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: its next revision is not a valid one of {assignment.name}"
        )
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
    """Whether a revision can take the place of the current one under its key."""
    is_of_key = (revision.name, revision.scope) == (current.name, current.scope)
    is_single = revision.next is None and revision.number not in (0, current.number)
    return is_of_key and is_single and revision.mode == "apply" and revision.data_revision >= 0


def staged(known: StoredAssignment) -> StoredAssignment | None:
    """The next revision of an assignment, as it is on nodes that it was released to; None when there is none."""
    following = known.assignment.next
    if following is None:
        return None
    return replace(known, number=following.number, assignment=following)


def select_by_precedence(candidates: Iterable[MatchingAssignment]) -> dict[str, MatchingAssignment]:
    """Of each name the one that counts here."""
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
    Those that manage what another one manages too, and the sentence that names both.

    Args:
        managed: By name of the assignment what it manages; see `engine.request.Engine.managed`.
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
    """Of two names of one resource the one in which a secret is masked."""
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
        known: By key, as last read.
        vanished: Keys of those that are known and no longer stored, though nothing says that they were deleted.
        is_dirty: They are not written down yet.
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
            bucket: Where they are stored.
            revision_guard: Which documents are obeyed.
            documents: The data that they pin.
            path: Where they are kept.
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
        """Read what an earlier process knew. Blocking."""
        kept = self._file.load()
        if kept is not None and kept.node == self._node:
            self.known = {one.key: one for one in kept.known}
        self._file.mark_saved(self._stored())

    async def read(self, scopes: list[str], at_least: int = 0) -> bool:
        """
        Read the bucket; `save` writes it down.

        Args:
            scopes: The node's scopes.
            at_least: A revision that is known to be stored, from a notification.

        Returns:
            Whether anything is other than before.

        Raises:
            BusError: The broker is away, or what it returns cannot be trusted; nothing changes.
        """
        found = await self._found([f"{scope}.*" for scope in scopes], at_least)
        self._reported.pop("", None)
        return self._adopt(found)

    async def read_one(self, key: str, at_least: int) -> bool:
        """
        Read one assignment that was written; what is known of the others does not change. Else as `read`.

        One question and one message in answer: a whole fleet asks at the moment at which it hears of something new.
        """
        found = await self._found([key], at_least)
        others = {name: one for name, one in self.known.items() if name != key}
        return self._adopt(others | {name: one for name, one in found.items() if name == key})

    async def _found(self, patterns: list[str], at_least: int) -> dict[str, StoredAssignment]:
        """What the bucket holds; where that cannot be trusted, what was known."""
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
        """What a key says; None when it was deleted. ProtocolError when neither can be trusted."""
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
        """Write down what was read, and the numbers that were seen. It is done before an assignment is applied."""
        # first, nothing may be on disk that was pinned by assignments that are not known any more
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
    Which assignments apply to one node.

    Attributes:
        cache: The assignments to its scopes.
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
            facts: Its facts.
            matches: Whether targets and an expression select a node with these facts.
            is_released: Whether a rollout has released a revision of a key to this node.
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
        """What applies may change with the facts."""
        return any(_depends_on_facts(self.current(one)) for one in self.cache.known.values())

    async def best(self, releasing: AssignmentStage | None = None) -> dict[str, MatchingAssignment]:
        """Of each name the assignment that applies here, also as it would be once a stage is released."""
        scopes = self._presence.scopes
        current = (self.current(one, releasing) for one in self.cache.known.values())
        known = [one for one in current if one.assignment.scope in scopes]
        facts = await self._facts.current() if any(map(_depends_on_facts, known)) else {}
        return select_by_precedence(
            [candidate for one in known if (candidate := await self._matching(one, facts))]
        )

    def current(self, known: StoredAssignment, releasing: AssignmentStage | None = None) -> StoredAssignment:
        """The revision of an assignment that this node has: the next one, if it was released here."""
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
        The revision that a stage names; a rollout that completed meanwhile has made it the current one. None: there is none.

        Raises:
            BusError: It is not known here yet, and cannot be read now.
        """
        if stage.key.rpartition(".")[0] in self._presence.scopes and self._staged(stage) is None:
            await self.cache.read_one(stage.key, 0)
        return self._staged(stage)

    def _staged(self, stage: AssignmentStage) -> StoredAssignment | None:
        known = self.cache.known.get(stage.key)
        found = staged(known) or known if known is not None else None
        return found if found is not None and found.number == stage.number else None

    async def _matching(self, known: StoredAssignment, facts: Mapping[str, Any]) -> MatchingAssignment | None:
        """The assignment, if it selects this node; one whose selector cannot be read is refused rather than ignored."""
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
    """Which nodes it selects depends on more facts than its scope says."""
    return bool(known.assignment.targets or known.assignment.where)
