"""
Check who signed the record of a run, and whether that operator had the right to send its request.

Other operators sign requests that are based on a record: a retry, an undo, the next wave of a rollout. A record is therefore used
only if its author may send the request to the same nodes. A record that does not verify can still be listed and shown.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.sealing import SECRETS
from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.bus.subjects import encode_token, key_subject, parse_assignment_key
from ccm_agent.model.errors import ProtocolError, RunError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.run_records import UNDO
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    RESOURCE_ENSURE,
    RESOURCE_EXEC,
)
from ccm_ctl.fleet.trust.verified_reader import open_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ccm_agent.bus.signatures.trust import Signer
    from ccm_agent.bus.signatures.verified import Verifier
    from ccm_agent.model.ports import KeyValueEntry
    from ccm_agent.model.records.run_records import RunRecord, RunTargets
    from ccm_ctl.fleet.ports import Fleet

_PROTOCOLS = (MANIFEST_APPLY, MANIFEST_PLAN, MANIFEST_CHECK, RESOURCE_ENSURE, RESOURCE_EXEC, NODE_CONVERGE)
"""Protocols of the requests that are recorded."""


async def read_verifier(fleet: Fleet) -> Verifier:
    """
    Return a verifier with the newest signers list. If the credentials contain no trust block, the verifier accepts everything.
    """
    return (await open_reader(fleet)).verifier


def digest_nodes(nodes: Sequence[str], offline: Sequence[str]) -> str:
    """Return the SHA-256 of a run's nodes, in their order, and of the nodes that were offline."""
    return hashlib.sha256(msgspec.json.encode([nodes, offline])).hexdigest()


def action_of(record: RunRecord) -> str:
    """Return the action to show for a record. Older controllers recorded an undo as an apply."""
    return UNDO if record.action == "apply" and record.request.get("undo") else record.action


def verify_record(
    verifier: Verifier, entry: KeyValueEntry, owner: str, record: RunRecord
) -> Verified[RunRecord] | Unverified[RunRecord]:
    """
    Check the signature of a run's record.

    Args:
        verifier: A verifier with the newest signers list.
        entry: The record as stored.
        owner: The token in its key.
        record: The record, decoded.
    """

    def refusal(signer: Signer, _claims: Any) -> str:
        is_own = encode_token(signer.name) == owner
        return "" if is_own else f"{signer.name} signed it, under the key of another operator"

    subject = key_subject(RUNS, entry.key)
    return verifier.read(record, SignatureKind.RECORD, subject, entry.value, entry.signature, refusal)


def verify_nodes(
    judged: Verified[RunRecord] | Unverified[RunRecord], targets: Sequence[RunTargets]
) -> Verified[RunRecord] | Unverified[RunRecord]:
    """Check a record together with its list of nodes, which its signature covers."""
    nodes = [node for piece in targets for node in piece.nodes]
    offline = [node for piece in targets for node in piece.offline]
    is_signed = isinstance(judged, Verified) and judged.key
    if is_signed and judged.value.nodes_digest != digest_nodes(nodes, offline):
        return Unverified(value=judged.value, reason="its list of nodes was changed after signing")
    return judged


def require_author(
    verifier: Verifier,
    judged: Verified[RunRecord] | Unverified[RunRecord],
    refusal: Callable[[Signer], str],
) -> Signer | None:
    """
    Return the author of a record, who may send its request to all of its scopes, or None in unsigned operation.

    Args:
        verifier: A verifier with the newest signers list.
        judged: The record and the result of checking its signature.
        refusal: Returns why a signer may not send it. See `refuse_request` and `refuse_protocol`.

    Raises:
        RunError: The record does not verify, or its author may not send the request.
    """
    record = judged.value
    if isinstance(judged, Unverified):
        raise RunError(
            f"{short_id(record.run)}: its record is unverified: {judged.reason}; "
            "ccmctl signs nothing that is based on it; start a new run"
        )
    if not judged.key:
        return None
    author = verifier.signer_of(judged)
    if author is None:
        raise RunError(
            f"{short_id(record.run)}: {judged.signer} is no longer in the signers list; start a new run"
        )
    if reason := refusal(author):
        raise RunError(
            f"{short_id(record.run)}: {author.name} wrote its record, but {reason}, so it is not sent again; "
            "start a new run from your own files"
        )
    return author


def refuse_request(signer: Signer, record: RunRecord, sender: str = "") -> str:
    """
    Return why an operator may not send the request of a record, as the rest of a sentence that begins with the name. "": it is
    allowed.

    Args:
        signer: The operator.
        record: The record.
        sender: The service that would send it for the operator, or "". Nodes restrict a plan by the rights of its sender.
    """
    protocol = str(record.request.get("protocol", ""))
    if protocol not in _PROTOCOLS:
        return "specifies no request"
    if reason := refuse_protocol(signer, record, protocol):
        return reason
    if sender not in ("", signer.name) and protocol in (MANIFEST_PLAN, MANIFEST_CHECK):
        denied = next((one for one in scopes_of_record(record) if not signer.may_assign(one)), None)
        if denied is not None:
            return f"may only plan on {denied}, where a plan that {sender} sends also runs commands"
    if record.secret is not None and not signer.may_write(SECRETS, f"head.{record.secret.name}"):
        return f"may not write the secret {record.secret.name}"
    stage = record.request.get("stage")
    if not isinstance(stage, dict):
        return ""
    try:
        may_assign = signer.may_assign(parse_assignment_key(str(stage.get("key", "")))[0])
    except ProtocolError as err:
        return f"specifies no assignment: {err.message}"
    return "" if may_assign else f"may not assign {stage['key']}"


def refuse_protocol(signer: Signer, record: RunRecord, protocol: str) -> str:
    """Return why an operator may not send a request of this protocol to the scopes of a record. "": it is allowed."""
    scopes = scopes_of_record(record)
    if not scopes:
        return "specifies no scope"
    denied = next((scope for scope in scopes if not signer.may_request(protocol, scope)), None)
    return f"may not {action_of(record)} on {denied}" if denied is not None else ""


def scopes_of_record(record: RunRecord) -> list[str]:
    """Return the scopes to which the request of a run was sent, sorted."""
    return sorted({subject.partition(".request.")[2] for subject in record.subjects})
