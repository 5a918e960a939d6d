"""Send a request to the target nodes as a recorded run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.errors import BusUnavailableError, RunError, UsageError
from ccm_agent.model.ids import new_id, short_id
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.secret import mask_url, mask_urls
from ccm_agent.model.wire import MESSAGE_LIMIT, RUN_STOP, Request, StopRequest
from ccm_ctl.fleet.runs.gather import NAMED_AT_ONCE, ask
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.older_selectors import refuse_too_many
from ccm_ctl.fleet.runs.run_signatures import scopes_of_record

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.records.rollout_records import RolloutState
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.gather import Reply


class Launch(Struct, frozen=True, kw_only=True):
    """
    A prepared request.

    Attributes:
        record: The record of the run.
        request: The request.
        resolved: The target nodes.
        base: The verified data or operator input from which the request was made.
    """

    record: RunRecord
    request: Request
    resolved: TargetSet
    base: Sequence[Base]


def check_message(text: str, name: str = "message") -> str:
    """
    Return the requester's reason for a run, without surrounding spaces.

    Args:
        text: The reason, as the requester wrote it.
        name: The name of the option or field for the error message.

    Raises:
        UsageError: The text is too long.
    """
    if len(text) > MESSAGE_LIMIT:
        raise UsageError(f"{name}: {len(text)} characters; at most {MESSAGE_LIMIT} are allowed")
    return text.strip()


def prepare(
    fleet: Fleet,
    request: Request,
    resolved: TargetSet,
    action: str,
    name: str,
    *,
    base: Sequence[Base],
    run: str = "",
) -> Launch:
    """
    Prepare a run: its ID, time, targets and record. Nothing is sent.

    Args:
        fleet: The bus.
        request: The request. Its run, time, targets and requester are set here.
        resolved: The target nodes.
        action: "apply", "plan", "check", "ensure", "exec", "undo", "assign" or "rotate".
        name: The manifest's or resource's name.
        base: The verified data or operator input from which the request was made.
        run: The ID of the run. "": a new one is generated.
    """
    refuse_too_many(resolved)
    now = fleet.clock.now()
    request = msgspec.structs.replace(
        request,
        run=run or new_id(now),
        time=now,
        targets=resolved.targets,
        where=resolved.where,
        requester=fleet.operator,
    )
    record = RunRecord(
        run=request.run,
        action=action,
        name=name,
        requester=fleet.operator,
        time=now,
        targets=resolved.targets,
        where=resolved.where,
        subjects=[request_subject(request.protocol, scope) for scope in resolved.scopes],
        request=_on_record(request),
        nodes=len(resolved.nodes),
        offline=len(resolved.offline),
    )
    return Launch(record=record, request=request, resolved=resolved, base=base)


def prepare_own(fleet: Fleet, request: Request, resolved: TargetSet, action: str, name: str) -> Launch:
    """Prepare a run of the operator's own files. See `prepare`."""
    return prepare(fleet, request, resolved, action, name, base=[Authored.from_files()])


async def put_on_record(fleet: Fleet, launch: Launch) -> None:
    """Record the run, so that it can be watched even if this process ends."""
    resolved = launch.resolved
    await History(fleet).begin(launch.record, resolved.nodes, resolved.offline, launch.base)


def digest_record(record: RunRecord, nodes: Sequence[str]) -> str:
    """
    Return the SHA-256 that identifies the request of a record and its nodes.

    A rollout stores this digest, because any operator can write a record with the ID of another operator's run. Without the
    digest, such a record would be used after the broker has removed the original. The broker removes the oldest entries when the
    bucket is full.
    """
    told: list[object] = [
        record.run,
        record.action,
        record.request,
        record.targets,
        record.where,
        record.subjects,
        nodes,
    ]
    if record.secret is not None:
        told.append(record.secret)
    return hashlib.sha256(msgspec.json.encode(told, order="sorted")).hexdigest()


def check_record(state: RolloutState, record: RunRecord, nodes: Sequence[str]) -> None:
    """
    Check that a record is the one with which a rollout was started. See `digest_record`.

    Raises:
        RunError: It is another record.
    """
    if state.record_digest not in ("", digest_record(record, nodes)):
        raise RunError(
            f"{short_id(state.run)}: its record was replaced after the start; "
            f"`ccmctl run abort {short_id(state.run)}` ends it"
        )


async def send(fleet: Fleet, launch: Launch) -> None:
    """
    Send the request.

    Raises:
        BusDeniedError: The broker does not allow this operator to send the request to these nodes.
        BusUnavailableError: The broker cannot be reached.
    """
    body = msgspec.json.encode(launch.request)
    for subject in launch.record.subjects:
        await fleet.requests.publish(subject, body, base=launch.base)


async def send_again(fleet: Fleet, launch: Launch, named: Sequence[str]) -> None:
    """
    Send the request again on the same subjects, and name the nodes that must answer. Does nothing while the broker is
    unreachable.
    """
    for begin in range(0, len(named), NAMED_AT_ONCE):
        again = msgspec.structs.replace(launch.request, named=list(named[begin : begin + NAMED_AT_ONCE]))
        try:
            for subject in launch.record.subjects:
                await fleet.requests.publish(subject, msgspec.json.encode(again), base=launch.base)
        except BusUnavailableError:
            return


async def send_stop(
    fleet: Fleet, record: RunRecord, nodes: Collection[str], *, is_kill: bool
) -> tuple[dict[str, Reply], list[str]]:
    """
    Send a stop to all nodes that may have received a run.

    Args:
        fleet: The bus.
        record: The run.
        nodes: The nodes that must answer.
        is_kill: Whether the nodes end the programs of the current resource.

    Returns:
        The answers by node, and the nodes that did not answer.
    """
    now = fleet.clock.now()
    stop = StopRequest(
        protocol=RUN_STOP, run=new_id(now), stop=record.run, time=now, requester=fleet.operator, kill=is_kill
    )
    return await ask(fleet, stop, scopes_of_record(record), nodes)


_TOLD = (
    "protocol",
    "name",
    "bundle",
    "digest",
    "events",
    "data",
    "cause",
    "type",
    "deadline",
    "diff",
    "plan",
    "undo",
    "stage",
    "argv",
    "timeout_s",
    "message",
    "why",
)
"""
The fields of a request that the record contains. Other fields may contain passwords: texts of manifests, values of properties,
headers and environment. The arguments of a command are included because they are also in its events.
"""


def _on_record(request: Request) -> dict[str, Any]:
    """Return the part of a request that every operator may read for months: names, digests and options."""
    mapping: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(request))
    told = {name: mapping[name] for name in _TOLD if name in mapping}
    if "data" in told:
        told["data"] = [mask_url(url) for url in told["data"]]
    if "argv" in told:
        told["argv"] = [mask_urls(word) for word in told["argv"]]
    if "part" in mapping:
        told["part"] = {key: value for key, value in mapping["part"].items() if key != "manifest"}
    if "properties" in mapping:
        told["properties"] = sorted(mapping["properties"])
    return told
