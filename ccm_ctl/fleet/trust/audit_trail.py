"""
Read the audit trail, check the author of each entry, and find missing entries.

An entry is verified if a known key of its author signed it, or if a later verified entry contains its link. Entries of a removed
key therefore stay verified if the operator continues with another key. The numbers of verified entries are consecutive, and a
missing number between two of them is a gap. Missing entries after the newest one cannot be detected.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.audit import AUDIT_NODES_STREAM, AUDIT_STREAM, OPERATORS, operator_subject
from ccm_agent.bus.access.audit_entry import AuditEntry, entry_link
from ccm_agent.bus.chain import NONE, link_of
from ccm_agent.bus.connection.broker_errors import NoRespondersError
from ccm_agent.bus.events import build_event
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError, SignatureKind, verify_content
from ccm_agent.bus.streams import read_all
from ccm_agent.bus.subjects import decode_token, event_subject, parse_event, parse_request
from ccm_agent.model.errors import NotFoundError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.wire import AGENT_DECISION, AGENT_KEY, AGENT_STARTUP, PROTOCOL, AgentEvent
from ccm_ctl.fleet.trust.authors import SignatureStatus, find_certificates, read_authors
from ccm_ctl.fleet.trust.newest_signers import read_newest_signers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.signatures.trust import SignersList
    from ccm_agent.bus.streams import Stored
    from ccm_agent.model.ports import StoredEvent
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.authors import Authors

GAPS_LIMIT = 100
"""The maximum number of ranges of missing numbers that are listed for one author."""

OPERATOR, NODE = "operator", "node"


class AuditStatus(StrEnum):
    """The result of checking the author of an entry."""

    VERIFIED = "verified"
    UNKNOWN_KEY = "unknown key"
    """The signature is valid, but its key is unknown: its operator was removed, or the key is not the author's."""
    FORGED = "forged"


class AuditRecord(Struct, kw_only=True):
    """
    One entry of the trail.

    Attributes:
        author_kind, author: The author: OPERATOR or NODE, and the name.
        stored: When the broker stored it.
        time: When it was written, by the author's clock.
        number, previous, link: The place in the author's chain. Number 0: it has no place.
        status, reason: Whether it is from the author, and the reason if it is not.
        kind: The kind of signed object. "decision": a node's decision.
        action: The kind of request, such as `manifest.apply`. "": it is not about a request.
        target: The scope of a request, or the bucket and key of a document.
        run: The run, or "".
        requester: The author of the request that a node decided about.
        state, code, message: The node's decision.
        key: The public key that signed the entry, or the request that a node decided about.
        digest: SHA-256 of the object that the operator signed.
        details: Additional names.
    """

    author_kind: str
    author: str
    stored: datetime
    time: datetime | None = None
    number: int = 0
    previous: str = NONE
    link: str = ""
    status: AuditStatus = AuditStatus.VERIFIED
    reason: str = ""
    kind: str = ""
    action: str = ""
    target: str = ""
    run: str = ""
    requester: str = ""
    state: str = ""
    code: str = ""
    message: str = ""
    key: str = ""
    digest: str = ""
    details: dict[str, str] = {}


class AuditAuthor(Struct, kw_only=True):
    """
    The result of checking one author's entries.

    Attributes:
        kind, name: The author.
        entries: The number of entries read.
        counts: The number of entries, by status.
        first, last: The numbers of the first and the last verified entry. 0: there is none. Older entries have expired.
        gaps: Ranges of missing numbers, both ends inclusive. At most GAPS_LIMIT.
        missing: The total of missing numbers.
        changed: Numbers of entries that do not match the previous entry. The previous entry was changed or replaced.
        restarts: The number of times that the numbering restarted.
    """

    kind: str
    name: str
    entries: int = 0
    counts: dict[AuditStatus, int] = {}
    first: int = 0
    last: int = 0
    gaps: list[tuple[int, int]] = []
    missing: int = 0
    changed: list[int] = []
    restarts: int = 0

    @property
    def is_bad(self) -> bool:
        """
        Whether entries are missing, changed or forged.

        A node that lost its state restarts the numbering, and signs the restart. An operator continues after the newest entry in
        the trail. A restart by an operator therefore means that this entry was missing at that time.
        """
        restarted = self.kind == OPERATOR and self.restarts
        return bool(self.missing or self.changed or restarted or self.counts.get(AuditStatus.FORGED))


class AuditTrail(Struct, frozen=True):
    """All entries that were read, in the order in which the broker stored them, and the result for each author."""

    records: list[AuditRecord]
    authors: list[AuditAuthor]


async def read_trail(
    fleet: Fleet, connection: Connection, *, operator: str = "", node: str = "", since: datetime | None = None
) -> AuditTrail:
    """
    Read the trail and check it.

    Args:
        fleet: The bus.
        connection: The connection to the broker.
        operator, node: Only entries of this operator or node. "": all.
        since: Entries stored before this time are not read. None: no limit.

    Raises:
        NotFoundError: The fleet has no audit streams.
    """
    operators, nodes = list[AuditRecord](), list[AuditRecord]()
    try:
        if not node:
            operators = await _read_operators(fleet, connection, operator, since)
        if not operator:
            nodes = await _read_nodes(fleet, connection, node, since)
    except NoRespondersError as err:
        raise NotFoundError(
            "this fleet has no audit trail; `ccmctl init --security` creates its streams where the keys are"
        ) from err
    authors = [*_check_all(operators), *_check_all(nodes)]
    return AuditTrail(sorted([*operators, *nodes], key=lambda one: one.stored), authors)


def _check_all(records: Sequence[AuditRecord]) -> list[AuditAuthor]:
    by_author: dict[str, list[AuditRecord]] = {}
    for one in records:
        by_author.setdefault(one.author, []).append(one)
    return [check_author(found) for _, found in sorted(by_author.items())]


async def _read_operators(
    fleet: Fleet, connection: Connection, operator: str, since: datetime | None
) -> list[AuditRecord]:
    signers = await read_newest_signers(fleet, fleet.trust) if fleet.trust is not None else None
    pattern = operator_subject(operator) if operator else OPERATORS
    found = read_all(connection, AUDIT_STREAM, pattern, since=since)
    return [judge_operator(stored, signers) async for stored in found]


async def _read_nodes(
    fleet: Fleet, connection: Connection, node: str, since: datetime | None
) -> list[AuditRecord]:
    authors = await read_authors(fleet)
    pattern = event_subject(AGENT_DECISION, node) if node else f"{AGENT_DECISION}.>"
    # read certificates first, which are in events about the node's key
    if authors is not None:
        for protocol in (AGENT_STARTUP, AGENT_KEY):
            async for each in read_all(connection, AUDIT_NODES_STREAM, f"{protocol}.>"):
                authors.learn_from(build_event(each.subject, each.body, each.headers))
    found = [stored async for stored in read_all(connection, AUDIT_NODES_STREAM, pattern, since=since)]
    if authors is not None:
        names = {parse_event(stored.subject).node for stored in found}
        await find_certificates(fleet, authors, [(name, "") for name in names if not authors.certified(name)])
    return [judge_node(stored, authors) for stored in found]


def judge_operator(stored: Stored, signers: SignersList | None) -> AuditRecord:
    """Judge an operator's entry by its signature."""
    author = decode_token(stored.subject.rpartition(".")[2]) or stored.subject
    record = AuditRecord(author_kind=OPERATOR, author=author, stored=stored.time)
    try:
        claims = verify_content(
            stored.headers.get(SIGNATURE_HEADER, ""), SignatureKind.AUDIT, stored.subject, stored.body
        )
        entry = decode_foreign(stored.body, AuditEntry)
    except (SignatureError, msgspec.MsgspecError) as err:
        record.status, record.reason = AuditStatus.FORGED, str(err).removeprefix(f"{stored.subject}: ")
        return record
    owners = {one.name for one in signers.signers if one.key == claims.key} if signers is not None else set()
    if author not in owners:
        record.status, record.reason = AuditStatus.UNKNOWN_KEY, f"signed with {claims.key}"
    if (owners and author not in owners) or entry.author != author:
        record.status, record.reason = (
            AuditStatus.FORGED,
            f"signed by {', '.join(sorted(owners)) or 'another'}",
        )
    record.number, record.previous = entry.number, entry.previous
    record.link = entry_link(stored.subject, stored.body)
    record.time, record.kind, record.run = entry.time, entry.kind, entry.run
    record.action, record.target = describe_subject(entry.subject)
    record.key, record.digest, record.details = claims.key, entry.digest, entry.details
    return record


def describe_subject(subject: str) -> tuple[str, str]:
    """Return the kind and the scope of a request, or "" and the bucket and key of a document."""
    if subject.startswith(("$KV.", "$O.")):
        return "", " ".join(subject.split(".", 2)[1:])
    try:
        protocol, scope = parse_request(subject)
    except ProtocolError:
        return "", subject
    return protocol.removeprefix(f"{PROTOCOL}.").removesuffix(".request"), scope


def judge_node(stored: Stored, authors: Authors | None) -> AuditRecord:
    """Judge a node's decision by its signature."""
    event = build_event(stored.subject, stored.body, stored.headers, stored.sequence, stored.time)
    node = parse_event(stored.subject).node
    record = AuditRecord(author_kind=NODE, author=node, stored=stored.time, kind="decision")
    record.link = link_of(event.subject, event.chain, event.body)
    record.status, record.reason = _node_status(node, event, authors)
    try:
        told = decode_foreign(stored.body, AgentEvent)
    except msgspec.MsgspecError as err:
        record.status, record.reason = AuditStatus.FORGED, str(err)
        return record
    texts = {name: value for name, value in told.details.items() if isinstance(value, str)}
    number, previous = told.details.get("number"), texts.pop("previous", NONE)
    record.number, record.previous = number if isinstance(number, int) else 0, previous
    record.time, record.message = told.timestamp, told.message
    record.action = texts.pop("action", "")
    record.target, record.run = texts.pop("scope", ""), texts.pop("run", "")
    record.requester, record.key = texts.pop("requester", ""), texts.pop("key", "")
    record.state, record.code = texts.pop("state", ""), texts.pop("code", "")
    record.details = texts
    return record


def _node_status(node: str, event: StoredEvent, authors: Authors | None) -> tuple[AuditStatus, str]:
    if authors is None:
        return AuditStatus.UNKNOWN_KEY, "these credentials name no root key"
    found = authors.check(node, event)
    if found.signature is SignatureStatus.VALID:
        return AuditStatus.VERIFIED, ""
    if found.signature is SignatureStatus.BAD:
        return AuditStatus.FORGED, found.reason
    if authors.certified(node):
        return AuditStatus.FORGED, found.reason or "it is not signed"
    return AuditStatus.UNKNOWN_KEY, found.reason or "the node does not sign"


def check_author(records: Sequence[AuditRecord]) -> AuditAuthor:
    """Check the entries of one author, in the order in which the broker stored them."""
    _vouch(records)
    found = AuditAuthor(kind=records[0].author_kind, name=records[0].author, entries=len(records))
    for one in records:
        found.counts[one.status] = found.counts.get(one.status, 0) + 1
    last: AuditRecord | None = None
    for one in _once(records):
        if last is not None:
            _follow(found, last, one)
        else:
            found.first = one.number
        last = one
    found.last = last.number if last is not None else 0
    return found


def _vouch(records: Sequence[AuditRecord]) -> None:
    """Mark entries as verified if a verified entry contains their link, even if their key is unknown."""
    wanted = NONE
    for one in reversed(records):
        if one.status is AuditStatus.UNKNOWN_KEY and one.link == wanted != NONE:
            one.status, one.reason = AuditStatus.VERIFIED, ""
        if one.status is AuditStatus.VERIFIED:
            wanted = one.previous


def _once(records: Sequence[AuditRecord]) -> Iterable[AuditRecord]:
    """Yield the verified entries with a place, without duplicates."""
    seen = set[str]()
    for one in records:
        if one.status is AuditStatus.VERIFIED and one.number and one.link not in seen:
            seen.add(one.link)
            yield one


def _follow(found: AuditAuthor, last: AuditRecord, one: AuditRecord) -> None:
    if one.number == last.number + 1:
        if one.previous != last.link:
            found.changed.append(one.number)
    elif one.number > last.number:
        found.missing += one.number - last.number - 1
        if len(found.gaps) < GAPS_LIMIT:
            found.gaps.append((last.number + 1, one.number - 1))
    elif one.number == 1 and one.key != last.key and one.author_kind == OPERATOR:
        pass  # the operator has new credentials, and the old key was removed from the list
    else:
        found.restarts += 1
