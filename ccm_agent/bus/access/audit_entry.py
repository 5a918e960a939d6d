"""
One entry of an operator's audit trail: what was signed, without its content.

Every signature of an operator is made by `AuditedKey`, which tells what it signed; so nothing is signed without an entry, except
questions, the timestamp of the signers list, which programs renew by themselves, and records of the join service, which writes
one entry for each join.

An entry has the place in its author's chain: a number, and the link of the entry before it (`bus.chain.link_of`). It is signed
itself, with the kind `audit`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
from msgspec import Struct

from ccm_agent.bus.chain import NONE, link_of
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey
from ccm_agent.bus.subjects import key_subject, parse_request
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.records.join import JOINS_BUCKET
from ccm_agent.model.wire import NODE_FACTS, NODE_PING, NODE_STATUS, PROTOCOL

AUDIT_ENTRY = f"{PROTOCOL}.audit.entry"

TEXT_LIMIT = 200
"""Characters of a text that comes from a body, such as the name of a manifest."""

_NAMED = (SignatureKind.REQUEST, SignatureKind.SCHEDULE)
"""What has the name of a manifest. The name in the record of a run can be a command with its arguments."""

_COUNTED = tuple(f"{key_subject(JOINS_BUCKET, kind)}." for kind in ("uses", "node", "wait"))
"""What the join service stores for a node that joins. The join itself has an entry."""

_QUESTIONS = (NODE_PING, NODE_FACTS, NODE_STATUS)
"""Requests that change nothing, and that programs send all the time."""


class SignedAction(Struct, frozen=True, kw_only=True):
    """
    What was signed.

    Attributes:
        kind: A word of `SignatureKind`.
        subject: The subject of the request, or of the document's key.
        digest: SHA-256 (hex) of the bytes.
        run: The run that it is about; "" if there is none.
        details: Names that make it readable, and the other claims of the signature. No values, arguments or texts of manifests.
    """

    kind: str
    subject: str
    digest: str
    run: str = ""
    details: dict[str, str] = {}


class AuditEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    An entry as it is stored.

    Attributes:
        protocol: AUDIT_ENTRY.
        author: The operator's name.
        number: The place in the author's chain, from 1.
        previous: The link of the entry before it; NONE of the first.
        time: When it was signed, by the author's clock.
        kind, subject, digest, run, details: See `SignedAction`.
    """

    protocol: str
    author: str
    number: int
    previous: str
    time: datetime
    kind: str
    subject: str
    digest: str
    run: str = ""
    details: dict[str, str] = {}


class _Body(Struct):
    """The fields of a request or document that an entry repeats: names, digests, and the reason that an operator gave."""

    run: str = ""
    name: str = ""
    message: str = ""
    digest: str = ""
    stop: str = ""
    undo: str = ""
    plan: str = ""
    number: int = 0
    rollout: bool = False


class _Run(Struct):
    run: str = ""


class AuditedKey(SigningKey):
    """A key that reports what it signs."""

    def __init__(self, key: SigningKey, on_signed: Callable[[SignedAction], None]) -> None:
        """Take a key, and what is called after each signature."""
        self._pair = key._pair
        self.public_key = key.public_key
        self._on_signed = on_signed

    def sign(
        self,
        kind: SignatureKind,
        subject: str,
        body: bytes,
        *,
        issued_ms: int,
        expires_ms: int = 0,
        number: int = 0,
        run: str = "",
        details: Mapping[str, str] | None = None,
    ) -> str:
        """See `SigningKey.sign`."""
        signature = super().sign(
            kind,
            subject,
            body,
            issued_ms=issued_ms,
            expires_ms=expires_ms,
            number=number,
            run=run,
            details=details,
        )
        is_silent = kind == SignatureKind.TIMESTAMP or subject.startswith(_COUNTED)
        if not is_silent and not _is_question(kind, subject):
            self._on_signed(describe(kind, subject, body, details or {}))
        return signature


def describe(kind: SignatureKind, subject: str, body: bytes, details: Mapping[str, str]) -> SignedAction:
    """What an entry says about signed bytes."""
    told = _decode(body)
    names = {
        "name": told.name if kind in _NAMED else "",
        "message": told.message if kind in _NAMED else "",
        "manifest": told.digest,
        "stop": told.stop,
        "undo": told.undo,
        "plan": told.plan,
        "number": str(told.number or ""),
        "rollout": "yes" if told.rollout else "",
    }
    return SignedAction(
        kind=str(kind),
        subject=subject,
        digest=hashlib.sha256(body).hexdigest(),
        run=told.run[:TEXT_LIMIT],
        details={key: value[:TEXT_LIMIT] for key, value in {**names, **details}.items() if value},
    )


def entry_link(subject: str, body: bytes) -> str:
    """The link of a stored entry: what the next entry of its author repeats."""
    return link_of(subject, NONE, body)


def _decode(body: bytes) -> _Body:
    """The fields that can be read; the run alone where another one has a type of its own, as the properties of a fact have."""
    try:
        return msgspec.json.decode(body, type=_Body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return _Body(run=msgspec.json.decode(body, type=_Run).run)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Body()


def _is_question(kind: SignatureKind, subject: str) -> bool:
    if kind != SignatureKind.REQUEST:
        return False
    try:
        return parse_request(subject)[0] in _QUESTIONS
    except ProtocolError:
        return False
