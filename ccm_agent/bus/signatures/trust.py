"""
Trust in signatures: the fleet's root key, the signers list that it signs, and certificates of nodes.

The root key is independent of all keys of the broker. It signs one small document, the signers list: the key and the role of each
operator. Agents have the root's public key from their credentials file, so an attacker who controls the broker, or holds all of
its keys, cannot add a signer. The list has a growing number; an agent never returns to a lower one.

A credentials file contains all of this in a block after the NATS parts. NATS clients ignore it:

    -----BEGIN CCM TRUST-----
    <JSON, base64>
    ------END CCM TRUST------
"""

from __future__ import annotations

import base64
import re
import textwrap

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.sealing import SEALING_KEY, SECRETS
from ccm_agent.bus.signatures.signing import (
    Claims,
    SignatureError,
    SignatureKind,
    SigningKey,
    check_content,
    check_times,
    is_public_key,
    read_claims,
    verify,
    verify_content,
)
from ccm_agent.bus.subjects import check_node, check_scope, is_node, key_subject, parse_assignment_key
from ccm_agent.model.errors import InputError, ProtocolError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.join import JOINS_BUCKET
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    NODE_DISABLE,
    NODE_ENABLE,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
    RESOURCE_IMPORT,
    RUN_STOP,
)

TRUST_BUCKET = "CCM_TRUST"
SIGNERS_KEY = "signers"
GROUP_PREFIX = "group."
"""Prefix of keys of groups in TRUST_BUCKET."""

BY_DETAIL = "by"
"""A detail of a certificate or answer that a key other than the root's signed: the root's permission for this key."""

_NODE_PREFIX = "node."
_CERTIFIER = "certifier"
_FACTS = "CCM_FACTS"
_ASSIGNMENTS = "CCM_ASSIGNMENTS"

EVERYWHERE = ">"
"""The value that means every scope in a signer's scopes."""

SIGNERS_SUBJECT = key_subject(TRUST_BUCKET, SIGNERS_KEY)

SIGNERS_LIMIT = 5_000
"""A list with more operators is refused: the list is one message on the broker."""

_BLOCK = re.compile(r"(?<!-)-{3,}+BEGIN CCM TRUST-{3,}+\s*+([A-Za-z0-9+/=\s]++)-{3,}+END CCM TRUST-{3,}")


class Signer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One operator's key, and the permissions of requests and documents signed with it.

    Attributes:
        name: The operator.
        key: Public nkey.
        plan: Scopes in which the operator may plan and check; `>` (EVERYWHERE) is every scope.
        apply: Scopes in which the operator may also change nodes, by request or by assignment, and stop runs.
        exec: Scopes in which the operator may run single commands, and stop runs.
        maintain: Scopes in which the operator may disable and enable nodes, and make them converge now.
        data: Allows writing Hiera documents.
        facts: Allows assigning facts.
        schedules: Allows creating schedules.
        join: Allows creating join tokens, and recording which nodes have used them.
        admin: Allows creating streams, removing nodes, registering and removing services, and purging.
        timestamp: Allows confirming that a signers list is the newest (`bus.signatures.timestamp`).
        roles: Names that the node's policy can refer to.
        expires: When the entry expires, in seconds since 1970; 0: never.
    """

    name: str
    key: str
    plan: tuple[str, ...] = ()
    apply: tuple[str, ...] = ()
    exec: tuple[str, ...] = ()
    maintain: tuple[str, ...] = ()
    data: bool = False
    facts: bool = False
    schedules: bool = False
    join: bool = False
    admin: bool = False
    timestamp: bool = False
    roles: tuple[str, ...] = ()
    expires: int = 0

    def may_request(self, protocol: str, scope: str) -> bool:
        """Whether the operator may send a request of this protocol to this scope."""
        if protocol in (MANIFEST_APPLY, RESOURCE_ENSURE):
            return _covers(self.apply, scope)
        if protocol == RESOURCE_EXEC:
            return _covers(self.exec, scope)
        if protocol == RUN_STOP:
            return _covers((*self.apply, *self.exec), scope)
        if protocol in (MANIFEST_PLAN, MANIFEST_CHECK, RESOURCE_IMPORT):
            return _covers((*self.plan, *self.apply), scope)
        if protocol in (NODE_DISABLE, NODE_ENABLE, NODE_CONVERGE):
            return _covers(self.maintain, scope)
        return True

    def may_assign(self, scope: str) -> bool:
        """Whether the operator may write an assignment of this scope."""
        return _covers(self.apply, scope)

    def may_write(self, bucket: str, key: str) -> bool:
        """
        Return whether the operator may write this document. Buckets without a rule here contain data.

        Raises:
            ProtocolError: In the bucket of assignments, the key is not the key of an assignment.
        """
        if bucket == _FACTS:
            return self.facts
        if bucket == _ASSIGNMENTS:
            return self.may_assign(parse_assignment_key(key)[0])
        if bucket == SECRETS and key == SEALING_KEY:
            # With their own sealing key, operators could open the secrets that others store later.
            return self.admin
        if bucket == TRUST_BUCKET:
            return self.admin and key.startswith(GROUP_PREFIX)
        if bucket == JOINS_BUCKET:
            return self.admin or self.join
        return self.data


class SignersList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The document that the root key signs.

    Attributes:
        number: The number, which increases with each change.
        issued: The time of the signature, in milliseconds since 1970.
        signers: The operators.
        revoked_nodes: Public keys of nodes with revoked certificates.
        allow_unsigned_until: The time until which agents and controllers also accept unsigned messages, in milliseconds since
            1970; 0: never. It is for fleets that still have agents or controllers without support for signatures.
        max_age_s: How long a node relies on this list after the last confirmation that it is the newest; 0: forever.
        signed_state: Whether all agents sign the entries about themselves. If so, decisions ignore unsigned entries, except
            until `allow_unsigned_until`.
    """

    number: int
    issued: int
    signers: tuple[Signer, ...] = ()
    revoked_nodes: tuple[str, ...] = ()
    allow_unsigned_until: int = 0
    max_age_s: int = 0
    signed_state: bool = False

    def by_key(self, key: str, now_ms: int) -> Signer | None:
        """Return the operator with this key; None if there is none, or if the entry has expired."""
        for signer in self.signers:
            if signer.key == key:
                return None if signer.expires and now_ms > signer.expires * 1000 else signer
        return None

    def allows_unsigned(self, now_ms: int) -> bool:
        """Whether unsigned messages and documents are accepted at this time."""
        return now_ms < self.allow_unsigned_until


class SignedText(Struct, frozen=True, kw_only=True):
    """A document and its detached signature, as stored in files and credentials."""

    body: str
    signature: str


class Trust(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The content of the trust block of a credentials file.

    Attributes:
        root: The root's public key.
        signers: The signers list when the credentials were created.
        certificate: For a node: the root's certificate that this key belongs to this node; a signature header of kind `node`.
        floors: For each `bucket/key`, the number of the document when the node was enrolled. Lower numbers are refused.
    """

    root: str
    signers: SignedText | None = None
    certificate: str = ""
    floors: dict[str, int] = {}

    def as_block(self) -> str:
        """Return the block for a credentials file."""
        text = base64.b64encode(msgspec.json.encode(self)).decode()
        lines = "\n".join(textwrap.wrap(text, 76))
        return f"-----BEGIN CCM TRUST-----\n{lines}\n------END CCM TRUST------\n"


def trust_in_credentials(text: str, source: str = "") -> Trust | None:
    """
    Return the trust block of a credentials file; None if it has none.

    Raises:
        InputError: The block cannot be read. An agent that ignored the error would accept requests from any client.
    """
    if "BEGIN CCM TRUST" not in text:
        return None
    found = _BLOCK.search(text)
    try:
        if not found:
            raise ValueError("it is truncated")
        trust = decode_foreign(base64.b64decode("".join(found[1].split()), validate=True), Trust)
    except (ValueError, msgspec.MsgspecError) as err:
        raise InputError(f"{source or 'credentials'}: the CCM TRUST block is damaged: {err}") from err
    if not is_public_key(trust.root):
        raise InputError(f"{source or 'credentials'}: the CCM TRUST block contains no root key")
    return trust


def sign_signers(root: SigningKey, signers: SignersList) -> SignedText:
    """Return the signed list. Raises UsageError if the list could not be read back."""
    body = msgspec.json.encode(signers)
    signature = root.sign(
        SignatureKind.SIGNERS, SIGNERS_SUBJECT, body, issued_ms=signers.issued, number=signers.number
    )
    check_signers(signers)
    return SignedText(body=body.decode(), signature=signature)


def read_signers(body: bytes, signature: str, root: str, *, now_ms: int) -> SignersList:
    """
    Decode a signers list that the root signed.

    Raises:
        SignatureError: The list is not signed by the root.
        ProtocolError: The list is signed, but cannot be used.
    """
    claims = verify(signature, SignatureKind.SIGNERS, SIGNERS_SUBJECT, body, now_ms=now_ms)
    _require_root(claims, root, SIGNERS_SUBJECT)
    try:
        signers = decode_foreign(body, SignersList)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{SIGNERS_SUBJECT}: the signers list cannot be read: {err}") from err
    if claims.number != signers.number:
        raise SignatureError(f"{SIGNERS_SUBJECT}: the numbers of the signers list and its signature differ")
    try:
        check_signers(signers)
    except UsageError as err:
        raise ProtocolError(f"{SIGNERS_SUBJECT}: {err.message}") from err
    return signers


def check_signers(signers: SignersList) -> None:
    """
    Check that a list has one valid entry for each key.

    Raises:
        UsageError: The list is too long, contains a key twice, or has an invalid scope.
    """
    if len(signers.signers) > SIGNERS_LIMIT:
        raise UsageError(
            f"the signers list has {len(signers.signers)} entries; at most {SIGNERS_LIMIT} are accepted"
        )
    seen: set[str] = set()
    for signer in signers.signers:
        if not is_public_key(signer.key):
            raise UsageError(f"signer {signer.name}: {signer.key!r} is not a public nkey")
        if signer.key in seen:
            raise UsageError(f"signer {signer.name}: the key {signer.key} is in the list twice")
        seen.add(signer.key)
        for scope in (*signer.plan, *signer.apply, *signer.exec, *signer.maintain):
            try:
                scope == EVERYWHERE or check_scope(scope)
            except ProtocolError as err:
                raise UsageError(f"signer {signer.name}: {err.message}") from err


def allow_certifier(root: SigningKey, key: str, *, issued_ms: int, expires_ms: int) -> str:
    """Return the root's permission for a key to certify nodes and to answer joining nodes, until a time."""
    return root.sign(
        SignatureKind.CERTIFIER, _CERTIFIER, key.encode(), issued_ms=issued_ms, expires_ms=expires_ms
    )


def certify_node(
    signer: SigningKey, node: str, key: str, *, issued_ms: int, expires_ms: int = 0, by: str = ""
) -> str:
    """
    Return a certificate that a key belongs to a node: a signature header of kind `node`.

    Args:
        signer: The root key, or a key that it allows to certify nodes.
        by: The root's permission for `signer`; "" if `signer` is the root key.
    """
    return signer.sign(
        SignatureKind.NODE,
        f"{_NODE_PREFIX}{check_node(node)}",
        key.encode(),
        issued_ms=issued_ms,
        expires_ms=expires_ms,
        details={BY_DETAIL: by} if by else {},
    )


def verify_certificate(certificate: str, node: str, key: str, root: str, *, now_ms: int) -> None:
    """
    Check a certificate that a key belongs to a node.

    Raises:
        SignatureError: The certificate is for another key or node, or has expired.
    """
    check_times(read_certificate(certificate, node, key, root), f"node.{node}", now_ms=now_ms)


def read_certificate(certificate: str, node: str, key: str, root: str) -> Claims:
    """
    Return the claims of a node's certificate, which the root or a key that it allows has signed. The caller checks the times: an
    event that the node signed before its certificate expired remains genuine.

    Raises:
        SignatureError: The certificate is not for this key and node, or is not signed by an allowed key.
    """
    subject = f"{_NODE_PREFIX}{check_node(node)}"
    claims = verify_content(certificate, SignatureKind.NODE, subject, key.encode())
    if claims.key != root:
        require_certifier(claims, root, subject)
    return claims


def read_certified(certificate: str, key: str, root: str) -> tuple[str, Claims]:
    """
    Return the name and the claims in a certificate of a node that is not known in advance; otherwise like `read_certificate`.
    The signature is verified once.

    Raises:
        SignatureError: The certificate does not name a node, or names another key.
    """
    claims = read_claims(certificate)
    node = claims.subject.removeprefix(_NODE_PREFIX)
    if node == claims.subject or not is_node(node):
        raise SignatureError(f"the certificate of {key} does not name a node")
    check_content(claims, SignatureKind.NODE, claims.subject, key.encode())
    if claims.key != root:
        require_certifier(claims, root, claims.subject)
    return node, claims


def require_certifier(claims: Claims, root: str, subject: str) -> None:
    """
    Check that the root allows the key of a certificate or answer to sign it. Certificate and answer must expire before the
    permission does.

    Raises:
        SignatureError: The root does not allow it.
    """
    by = claims.details.get(BY_DETAIL, "")
    if not by:
        _require_root(claims, root, subject)
    allowed = verify_content(by, SignatureKind.CERTIFIER, _CERTIFIER, claims.key.encode())
    _require_root(allowed, root, subject)
    if not claims.expires or claims.expires > allowed.expires:
        raise SignatureError(f"{subject}: it is valid for longer than the key {claims.key} may certify")


def _require_root(claims: Claims, root: str, subject: str) -> None:
    if claims.key != root:
        raise SignatureError(f"{subject}: signed by {claims.key}, which is not the fleet's root key {root}")


def _covers(scopes: tuple[str, ...], scope: str) -> bool:
    return EVERYWHERE in scopes or scope in scopes
