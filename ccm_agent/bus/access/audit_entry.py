"""
One entry of an operator's audit trail: a description of a signature, without the signed content.

`AuditedKey` makes every signature of an operator and reports it, so each signature has an entry. There are three exceptions:
requests that change nothing, the timestamp of the signers list, and records of the join service. Programs renew the timestamp
automatically, and the join service writes one entry for each join.

An entry contains its position in the author's chain: a number, and the link of the previous entry (`bus.chain.link_of`). The
entry itself is signed, with the kind `audit`.
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
"""Maximum characters of a text from a body, such as the name of a manifest."""

_NAMED = (SignatureKind.REQUEST, SignatureKind.SCHEDULE)
"""Kinds whose name in the body is that of a manifest. In the record of a run, it can be a command with its arguments."""

_COUNTED = tuple(f"{key_subject(JOINS_BUCKET, kind)}." for kind in ("uses", "node", "wait"))
"""Records that the join service stores when a node joins. The join itself has an entry."""

_QUESTIONS = (NODE_PING, NODE_FACTS, NODE_STATUS)
"""Requests that change nothing and that programs send constantly."""


class SignedAction(Struct, frozen=True, kw_only=True):
    """
    A signature, as an audit entry describes it.

    Attributes:
        kind: A value of `SignatureKind`.
        subject: The subject of the request, or of the document's key.
        digest: SHA-256 (hex) of the bytes.
        run: The run that it concerns; "" if there is none.
        details: Readable names, and the other claims of the signature. They never contain values, arguments or texts of
            manifests.
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
        number: The position in the author's chain, from 1.
        previous: The link of the previous entry; NONE for the first entry.
        time: The time of the signature, by the author's clock.
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
    """A key that reports each signature."""

    def __init__(self, key: SigningKey, on_signed: Callable[[SignedAction], None]) -> None:
        """Wrap a key; `on_signed` is called after each signature."""
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
    """Return the description of a signature for an entry."""
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
    """Return the link of a stored entry, which the next entry of its author repeats."""
    return link_of(subject, NONE, body)


def _decode(body: bytes) -> _Body:
    """
    Decode the readable fields. If another field has an unexpected type, such as the properties of a fact, decode only the run.
    """
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
