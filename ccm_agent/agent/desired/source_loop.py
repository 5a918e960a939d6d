"""
One manifest source of this node: when it is applied, with what, and what is said of it.

Reasons to apply that come while it is applied, or waits for its turn, become one apply afterwards. A source that cannot be
fetched leaves the last good manifest standing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from ccm_agent.agent.desired.drift import Drift, OnDrift
from ccm_agent.agent.desired.remediation import HEALTH, Remediation
from ccm_agent.agent.desired.run_once import ConvergenceResult, RunOnceWaiters, ended_of, not_begun
from ccm_agent.agent.desired.source import Source
from ccm_agent.agent.process.config import Settings
from ccm_agent.agent.runs.run_queue import LocalRun, QueuedRun, RunQueue
from ccm_agent.engine.request import ManifestSource
from ccm_agent.metrics.agent import AgentMetrics
from ccm_agent.model.errors import BusUnavailableError, CcmError, DownloadError, Refusal
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.model.policy import LOCAL, LOCAL_FROM_BROKER, Principal
from ccm_agent.model.ports import Clock
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_CHECK, ManifestRequest, NodeState

log = logging.getLogger(__name__)

INTERVAL = "interval"
CHANGE = "change"
POLL = "poll"
"""Look whether the source is other than before; apply if it is."""
CHECK = "check"
"""Run the health checks and nothing else."""

FULL_PAUSE_S = 5.0
"""When all places of the queue are taken, it is tried again after this time."""


class SourceContext(Struct, frozen=True, kw_only=True):
    """
    What the workers of one agent share.

    Attributes:
        settings: The configuration as it is now.
        run_queue: Where runs wait.
        clock: Time.
        is_disabled: The node converges on nothing now; its checks go on.
        look_at_data: Sees whether the external data is other than before; `trigger` is called if it is.
        on_refused: Told of a manifest that cannot be used: which, and why.
        on_drift: Told of the corrections of a run.
        metrics: Counts fetches and remediations; None: nobody counts.
        forbids: Why the node's policy refuses an action to the configuration now; None when it does not.
    """

    settings: Callable[[], Settings]
    run_queue: RunQueue
    clock: Clock
    is_disabled: Callable[[], bool]
    look_at_data: Callable[[], Awaitable[None]]
    on_refused: Callable[[str, str], None]
    on_drift: OnDrift
    metrics: AgentMetrics | None = None
    forbids: Callable[[Principal, str], Refusal | None] = lambda _principal, _action: None


def source_scope(source: str) -> str:
    """Whose pending refreshes those of a source are; see `ApplyOptions.scope`."""
    return f"source {source}"


class SourceLoop:
    """The worker of one source."""

    def __init__(self, source: Source, drift: Drift, context: SourceContext) -> None:
        """Nothing runs yet."""
        self.source = source
        self.scope = source_scope(drift.source)
        self._drift = drift
        self._context = context
        self._wanted: set[str] = set()
        self._wake = asyncio.Event()
        self._waiters = RunOnceWaiters(source.name)
        self._applied: str | None = None
        self._trouble = ""
        self._refusal: Refusal | None = None
        self._principal = LOCAL_FROM_BROKER if source.name.lower().startswith("obj://") else LOCAL
        self._remediation = Remediation(
            "source", source.name, context.clock, context.is_disabled, context.metrics
        )

    def trigger(self, why: str) -> None:
        """There is a reason to do something: INTERVAL, CHANGE, POLL or CHECK."""
        self._wanted.add(why)
        self._wake.set()

    def once(self) -> asyncio.Future[ConvergenceResult]:
        """Somebody at this host wants it applied now, and waits for how it ends."""
        order = self._waiters.place()
        self.trigger(INTERVAL)
        return order

    @property
    def status(self) -> dict[str, str]:
        """What is known of it here and now."""
        trouble = self._trouble or (str(self._refusal) if self._refusal else "")
        return {"name": self.source.name, "digest": self._applied or "", "trouble": trouble}

    async def run(self) -> None:
        """Do what there is reason to do, for ever."""
        try:
            await self.source.open()
            await self._drift.open()
            stop = await self.source.listen(partial(self.trigger, POLL))
            try:
                while True:
                    await self._wake.wait()
                    await self._guarded_turn()
            finally:
                await stop()
        finally:
            self._waiters.give_up()

    async def _guarded_turn(self) -> None:
        ended = None
        try:
            ended = await self._turn()
        except Exception as err:  # one turn must not end the worker
            self._take()
            log.exception("a source could not be worked on", extra={"source": self.source.name})
            ended = not_begun(self.source.name, f"{type(err).__name__}: {err}", "ccm.fault")
        finally:
            self._waiters.end(ended)

    async def _turn(self) -> ConvergenceResult | None:
        if self._wanted == {CHECK} or self._context.is_disabled():
            if CHECK in self._take():
                await self._check()
            return None
        if CHANGE in self._wanted and not self._waiters:
            await self._pause()
        await self._context.look_at_data()
        wanted = self._take()
        manifest = await self._fetched()
        if manifest is None:
            return ConvergenceResult(name=self.source.name, state=NodeState.FAILED, reason=self._trouble)
        is_new = self._applied is not None and manifest.digest != self._applied
        if is_new and wanted == {POLL}:
            log.info("a manifest has changed", extra={"source": self.source.name, "digest": manifest.digest})
            await self._pause()
        if is_new or wanted & {INTERVAL, CHANGE} or self._applied is None:
            return await self._apply(manifest, INTERVAL if INTERVAL in wanted else CHANGE)
        elif CHECK in wanted:
            await self._check()
        return None

    def _take(self) -> set[str]:
        self._waiters.begin()
        wanted, self._wanted = self._wanted, set()
        self._wake.clear()
        return wanted

    async def _pause(self) -> None:
        """What a whole fleet hears at once it does not do at once; further changes fall into the same pause."""
        pause_s = self._context.settings().change_pause_s
        await self._context.clock.sleep(random.uniform(0, pause_s)) if pause_s else None

    async def _fetched(self) -> ManifestSource | None:
        """The manifest as it is now, or the last good one; None when there is neither."""
        try:
            manifest = await self.source.current()
        except CcmError as err:
            if self._context.metrics is not None:
                self._context.metrics.fetched(self.source.name, failed=True)
            last = self.source.last_good()
            if self._trouble != str(err):
                self._trouble = str(err)
                log.warning(
                    "a manifest cannot be fetched",
                    extra={"source": self.source.name, "reason": str(err), "has_last_good": last is not None},
                )
                # that a server is away is for its own people to tell, not for each node of a fleet
                if not isinstance(err, (BusUnavailableError, DownloadError)):
                    self._context.on_refused(self.source.name, str(err))
            return last
        if self._context.metrics is not None and manifest.digest != self._applied:
            self._context.metrics.fetched(self.source.name, failed=False)
        if self._trouble:
            self._trouble = ""
            log.info("a manifest can be fetched again", extra={"source": self.source.name})
        return manifest

    async def _apply(self, manifest: ManifestSource, cause: str) -> ConvergenceResult:
        self._applied = manifest.digest
        run = new_id()
        summary = await self._carried_out(manifest, run, "apply", cause)
        if summary is None and self._refusal is not None:
            return not_begun(self.source.name, str(self._refusal), self._refusal.code)
        if summary is None:
            return not_begun(self.source.name)
        await self._drift.conclude(self.source.name, run, self._context.on_drift)
        note = f"the last good manifest was applied: {self._trouble}" if self._trouble else ""
        return ended_of(self.source.name, summary, note)

    async def _check(self) -> None:
        """Run the health checks of the manifest that is here, and apply it when one is critical."""
        manifest = self.source.last_good() or await self._fetched()
        if manifest is None:
            return
        summary = await self._carried_out(manifest, new_id(), "check", HEALTH)
        if self._remediation.follows(summary):
            await self._apply(manifest, HEALTH)

    def _is_forbidden(self, action: str) -> bool:
        """Whether the node's policy refuses the configuration this now; a refusal is told when it is another than before."""
        before, self._refusal = self._refusal, self._context.forbids(self._principal, action)
        if self._refusal is None:
            return False
        if before is None or str(before) != str(self._refusal):
            reason = str(self._refusal)
            log.warning("a manifest is not applied", extra={"source": self.source.name, "reason": reason})
            self._context.on_refused(self.source.name, reason)
        return True

    async def _carried_out(
        self, manifest: ManifestSource, run: str, action: str, cause: str
    ) -> SessionSummary | None:
        """Wait for a turn and for its end; None when it was left before, or the node's policy refuses it."""
        if self._is_forbidden(action):
            return None
        ended: asyncio.Future[SessionSummary | None] = asyncio.get_running_loop().create_future()

        def end(summary: SessionSummary | None) -> None:
            if not ended.done():
                ended.set_result(summary)

        job = QueuedRun(
            run=run,
            action=action,
            name=manifest.name,
            request=ManifestRequest(
                protocol=MANIFEST_APPLY if action == "apply" else MANIFEST_CHECK,
                run=run,
                name=manifest.name,
                digest=manifest.digest,
                cause=cause,
            ),
            own=LocalRun(
                source=manifest,
                on_end=end,
                on_start=self._drift.begin if action == "apply" else None,
                judge=self._drift.judge if action == "apply" else None,
                scope=self.scope,
            ),
            principal=self._principal,
        )
        while self._context.run_queue.offer(job).position < 0:
            await self._context.clock.sleep(FULL_PAUSE_S)
        try:
            return await ended
        finally:
            self._context.run_queue.withdraw(run)
