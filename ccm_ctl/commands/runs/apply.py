"""`ccmctl apply`: apply a manifest to nodes."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable

import click
import msgspec

from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.selection import SelectionOptions, selection_options
from ccm_agent.clikit.text import fold_names
from ccm_agent.model.bundle import PartialManifest
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_agent.model.records.rollout_records import RolloutPlan, RolloutState
from ccm_agent.model.records.verdicts import BAD
from ccm_agent.model.selection import ResourceSelection
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    ManifestRequest,
)
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.conflicts import assignment_name, warn_of_assignments
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, refuse_credentials, rollout_options
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.plan_impact import PlanImpact
from ccm_ctl.commands.runs.targets import (
    NOT_AGREED,
    ManifestOptions,
    RunOptions,
    confirm,
    diff_option,
    manifest_options,
    parse_deadline,
    require_agents,
    run_options,
)
from ccm_ctl.fleet.content import Content, as_bundle
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.nodes import Inventory, TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.plan_file import (
    PlanFile,
    decode_plan,
    load_planned,
    make_plan_file,
    read_plan,
    resolve_plan,
    write_plan,
)
from ccm_ctl.fleet.runs.proof import RunProof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import Launch, prepare_own


class ManifestRunOptions(Options, frozen=True, kw_only=True):
    """The options that `apply` and `plan` share. Only `apply` has `--diff`, because `plan` always shows it."""

    start: RunOptions
    timeout: int | None
    selected: SelectionOptions
    rollout: RolloutFlags
    source: ManifestOptions
    name: str
    events: str
    diff: bool = True
    out: str | None = None


class ApplyRunOptions(ManifestRunOptions, frozen=True, kw_only=True):
    """The options of `ccmctl apply`."""

    path: str | None
    noop: bool
    plan: str | None
    monitor_only: bool


def event_options() -> list[click.Parameter]:
    """Return the options for the name of a manifest and for the events that nodes send."""
    return [
        click.Option(
            ["--name"],
            default="",
            metavar="NAME",
            help="Name of the manifest. [name of the file or directory]",
        ),
        click.Option(
            ["--events"],
            type=click.Choice(["changes", "all"]),
            default="changes",
            help="Events to show; `all` includes resources that did not change.",
        ),
    ]


_ACTIONS = {"apply": MANIFEST_APPLY, "plan": MANIFEST_PLAN, "check": MANIFEST_CHECK}


@verb(
    "apply",
    examples=[
        "ccmctl apply site/ --targets role=web --noop --diff  # what would change?",
        "ccmctl apply site/ --targets role=web                # asks, then applies",
        'ccmctl apply motd.yaml -t node=web1 -t role=db --yes -m "new banner"',
        "ccmctl apply site/ -t role=web --only service#nginx --tags tls --noop",
        "ccmctl apply site/ -t role=web --canary 2 --bake 10m --batch 25% --max-failures 1",
        "ccmctl apply --plan web.plan                         # what ccmctl plan --out web.plan showed",
        "ccmctl apply site/ --where 'Facts.memory.virtual.total > 8e9' --limit 3",
    ],
    options=[
        click.Argument(["path"], metavar="FILE|DIR", type=click.Path(), required=False),
        *run_options(),
        *rollout_options(),
        *selection_options(),
        click.Option(["--noop"], is_flag=True, help="Change nothing; show what would change."),
        diff_option(),
        click.Option(
            ["--plan"],
            type=click.Path(),
            metavar="FILE",
            help="Apply a saved plan to its nodes. A node whose plan would now differ changes nothing.",
        ),
        click.Option(["--monitor-only"], is_flag=True, help="Run only the health checks."),
        *manifest_options(),
        *event_options(),
    ],
)
@takes(ApplyRunOptions)
def apply(application: Application, given: ApplyRunOptions) -> Exit:
    """
    Apply a manifest to nodes and show the result of each node.

    FILE is a manifest. DIR contains a manifest.yaml and the files that it uses. The directory is packed without the files
    that .ccmignore lists, and nodes verify its digest.

    Exit codes: 0 all nodes succeeded; 1 the run could not start; 2 a node failed, refused or was stopped; 3 a node was
    offline, unreachable, lost or expired.
    """
    if given.noop and given.monitor_only:
        raise UsageError("--noop and --monitor-only cannot be combined")
    given.selected.selection()  # refuse malformed options before anything is read
    if given.plan:
        return _apply_plan(application, given, given.plan)
    path, source = given.path, given.source
    if path is None:
        raise UsageError("missing argument 'FILE|DIR', or --plan FILE; see `ccmctl apply --help`")
    action = "plan" if given.noop else "check" if given.monitor_only else "apply"
    content = read_checked(application, path, source.manifest, given.name, force=source.force)

    async def work(fleet: Fleet) -> Exit:
        return await send_manifest(application, fleet, path, content, action, given)

    return application.run(work)


def _apply_plan(application: Application, given: ApplyRunOptions, file: str) -> Exit:
    """Apply a saved plan, which contains the manifest and the nodes."""
    nodes, part = given.start.nodes, given.selected
    others = {
        "FILE|DIR": given.path is not None,
        "--targets": nodes.targets,
        "--where": nodes.where,
        "--all": nodes.all,
        "--limit": given.start.limit,
        "--noop": given.noop,
        "--monitor-only": given.monitor_only,
        "--manifest": given.source.manifest,
        "--data": given.source.data,
        "--name": given.name,
        "--only": part.only,
        "--tags": part.tags,
        "--skip-tags": part.skip_tags,
    }
    if also := [name for name, value in others.items() if value]:
        raise UsageError(f"--plan already defines the manifest and the nodes; omit {', '.join(also)}")

    body = read_plan(file)

    async def work(fleet: Fleet) -> Exit:
        plan = decode_plan(body, file, fleet.clock.now())
        packed = await load_planned(fleet, plan)
        content = Content(name=plan.name, digest=plan.bundle.digest, bundle=plan.bundle, packed=packed)
        return await send_manifest(application, fleet, "", content, "apply", given, plan=plan)

    return application.run(work)


async def send_manifest(
    application: Application,
    fleet: Fleet,
    path: str,
    content: Content,
    action: str,
    given: ManifestRunOptions,
    *,
    plan: PlanFile | None = None,
    impact: PlanImpact | None = None,
) -> Exit:
    """Send a manifest to the nodes of the options or of a saved plan, and watch the run. For a plan, also show its impact."""
    from ccm_ctl.commands.runs.run_view import start_and_watch

    out, start, flags = given.out, given.start, given.rollout
    data = list(given.source.data if plan is None else plan.data)
    if plan is not None:
        inventory, resolved = await resolve_plan(fleet, plan)
    else:
        inventory, resolved = await resolve(
            fleet, start.spec, is_whole=impact is not None, is_once=impact is None
        )
    selection = given.selected.selection()
    if selection is not None:
        require_agents(
            inventory,
            resolved,
            lambda record: record.partial_runs,
            "the agent is too old for --only and --tags; upgrade it, or select other nodes",
        )
    if impact is not None:
        impact.prepare(inventory, resolved)
    is_gradual = impact is None and flags.is_rollout
    rollout = flags.make_plan(inventory, resolved) if is_gradual else None
    if rollout is not None or out:
        # another driver can repeat a request only if its manifest is stored
        content = as_bundle(content)
        refuse_credentials(data)

    async def store(protocol: str, *, diff: bool, is_preview: bool = False) -> ManifestRequest:
        if content.bundle is not None:
            await fleet.manifests.put(content.digest, content.packed)
        request = ManifestRequest(
            protocol=protocol,
            name=content.name,
            digest=content.digest,
            events=given.events,
            data=data,
            deadline=parse_deadline(start.deadline, fleet.clock.now()),
            diff=diff,
            keep=bool(out) and not is_preview,
            plan=plan.run if plan is not None and not is_preview else "",
            message=start.message,
        )
        return _with_content(request, content, selection)

    async def preview() -> None:
        launch = prepare_own(
            fleet, await store(MANIFEST_PLAN, diff=True, is_preview=True), resolved, "plan", content.name
        )
        await start_and_watch(application, fleet, launch, offline_ok=True, timeout_s=given.timeout)

    if action == "apply":
        await warn_of_assignments(application, fleet, inventory, resolved.nodes, content)
        await warn_of_open(application, fleet, resolved.nodes, is_refused=flags.is_unasked(yes=start.yes))
        what = _question(content, selection)
        if not await confirm(application, what, resolved, yes=start.yes, preview=preview):
            return NOT_AGREED
    request = await store(_ACTIONS[action], diff=given.diff)
    launch = prepare_own(fleet, request, resolved, action, content.name)
    save = _plan_saver(application, launch, content, start.spec, data, inventory, out) if out else None
    del inventory  # free the memory of the node records, because a run can last for hours
    if rollout is not None:
        return await roll_out(
            application, fleet, launch, rollout, flags, start.deadline, offline_ok=start.offline_ok
        )

    is_whole = selection is None and plan is None

    async def end(run: Run, proof: RunProof | None) -> None:
        if save is not None:
            await save(run, proof)
        if impact is not None:
            await impact.show_planned(run, proof)

    return await start_and_watch(
        application,
        fleet,
        launch,
        offline_ok=start.offline_ok,
        timeout_s=given.timeout,
        offer=_offer(path, content, resolved, given.source) if action == "apply" and is_whole else "",
        on_end=end,
    )


def _plan_saver(
    application: Application,
    launch: Launch,
    content: Content,
    spec: TargetSpec,
    data: list[str],
    inventory: Inventory,
    out: str,
) -> Callable[[Run, RunProof | None], Awaitable[None]]:
    """Return a function that writes the plan to the file of `--out` when the nodes have finished it."""

    async def save(run: Run, proof: RunProof | None) -> None:
        bundle = content.bundle
        assert bundle is not None
        distrusted = _distrusted(run, proof)
        saved, left_out = make_plan_file(launch, bundle, data, run, inventory, spec, distrusted)
        await asyncio.to_thread(write_plan, out, saved)
        application.terminal.note(
            f"saved: {out}; apply it with: {shlex.join(['ccmctl', 'apply', '--plan', out])}"
        )
        if distrusted:
            application.terminal.note(
                f"not in the plan, because events are missing or not genuine: {fold_names(distrusted)}"
            )
        if left_out:
            application.terminal.note(
                f"not in the plan, because it cannot be applied there: {fold_names(left_out)}"
            )

    return save


def _distrusted(run: Run, proof: RunProof | None) -> list[str]:
    """Return the nodes whose plan may differ from the displayed one, because events are missing or not genuine."""
    if proof is None:
        return []
    return sorted(
        node.node
        for node in run.expected
        if (report := proof.report(node.node, len(node.lacking))).forged or report.verdict in BAD
    )


def _with_content(
    request: ManifestRequest, content: Content, selection: ResourceSelection | None
) -> ManifestRequest:
    """Return the request with the manifest in the field that agents read for a complete or a partial run."""
    if selection is None:
        return msgspec.structs.replace(request, manifest=content.text, bundle=content.bundle)
    part = PartialManifest(
        only=selection.only,
        tags=selection.tags,
        skip_tags=selection.skip_tags,
        manifest=content.text,
        bundle=content.bundle,
    )
    return msgspec.structs.replace(request, part=part)


def _question(content: Content, selection: ResourceSelection | None) -> str:
    return (
        f"apply {content.name} to" if selection is None else f"apply part of {content.name} ({selection}) to"
    )


async def roll_out(
    application: Application,
    fleet: Fleet,
    launch: Launch,
    rollout: tuple[RolloutPlan, list[str]],
    flags: RolloutFlags,
    deadline: GivenTime,
    *,
    offline_ok: bool = False,
) -> Exit:
    """Start a prepared run as a rollout. `rollout` contains its plan and its nodes, from `RolloutFlags.make_plan`."""
    from ccm_ctl.commands.rollouts.rollout_drive import start_rollout

    plan, order = rollout
    now = fleet.clock.now()
    state = RolloutState(
        run=launch.record.run,
        plan=plan,
        start_at=flags.starts(now),
        deadline_s=(parse_deadline(deadline, now) - now).total_seconds(),
    )
    # the record must list the nodes in the order of the waves
    launch = msgspec.structs.replace(launch, resolved=launch.resolved.in_order(order))
    return await start_rollout(application, fleet, launch, state, offline_ok=offline_ok, detach=flags.detach)


def _offer(path: str, content: Content, resolved: TargetSet, source: ManifestOptions) -> str:
    """Return the command that assigns the manifest to the same nodes."""
    words = ["ccmctl", "assign", assignment_name(content.name), path]
    for option, values in (
        ("--targets", resolved.targets),
        ("--where", [resolved.where] if resolved.where else []),
        ("--manifest", [source.manifest] if source.manifest else []),
        ("--data", source.data),
    ):
        for value in values:
            words += [option, value]
    return shlex.join([*words, "--all"] if not resolved.targets and not resolved.where else words)
