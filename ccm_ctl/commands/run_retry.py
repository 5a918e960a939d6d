"""`ccmctl run retry`: the same request again, to the nodes on which it did not succeed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from ccm_agent.clikit.durations import TimeOption
from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.wire import COMPLIANT_STATES, NodeState
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.stored_runs import run_argument
from ccm_ctl.commands.targets import NOT_AGREED, confirm, yes_option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_agent.model.moments import GivenTime
    from ccm_agent.model.wire import ManifestRequest
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.discovery import Inventory, TargetSet
    from ccm_ctl.fleet.history import Recorded
    from ccm_ctl.fleet.ports import Fleet

ENDS = tuple(str(state) for state in NodeState if state.is_final and state not in COMPLIANT_STATES)
"""The ends that can be retried."""


@verb(
    "retry",
    examples=[
        "ccmctl run retry last                           # all nodes on which it did not succeed",
        "ccmctl run retry 2zFX --only failed,unreachable",
        "ccmctl run retry 2zFX motd.yaml                 # a run of a single file: name it again",
    ],
    options=[
        run_argument(),
        click.Argument(["path"], metavar="[FILE]", required=False, type=click.Path()),
        click.Option(
            ["--only"],
            default="",
            metavar="STATE[,STATE…]",
            help=f"Retry only nodes with these end states: {', '.join(ENDS)}.",
        ),
        click.Option(
            ["--deadline"],
            type=TimeOption(),
            default="1h",
            show_default=True,
            help="Nodes that have not started by this time will not start.",
        ),
        yes_option(),
    ],
)
def retry(
    application: Application, run: str, path: str | None, only: str, deadline: GivenTime, yes: bool
) -> Exit:
    """
    Repeat a run on the nodes on which it did not succeed.

    The nodes get exactly the same manifest. A directory is stored with its run. A single file is not stored, because it may
    contain passwords, so name it again as FILE. A run of a schedule is repeated as long as its schedule is stored unchanged. Exit
    codes are those of `ccmctl apply`.
    """
    wanted = _states(only)

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.apply import parse_deadline
        from ccm_ctl.commands.rollout_drive import known_ends
        from ccm_ctl.commands.run_view import start_and_watch
        from ccm_ctl.fleet.discovery import read_inventory
        from ccm_ctl.fleet.find_run import find_run
        from ccm_ctl.fleet.run_request import prepare

        recorded = await find_run(fleet, run)
        left = _left(recorded, await known_ends(fleet, recorded), wanted)
        request = await _request(fleet, recorded, path)
        resolved = _targets(recorded, left, await read_inventory(fleet))
        record = recorded.record
        if record.action == "apply" and not await confirm(
            application, f"apply {record.name} again to", resolved, yes=yes
        ):
            return NOT_AGREED
        request = replace(request, deadline=parse_deadline(deadline, fleet.clock.now()))
        launch = prepare(fleet, request, resolved, record.action, record.name)
        launch = replace(launch, record=replace(launch.record, retry_of=record.run))
        return await start_and_watch(application, fleet, launch, offline_ok=False)

    return application.run(work)


def _states(only: str) -> frozenset[NodeState]:
    words = [word.strip() for word in only.split(",")] if only else list(ENDS)
    for word in words:
        if word not in ENDS:
            raise UsageError(f"--only {only}: `{word}` is not one of {', '.join(ENDS)}")
    return frozenset(NodeState(word) for word in words)


def _left(recorded: Recorded, ends: Mapping[str, NodeState], wanted: frozenset[NodeState]) -> list[str]:
    """The nodes to ask again, sorted."""
    run = recorded.record.run
    open_nodes = sorted(node for node, state in ends.items() if not state.is_final)
    if open_nodes:
        raise RunError(
            f"{run}: {open_nodes[0]}{f' and {len(open_nodes) - 1} more' if len(open_nodes) > 1 else ''} "
            f"have not ended; wait with `ccmctl run watch`, or end it with `ccmctl run stop`"
        )
    left = sorted(node for node, state in ends.items() if state in wanted)
    if not left:
        raise RunError(f"{run}: no node ended so; `ccmctl run show {run}` shows how each ended")
    return left


async def _request(fleet: Fleet, recorded: Recorded, path: str | None) -> ManifestRequest:
    """The request of the run; of a single file its text comes from `path`, or from its schedule."""
    from ccm_ctl.commands.rollout_drive import build_request
    from ccm_ctl.fleet.find_run import find_request

    record = recorded.record
    if not recorded.is_on_record:
        if path is not None:
            raise UsageError(f"{path}: no operator sent {record.run}; leave out FILE")
        return await find_request(fleet, recorded)
    if record.action not in ("apply", "plan", "check"):
        raise RunError(f"{record.run}: only runs of manifests can be retried, not `{record.action}`")
    if record.request.get("undo"):
        if path is not None:
            raise UsageError(f"{path}: {record.run} undoes a run, without a manifest; leave out FILE")
        return build_request(fleet, recorded)
    part = record.request.get("part")
    if (part if isinstance(part, dict) else record.request).get("bundle"):
        if path is not None:
            raise UsageError(f"{path}: the manifest of {record.run} is stored; leave out FILE")
        return build_request(fleet, recorded)
    if path is None:
        raise UsageError(
            f"{record.run}: its manifest was a single file, which is not stored; name the file again"
        )
    content = _read(path, str(record.request.get("digest", "")))
    text = {"manifest": content.text}
    bare = {**record.request, **({"part": {**part, **text}} if isinstance(part, dict) else text)}
    return build_request(fleet, replace(recorded, record=replace(record, request=bare)))


def _read(path: str, digest: str) -> Content:
    from ccm_ctl.fleet.content import read_content

    content = read_content(Path(path))
    if content.digest != digest:
        raise UsageError(
            f"{path}: is not what was applied: its SHA-256 is {content.digest[:12]}…, not {digest[:12]}…"
        )
    return content


def _targets(recorded: Recorded, left: list[str], inventory: Inventory) -> TargetSet:
    """The nodes that are left, on the scopes that the operator of the run was allowed to use."""
    from ccm_ctl.fleet.discovery import TargetSet

    names = f"node in ({','.join(left)})"
    record: Any = recorded.record
    nodes = inventory.nodes
    return TargetSet(
        nodes=left,
        offline=[name for name in left if name not in nodes or not nodes[name].is_present],
        scopes=sorted({subject.partition(".request.")[2] for subject in record.subjects}),
        targets=[f"{text},{names}" for text in record.targets] or [names],
        where=record.where,
    )
