"""Drive a rollout, for `ccmctl apply --batch …`, `ccmctl exec --batch …` and `ccmctl run resume`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

from ccm_agent.bus.signatures.verified import Base
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.clikit.text import one_line, short_id
from ccm_agent.model.errors import BusDeniedError, CcmError
from ccm_agent.model.exits import Exit
from ccm_agent.model.records.rollout_records import GivenOrder, Phase, RolloutState
from ccm_agent.model.wire import NodeState, Request
from ccm_ctl.app import Application
from ccm_ctl.commands.rollouts.rollout_servers import tell_servers
from ccm_ctl.commands.runs.run_view import RunView
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.driver import RolloutDriver, skip_reason
from ccm_ctl.fleet.rollout.handover import check_can_hand_over, check_handover, hand_over
from ccm_ctl.fleet.rollout.orders import abort_with_run
from ccm_ctl.fleet.rollout.store import RolloutStore, require_verified
from ccm_ctl.fleet.runs.history import History, Recorded
from ccm_ctl.fleet.runs.node_run import News
from ccm_ctl.fleet.runs.proof import RunProof, read_proof
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_again import (
    base_of,
    build_exec,
    build_request,
    build_rotation,
    find_author,
    is_beyond_author,
)
from ccm_ctl.fleet.runs.run_request import Launch
from ccm_ctl.fleet.runs.run_session import check_own_rights, follow_rollout, new_rollout, record_rollout
from ccm_ctl.render.record_types.runs import RolloutLine, RunLine
from ccm_ctl.render.records import run_fields
from ccm_ctl.render.rollout import order_line, rollout_line, wave_lines

_BUILDERS = {"exec": build_exec, "rotate": build_rotation}
"""Functions that rebuild a request, by the action in its record. All other actions apply manifests."""

NOT_ALLOWED = "its operator may not send the request to its nodes"

WATCH_S = 2.0
"""The interval in seconds at which a watcher reads the state of a rollout."""


async def start_rollout(
    application: Application,
    fleet: Fleet,
    launch: Launch,
    state: RolloutState,
    *,
    offline_ok: bool,
    prepare: Callable[[], Awaitable[None]] | None = None,
    detach: bool = False,
) -> Exit:
    """
    Store the record of a rollout, and drive the rollout to its end.

    Args:
        application: Shows the rollout.
        fleet: The bus.
        launch: The request and the nodes.
        state: The state of the rollout, with its waves.
        offline_ok: Whether offline nodes do not affect the exit code.
        prepare: Called after the record is stored and before anything is sent. If it fails, the rollout is aborted.
        detach: Whether to leave the rollout to the rollout servers instead of driving it.

    Raises:
        UsageError: The rollout servers cannot drive the rollout. Nothing was stored.
        RunError: The broker returned a record that differs from the stored one. Nothing was sent.
        BusDeniedError: The operator may not send the request to all nodes.
    """
    if detach:
        check_can_hand_over(fleet, launch.record.action)
    await check_own_rights(fleet, launch)
    revision = await record_rollout(fleet, launch, state)
    if prepare is not None:
        try:
            await prepare()
        except CcmError:
            await abort_with_run(fleet, await History(fleet).load(state.run))
            raise
    terminal = application.terminal
    terminal.note_drawn(wave_lines(state.plan, terminal.live_style))
    if detach:
        # this is last, because a server begins immediately
        handed = hand_over(fleet, state, launch.record, launch.resolved.nodes, base=launch.base)
        await RolloutStore(fleet).write(handed, revision, base=launch.base)
        terminal.record(RunLine, **run_fields(launch.record))
        run = short_id(state.run)
        terminal.show(
            f"run {run}: waiting for a rollout server\n  watch:  ccmctl run watch {run}\n  abort:  ccmctl run abort {run}\n"
        )
        await tell_servers(application, fleet, "drives")
        return Exit.OK
    recorded = await History(fleet).load(state.run)
    await find_author(fleet, recorded)
    try:
        return await drive(
            application,
            fleet,
            recorded,
            state,
            revision,
            launch.request,
            base=launch.base,
            offline_ok=offline_ok,
        )
    except BusDeniedError:
        # no node can receive the request, now or after a resume
        with contextlib.suppress(CcmError):
            await abort_with_run(fleet, recorded, NOT_ALLOWED)
        raise


async def resume_driving(
    application: Application, fleet: Fleet, recorded: Recorded, *, is_served: bool = False
) -> Exit:
    """Continue a rollout without a driver. `is_served` means in a rollout server, where no operator is at a terminal."""
    found = await RolloutStore(fleet).require(recorded.record.run)
    state, revision = found.state, found.revision
    verified = require_verified(found)
    build: Callable[[Fleet, Recorded], Request] = _BUILDERS.get(recorded.record.action, build_request)
    request = build(fleet, recorded)
    is_sent_to_scopes = is_served and not await check_handover(fleet, state, recorded, request)
    is_sent_to_scopes |= is_beyond_author(fleet, await find_author(fleet, recorded), request.protocol)
    return await drive(
        application,
        fleet,
        recorded,
        state,
        revision,
        request,
        base=[verified, base_of(recorded)],
        offline_ok=False,
        is_sent_to_scopes=is_sent_to_scopes,
        view_type=ServedView if is_served else RolloutView,
    )


class RolloutWatch:
    """
    Follows the state of a run's rollout for a watcher. The state is None if the run is not a rollout.

    Args:
        fleet: The bus.
        recorded: The run.
    """

    def __init__(self, fleet: Fleet, recorded: Recorded) -> None:
        self._store = RolloutStore(fleet)
        self._recorded = recorded
        self._read_at = float("-inf")
        self._said = ""
        self._said_orders = 0
        self.state: RolloutState | None = None
        self.orders: list[GivenOrder] = []

    def take_updates(self) -> list[str]:
        """Return new orders, and the rollout's progress if it has changed; [] if the run is not a rollout."""
        new = self.orders[self._said_orders :]
        self._said_orders = len(self.orders)
        line = rollout_line(self.state) if self.state else ""
        progress = [line] if line != self._said else []
        self._said = line
        return [*map(order_line, new), *progress]

    async def read(self) -> None:
        """Read the rollout's state."""
        self._read_at = asyncio.get_running_loop().time()
        found = await self._store.look(self._recorded.record.run)
        self.state = found.state if found else None
        self.orders = found.orders if found else []

    @property
    def planned(self) -> list[str]:
        """The nodes that have not received the request."""
        if self.state is None:
            return []
        return self._recorded.nodes[self.state.asked : self.state.plan.total]

    def is_waiting_for_operator(self, run: Run) -> bool:
        """Whether the rollout is paused and all nodes that received the request have ended."""
        return (
            self.state is not None
            and self.state.phase is Phase.PAUSED
            and all(node.state.is_final or node.state is NodeState.PLANNED for node in run.expected)
        )

    async def update(self, run: Run) -> None:
        """Read the state, and add to the run the nodes that newly received the request, and the end of the rollout."""
        if self.state is None or self.state.phase.is_over:
            return
        if asyncio.get_running_loop().time() - self._read_at < WATCH_S:
            return
        await self.read()
        self.apply(run)

    def apply(self, run: Run) -> None:
        """Apply the most recently read state to a watcher's run."""
        if self.state is None:
            return
        if self.state.phase.is_over:
            run.skip(skip_reason(self.state))
            return
        planned = set(self.planned)
        asked = [
            name
            for name, node in run.nodes.items()
            if node.state is NodeState.PLANNED and name not in planned
        ]
        run.ask(asked, asyncio.get_running_loop().time())


async def drive(
    application: Application,
    fleet: Fleet,
    recorded: Recorded,
    state: RolloutState,
    revision: int,
    request: Request,
    *,
    base: Sequence[Base],
    offline_ok: bool,
    is_sent_to_scopes: bool = False,
    view_type: type[RolloutView] | None = None,
) -> Exit:
    """
    Drive a rollout until it is over, or until it is paused and no node is in progress.

    Raises:
        RunError: Another driver has the lease.
    """
    run, driver = new_rollout(
        fleet, recorded, state, revision, request, base=base, is_sent_to_scopes=is_sent_to_scopes
    )
    proof = await read_proof(fleet)
    view = (view_type or RolloutView)(
        application, fleet, recorded, run, driver, offline_ok=offline_ok, proof=proof
    )
    await follow_rollout(fleet, recorded, run, driver, proof, on_begin=view.begin, on_turn=view.on_turn)
    return await view.finish()


class RolloutView(RunView):
    """The view of a rollout on a terminal."""

    def __init__(
        self,
        application: Application,
        fleet: Fleet,
        recorded: Recorded,
        run: Run,
        driver: RolloutDriver,
        *,
        offline_ok: bool,
        proof: RunProof | None,
    ) -> None:
        super().__init__(application, fleet, recorded.record, run, offline_ok=offline_ok, proof=proof)
        self._driver = driver
        self._shown: tuple[str, int, str] = ("", 0, "")
        self._told_orders = dict(driver.state.orders)
        self._told_disturbance = ""

    def begin(self) -> None:
        """See `RunView.begin`."""
        super().begin()
        run = short_id(self.record.run)
        self._application.interrupt_message = (
            f"stopped driving; nodes that have started finish their run, and no further node starts\n"
            f"  continue:  ccmctl run resume {run}\n  abort:     ccmctl run abort {run}"
        )

    async def on_turn(self, news: list[News]) -> None:
        """See `RunView.on_turn`. Each change of the wave or phase prints a line."""
        self._show_change()
        await super().on_turn(news)

    def _show_change(self) -> None:
        state = self._driver.state
        for one in self._driver.orders:
            if one.number > self._told_orders.get(one.token, 0):
                self._told_orders[one.token] = one.number
                self._terminal.note(f"run {short_id(state.run)}: {order_line(one)}")
        if self._driver.disturbance != self._told_disturbance:
            self._told_disturbance = self._driver.disturbance
            self._terminal.note(
                f"run {short_id(state.run)}: another program changed the state of this rollout, which is restored: "
                f"{one_line(self._told_disturbance)}"
            )
        now = (str(state.phase), state.wave, state.reason)
        if now != self._shown:
            self._shown = now
            print_rollout(self._terminal, state)
            self._terminal.note(self._format_change(state))

    def _format_change(self, state: RolloutState) -> str:
        return rollout_line(state)

    async def finish(self) -> Exit:
        """See `RunView.finish`. A paused rollout is not closed, and the exit code indicates a failure."""
        state = self._driver.state
        if state.phase is not Phase.PAUSED:
            return await super().finish()
        # a resume needs the list of failures so far, in order to ignore them
        await self._history.keep_ends(self._run)
        self._tell_ends(everything=True)
        self._terminal.live("")
        self._application.interrupt_message = ""
        self.show()
        run = short_id(state.run)
        self._terminal.note(
            f"paused: {state.reason}\n"
            f"  continue:  ccmctl run resume {run}   (nodes that failed so far no longer count)\n"
            f"  abort:     ccmctl run abort {run}"
        )
        return Exit.FAILED


class ServedView(RolloutView):
    """The view of a rollout in a server. Each change prints a line with the run ID."""

    def begin(self) -> None:
        """See `RunView.begin`."""
        self._terminal.note(f"run {short_id(self.record.run)}: driving {self.title}")

    async def on_turn(self, news: list[News]) -> None:
        """See `RunView.on_turn`."""
        self._show_change()
        await self._ends.on_turn(news)

    def _format_change(self, state: RolloutState) -> str:
        return f"run {short_id(state.run)}: {rollout_line(state).removeprefix('rollout: ')}"

    async def finish(self) -> Exit:
        """See `RunView.finish`."""
        if self._driver.state.phase is not Phase.PAUSED:
            await self._history.finish(self._run)
        else:
            await self._history.keep_ends(self._run)
        return Exit.OK


def print_rollout(terminal: Terminal, state: RolloutState) -> None:
    """Print the state of a rollout as a record."""
    terminal.record(
        RolloutLine,
        run=state.run,
        phase=str(state.phase),
        wave=state.current.name,
        wave_index=state.wave,
        waves=len(state.plan.waves),
        asked=state.asked + len(state.returned),
        nodes=state.plan.total,
        reason=state.reason or None,
        by=state.by or None,
        bake_until=state.bake_until,
        driver=format_driver(state),
    )


def format_driver(state: RolloutState) -> str | None:
    """Return the process that drives a rollout, as `operator@host`; None if there is no driver."""
    return f"{state.lease.operator}@{state.lease.host}" if state.lease else None
