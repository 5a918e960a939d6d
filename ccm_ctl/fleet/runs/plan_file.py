"""A plan saved in a file: the bundle that it applies, the nodes, and the state that the plan found."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import FleetError, InputError, ProtocolError, RunError, UsageError
from ccm_agent.model.formats.moments import format_moment
from ccm_agent.model.formats.untrusted_json import Moment, decode_foreign
from ccm_agent.model.ids import is_id, short_id
from ccm_ctl.fleet.content import SIZE_LIMIT_BYTES
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch
from ccm_ctl.fleet.whole_file import write_whole

FORMAT = "io.choria.ccm.v1.plan"
VALID_FOR = timedelta(hours=24)
"""Nodes keep the results of a plan for this time."""

LIMIT_BYTES = 64 << 20
"""The maximum size of a plan file. A plan of 5,000 nodes takes about 2 MB."""

NAMED = 8
"""The maximum number of nodes named in an error message."""


class PlannedNode(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """
    A node of a plan.

    Attributes:
        found: The node's digest of the state that the plan found.
        facts: SHA-256 (hex) of its routed and assigned facts.
        data_revisions: Revision of each Hiera document that the node read, by URL.
    """

    found: str
    facts: str = ""
    data_revisions: dict[str, int] = {}


class PlanFile(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """
    A saved plan.

    Unlike in messages, an unknown field is refused, because it could restrict the changes to apply.

    Attributes:
        format: FORMAT.
        run, name, requester, time: The description of the run that made the plan.
        expires: When the plan becomes invalid.
        bundle: The bundle that is applied.
        data: URLs of Hiera documents.
        targets, where, is_all: How its nodes were selected.
        nodes: Its nodes.
        seal: SHA-256 (hex) of everything else. It detects edits and damage; it is not a signature.
    """

    format: str
    run: str
    name: str
    time: Moment
    expires: Moment
    bundle: Bundle
    nodes: dict[str, PlannedNode]
    requester: str = ""
    data: list[str] = []
    targets: list[str] = []
    where: str = ""
    is_all: bool = False
    seal: str = ""


def check_out(path: str) -> None:
    """
    Check that a plan can be saved, before anything is sent.

    Raises:
        UsageError: The plan cannot be saved.
    """
    if Path(path).is_dir():
        raise UsageError(f"--out {path}: this is a directory; name a file")
    if Path(path).exists() and not Path(path).is_file():
        raise UsageError(f"--out {path}: this is not a regular file; name a file")
    if not os.access(Path(path).parent, os.W_OK):
        raise UsageError(f"--out {path}: its directory does not exist or is not writable")


def make_plan_file(
    launch: Launch,
    bundle: Bundle,
    data: list[str],
    run: Run,
    inventory: Inventory,
    spec: TargetSpec,
    distrusted: Collection[str] = (),
) -> tuple[PlanFile, list[str]]:
    """
    Return the plan of an ended run, and the nodes that are left out because they cannot apply it.

    Distrusted nodes are also left out, because their displayed results are not those that they sent. They are not in the second
    result.

    Raises:
        RunError: None of the nodes can apply it.
    """
    expected = [node for node in run.expected if node.node not in distrusted]
    planned = {node.node: node for node in expected if (summary := node.summary) and summary.found}
    left_out = sorted(node.node for node in expected if node.node not in planned)
    if not planned:
        raise RunError(f"no node can apply the plan {short_id(launch.record.run)}, so it is not saved")
    time = launch.record.time
    assert time is not None
    plan = PlanFile(
        format=FORMAT,
        run=launch.record.run,
        name=launch.record.name,
        requester=launch.record.requester,
        time=time,
        expires=time + VALID_FOR,
        bundle=bundle,
        data=data,
        targets=list(spec.targets),
        where=spec.where,
        is_all=spec.everybody,
        nodes={name: _planned(planned[name], inventory) for name in sorted(planned)},
    )
    return replace(plan, seal=_seal(plan)), left_out


def _planned(node: NodeRun, inventory: Inventory) -> PlannedNode:
    summary = node.summary
    assert summary is not None
    return PlannedNode(
        found=summary.found,
        facts=_facts_digest(inventory, node.node),
        data_revisions=dict(summary.data_revisions),
    )


def write_plan(path: str, plan: PlanFile) -> None:
    """
    Save a plan in a file that only its owner can read.

    Raises:
        InputError: The file cannot be written.
    """
    body = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    write_whole(Path(path).resolve(), body + b"\n")


def read_plan(path: str) -> bytes:
    """
    Read the file of a saved plan, for `decode_plan`.

    Raises:
        InputError: The file cannot be read, or is too large to be a plan.
    """
    try:
        with Path(path).open("rb") as file:
            body = file.read(LIMIT_BYTES + 1)
    except OSError as err:
        raise InputError(f"{path}: cannot be read: {err.strerror}") from err
    if len(body) > LIMIT_BYTES:
        raise InputError(f"{path}: is larger than {LIMIT_BYTES >> 20} MiB, so it is not a plan")
    return body


def decode_plan(body: bytes, path: str, now: datetime) -> PlanFile:
    """
    Decode a saved plan.

    Raises:
        InputError: It is not a plan, was edited, or has expired. The message begins with the path.
    """
    try:
        plan = decode_foreign(body, PlanFile)
    except msgspec.DecodeError as err:
        raise InputError(f"{path}: this is not a plan of `ccmctl plan --out`: {err}") from err
    if plan.format != FORMAT or not is_id(plan.run):
        raise InputError(f"{path}: this is not a plan of `ccmctl plan --out`, or one of another version")
    if plan.seal != _seal(plan):
        raise InputError(f"{path}: the plan was edited or damaged; plan again")
    if now > plan.expires:
        raise InputError(f"{path}: the plan expired at {format_moment(plan.expires)}; plan again")
    return plan


async def resolve_plan(fleet: Fleet, plan: PlanFile) -> tuple[Inventory, TargetSet]:
    """
    Return the nodes of a plan if it can be applied on all of them.

    Raises:
        FleetError: Some nodes are offline, were removed, or have different facts.
    """
    spec = TargetSpec(targets=tuple(plan.targets), where=plan.where, everybody=plan.is_all)
    inventory, resolved = await resolve(fleet, spec)
    for why, names in (
        ("no longer match its targets", set(plan.nodes) - set(resolved.nodes)),
        ("are offline", set(plan.nodes) & set(resolved.offline)),
        (
            "have different facts now",
            {name for name, one in plan.nodes.items() if one.facts != _facts_digest(inventory, name)},
        ),
    ):
        if names:
            named = ", ".join(sorted(names)[:NAMED]) + (
                f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            )
            raise FleetError(
                f"the plan {short_id(plan.run)} cannot be applied, because these nodes {why}: {named}; plan again"
            )
    names_only = f"node in ({','.join(plan.nodes)})"
    targets = [f"{text},{names_only}" for text in resolved.targets] or [names_only]
    return inventory, replace(resolved, nodes=sorted(plan.nodes), offline=[], targets=targets)


async def load_planned(fleet: Fleet, plan: PlanFile) -> bytes:
    """
    Return the packed bundle of a plan if the plan matches the record of its run.

    Raises:
        FleetError: The plan is from another fleet, or differs from the record.
        NotFoundError: The bundle was removed.
        ProtocolError: The bundle was replaced.
    """
    await _check_record(fleet, plan)
    packed = await fleet.manifests.get(plan.bundle.digest, SIZE_LIMIT_BYTES)
    # Only this check proves that the stored content matches its digest. The operator signs the content that is stored again.
    if await asyncio.to_thread(_sha256, packed) != plan.bundle.digest:
        raise ProtocolError(
            f"the bundle of the plan {short_id(plan.run)} was replaced on the broker; check who may write there"
        )
    return packed


async def _check_record(fleet: Fleet, plan: PlanFile) -> None:
    try:
        recorded = await History(fleet).load(plan.run)
    except RunError as err:
        raise FleetError(
            f"the plan {short_id(plan.run)} is not on record here: it is a plan of another fleet, or its record has expired"
        ) from err
    record = recorded.record
    planned = {"digest": plan.bundle.digest, "bundle": msgspec.to_builtins(plan.bundle), "data": plan.data}
    is_same = record.action == "plan" and record.name == plan.name
    is_same &= record.time == plan.time and plan.expires == plan.time + VALID_FOR
    is_same &= planned == {"data": []} | {
        key: record.request[key] for key in planned if key in record.request
    }
    if not is_same or not set(plan.nodes) <= set(recorded.nodes):
        raise FleetError(f"the plan {short_id(plan.run)} differs from the record of its run; plan again")


def _facts_digest(inventory: Inventory, name: str) -> str:
    node = inventory.nodes.get(name)
    if node is None:
        return ""
    facts = [node.record.facts if node.record is not None else {}, node.assigned]
    return _sha256(msgspec.json.encode(facts, order="deterministic"))


def _seal(plan: PlanFile) -> str:
    return _sha256(msgspec.json.encode(replace(plan, seal=""), order="deterministic"))


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
