"""The controller for Python programs: runs of `ccmctl` whose results are Python objects. `ccm_ctl.client` creates a client."""

from __future__ import annotations

import asyncio
import contextlib
import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import RunError, UsageError
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.model.records.rollout_records import Phase, RolloutState
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_PLAN, ManifestRequest, NodeState
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.content import as_bundle, read_content
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.rollout.plan import RolloutDefinition, RolloutOptions, make_plan
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.node_run import StateChange
from ccm_ctl.fleet.runs.proof import read_proof
from ccm_ctl.fleet.runs.run_request import check_message, prepare_own, send_stop
from ccm_ctl.fleet.runs.run_session import follow_rollout, follow_run, new_rollout, new_run, record_rollout

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from ccm_agent.model.records.rollout_records import RolloutPlan
    from ccm_ctl.fleet.content import Content
    from ccm_ctl.fleet.nodes.nodes import Node
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.runs.node_run import News, NodeRun
    from ccm_ctl.fleet.runs.proof import RunProof
    from ccm_ctl.fleet.runs.run import Run
    from ccm_ctl.fleet.runs.run_request import Launch

DEADLINE_S = 3600.0
"""The default deadline in seconds. Nodes that have not started a run by then do not start it."""


class ClientOutcome(Struct, frozen=True, kw_only=True):
    """
    The result of a node in a run.

    Attributes:
        node: The node's name.
        state: "stable", "changed", "failed", "refused", "stopped", "unreachable", "lost", "offline", "expired", "superseded" or
            "skipped".
        reason, code: The reason, if the state alone does not explain the result, and the stable code of the error.
        summary: The node's own summary; None if it sent none.
        events: The events of resources that changed, failed or were skipped, in order.
        verdict: "verified", "unsigned", … in a fleet with signatures, otherwise "".
    """

    node: str
    state: NodeState
    reason: str = ""
    code: str = ""
    summary: SessionSummary | None = None
    events: tuple[TransactionEvent, ...] = ()
    verdict: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether the node matches the manifest, or would match it after a plan's changes."""
        return self.state in (NodeState.STABLE, NodeState.CHANGED)


class FleetRun:
    """
    A run. It starts when it is iterated over, and yields the result of each node as soon as it is complete.

    A lost node that reconnects is yielded a second time. Leaving the loop early stops watching: nodes that have received the
    request finish, and a rollout pauses until another driver resumes it.

    Attributes:
        id: The run's ID; "" before it has started.
        outcomes: The latest result of each node so far, by name.
    """

    def __init__(self, start: Callable[[FleetRun], Awaitable[None]]) -> None:
        self.id = ""
        self.outcomes: dict[str, ClientOutcome] = {}
        self._start = start
        self._queue: asyncio.Queue[ClientOutcome | None] = asyncio.Queue()
        self._untold: dict[str, None] = {}
        self._has_started = False

    def __aiter__(self) -> AsyncGenerator[ClientOutcome, None]:
        return self._iterate()

    async def wait(self) -> dict[str, ClientOutcome]:
        """
        Run to the end, and return the result of each node.

        Raises:
            CcmError: An error of the iteration; see `FleetClient.apply`.
        """
        async for _ in self:
            pass
        return self.outcomes

    async def _iterate(self) -> AsyncGenerator[ClientOutcome, None]:
        if self._has_started:
            raise UsageError("a run can be iterated over once; start another one")
        self._has_started = True
        task: asyncio.Task[None] = asyncio.ensure_future(self._run())
        try:
            while (outcome := await self._queue.get()) is not None:
                yield outcome
            await task
        finally:
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _run(self) -> None:
        try:
            await self._start(self)
        finally:
            self._queue.put_nowait(None)

    def take(self, run: Run, news: Sequence[News], proof: RunProof | None, *, is_end: bool = False) -> None:
        """Queue the results of ended nodes whose events have all arrived. At the end, queue those of all ended nodes."""
        for one in news:
            if isinstance(one, StateChange):
                self._untold[one.node] = None
        for name in list(self._untold):
            node = run.nodes[name]
            if not node.state.is_final:
                del self._untold[name]
            elif is_end or not node.has_gap:
                del self._untold[name]
                outcome = _outcome_of(node, proof)
                if self.outcomes.get(name) != outcome:
                    self.outcomes[name] = outcome
                    self._queue.put_nowait(outcome)


class FleetClient:
    """
    A connected fleet. `ccm_ctl.client` creates it.

    The options have the same meaning as in `ccmctl`. No method asks for confirmation.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def nodes(
        self, targets: str | Sequence[str] = (), *, where: str = "", all_nodes: bool = False
    ) -> list[Node]:
        """
        Return the nodes that match, by name.

        Raises:
            NoTargetError: No node matches.
            UsageError: Neither `targets`, `where` nor `all_nodes` is given.
        """
        inventory, resolved = await resolve(self._fleet, _spec(targets, where, all_nodes, 0))
        return [inventory.nodes[name] for name in resolved.nodes]

    def apply(
        self,
        path: str | Path,
        *,
        targets: str | Sequence[str] = (),
        where: str = "",
        all_nodes: bool = False,
        limit: int = 0,
        noop: bool = False,
        data: Sequence[str] = (),
        name: str = "",
        batch: str = "",
        canary: int = 0,
        bake_s: float = 0.0,
        gate: str = "",
        max_failures: str = "",
        deadline_s: float = DEADLINE_S,
        timeout_s: float | None = None,
        all_events: bool = False,
        force: bool = False,
        message: str = "",
    ) -> FleetRun:
        """
        Apply a manifest to nodes.

        Args:
            path: The manifest, or a directory with a manifest.yaml.
            targets: Selectors such as "role=web". A node must match at least one of them.
            where: An expression that must also be true for a node.
            all_nodes: Whether to select all nodes.
            limit: The maximum number of nodes to run on; 0 for no limit.
            noop: Whether to change nothing and report the planned changes.
            data: URLs of Hiera documents, such as "kv://CCM_DATA/common".
            name: The name of the manifest; "" for the name of the file or directory.
            batch: The number of nodes that run at the same time, such as "10", "25%" or "1,10%,50%". Makes the run a rollout.
            canary: The number of nodes that run first. Makes the run a rollout.
            bake_s: Seconds to wait after each wave except the last.
            gate: A condition that must be true after each wave.
            max_failures: The number of nodes that may fail, such as "0" or "5%". If more fail, the rollout pauses.
            deadline_s: Seconds after which nodes that have not started do not start.
            timeout_s: Seconds after which nodes that have not ended are treated as lost. Not for rollouts.
            all_events: Whether to include events of resources that did not change.
            force: Whether to send a manifest that fails the check, such as one for newer agents.
            message: The reason, which is shown with the run.

        Returns:
            The run, which starts when it is iterated over. The iteration raises:
            InputError: The manifest cannot be read or has errors. Nothing was sent.
            NoTargetError, UsageError: The targets or options are wrong. Nothing was sent.
            BusDeniedError: The credentials do not allow it.
            RunError: A rollout has paused. The message contains the reason and the command that continues it.
        """
        options = RolloutOptions(batch=batch, canary=canary, bake_s=bake_s, gate=gate, failed=max_failures)
        spec = _spec(targets, where, all_nodes, limit)

        async def start(run: FleetRun) -> None:
            fleet, reason = self._fleet, check_message(message)
            content = await asyncio.to_thread(_read, Path(path), name, force)
            inventory, resolved = await resolve(fleet, spec)
            rollout = None
            if options.is_rollout:
                rollout = make_plan(RolloutDefinition(options=options), inventory, resolved)
                content = as_bundle(content)
            if content.bundle is not None:
                await fleet.manifests.put(content.digest, content.packed)
            request = ManifestRequest(
                protocol=MANIFEST_PLAN if noop else MANIFEST_APPLY,
                name=content.name,
                manifest=content.text,
                bundle=content.bundle,
                digest=content.digest,
                events="all" if all_events else "changes",
                data=list(data),
                deadline=fleet.clock.now() + timedelta(seconds=deadline_s),
                message=reason,
            )
            launch = prepare_own(fleet, request, resolved, "plan" if noop else "apply", content.name)
            run.id = launch.record.run
            if rollout is not None:
                await self._roll_out(run, launch, rollout, deadline_s)
            else:
                await self._follow(run, launch, timeout_s)

        return FleetRun(start)

    async def stop(self, run: str) -> None:
        """
        Request the nodes of a run to stop after their current resource.

        Raises:
            RunError: There is no such run.
        """
        recorded = await History(self._fleet).load(run)
        await send_stop(self._fleet, recorded.record, recorded.nodes, is_kill=False)

    async def _follow(self, run: FleetRun, launch: Launch, timeout_s: float | None) -> None:
        fleet = self._fleet
        state, proof = new_run(fleet, launch, timeout_s), await read_proof(fleet)

        async def on_turn(news: list[News]) -> None:
            run.take(state, news, proof)

        await follow_run(fleet, launch, state, proof, on_begin=lambda: None, on_turn=on_turn)
        run.take(state, state.updates(), proof, is_end=True)
        await History(fleet).finish(state)

    async def _roll_out(
        self, run: FleetRun, launch: Launch, rollout: tuple[RolloutPlan, list[str]], deadline_s: float
    ) -> None:
        fleet, (plan, order) = self._fleet, rollout
        state = RolloutState(run=run.id, plan=plan, deadline_s=deadline_s)
        launch = msgspec.structs.replace(launch, resolved=launch.resolved.in_order(order))
        revision = await record_rollout(fleet, launch, state)
        recorded = await History(fleet).load(run.id)
        nodes, driver = new_rollout(fleet, recorded, state, revision, launch.request, base=launch.base)
        proof = await read_proof(fleet)

        async def on_turn(news: list[News]) -> None:
            run.take(nodes, news, proof)

        await follow_rollout(fleet, recorded, nodes, driver, proof, on_begin=lambda: None, on_turn=on_turn)
        run.take(nodes, nodes.updates(), proof, is_end=True)
        if driver.state.phase is Phase.PAUSED:
            raise RunError(
                f"run {run.id}: the rollout has paused: {driver.state.reason}; continue it with `ccmctl run resume {run.id}`"
            )
        await History(fleet).finish(nodes)


@contextlib.asynccontextmanager
async def connect(
    server: str,
    *,
    context: str,
    creds: str,
    ca: str,
    operator: str,
    insecure: bool,
    environ: Mapping[str, str] | None,
) -> AsyncIterator[FleetClient]:
    """See `ccm_ctl.client`."""
    options = ConnectionOptions(
        server=server, context=context, creds=creds, ca=ca, operator=operator, insecure=insecure
    )
    settings = await asyncio.to_thread(bus_settings, options, os.environ if environ is None else environ)
    async with connected(settings) as broker:
        yield FleetClient(broker.fleet)


def _spec(targets: str | Sequence[str], where: str, all_nodes: bool, limit: int) -> TargetSpec:
    selectors = (targets,) if isinstance(targets, str) else tuple(targets)
    return TargetSpec(targets=tuple(filter(None, selectors)), where=where, everybody=all_nodes, limit=limit)


def _read(path: Path, name: str, force: bool) -> Content:
    from ccm_ctl.commands.runs.manifest_check import check_content

    content = read_content(path, "", name)
    check_content(content, path, force=force)
    return content


def _outcome_of(node: NodeRun, proof: RunProof | None) -> ClientOutcome:
    verdict: Any = proof.report(node.node, len(node.lacking)).verdict if proof is not None else ""
    return ClientOutcome(
        node=node.node,
        state=node.state,
        reason=node.reason,
        code=node.code,
        summary=node.summary,
        events=tuple(node.events[number] for number in sorted(node.events)),
        verdict=str(verdict),
    )
