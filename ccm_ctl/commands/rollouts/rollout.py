"""`ccmctl rollout`: list rollouts, and drive them in a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import click

from ccm_agent.bus.signatures.signing import SignatureError, SigningKey
from ccm_agent.clikit.table import Column
from ccm_agent.clikit.text import plural, short_ids
from ccm_agent.model.errors import BusError, BusUnavailableError, CcmError
from ccm_agent.model.exits import Exit
from ccm_agent.model.ids import short_id
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.state_directory import state_directory
from ccm_ctl.app import Application
from ccm_ctl.commands.command_tree import group, verb
from ccm_ctl.fleet.keys.sealing_keys import FleetSealingKeys
from ccm_ctl.fleet.keys.secret_rotation import SecretRotation
from ccm_ctl.fleet.keys.secrets import FleetSecrets
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.lease import held, silence_s
from ccm_ctl.fleet.rollout.starts import announce, read_servers
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.trust.newest_signers import find_newest
from ccm_ctl.notify.rules import default_rules_path, read_rules
from ccm_ctl.render.record_types.runs import RolloutServerLine
from ccm_ctl.render.rollout import rollout_line

log = logging.getLogger(__name__)

LOOK_S = 2.0
"""The interval in seconds at which the server looks for rollouts without a driver and for due schedules."""

ANNOUNCE_S = 10.0
"""The interval in seconds at which the server publishes that it is running."""

SEAL_S = 60.0
"""The interval in seconds at which the server looks for nodes that newly match a secret. This reads the records of all nodes."""


@group("rollout", no_args_is_help=True, examples=["ccmctl rollout list", "ccmctl rollout serve"])
def rollout(application: Application) -> None:
    """
    Drive rollouts in the background, and list them.

    `ccmctl apply` and `exec` start them with `--batch`, `--canary` and `--rollout`; `ccmctl run pause`, `resume`, `promote`
    and `abort` control them.
    """


@verb("list", examples=["ccmctl rollout list", "ccmctl rollout list --json"], options=[])
def _list(application: Application) -> Exit:
    """List rollouts that have not ended, and the rollout servers that run."""

    async def work(fleet: Fleet) -> Exit:
        from ccm_ctl.commands.rollouts.rollout_drive import print_rollout

        terminal, rows = application.terminal, []
        found = await RolloutStore(fleet).open_rollouts()
        short = short_ids(state.run for state in found)
        for state in found:
            print_rollout(terminal, state)
            asked = state.asked + len(state.returned)
            line = rollout_line(state).removeprefix("rollout: ")
            rows.append([short[state.run], f"{asked}/{state.plan.total}", line, _driver(state, fleet)])
        columns = [
            Column("RUN"),
            Column("STARTED", right=True),
            Column("STATE", fold=True),
            Column("DRIVER", fold=True),
        ]
        terminal.table(columns, rows, "no rollout is in progress\n")
        servers = await read_servers(fleet)
        for server in servers:
            terminal.record(RolloutServerLine, operator=server.operator, host=server.host, until=server.until)
        names = ", ".join(f"{server.operator} on {server.host}" for server in servers)
        terminal.note(f"rollout servers: {names or 'none'}")
        return Exit.OK

    return application.run(work)


@verb(
    "serve",
    examples=["ccmctl rollout serve", "ccmctl --creds /etc/choria/ccm/rollout.creds rollout serve"],
    options=[
        click.Option(
            ["--once"], is_flag=True, help="Start due rollouts, and exit when no rollout waits for a driver."
        ),
        click.Option(
            ["--notify", "rules"],
            metavar="FILE",
            default="",
            type=click.Path(),
            help="File with notification rules. [the file of `ccmctl notify`]",
        ),
        click.Option(
            ["--notify-state", "state"],
            metavar="FILE",
            default="",
            type=click.Path(),
            help="File that records the notifications that were sent. [notify.json in the state directory]",
        ),
        click.Option(
            ["--seal-secrets", "sealing"],
            metavar="DIR",
            default="",
            help="Folder with `sealing.seed`. Also seals secrets to nodes that newly match, as `secret sync` does.",
        ),
    ],
)
def _serve(application: Application, once: bool, rules: str, state: str, sealing: str) -> Exit:
    """
    Drive detached rollouts, start scheduled ones, and deliver notifications until interrupted.

    Several servers may run: each rollout has one driver, and another server continues if that one stops. Requests are sent
    with the credentials of this server, so nodes apply the policy for its operator.
    """
    application.goes_on_for_ever = True
    sealing_key = FleetSealingKeys(Path(sealing)).sealing_key() if sealing else None

    async def work(fleet: Fleet) -> Exit:
        await _check_trust(application, fleet)
        if once:
            await _seal_and_settle(application, fleet, sealing_key)
            await serve(application, fleet, once=True)
            return Exit.OK
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_notify(application, fleet, rules, state), name="notifications")
            tasks.create_task(_announce(application, fleet), name="announcement")
            tasks.create_task(serve(application, fleet), name="rollouts")
            tasks.create_task(_keep_secrets(application, fleet, sealing_key), name="secrets")
        return Exit.OK

    return application.run(work)


async def _keep_secrets(application: Application, fleet: Fleet, sealing: SigningKey | None) -> None:
    """Until cancelled, seal secrets to the nodes that match now, and remove old values."""
    while True:
        await _seal_and_settle(application, fleet, sealing)
        await asyncio.sleep(SEAL_S)


async def _seal_and_settle(application: Application, fleet: Fleet, sealing: SigningKey | None) -> None:
    await seal_secrets(application, fleet, sealing)
    await settle_secrets(application, fleet)


async def settle_secrets(application: Application, fleet: Fleet) -> None:
    """Remove the old values of rotated secrets if no node uses them. This does not need the sealing key."""
    if fleet.trust is None or fleet.signatory is None:
        return
    try:
        rotation = SecretRotation(fleet)
        stored = await rotation.read_all(with_nodes=False)
    except CcmError:
        return  # a broker that an earlier version set up does not have the bucket
    for one in stored:
        if not one.head.older:
            continue
        try:
            done = await rotation.settle(one.head.name)
        except CcmError as err:
            application.terminal.note(f"{one.head.name}: the old value was not removed: {err}")
            continue
        if done.purged:
            application.terminal.note(f"{done.name}: no node uses a value before revision {done.revision}")


async def seal_secrets(application: Application, fleet: Fleet, sealing: SigningKey | None) -> None:
    """Seal each secret to the nodes that match now. If a secret cannot be sealed, report it and continue with the others."""
    if sealing is None:
        return
    try:
        secrets = FleetSecrets(fleet)
        names = await secrets.names()
    except CcmError as err:
        application.terminal.note(f"no secrets were sealed: {err}")
        return
    for name in names:
        try:
            done = await secrets.sync(name, sealing)
        except CcmError as err:
            application.terminal.note(f"{name}: not sealed: {err}")
            continue
        if done.sealed or done.removed:
            application.terminal.note(
                f"{name}: sealed to {plural(len(done.sealed), 'node')}, access removed from {len(done.removed)}"
            )


async def _check_trust(application: Application, fleet: Fleet) -> None:
    """
    Check that this server can verify the rollouts that it drives. If its signers list is too old, report this and wait.

    Raises:
        SignatureError: The credentials can sign but cannot verify.
    """
    newest = await find_newest(fleet)
    if newest.doubt and fleet.trust is None:
        raise SignatureError(f"{fleet.operator}: {newest.doubt}")
    if newest.doubt:
        application.terminal.warn(
            f"this server does not drive rollouts until the signers list is confirmed: {newest.doubt}"
        )


async def _announce(application: Application, fleet: Fleet) -> None:
    """Until cancelled, publish that this server is running, for `ccmctl schedule add` and `rollout list`."""
    said = ""
    try:
        while True:
            try:
                await announce(fleet)
                said = ""
            except BusError as err:
                if str(err) != said:
                    said = str(err)
                    application.terminal.note(f"this server is not shown by other commands: {err}")
            await asyncio.sleep(ANNOUNCE_S)
    finally:
        with contextlib.suppress(BusError):
            await announce(fleet, is_leaving=True)


async def _notify(application: Application, fleet: Fleet, rules: str, state: str) -> None:
    """Deliver notifications. An unusable state file is only reported, because rollouts must still be driven."""
    from ccm_ctl.notify.server import NotificationServer

    rules_path = Path(rules) if rules else default_rules_path(application.environ)
    state_path = Path(state) if state else Path(state_directory()) / "notify.json"
    server = NotificationServer(fleet, {}, state_path, application.terminal.note)
    try:
        if rules and not await asyncio.to_thread(read_rules, rules_path):
            application.terminal.note(
                f"{rules_path}: no notification rules yet; `ccmctl notify add … --file {rules_path}` adds one"
            )
        await server.open()
    except CcmError as err:
        application.terminal.note(f"notifications are not delivered: {err}")
        return
    try:
        await server.serve(rules_path)
    finally:
        server.close()


async def serve(application: Application, fleet: Fleet, *, once: bool = False) -> None:
    """Start due scheduled rollouts, and drive each rollout without a driver in its own task."""
    from ccm_ctl.fleet.rollout.starter import RolloutStarter

    store, driven = RolloutStore(fleet), dict[str, asyncio.Task[None]]()
    starter, said = RolloutStarter(fleet, application.terminal.note), dict[str, str]()
    is_first = True
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                if is_first or not once:
                    await starter.look()
                is_first = False
                # unverified states are included, because the attempt reports why they are not driven
                stored = [one.judged.value for one in await store.open_stored()]
                waiting = [state for state in stored if is_waiting(state, fleet)]
            except BusUnavailableError:
                waiting = []
            driven = {run: task for run, task in driven.items() if not task.done()}
            for state in waiting:
                if state.run not in driven and not (once and state.run in said):
                    job = _drive_one(application, fleet, state.run, said)
                    driven[state.run] = tasks.create_task(job, name=f"rollout:{state.run}")
            if once and not driven:
                return
            await asyncio.sleep(LOOK_S)


def is_waiting(state: RolloutState, fleet: Fleet) -> bool:
    """Whether a rollout is waiting for a server that drives it."""
    is_held = held(state, fleet.clock.now()) is not None
    return state.is_detached and state.phase in (Phase.RUNNING, Phase.BAKING) and not is_held


async def _drive_one(application: Application, fleet: Fleet, run: str, said: dict[str, str]) -> None:
    """Drive one rollout to its end. A failure is reported once, and another attempt follows."""
    from ccm_ctl.commands.rollouts.rollout_drive import resume_driving

    try:
        await resume_driving(application, fleet, await History(fleet).load(run), is_served=True)
        return
    except CcmError as err:
        reason = str(err)
    except Exception as err:  # errors from a stored document must not end the server
        log.exception("a rollout", extra={"run": run})
        reason = f"{type(err).__name__}; --debug shows more"
    if said.get(run) != reason:
        said[run] = reason
        application.terminal.note(f"run {short_id(run)}: not driven: {reason}")


def _driver(state: RolloutState, fleet: Fleet) -> str:
    lease = held(state, now := fleet.clock.now())
    if lease is not None:
        silent_s = int(silence_s(lease, now))
        silent = f"; no heartbeat for {silent_s}s" if silent_s else ""
        return f"{lease.operator} on {lease.host}{silent}"
    is_waiting_for_server = state.is_detached and state.phase is not Phase.PAUSED
    return "waits for a server" if is_waiting_for_server else "none; ccmctl run resume continues it"


rollout.add_command(_list)
rollout.add_command(_serve)
