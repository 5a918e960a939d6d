"""Repeat a recorded run: rebuild its request from the record, for the nodes on which it did not succeed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer
from ccm_agent.bus.signatures.verified import Base, Verified
from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.run_records import UNDO, RunRecord
from ccm_agent.model.wire import (
    COMPLIANT_STATES,
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    RESOURCE_EXEC,
    ExecRequest,
    MaintenanceRequest,
    ManifestRequest,
    NodeState,
    Request,
)
from ccm_ctl.fleet.content import Content, read_content
from ccm_ctl.fleet.nodes.inventory import read_nodes
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.find_run import find_request
from ccm_ctl.fleet.runs.follow import Follower, ignore_news
from ccm_ctl.fleet.runs.history import Recorded, restore_ends, run_on_record
from ccm_ctl.fleet.runs.joining import admit_none
from ccm_ctl.fleet.runs.proof import read_proof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch, prepare
from ccm_ctl.fleet.runs.run_signatures import (
    read_verifier,
    refuse_protocol,
    refuse_request,
    require_author,
    scopes_of_record,
)

R = TypeVar("R", bound=Request)

RETRIABLE_ENDS = tuple(state for state in NodeState if state.is_final and state not in COMPLIANT_STATES)
"""The ends after which a run can be retried on a node."""

RETRIED_ENDS = tuple(state for state in RETRIABLE_ENDS if state is not NodeState.SKIPPED)
"""The ends that are retried by default. Nodes that an abort skipped are retried only if this end is named."""

_FAILED_ENDS = (NodeState.FAILED, NodeState.STOPPED)

RETRIED_ACTIONS = ("apply", "plan", "check", UNDO)

ACTIONS = {
    MANIFEST_APPLY: ("apply", "assign", "rotate", UNDO),
    MANIFEST_PLAN: ("plan",),
    MANIFEST_CHECK: ("check",),
}
"""The actions that a record may contain for each kind of request."""


async def prepare_retry(
    fleet: Fleet,
    recorded: Recorded,
    ends: Collection[NodeState],
    deadline: datetime,
    path: str | None = None,
    known: Mapping[str, NodeState] | None = None,
    *,
    message: str = "",
) -> Launch:
    """
    Prepare the same request for the nodes with one of the given ends. Nothing is sent.

    Args:
        fleet: The bus.
        recorded: The run.
        ends: The end states to retry.
        deadline: Nodes that have not started by this time will not start.
        path: The manifest file, for a run of a single file, which is not stored. None: the request is stored.
        known: The ends of the nodes. None: they are read.
        message: The reason, in this operator's words. The reason of the first run is not repeated.

    Raises:
        RunError: A node has not ended, no node has such an end, the request is not on record, or its author lacked the rights.
        UsageError: The file is needed but not given, or its content is not what was applied.
    """
    _check_action(recorded)
    author = await find_author(fleet, recorded)
    left = _left(recorded, known if known is not None else await known_ends(fleet, recorded), ends)
    base: Base
    if recorded.is_on_record:
        base = base_of(recorded)
        request = await _request(fleet, recorded, path)
    else:
        if path is not None:
            raise UsageError(
                f"{path}: {short_id(recorded.record.run)} was not sent by an operator; leave out FILE"
            )
        found = await find_request(fleet, recorded)
        request, base = found.value, found
    request = replace(request, deadline=deadline, message=message)
    resolved = _targets(recorded, left, await read_nodes(fleet, left))
    launch = prepare(fleet, request, resolved, recorded.record.action, recorded.record.name, base=[base])
    is_sent_to_scopes = recorded.record.is_sent_to_scopes or is_beyond_author(fleet, author, request.protocol)
    record = replace(launch.record, retry_of=recorded.record.run, is_sent_to_scopes=is_sent_to_scopes)
    return replace(launch, record=record)


async def find_author(fleet: Fleet, recorded: Recorded) -> Signer | None:
    """
    Return the author of a recorded run whose request this operator may send. None: unsigned operation, or there is no record.

    Raises:
        RunError: The record does not verify, or its author lacks the right to send it.
    """
    judged = recorded.judged
    if judged is None:
        return None
    return require_author(
        await read_verifier(fleet), judged, lambda one: refuse_request(one, judged.value, fleet.operator)
    )


def is_beyond_author(fleet: Fleet, author: Signer | None, protocol: str) -> bool:
    """
    Whether this operator may send to more nodes than the author of the list of nodes. If so, only the author's scopes are used.
    """
    if author is None or author.name == fleet.operator:
        return False
    return not author.may_request(protocol, EVERYWHERE)


def base_of(recorded: Recorded) -> Verified[RunRecord]:
    """
    Return the record of a run, as the base of a new signature.

    Raises:
        RunError: The record is unverified, or there is no record.
    """
    judged = recorded.judged
    if not isinstance(judged, Verified):
        raise RunError(
            f"{short_id(recorded.record.run)}: its record is unverified: {recorded.unverified or 'there is none'}"
        )
    return judged


def signer_of(recorded: Recorded) -> str:
    """Return the operator whose signature on the record was verified, or "" (also in unsigned operation)."""
    return recorded.judged.signer if isinstance(recorded.judged, Verified) else ""


async def check_undoable(fleet: Fleet, recorded: Recorded) -> None:
    """
    Check that the author of a recorded run had the right to change its nodes.

    Raises:
        RunError: The record does not verify, or its author lacked the right.
    """
    judged = recorded.judged
    if judged is not None:
        protocol = RESOURCE_EXEC if judged.value.action == "exec" else MANIFEST_APPLY
        require_author(
            await read_verifier(fleet), judged, lambda signer: refuse_protocol(signer, judged.value, protocol)
        )


def _check_action(recorded: Recorded) -> None:
    """
    Refuse to retry a run that must be continued or repeated with another command.

    Raises:
        RunError: The run cannot be retried. The message contains the command to use instead.
    """
    record = recorded.record
    if not recorded.is_on_record or record.action in RETRIED_ACTIONS:
        return
    if record.action == "assign":
        raise RunError(
            f"{short_id(record.run)}: rollouts of the assignment {record.name} cannot be retried: "
            "its nodes apply the revision again on their interval, or now with `ccmctl run-now`; "
            f"`ccmctl run resume {short_id(record.run)}` continues a rollout that paused"
        )
    if record.secret is not None:
        raise RunError(
            f"{short_id(record.run)}: a rotation cannot be retried; `ccmctl secret rotate {record.secret.name} --resume` "
            "continues it"
        )
    raise RunError(
        f"{short_id(record.run)}: only runs of manifests can be retried; repeat `ccmctl {record.action}` for the nodes that "
        f"`ccmctl run show {short_id(record.run)}` names"
    )


async def known_ends(fleet: Fleet, recorded: Recorded) -> dict[str, NodeState]:
    """Return the ends of a run's nodes so far, from the stream and the record."""
    ends = {name: node.state for name, node in (await read_known(fleet, recorded)).nodes.items()}
    if recorded.record.secret is not None:
        # a convergence has no summary in the stream, but the node repeats its signed answer when the request is sent again
        kept = {name: end.state for name, end in recorded.ends.items() if name in ends}
        ends |= {name: NodeState.FAILED for name, state in kept.items() if state in _FAILED_ENDS}
    return ends


async def read_known(fleet: Fleet, recorded: Recorded) -> Run:
    """Return a run with the ends so far, from the stream and the record, without following it."""
    now = asyncio.get_running_loop().time()
    run = run_on_record(recorded, now)
    proof = await read_proof(fleet)
    await Follower(fleet, run, ask=None, may_join=admit_none, on_turn=ignore_news, proof=proof).look()
    restore_ends(run, recorded, now)
    return run


def _left(recorded: Recorded, ends: Mapping[str, NodeState], wanted: Collection[NodeState]) -> list[str]:
    """Return the nodes on which to repeat the run, sorted."""
    run = recorded.record.run
    open_nodes = sorted(node for node, state in ends.items() if not state.is_final)
    if open_nodes:
        raise RunError(
            f"{short_id(run)}: {open_nodes[0]}{f' and {len(open_nodes) - 1} more' if len(open_nodes) > 1 else ''} "
            f"have not ended; wait with `ccmctl run watch`, or end it with `ccmctl run stop`"
        )
    left = sorted(node for node, state in ends.items() if state in wanted)
    skipped = sum(state is NodeState.SKIPPED for state in ends.values())
    if not left and skipped:
        raise RunError(
            f"{short_id(run)}: no node ended in that state; {skipped} of its nodes were skipped because it was aborted: "
            f"`ccmctl run retry {short_id(run)} --only skipped` retries them"
        )
    if not left:
        raise RunError(
            f"{short_id(run)}: no node ended in that state; `ccmctl run show {short_id(run)}` shows how each ended"
        )
    return left


async def _request(fleet: Fleet, recorded: Recorded, path: str | None) -> ManifestRequest:
    """Return the request of the run. For a single file, the text is read from `path`."""
    record = recorded.record
    if record.request.get("undo"):
        if path is not None:
            raise UsageError(f"{path}: {short_id(record.run)} is an undo and has no manifest; leave out FILE")
        return build_request(fleet, recorded)
    part = record.request.get("part")
    if (part if isinstance(part, dict) else record.request).get("bundle"):
        if path is not None:
            raise UsageError(f"{path}: the manifest of {short_id(record.run)} is stored; leave out FILE")
        return build_request(fleet, recorded)
    if path is None:
        raise UsageError(
            f"{short_id(record.run)}: its manifest was a single file, which is not stored; name the file again: "
            f"`ccmctl run retry {short_id(record.run)} FILE`"
        )
    content = await asyncio.to_thread(_read, path, str(record.request.get("digest", "")))
    text = {"manifest": content.text}
    bare = {**record.request, **({"part": {**part, **text}} if isinstance(part, dict) else text)}
    return build_request(fleet, replace(recorded, record=replace(record, request=bare)))


def _read(path: str, digest: str) -> Content:
    content = read_content(Path(path))
    if content.digest != digest:
        raise UsageError(
            f"{path}: differs from what was applied: its SHA-256 is {content.digest[:12]}…, not {digest[:12]}…"
        )
    return content


def _targets(recorded: Recorded, left: list[str], inventory: Inventory) -> TargetSet:
    """Return the remaining nodes, with the scopes that the operator of the run was allowed to use."""
    names = f"node in ({','.join(left)})"
    record: Any = recorded.record
    nodes = inventory.nodes
    return TargetSet(
        nodes=left,
        offline=[name for name in left if name not in nodes or not nodes[name].is_asked],
        scopes=scopes_of_record(record),
        targets=[f"{text},{names}" for text in record.targets] or [names],
        where=record.where,
    )


def build_request(fleet: Fleet, recorded: Recorded) -> ManifestRequest:
    """
    Rebuild the request of a run from its record.

    The operator who started the run wrote the record, and the operator who retries it signs the request. Therefore the
    displayed description of the run must match the request.

    Raises:
        RunError: The record does not contain the request, or describes the run as something else.
    """
    record = recorded.record
    request = _stored_request(fleet, record, ManifestRequest)
    is_as_shown = record.action in ACTIONS.get(request.protocol, ())
    is_as_shown &= (request.stage is not None) == (record.action == "assign")
    if request.protocol == MANIFEST_APPLY:
        is_as_shown &= bool(request.undo) == (record.action == UNDO)
    if not is_as_shown:
        raise RunError(
            f"{short_id(record.run)}: the record of {record.requester} names the action `{record.action}`, "
            "which its request does not match, so it is not sent"
        )
    is_stored = request.content.bundle is not None or request.content.manifest
    if not is_stored and not request.undo and request.stage is None:
        raise RunError(
            f"{short_id(record.run)}: its manifest is not stored as a bundle, so it cannot be sent again"
        )
    return request


def build_exec(fleet: Fleet, recorded: Recorded) -> ExecRequest:
    """
    Rebuild the request of a run of one command from its record.

    Raises:
        RunError: The record does not contain the command.
    """
    record = recorded.record
    request = _stored_request(fleet, record, ExecRequest)
    if request.protocol != RESOURCE_EXEC or not request.argv:
        raise RunError(
            f"{short_id(record.run)}: its record does not contain the command, so it cannot be sent again"
        )
    return request


def build_rotation(fleet: Fleet, recorded: Recorded) -> Request:
    """
    Rebuild the request of a rotation from its record.

    Raises:
        RunError: The record does not contain the rotation.
    """
    record = recorded.record
    if record.secret is None:
        raise RunError(
            f"{short_id(record.run)}: its record does not name a secret, so it cannot be continued"
        )
    if record.request.get("protocol") != NODE_CONVERGE:
        return build_request(fleet, recorded)
    return _stored_request(fleet, record, MaintenanceRequest)


def _stored_request(fleet: Fleet, record: RunRecord, kind: type[R]) -> R:
    try:
        request = msgspec.convert(record.request, kind)
    except msgspec.ValidationError as err:
        raise RunError(f"{short_id(record.run)}: its request cannot be read from the record: {err}") from err
    return msgspec.structs.replace(
        request,
        run=record.run,
        time=fleet.clock.now(),
        targets=record.targets,
        where=record.where,
        requester=fleet.operator,
    )
