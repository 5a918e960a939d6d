"""`ccmctl assign`: assign a manifest to nodes, including offline and future ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from ccm_agent.bus.signatures.verified import Authored, Base
from ccm_agent.bus.subjects import assignment_key, format_scope
from ccm_agent.clikit.durations import Duration, TimeOption
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.text import fold_names, plural
from ccm_agent.model.errors import BusError, UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.formats.moments import GivenTime
from ccm_agent.model.wire import Assignment
from ccm_ctl.app import Application
from ccm_ctl.commands.assignments.assign_rollout import AssignmentRollout
from ccm_ctl.commands.assignments.assignment_options import (
    assignment_fields,
    build_target_set,
    choose_scope,
    counts_for,
    diff_assignments,
    print_assigned,
    read_fleet,
    scope_option,
)
from ccm_ctl.commands.assignments.conflicts import check_name, refuse_overlaps
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, rollout_options
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.targets import (
    NOT_AGREED,
    ManifestOptions,
    TargetOptions,
    confirm,
    manifest_options,
    message_option,
    parse_deadline,
    refuse_older_agents,
    target_options,
    yes_option,
)
from ccm_ctl.fleet.assignments.assignment_history import is_same, verify_newest
from ccm_ctl.fleet.assignments.assignments import (
    LATEST,
    Assignments,
    Standing,
    find_layer,
    read_assignments,
    remove_assignment,
    store_assignment,
)
from ccm_ctl.fleet.assignments.bundles import Inside, look_into, read_inside
from ccm_ctl.fleet.assignments.pinned_data import absent_data, check_pinned
from ccm_ctl.fleet.assignments.staging import check_settled
from ccm_ctl.fleet.content import Content, as_bundle
from ccm_ctl.fleet.data.git_commit import GitCommit, read_commit
from ccm_ctl.fleet.nodes.discovery import lasting_scope, resolve
from ccm_ctl.fleet.nodes.nodes import Inventory
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.render.record_types.assignments import AssignmentLine


class AssignOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl assign`."""

    name: str
    path: str
    nodes: TargetOptions
    mode: str | None
    noop: bool
    interval: int | None
    deadline: GivenTime | None
    source: ManifestOptions
    follow_data: bool
    refresh: bool
    scope: str
    move: bool
    beside: bool
    message: str
    yes: bool
    rollout: RolloutFlags


@verb(
    "assign",
    examples=[
        "ccmctl assign web site/ --targets role=web              # asks, and shows what it replaces",
        "ccmctl assign web site/ --targets role=web --interval 30m --data kv://CCM_DATA/common --yes",
        "ccmctl assign web site/ --targets node=web1 --mode plan # overrides the role's assignment on one node",
        "ccmctl assign web site/ -t role=web --canary 1 --bake 10m --batch 10%  # in waves",
        "ccmctl assign web site/ -t role=web --batch 10% --detach --yes  # a rollout server deploys it",
        "ccmctl assign web --refresh                             # pins the current data again",
        "ccmctl assign web site/ --targets role=www --move       # moves it from role=web to role=www",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Argument(["path"], metavar="[FILE|DIR]", type=click.Path(), default=""),
        *target_options(),
        click.Option(
            ["--mode"],
            type=click.Choice(["apply", "plan"]),
            help="What nodes do; `plan` only reports what would change. [apply]",
        ),
        click.Option(["--noop"], is_flag=True, help="Same as --mode plan."),
        click.Option(
            ["--interval"], type=Duration(), help="How often nodes converge. [each agent's own interval]"
        ),
        click.Option(
            ["--deadline"],
            type=TimeOption(),
            help="Nodes that have not started by this time will not start. [none]",
        ),
        *manifest_options(),
        click.Option(
            ["--follow-data"],
            is_flag=True,
            help="Use the newest data at each convergence instead of pinning the current data.",
        ),
        click.Option(
            ["--refresh"],
            is_flag=True,
            help="Re-pin the existing assignment to the current data. FILE must be omitted.",
        ),
        scope_option(),
        click.Option(["--move"], is_flag=True, help="Remove this assignment from its current targets."),
        click.Option(
            ["--beside"],
            is_flag=True,
            help="Keep the other assignment; nodes matched by both use the newer one.",
        ),
        message_option(),
        yes_option(),
        *rollout_options(),
    ],
)
@takes(AssignOptions)
def assign(application: Application, given: AssignOptions) -> Exit:
    """
    Assign a manifest to nodes. They converge on it until it is unassigned.

    Nodes converge when they receive the assignment, when they come back online, and at each interval. Nodes that
    match --targets later are included. The assignment pins the current bundle and data, so a rollback restores both.
    If several assignments share a NAME, an assignment for the node itself takes precedence over one for a fact, and that
    one over an assignment for all nodes. Among equals, the newest applies.

    With rollout options, nodes receive the new revision in waves, and keep the current one until then. Offline nodes
    receive it when they return during the rollout, or after the last wave. After an abort, each node keeps the revision that
    it has; `ccmctl rollback NAME` restores the previous one.
    """
    path, source = given.path, given.source
    check_name(given.name)
    if given.move and given.beside:
        raise UsageError("--move and --beside are mutually exclusive")
    if given.mode and given.noop:
        raise UsageError("--mode and --noop are mutually exclusive")
    if given.refresh:
        return _refresh(application, given)
    if not path:
        raise UsageError("no manifest given; name a file or directory, or use --refresh")
    if given.scope:
        raise UsageError("--scope works only with --refresh; use --targets to select the nodes")
    content = as_bundle(read_checked(application, path, source.manifest, force=source.force))

    async def work(fleet: Fleet) -> Exit:
        return await _assign(application, fleet, content, await read_commit(content, Path(path)), given)

    return application.run(work)


async def _assign(
    application: Application, fleet: Fleet, content: Content, commit: GitCommit | None, given: AssignOptions
) -> Exit:
    inventory, resolved = await resolve(fleet, given.nodes.spec(), is_whole=True)
    refuse_older_agents(resolved, "an assignment")
    known = await read_assignments(fleet)
    await known.fill_in(fleet, inventory, is_verified=True)
    assert content.bundle is not None
    assignment = Assignment(
        name=given.name,
        scope=lasting_scope(inventory, resolved),
        bundle=content.bundle,
        targets=resolved.targets,
        where=resolved.where,
        manifest=content.name,
        data=list(given.source.data),
        data_revision=0 if given.follow_data else await fleet.data.revision(),
        mode="plan" if given.noop else given.mode or "apply",
        interval_s=float(given.interval or 0),
        deadline=parse_deadline(given.deadline, fleet.clock.now()) if given.deadline else None,
        commit=commit.commit if commit else "",
        commit_dirty=commit is not None and commit.is_dirty,
    )
    gone = _moved(known, assignment, given)
    numbers = await _check_data(fleet, assignment)
    assignment = msgspec.structs.replace(assignment, data_numbers=numbers)
    inside = await asyncio.to_thread(look_into, content.packed, content.bundle.manifest)
    own = [Authored.from_files()]
    change = _Change(application, fleet, inventory, known, assignment, inside, gone, content.packed, own)
    return await change.make(given)


def _refresh(application: Application, given: AssignOptions) -> Exit:
    """Pin an existing assignment to the current data."""
    source = (given.path, given.source.data, given.source.manifest, given.follow_data)
    if any((*source, given.mode, given.noop, given.interval, given.move)) or not given.nodes.spec().is_empty:
        raise UsageError(
            "--refresh re-pins the existing assignment to the current data; omit FILE and targets"
        )
    name, scope = given.name, choose_scope(given.scope)

    async def work(fleet: Fleet) -> Exit:
        inventory, known = await read_fleet(fleet)
        standing = known.one(name, scope)
        await check_settled(fleet, standing, may_be_aborted=False)
        old, base = standing.assignment, await verify_newest(fleet, standing)
        if not old.data_revision:
            raise UsageError(
                f"{name}: no pinned data to refresh: it was assigned with --follow-data, or when no data was stored; "
                "its nodes use the newest data"
            )
        assignment = msgspec.structs.replace(
            old,
            data_revision=await fleet.data.revision(),
            deadline=parse_deadline(given.deadline, fleet.clock.now()) if given.deadline else None,
            rolled_back_from=0,
            number=0,
            rollout="",
            next=None,
        )
        numbers = await check_pinned(fleet, assignment)
        assignment = msgspec.structs.replace(assignment, data_numbers=numbers)
        inside = await read_inside(fleet, old.bundle)
        change = _Change(application, fleet, inventory, known, assignment, inside, [], b"", [base])
        return await change.make(given)

    return application.run(work)


def _moved(known: Assignments, assignment: Assignment, given: AssignOptions) -> list[Standing]:
    """
    Return the assignments that `--move` removes.

    Raises:
        UsageError: The name is assigned to other nodes of the same layer, and neither --move nor --beside was given.
    """
    layer = find_layer(assignment.scope)
    named = known.named(assignment.name)
    others = [one for one in named if one.assignment.scope != assignment.scope]
    if given.move:
        return others
    beside = [one for one in others if one.layer == layer != "node"]
    # if the name is already assigned in both places, --beside was given before
    was_answered = len(others) < len(named)
    if beside and not given.beside and not was_answered:
        where = " and ".join(format_scope(one.assignment.scope) for one in beside)
        raise UsageError(
            f"{assignment.name}: already assigned to {where}, and would now be for {format_scope(assignment.scope)}; "
            "use --move to remove it there, or --beside to keep both"
        )
    return []


async def _check_data(fleet: Fleet, assignment: Assignment) -> dict[str, int]:
    """
    Check that pinned documents exist and are verified. A missing document is refused, because the pinned revision cannot change.

    Returns:
        The revisions of the documents, by key.

    Raises:
        UsageError: A document is missing. The message contains its key and a remedy.
        SignatureError: A document is not verified.
    """
    numbers = await check_pinned(fleet, assignment)
    for key in await absent_data(fleet.data, assignment):
        raise UsageError(
            f"kv://CCM_DATA/{key}: no such document; store it with `ccmctl data put {key} FILE`, "
            "or use --follow-data to assign it without the document"
        )
    return numbers


class _Change:
    """
    A new assignment, and the assignments that it removes.

    Args:
        application: Shows the change and the prompt.
        fleet, inventory, known: The bus, the nodes and the current assignments.
        assignment: The new assignment.
        inside: The content of its bundle.
        gone: The assignments that are removed.
        packed: The bundle's bytes; b"" if it is already stored.
        base: The documents from which the assignment was made.
    """

    def __init__(
        self,
        application: Application,
        fleet: Fleet,
        inventory: Inventory,
        known: Assignments,
        assignment: Assignment,
        inside: Inside,
        gone: list[Standing],
        packed: bytes,
        base: Sequence[Base],
    ) -> None:
        self._application, self._fleet, self._inventory, self._known = application, fleet, inventory, known
        stamped = msgspec.structs.replace(assignment, requester=fleet.operator, time=fleet.clock.now())
        key = assignment_key(assignment.scope, assignment.name)
        self._before = next((one for one in known.standing if one.key == key), None)
        self._standing = Standing(key=key, revision=0, written=LATEST, assignment=stamped)
        self._inside, self._gone, self._packed, self._base = inside, gone, packed, base
        self._after = known.with_one(self._standing).without(one.key for one in gone)

    async def make(self, given: AssignOptions) -> Exit:
        """Check the assignment, ask for confirmation, and store the assignment or start its rollout."""
        application, fleet, name = self._application, self._fleet, self._standing.name
        flags, message = given.rollout, given.message
        await check_settled(fleet, self._before, may_be_aborted=not flags.is_rollout)
        nodes = counts_for(self._inventory, self._after, self._standing)
        await refuse_overlaps(application, fleet, self._inventory, self._after, self._standing, self._inside)
        if self._before and not self._gone and self._is_same(self._before):
            await self._put_bundle()  # another operator may have removed it
            application.terminal.record(
                AssignmentLine, **assignment_fields(self._before), nodes=len(nodes), changed=False
            )
            application.terminal.show(f"{name}: unchanged, revision {self._before.revision}\n")
            return Exit.OK
        await self._tell(nodes)
        await warn_of_open(application, fleet, nodes, is_refused=flags.is_unasked(yes=given.yes))
        rollout = self._in_waves(nodes, given) if flags.is_rollout else None
        if not await confirm(
            application,
            f"assign {name} {'in waves ' if flags.is_rollout else ''}to",
            build_target_set(self._inventory, nodes),
            yes=given.yes,
        ):
            return NOT_AGREED
        await self._put_bundle()
        if rollout is not None:
            return await rollout.start(self._before, self._standing, self._known, message, base=self._base)
        standing = await store_assignment(fleet, self._standing.assignment, self._known, self._base, message)
        for one in self._gone:
            try:
                await remove_assignment(fleet, one, message)
            except BusError as err:
                where = format_scope(one.assignment.scope)
                raise type(err)(
                    f"{err}; {name} is assigned as requested, but also still assigned to {where}"
                ) from err
        print_assigned(application, standing, nodes, was="assigned")
        return Exit.OK

    def _in_waves(self, nodes: list[str], given: AssignOptions) -> AssignmentRollout:
        if given.mode == "plan" or given.noop:
            raise UsageError("--mode plan changes nothing, so waves do not apply; omit the rollout options")
        if given.move:
            raise UsageError(
                "--move removes the assignment from its current targets immediately; omit the rollout options"
            )
        return AssignmentRollout(self._application, self._fleet, self._inventory, nodes, given.rollout)

    async def _put_bundle(self) -> None:
        if self._packed:
            await self._fleet.manifests.put(self._standing.assignment.bundle.digest, self._packed)

    async def _tell(self, nodes: list[str]) -> None:
        """Before the prompt, show the replaced and removed assignments, and the nodes that keep another assignment."""
        terminal = self._application.terminal
        name = self._standing.name
        if self._before is not None:
            print_assigned = await diff_assignments(
                self._application, self._fleet, self._before, self._standing.assignment, self._inside
            )
            terminal.show(print_assigned)
        for one in self._gone:
            terminal.note(f"removing {name} revision {one.revision} ({format_scope(one.assignment.scope)})")
        for one in self._after.named(name):
            if one.key != self._standing.key and (theirs := counts_for(self._inventory, self._after, one)):
                where = format_scope(one.assignment.scope)
                terminal.note(
                    f"{name} revision {one.revision} ({where}) stays in effect on {fold_names(theirs)}"
                )
        taken = [node for node in nodes if self._was_another(node)]
        if taken:
            terminal.note(
                f"replacing another assignment named {name} on {plural(len(taken), 'node')}: {fold_names(taken)}"
            )

    def _is_same(self, before: Standing) -> bool:
        old, new = before.assignment, self._standing.assignment
        return old.next is None and is_same(old, new) and old.deadline == new.deadline

    def _was_another(self, node: str) -> bool:
        """Whether the node used an assignment of this name with another key before the change."""
        before = self._known.of_node(self._inventory.nodes[node]).get(self._standing.name)
        return before is not None and before.key != self._standing.key
