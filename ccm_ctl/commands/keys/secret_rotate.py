"""`ccmctl secret rotate`: deploy a new value to nodes in waves, and remove the old value when no node uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from ccm_agent.bus.signatures.sealing import check_secret_name
from ccm_agent.clikit.options import Options, takes
from ccm_agent.clikit.text import fold_names, one_line, plural, short_id
from ccm_agent.model.errors import UsageError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import RolloutState
from ccm_agent.model.records.run_records import SecretStage
from ccm_agent.model.wire import MANIFEST_APPLY, NODE_CONVERGE, MaintenanceRequest, ManifestRequest
from ccm_ctl.commands.command_tree import verb
from ccm_ctl.commands.keys.keys_folder import keys_in, keys_option
from ccm_ctl.commands.keys.secret_values import make_value, read_value
from ccm_ctl.commands.rollouts.rollout_options import RolloutFlags, rollout_options
from ccm_ctl.commands.runs.manifest_check import read_checked
from ccm_ctl.commands.runs.open_rollouts import warn_of_open
from ccm_ctl.commands.runs.run_orders import continue_rollout
from ccm_ctl.commands.runs.targets import NOT_AGREED, message_option, yes_option
from ccm_ctl.fleet.keys.sealing_keys import FleetSealingKeys
from ccm_ctl.fleet.keys.secret_rotation import SecretRotation, find_rotation
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.runs.run_request import prepare_own
from ccm_ctl.fleet.runs.run_session import check_own_rights
from ccm_ctl.render.record_types.secrets import SecretLine

if TYPE_CHECKING:
    from ccm_agent.bus.signatures.signing import SigningKey
    from ccm_agent.model.records.rollout_records import RolloutPlan
    from ccm_agent.model.secret import Secret
    from ccm_agent.model.wire import Request
    from ccm_ctl.app import Application
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.keys.secret_rotation import Rotation
    from ccm_ctl.fleet.nodes.nodes import TargetSet
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.history import Recorded
    from ccm_ctl.fleet.runs.run_request import Launch

START_WITHIN_S = 3600.0
"""The time in seconds within which a node must start to converge after the request. After that, it does not start."""

NODES_SHOWN = 10
"""The maximum number of nodes with an old value that are named."""


class RotateOptions(Options, frozen=True, kw_only=True):
    """The options of `ccmctl secret rotate`."""

    name: str
    command: str | None
    file: str | None
    path: str | None
    resume: bool
    message: str
    yes: bool
    keys: str
    rollout: RolloutFlags


@verb(
    "rotate",
    examples=[
        "ccmctl secret rotate db-password --with 'openssl rand -hex 24' --batch 1",
        "ccmctl secret rotate db-password --resume",
    ],
    options=[
        click.Argument(["name"], metavar="NAME"),
        click.Option(
            ["--with", "command"],
            metavar="COMMAND",
            help="Program that prints the value; no shell. [standard input or a prompt]",
        ),
        click.Option(["--file"], metavar="FILE", help="Read the value from a file, unchanged."),
        click.Option(
            ["--apply", "path"],
            metavar="FILE|DIR",
            type=click.Path(),
            help="Manifest that nodes apply instead of converging.",
        ),
        click.Option(["--resume"], is_flag=True, help="Complete an interrupted rotation."),
        message_option(),
        yes_option(),
        keys_option(),
        *rollout_options(),
    ],
)
@takes(RotateOptions)
def rotate(application: Application, given: RotateOptions) -> Exit:
    """
    Replace a value in waves: nodes receive the new value and converge.

    The old value is removed when no node uses it, according to their signed records. Requires credentials with `--data`,
    `--apply` and `--maintain`. Exit code 3: the old value is still used.
    """
    name, command = given.name, given.command
    check_secret_name(name)
    if sum((command is not None, given.file is not None, given.resume)) > 1:
        raise UsageError("use only one of --with, --file and --resume")
    content = _read_manifest(application, given.path)
    value = None if command is not None or given.resume else read_value(given.file)

    async def work(fleet: Fleet) -> Exit:
        job = _Job(application, fleet, SecretRotation(fleet), content, given)
        running = await find_rotation(fleet, name)
        if given.resume:
            return await job.resume(running, _sealing_key(application, given.keys))
        if running is not None:
            raise UsageError(
                f"{name}: run {short_id(running.record.run)} deploys another value to its nodes; complete it with "
                f"`ccmctl secret rotate {name} --resume`, or end it with `ccmctl run abort {short_id(running.record.run)}`"
            )
        return await job.start(value, command)

    return application.run(work)


class _Job:
    """A rotation of one secret."""

    def __init__(
        self,
        application: Application,
        fleet: Fleet,
        rotation: SecretRotation,
        content: Content | None,
        given: RotateOptions,
    ) -> None:
        self._content = content
        self._application = application
        self._fleet = fleet
        self._rotation = rotation
        self._name = given.name
        self._given = given

    async def start(self, value: Secret | None, command: str | None) -> Exit:
        """Store a new value and deploy it to the nodes. Nothing is stored if the rollout cannot be started."""
        name, terminal = self._name, self._application.terminal
        nodes = [one.node for one in (await self._rotation.read(name)).nodes if one.revision]
        prepared = await self._prepare(nodes, 0) if nodes else None
        if prepared is not None:
            launch, _ = prepared
            await check_own_rights(self._fleet, launch)
            is_refused = self._given.rollout.is_unasked(yes=self._given.yes)
            await warn_of_open(self._application, self._fleet, nodes, is_refused=is_refused)
        question = f"Replace {name} on {plural(len(nodes), 'node')}: {fold_names(nodes)}?"
        if nodes and not self._given.yes and not await terminal.ask(one_line(question), otherwise="--yes"):
            return NOT_AGREED
        if value is None:
            assert command is not None
            value = await make_value(command)
        done = await self._rotation.add_revision(name, value, self._given.message)
        for node, problem in sorted(done.problems.items()):
            terminal.warn(f"{node}: {name} is not sealed to it: {problem}")
        return await self._bring()

    async def resume(self, running: Recorded | None, sealing: SigningKey | None) -> Exit:
        """Continue the open rollout. If there is none, start one for the remaining nodes."""
        if running is None:
            await self._rotation.seal_missing(self._name, sealing)
            return await self._bring()
        code = await continue_rollout(
            self._application,
            self._fleet,
            running,
            detach=self._given.rollout.detach,
            alongside=self._given.rollout.alongside,
        )
        is_over = await find_rotation(self._fleet, self._name) is None
        # nodes that failed before the resume did not receive another request
        return await self._bring() if is_over else await self._finish(code)

    async def _bring(self) -> Exit:
        """Deploy the newest revision to the nodes that may use an older one."""
        from ccm_ctl.commands.rollouts.rollout_drive import start_rollout

        state = await self._rotation.settle(self._name)
        if not state.present:
            return self._show(state, Exit.OK)
        launch, plan = await self._prepare(list(state.waiting), state.revision)
        if self._content is not None:
            await self._fleet.manifests.put(self._content.digest, self._content.packed)
        flags = self._given.rollout
        rollout = RolloutState(
            run=launch.record.run,
            plan=plan,
            start_at=flags.starts(self._fleet.clock.now()),
            deadline_s=START_WITHIN_S,
        )
        code = await start_rollout(
            self._application,
            self._fleet,
            launch,
            rollout,
            offline_ok=True,
            detach=flags.detach,
        )
        return await self._finish(code)

    async def _prepare(self, nodes: list[str], revision: int) -> tuple[Launch, RolloutPlan]:
        stored = await self._rotation.read(self._name, with_nodes=False)
        proof = stored.document.verified(f"store it again with `ccmctl secret put {self._name}`")
        inventory, found = await resolve(self._fleet, TargetSpec(targets=stored.head.targets))
        resolved = _only(found, nodes)
        plan, order = self._given.rollout.make_plan(inventory, resolved)
        launch = prepare_own(self._fleet, self._request(), resolved.in_order(order), "rotate", self._name)
        record = replace(launch.record, secret=SecretStage(name=self._name, revision=revision))
        return replace(launch, record=record, base=[*launch.base, proof]), plan

    def _request(self) -> Request:
        message, content = self._given.message, self._content
        if content is None:
            why = f"the secret {self._name} has a new value"
            return MaintenanceRequest(protocol=NODE_CONVERGE, why=why, message=message)
        return ManifestRequest(
            protocol=MANIFEST_APPLY,
            name=content.name,
            digest=content.digest,
            bundle=content.bundle,
            message=message,
        )

    async def _finish(self, code: Exit) -> Exit:
        if self._given.rollout.detach:
            return code
        return self._show(await self._rotation.settle(self._name), code)

    def _show(self, state: Rotation, code: Exit) -> Exit:
        terminal, waiting = self._application.terminal, sorted(state.waiting)
        terminal.record(
            SecretLine,
            name=state.name,
            revision=state.revision,
            older=list(state.older) or None,
            waiting=waiting or None,
        )
        if not waiting:
            terminal.show(f"{state.name}: no node uses a value before revision {state.revision}\n")
            return code
        older = ", ".join(map(str, state.older))
        terminal.show(
            f"{state.name}: revision {state.revision}; {older} is kept for {plural(len(waiting), 'node')}\n"
        )
        for node in waiting[:NODES_SHOWN]:
            terminal.note(one_line(f"{node}: {state.waiting[node]}"))
        terminal.note(f"  complete it:  ccmctl secret rotate {state.name} --resume")
        return code if code != Exit.OK else Exit.MISSING


def _only(found: TargetSet, nodes: list[str]) -> TargetSet:
    wanted = set(nodes)
    return replace(
        found,
        nodes=[one for one in found.nodes if one in wanted],
        offline=[one for one in found.offline if one in wanted],
    )


def _read_manifest(application: Application, path: str | None) -> Content | None:
    """Read a manifest as a stored bundle, because another driver can repeat a request only if its manifest is stored."""
    from ccm_ctl.fleet.content import as_bundle

    return as_bundle(read_checked(application, path)) if path else None


def _sealing_key(application: Application, folder: str) -> SigningKey | None:
    """Return the sealing key; None if it is not in the folder."""
    found = FleetSealingKeys(keys_in(application, folder).folder)
    return found.sealing_key() if (found.folder / "sealing.seed").exists() else None
