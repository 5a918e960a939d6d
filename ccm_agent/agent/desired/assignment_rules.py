"""
Which assignments mean this node, and which of them it obeys.

Of one name the node's own wins over a fact's over everybody's, then the newest. Two that manage the same resource are both
refused: whichever came first, neither of their authors could know what the node should be.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set

import msgspec
from msgspec import Struct

from ccm_agent.agent.requests.authentication import RevisionGuard
from ccm_agent.bus.subjects import assignment_key, assignment_rank
from ccm_agent.model.errors import ProtocolError, Refusal
from ccm_agent.model.policy import Principal
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.wire import Assignment

BUCKET = "CCM_ASSIGNMENTS"
DATA_BUCKET = "CCM_DATA"

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
        number: Its stamp's number: its revision.
        count: Its stamp's count: its revision as people know it; 0: the number.
        sequence: The bucket's revision of it, by which those of different keys are compared.
        assignment: What it says.
        principal: Who signed it.
    """

    key: str
    number: int
    sequence: int
    assignment: Assignment
    count: int = 0
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
    The assignment that stands in an entry.

    Raises:
        ProtocolError: It is none, belongs under another key, or is older than one that was seen.
    """
    document = revision_guard.check(BUCKET, entry)
    try:
        assignment = msgspec.convert(document.body, Assignment)
    except msgspec.ValidationError as err:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: no assignment: {err}; write it with `ccmctl assign`"
        ) from err
    if assignment_key(assignment.scope, assignment.name) != entry.key:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: says that it is {assignment.name} for {assignment.scope}, which stands under another key"
        )
    if assignment.mode not in MODES:
        raise ProtocolError(
            f"{BUCKET}/{entry.key}: nothing is known of the mode {assignment.mode}; is this agent older than who wrote it?"
        )
    if assignment.data_revision < 0:
        raise ProtocolError(f"{BUCKET}/{entry.key}: no revision is below 0; write it with `ccmctl assign`")
    return StoredAssignment(
        key=entry.key,
        number=document.number,
        sequence=entry.revision,
        assignment=assignment,
        count=document.count,
        principal=revision_guard.author(BUCKET, entry),
    )


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


def conflicts(managed: Mapping[str, Set[str]]) -> dict[str, Refusal]:
    """
    Those that manage what another one manages too, and the sentence that names both.

    Args:
        managed: By name of the assignment `type#name` of what it manages.
    """
    found: dict[str, Refusal] = {}
    names = sorted(managed)
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            if both := managed[first] & managed[second]:
                refusal = Refusal(CONFLICT, _sentence(first, second, both))
                found.setdefault(first, refusal)
                found.setdefault(second, refusal)
    return found


def _sentence(first: str, second: str, both: Collection[str]) -> str:
    named = sorted(both)[:NAMED_LIMIT]
    more = f" and {len(both) - len(named)} more" if len(both) > len(named) else ""
    return (
        f"the assignments {first} and {second} both manage {', '.join(named)}{more}: "
        "neither is applied here until one of them leaves it to the other or is unassigned"
    )
