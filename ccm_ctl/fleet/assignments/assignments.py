"""
Assignments in CCM_ASSIGNMENTS: the desired state of nodes, which applies until the assignment is removed.

If several assignments have the same name, a node uses the one for the node itself, then one for a fact, then the one for all
nodes. Within each of these levels, the newest takes precedence. The revisions of a name are counted over all its scopes, so a
revision number is unique within the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.layout import ASSIGNMENTS
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import (
    ALL,
    assignment_key,
    assignment_rank,
    fact_scope,
    node_scope,
    parse_assignment_key,
    scopes_of,
)
from ccm_agent.bus.subjects import format_scope as format_scope
from ccm_agent.model.errors import BusDeniedError, CcmError, NotFoundError, SelectorLimitError, UsageError
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.model.wire import Assignment
from ccm_ctl.fleet.data.documents import Documents, StoredDocument, judged_document
from ccm_ctl.fleet.data.fact_edits import flat_facts
from ccm_ctl.fleet.nodes.discovery import lacking_facts
from ccm_ctl.fleet.nodes.inventory import read_facts, read_verified_facts
from ccm_ctl.fleet.trust.verified_reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.templates.selector import Selector, Where
    from ccm_ctl.fleet.nodes.nodes import Inventory, Node
    from ccm_ctl.fleet.ports import Fleet

LISTING = "ccmctl assignment list"

LATEST = 1 << 62
"""Used instead of a bucket revision: higher than all stored revisions."""


class Standing(Struct, frozen=True, kw_only=True):
    """
    A stored assignment.

    Attributes:
        key: Its key.
        revision: The count in its stamp: the revision that operators see.
        number: The revision that nodes use: the number in its stamp, or the number of the revision that a rollback restored.
        stamp: The number in its stamp.
        written: The bucket's revision, which orders writes of different keys.
        assignment: Its content.
        written_by, time: Author and time.
        message: The author's reason.
        proof: The result of checking its signature. None: it is not stored.
    """

    key: str
    revision: int
    written: int
    assignment: Assignment
    number: int = 0
    stamp: int = 0
    written_by: str = ""
    time: datetime | None = None
    message: str = ""
    proof: Verified[None] | Unverified[None] | None = None

    @property
    def unverified(self) -> str:
        """The reason why its signature is not valid. "": it is valid, or the assignment is not stored."""
        return self.proof.reason if self.proof is not None else ""

    def verified(self) -> Verified[None]:
        """
        Return the proof of its signature, as the base of new objects.

        Raises:
            SignatureError: It is not verified.
        """
        if isinstance(self.proof, Verified):
            return self.proof
        raise SignatureError(
            f"{self.name}: revision {self.revision} is not verified: {self.unverified or 'it is not stored'}; "
            "assign it from its files"
        )

    @property
    def name(self) -> str:
        """Its name."""
        return self.assignment.name

    @property
    def rank(self) -> tuple[int, int]:
        """The precedence. Among assignments with one name, a node uses the one with the highest rank."""
        return assignment_rank(self.assignment.scope, self.written)

    @property
    def following(self) -> Standing | None:
        """The next revision, in the form used by nodes to which a rollout has released it. None: no rollout deploys one."""
        following = self.assignment.next
        if following is None:
            return None
        return msgspec.structs.replace(self, assignment=following, number=following.number)

    @property
    def layer(self) -> str:
        """`node`, `fact` or `all`."""
        return find_layer(self.assignment.scope)


class Assignments:
    """
    All stored assignments, with their precedence on each node.

    Attributes:
        standing: All assignments, by name, in order of precedence.
        unreadable: Keys without a valid assignment. Agents refuse these entries.
    """

    def __init__(self, standing: Iterable[Standing], unreadable: Sequence[str] = ()) -> None:
        self.standing = sorted(standing, key=lambda one: (one.name, *(-part for part in one.rank)))
        self.unreadable = list(unreadable)
        self._of_node: dict[str, dict[str, Standing]] = {}
        self._meant = {one.key: _Meant(one.assignment) for one in self.standing}
        self._is_for_all = all(one.assignment.scope == ALL for one in self.standing)

    def named(self, name: str) -> list[Standing]:
        """Return the assignments with this name, in order of precedence."""
        return [one for one in self.standing if one.name == name]

    def need(self, name: str) -> list[Standing]:
        """
        Return the assignments with this name, in order of precedence.

        Raises:
            NotFoundError: There is no such assignment.
        """
        found = self.named(name)
        if not found:
            near = did_you_mean(name, (one.name for one in self.standing))
            raise NotFoundError(f"{name}: there is no such assignment{near or f'; see `{LISTING}`'}")
        return found

    def one(self, name: str, scope: str = "") -> Standing:
        """
        Find an assignment by name, and by scope if the name has several scopes.

        Raises:
            NotFoundError: There is no such assignment.
            UsageError: There are several, and no scope was given.
        """
        found = [one for one in self.need(name) if scope in ("", one.assignment.scope)]
        if not found:
            raise NotFoundError(
                f"{name}: is not assigned to {format_scope(scope)}; `{LISTING}` lists its scopes"
            )
        if len(found) > 1:
            scopes = " or ".join(f"--scope {format_scope(one.assignment.scope)}" for one in found)
            raise UsageError(f"{name}: assigned to {len(found)} scopes; choose one with {scopes}")
        return found[0]

    def of_node(self, node: Node) -> dict[str, Standing]:
        """Return the assignments that apply to a node, by name, using the known facts of the node."""
        found = self._of_node.get(node.name)
        if found is None:
            found = self._of_node[node.name] = self._look_up(node)
        return found

    def _look_up(self, node: Node) -> dict[str, Standing]:
        scopes = {ALL} if self._is_for_all else _list_scopes(node)
        facts: dict[str, Any] | None = None
        found: dict[str, Standing] = {}
        for one in self.standing:
            if one.name in found or one.assignment.scope not in scopes:
                continue
            current = _on_node(one, node)
            meant = self._meant[one.key] if current is one else _Meant(current.assignment)
            if facts is None and not meant.is_for_all:
                facts = node.facts
            if meant.means(node.name, facts or {}):
                found[one.name] = current
        return found

    def with_one(self, standing: Standing) -> Assignments:
        """Return a copy in which one assignment is added or replaced."""
        rest = [one for one in self.standing if one.key != standing.key]
        return Assignments([*rest, standing], self.unreadable)

    def without(self, keys: Iterable[str]) -> Assignments:
        """Return a copy without the assignments with these keys."""
        gone = set(keys)
        return Assignments([one for one in self.standing if one.key not in gone], self.unreadable)

    async def fill_in(self, fleet: Fleet, inventory: Inventory, *, is_verified: bool = False) -> None:
        """
        Read the facts that selectors need and that are missing in the nodes' short records.

        With `is_verified`, unverified data of these nodes are left out, and the operator is warned. A signed list of nodes, such
        as that of a rollout, requires it.
        """
        selectors = [selector for meant in self._meant.values() for selector in meant.selectors]
        where = "".join(one.assignment.where for one in self.standing)
        self._of_node.clear()
        lacking = lacking_facts(inventory, selectors, where)
        if not is_verified:
            await read_facts(fleet, inventory, lacking)
            return
        async for _ in read_verified_facts(fleet, inventory, lacking):
            pass


def _on_node(standing: Standing, node: Node) -> Standing:
    """
    Return the revision of an assignment that applies to a node: the next one, if the node reports that it was released there.
    """
    following = standing.following
    told = node.record.assignments.get(standing.name) if node.record and following else None
    is_there = (
        told is not None
        and following is not None
        and (told.key, told.revision) == (following.key, following.number)
    )
    return following if is_there and following is not None else standing


class _Meant:
    """Matches nodes by the selectors of an assignment. An invalid selector matches no node, because agents refuse it."""

    def __init__(self, assignment: Assignment) -> None:
        from ccm_agent.templates.selector import parse_targets, parse_where

        self.selectors: list[Selector] = []
        self._where: Where | None = None
        self._is_broken = False
        try:
            self.selectors = parse_targets(assignment.targets)
            self._where = parse_where(assignment.where) if assignment.where else None
        except CcmError:
            self._is_broken = True

    @property
    def is_for_all(self) -> bool:
        """Whether there is no selector. Facts are then not needed."""
        return not self.selectors and self._where is None

    def means(self, name: str, facts: Mapping[str, Any]) -> bool:
        if self._is_broken:
            return False
        if self.selectors and not any(selector.matches(name, facts) for selector in self.selectors):
            return False
        try:
            return self._where is None or self._where.matches(name, facts)
        except SelectorLimitError:
            return False


async def read_assignments(fleet: Fleet) -> Assignments:
    """Read all stored assignments."""
    found: list[Standing] = []
    unreadable = []
    reader = await open_reader(fleet)
    for entry in await fleet.assignments.matching([">"]):
        standing = build_standing(judged_document(reader.document(ASSIGNMENTS, entry)))
        if standing is None:
            unreadable.append(entry.key)
        else:
            found.append(standing)
    return Assignments(found, unreadable)


def build_standing(document: StoredDocument) -> Standing | None:
    """Decode the assignment in a document. Returns None if the content is not an assignment, or belongs to another key."""
    if document.is_plain or document.is_foreign or document.body is None:
        return None
    try:
        assignment = msgspec.convert(document.body, Assignment)
        scope, _ = parse_assignment_key(document.key)
    except (msgspec.MsgspecError, CcmError):
        return None
    if assignment.scope != scope or assignment_key(scope, assignment.name) != document.key:
        return None
    return Standing(
        key=document.key,
        revision=document.count,
        number=assignment.number or document.number,
        stamp=document.number,
        written=document.revision,
        assignment=assignment,
        written_by=document.written_by,
        time=document.time,
        message=document.message,
        proof=document.proof,
    )


async def store_assignment(
    fleet: Fleet, assignment: Assignment, known: Assignments, base: Sequence[Base], message: str = ""
) -> Standing:
    """
    Store an assignment, replacing the one with its name and scope.

    Args:
        fleet: The bus.
        assignment: The assignment.
        known: The assignments at the time when the operator confirmed the change.
        base: The verified data or operator input from which the assignment was made.
        message: The operator's reason.

    Raises:
        RevisionError: Another operator has changed it since.
        BusDeniedError: This operator may not write assignments in this scope.
    """
    key = assignment_key(assignment.scope, assignment.name)
    before = next((one for one in known.standing if one.key == key), None)
    others = [
        StoredDocument(key=one.key, number=one.stamp, count=one.revision, proof=one.proof)
        for one in known.named(assignment.name)
    ]
    body = msgspec.to_builtins(assignment)
    documents = Documents(fleet, fleet.assignments, ASSIGNMENTS)
    try:
        _, new = await documents.change(
            key,
            lambda _: body,
            base=base,
            revision=before.written if before else 0,
            above=others,
            message=message,
        )
    except BusDeniedError as err:
        raise _denied(fleet, assignment.name, assignment.scope) from err
    return Standing(
        key=key,
        revision=new.count,
        number=assignment.number or new.number,
        stamp=new.number,
        written=new.revision,
        assignment=assignment,
        written_by=new.written_by,
        time=new.time,
        message=new.message,
    )


async def remove_assignment(fleet: Fleet, standing: Standing, message: str = "") -> None:
    """
    Remove an assignment, with a reason for its history.

    Raises:
        BusDeniedError: This operator may not write assignments in this scope.
    """
    await remove_key(fleet, standing.key, message)


async def remove_key(fleet: Fleet, key: str, message: str = "") -> None:
    """
    Write the signed deletion of an assignment, even if the bucket no longer contains the assignment.

    Raises:
        BusDeniedError: This operator may not write assignments in this scope.
    """
    try:
        await Documents(fleet, fleet.assignments, ASSIGNMENTS).remove(key, message)
    except BusDeniedError as err:
        scope, _, name = key.rpartition(".")
        raise _denied(fleet, name, scope) from err


def _denied(fleet: Fleet, name: str, scope: str) -> BusDeniedError:
    return BusDeniedError(
        f"{name}: {fleet.operator} may not change assignments for {format_scope(scope)}; "
        "the first `fact=value` of --targets determines this scope, and `ccmctl operator add --apply` grants it"
    )


def parse_scope(words: str) -> str:
    """
    Parse a scope as operators write it: `all`, `node=web1` or `role=web`.

    Raises:
        UsageError: It has none of these forms.
    """
    key, equal, value = words.partition("=")
    if words == ALL:
        return ALL
    if not key or not equal or not value:
        raise UsageError(f"{words}: not a scope; write all, node=NAME or a fact such as role=web")
    return node_scope(value) if key == "node" else fact_scope(key, value)


def find_layer(scope: str) -> str:
    """Return `node`, `fact` or `all`."""
    return scope.partition(".")[0]


def _list_scopes(node: Node) -> set[str]:
    """Return the scopes of a node, including those of assigned facts that it has not received yet."""
    return set(scopes_of(node.name, node.routed | dict(flat_facts(node.assigned))))
