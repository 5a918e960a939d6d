"""
The results of requests to join, to renew credentials or to leave, in the forms for the operator, the audit trail and the node.
"""

from __future__ import annotations

import hashlib

from msgspec import Struct

from ccm_agent.bus.access.audit_entry import SignedAction
from ccm_agent.bus.signatures.join import JoinError
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.records.join import (
    JOIN_ANSWER,
    JOIN_LEAVE,
    JOIN_RENEWAL,
    JOINS_BUCKET,
    JoinAnswer,
    JoinRequest,
    JoinState,
)
from ccm_ctl.fleet.keys.join_records import BriefNode


class JoinOutcome(Struct, frozen=True, kw_only=True):
    """
    The result of one request, for the operator's terminal and the audit trail.

    Attributes:
        subject: The subject of the request.
        digest: SHA-256 (hex) of its body.
        node, key, token: The content of the request. "": it cannot be read.
        state: The result.
        is_renewal: Whether the node renewed its credentials.
        is_leaving: Whether the node leaves the fleet.
        code, message: The reason for a refusal or a wait.
        repeated: For a refusal, the number of earlier refusals of this kind that were not reported.
    """

    subject: str
    digest: str
    state: JoinState
    node: str = ""
    key: str = ""
    token: str = ""
    is_renewal: bool = False
    is_leaving: bool = False
    code: str = ""
    message: str = ""
    repeated: int = 0

    def as_action(self) -> SignedAction:
        """Return its entry in the audit trail."""
        details = {
            "state": str(self.state),
            "node": self.node,
            "key": self.key,
            "token": self.token,
            "code": self.code,
            "repeated": str(self.repeated or ""),
        }
        kind = "leave" if self.is_leaving else "renewal" if self.is_renewal else "join"
        known = {name: value[:100] for name, value in details.items() if value}
        return SignedAction(kind=kind, subject=self.subject[:300], digest=self.digest, details=known)


def outcome_of(
    subject: str,
    body: bytes,
    request: JoinRequest | None,
    err: JoinError | None,
    state: JoinState = JoinState.REFUSED,
) -> JoinOutcome:
    is_leaving = request is not None and request.protocol == JOIN_LEAVE
    return JoinOutcome(
        subject=subject,
        digest=digest_of(body),
        state=state,
        node=request.name if request else "",
        key=request.key if request else "",
        token=request.token if request else "",
        is_renewal=not is_leaving and subject.startswith(f"{JOIN_RENEWAL}."),
        is_leaving=is_leaving,
        code=err.code if err else "",
        message=err.message if err else "",
    )


def refusal_of(outcome: JoinOutcome) -> JoinAnswer:
    return JoinAnswer(
        protocol=JOIN_ANSWER,
        state=JoinState.REFUSED,
        request=outcome.digest,
        code=outcome.code,
        message=outcome.message,
    )


def digest_of(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def away_outcome(node: BriefNode) -> JoinOutcome:
    """Return the outcome for a node that is removed because it was away for too long."""
    return JoinOutcome(
        subject=key_subject(JOINS_BUCKET, f"brief.{node.name}"),
        digest=digest_of(node.key.encode()),
        state=JoinState.LEFT,
        node=node.name,
        key=node.key,
        is_leaving=True,
        code="join.away",
        message="it was offline for longer than its token allows",
    )
