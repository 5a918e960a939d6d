"""Messages of nodes that join a fleet, renew their credentials or leave, and of the join service that answers them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from ccm_agent.model.wire import PROTOCOL

JOIN_REQUEST = f"{PROTOCOL}.join.request"
JOIN_RENEWAL = f"{PROTOCOL}.join.renewal"
JOIN_LEAVE = f"{PROTOCOL}.join.leave"
"""The protocol id of a request to leave the fleet. The node sends it on the subject of its renewals."""

JOIN_ANSWER = f"{PROTOCOL}.join.answer"

JOINS_BUCKET = "CCM_JOINS"
"""The bucket with join tokens, their uses, and the nodes that joined."""

REQUEST_LIMIT_BYTES = 2048
"""Limit of a request's size. A larger request is not read."""

ANSWER_S = 5.0
"""Time that a node waits for the answer to one attempt before it tries again."""


class JoinState(StrEnum):
    """The result of a request."""

    JOINED = "joined"
    WAITING = "waiting"
    """An operator must accept the node."""
    REFUSED = "refused"
    LEFT = "left"
    """The node has left. Its data is removed, and its credentials are not renewed."""


class JoinRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A node's request for credentials for a key that it created, or its request to leave. The key signs the
    request. The token also signs a join.

    Attributes:
        protocol: JOIN_REQUEST, JOIN_RENEWAL or JOIN_LEAVE.
        name: The node.
        key: The node's public nkey.
        nonce: Random text that prevents an earlier answer from being accepted for this request.
        time: The node's time, in milliseconds since 1970.
        token: The id of the join token; "" without one.
        certificate: The certificate of the key; "" in a join.
        version: The version of the agent.
    """

    protocol: str
    name: str
    key: str
    nonce: str
    time: int
    token: str = ""
    certificate: str = ""
    version: str = ""


class JoinAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The answer, signed by a key that the root key authorizes to certify nodes.

    Attributes:
        protocol: JOIN_ANSWER.
        state: The result.
        request: SHA-256 (hex) of the request's body.
        jwt: The node's JWT for the broker.
        certificate: The certificate of its key.
        signers, signature: The newest signers list and its signature.
        floors: The number of the document for each `bucket/key`. The node refuses documents with lower numbers.
        expires: When JWT and certificate expire, in seconds since 1970.
        code, message: Why the request was refused or is waiting.
    """

    protocol: str
    state: JoinState
    request: str
    jwt: str = ""
    certificate: str = ""
    signers: str = ""
    signature: str = ""
    floors: dict[str, int] = {}
    expires: int = 0
    code: str = ""
    message: str = ""
