"""
Joining a fleet: the text of a join token, the node's signed request, and the answer that the node verifies.

A token contains the broker's addresses, the certificate of its authority, the fleet's root key, and credentials of one user in
the account JOIN. This user may publish on one subject and receive the answer. The limits of the token, such as the role and the
number of nodes, are in the bucket CCM_JOINS. They are signed by the operator who created the token, so the holder of a token
cannot change them.

The node generates its own key and signs the request with it. It also signs with the token's key. So an attacker who controls
the broker, and knows the id of each token, cannot join a node. The node accepts an answer only if it contains the digest of its
own request, and if the root key in the token permits its signer. So neither the broker nor another holder of the token can give
the node credentials of another fleet.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import zlib
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.credentials import claims_in_jwt, credentials_text
from ccm_agent.bus.signatures.signing import (
    SIGNATURE_HEADER,
    SKEW_MS,
    SignatureError,
    SignatureKind,
    SignatureTimeError,
    SigningKey,
    is_public_key,
    read_claims,
    verify,
)
from ccm_agent.bus.signatures.trust import (
    BY_DETAIL,
    SignedText,
    Trust,
    read_certificate,
    read_signers,
    require_certifier,
)
from ccm_agent.model.errors import CcmError, InputError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.join import (
    JOIN_ANSWER,
    JOIN_LEAVE,
    JOIN_RENEWAL,
    JOIN_REQUEST,
    JoinAnswer,
    JoinRequest,
    JoinState,
)
from ccm_agent.model.secret import Secret

TOKEN_HEADER = "Ccm-Token-Signature"
"""The signature of a request to join, with the token's key."""

TOKEN_PREFIX = "ccm1-"
TOKEN_LIMIT = 16_384
"""The maximum characters of a token. A longer text is not decoded."""

TOKEN_ID = re.compile(r"join-[a-z0-9]{16}")

WRONG_CLOCK = "join.clock"
"""The error code for a host with a wrong clock."""

VALID_MS = 300_000
"""How long a request and an answer are valid."""


class JoinError(CcmError):
    """A node cannot join, or its credentials cannot be renewed; the code has the reason."""

    code = "join.failed"

    def __init__(self, message: str, *, code: str = "join.failed") -> None:
        self.code = code
        super().__init__(message)


class JoinToken(Struct, frozen=True, kw_only=True):
    """
    The content of a join token. Its holder can add nodes to the fleet, within the limits of the token.

    Attributes:
        servers: The broker's URLs.
        ca: The certificate of the broker's authority, as PEM; "" if the host's authorities certify it.
        root: The fleet's root public key.
        jwt, seed: The credentials of the token's user.
    """

    servers: tuple[str, ...]
    ca: str
    root: str
    jwt: str
    seed: Secret

    @property
    def id(self) -> str:
        """The name of the token's user."""
        return claims_in_jwt(self.jwt)[0]

    @property
    def expires(self) -> int:
        """When the broker stops accepting the token, in seconds since 1970."""
        return claims_in_jwt(self.jwt)[2]

    def as_text(self) -> str:
        """Return the text for `ccm join`: one word."""
        packed = _Packed(
            servers=self.servers, ca=self.ca, root=self.root, jwt=self.jwt, seed=self.seed.reveal()
        )
        raw = zlib.compress(msgspec.json.encode(packed), 9)
        return TOKEN_PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


class _Packed(Struct, frozen=True, kw_only=True):
    """A token as JSON."""

    servers: tuple[str, ...]
    root: str
    jwt: str
    seed: str
    ca: str = ""


def read_token(text: str) -> JoinToken:
    """
    Decode the text of a token.

    Raises:
        InputError: The text is damaged; the error does not show it.
    """
    word = text.strip()
    if not word.startswith(TOKEN_PREFIX) or len(word) > TOKEN_LIMIT:
        raise InputError(
            f"this is not a join token: a token begins with {TOKEN_PREFIX}; copy the line that "
            "`ccmctl token create` printed"
        )
    raw = word.removeprefix(TOKEN_PREFIX)
    try:
        packed = _unpack(base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_", validate=True))
        SigningKey(Secret(packed.seed))
        is_sound = is_public_key(packed.root) and bool(packed.servers)
    except (ValueError, zlib.error, msgspec.MsgspecError, InputError):
        is_sound = False
    if not is_sound or not TOKEN_ID.fullmatch(claims_in_jwt(packed.jwt)[0]):
        raise InputError(
            "the join token is damaged, perhaps cut off; copy the whole line that `ccmctl token create` printed"
        )
    return JoinToken(
        servers=packed.servers, ca=packed.ca, root=packed.root, jwt=packed.jwt, seed=Secret(packed.seed)
    )


def _unpack(raw: bytes) -> _Packed:
    unpacking = zlib.decompressobj()
    body = unpacking.decompress(raw, TOKEN_LIMIT)
    if unpacking.unconsumed_tail:
        raise ValueError("it is too long")
    return decode_foreign(body, _Packed)


def new_token_id() -> str:
    """Return a random id."""
    return f"join-{base64.b32encode(secrets.token_bytes(10)).decode().lower()}"


def fingerprint(key: str) -> str:
    """Return the part of a node's public key that two people compare: 128 bits."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return "-".join(digest[at : at + 4] for at in range(0, 32, 4))


class SignedRequest(Struct, frozen=True, kw_only=True):
    """A request, and the message that carries it."""

    subject: str
    body: bytes
    headers: dict[str, str]

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of the body, which the answer repeats."""
        return hashlib.sha256(self.body).hexdigest()


def sign_request(
    key: SigningKey,
    name: str,
    now_ms: int,
    version: str,
    *,
    token: JoinToken | None = None,
    certificate: str = "",
    is_leaving: bool = False,
) -> SignedRequest:
    """
    Return a signed request for credentials, or to leave the fleet.

    Args:
        key: The node's key.
        name: The node.
        now_ms: The time, in milliseconds since 1970.
        version: The version of the agent.
        token: The join token; None if the node has already joined.
        certificate: Without a token: the certificate of the key.
        is_leaving: Whether the node leaves. Otherwise, without a token, it renews its credentials.
    """
    request = JoinRequest(
        protocol=JOIN_REQUEST if token is not None else JOIN_LEAVE if is_leaving else JOIN_RENEWAL,
        name=name,
        key=key.public_key,
        nonce=secrets.token_hex(16),
        time=now_ms,
        token=token.id if token is not None else "",
        certificate=certificate,
        version=version,
    )
    subject = _subject_of(request)
    body = msgspec.json.encode(request)
    headers = {SIGNATURE_HEADER: _sign(key, subject, body, now_ms)}
    if token is not None:
        headers[TOKEN_HEADER] = _sign(SigningKey(token.seed), subject, body, now_ms)
    return SignedRequest(subject=subject, body=body, headers=headers)


def _subject_of(request: JoinRequest) -> str:
    """Return the subject of a request. A node that leaves sends it on the subject of its renewals."""
    protocol = JOIN_RENEWAL if request.protocol == JOIN_LEAVE else request.protocol
    return f"{protocol}.{request.token or request.name}"


def _sign(key: SigningKey, subject: str, body: bytes, now_ms: int) -> str:
    return key.sign(
        SignatureKind.JOIN, subject, body, issued_ms=now_ms, expires_ms=now_ms + VALID_MS + SKEW_MS
    )


def read_request(subject: str, body: bytes) -> JoinRequest:
    """
    Decode a request. Only its subject is checked.

    Raises:
        JoinError: The request is malformed.
    """
    try:
        request = decode_foreign(body, JoinRequest)
    except msgspec.MsgspecError as err:
        raise JoinError("the request cannot be read; upgrade the agent", code="join.malformed") from err
    if (
        subject != _subject_of(request)
        or (request.protocol == JOIN_LEAVE and request.token)
        or not is_public_key(request.key)
    ):
        raise JoinError("the request is for another subject", code="join.malformed")
    return request


def verify_request(
    request: JoinRequest,
    subject: str,
    body: bytes,
    headers: Mapping[str, str],
    token_key: str,
    *,
    now_ms: int,
) -> None:
    """
    Check that a request was signed with the node's key and, if it contains a token's id, with the key of the token.

    Args:
        token_key: The public key of the token in the request; "" without a token.

    Raises:
        SignatureError: A signature is missing or invalid; SignatureTimeError if only the time is wrong.
    """
    _verify_by(request.key, headers.get(SIGNATURE_HEADER, ""), subject, body, now_ms)
    if request.token:
        _verify_by(token_key, headers.get(TOKEN_HEADER, ""), subject, body, now_ms)


def _verify_by(key: str, header: str, subject: str, body: bytes, now_ms: int) -> None:
    claims = verify(header, SignatureKind.JOIN, subject, body, now_ms=now_ms)
    if not key or claims.key != key:
        raise SignatureError(f"{subject}: signed with another key")


def sign_answer(
    certifier: SigningKey, permission: str, subject: str, answer: JoinAnswer, now_ms: int
) -> tuple[bytes, dict[str, str]]:
    """
    Return the body and the headers of an answer.

    Args:
        certifier: A key that the root key allows to certify nodes.
        permission: The root key's permission for `certifier`.
        subject: The subject of the request.
        answer: The answer.
        now_ms: The time, in milliseconds since 1970.
    """
    body = msgspec.json.encode(answer)
    signature = certifier.sign(
        SignatureKind.JOIN_ANSWER,
        subject,
        body,
        issued_ms=now_ms,
        expires_ms=now_ms + VALID_MS + SKEW_MS,
        details={BY_DETAIL: permission},
    )
    return body, {SIGNATURE_HEADER: signature}


def verify_answer(
    body: bytes, header: str, request: SignedRequest, name: str, key: str, root: str, *, now_ms: int
) -> JoinAnswer:
    """
    Verify the answer to a request with the root key, and return it.

    Raises:
        SignatureError: The answer is not signed by a key that the root allows, or is not for this request, name and key.
    """
    late: SignatureTimeError | None = None
    try:
        claims = verify(header, SignatureKind.JOIN_ANSWER, request.subject, body, now_ms=now_ms)
    except SignatureTimeError as err:
        late = err
        claims = verify(
            header, SignatureKind.JOIN_ANSWER, request.subject, body, now_ms=read_claims(header).issued
        )
    require_certifier(claims, root, request.subject)
    try:
        answer = decode_foreign(body, JoinAnswer)
    except msgspec.MsgspecError as err:
        raise SignatureError(f"{request.subject}: the answer cannot be read; upgrade the agent") from err
    if answer.protocol != JOIN_ANSWER or answer.request != request.digest:
        raise SignatureError(f"{request.subject}: the answer is for another request")
    if late is not None and (answer.state, answer.code) != (JoinState.REFUSED, WRONG_CLOCK):
        # The request's nonce proves that the answer is recent, so it can inform a host that its clock is wrong.
        raise late
    if answer.state is JoinState.JOINED:
        jwt_name, jwt_key, _ = claims_in_jwt(answer.jwt)
        if (jwt_name, jwt_key) != (name, key):
            raise SignatureError(f"{request.subject}: the answer has credentials of another node")
        read_certificate(answer.certificate, name, key, root)
        read_signers(answer.signers.encode(), answer.signature, root, now_ms=now_ms)
    return answer


def make_credentials(answer: JoinAnswer, seed: Secret, root: str) -> bytes:
    """Return the credentials file of a node, from a verified answer and the seed of the node's key."""
    trust = Trust(
        root=root,
        signers=SignedText(body=answer.signers, signature=answer.signature),
        certificate=answer.certificate,
        floors=answer.floors,
    )
    return f"{credentials_text(answer.jwt, seed).reveal()}\n{trust.as_block()}".encode()
