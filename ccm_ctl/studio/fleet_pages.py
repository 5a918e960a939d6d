"""The API of the Studio page for a fleet. It previews a manifest on one node, plans it on nodes, and stores it as a bundle."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from datetime import timedelta
from typing import Any

from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.clikit.table import Style
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.ports import RenderWorker
from ccm_agent.model.wire import MANIFEST_PLAN, ManifestRequest, NodeState
from ccm_ctl.dashboard.action_pages import in_the_name_of, name_of
from ccm_ctl.dashboard.middleware import READING, answer, sender_of
from ccm_ctl.dashboard.recent_answers import RecentAnswers
from ccm_ctl.dashboard.work_limiter import WorkLimiter
from ccm_ctl.fleet.content import INLINE_LIMIT_BYTES, Content, as_bundle
from ccm_ctl.fleet.data.hiera_explain import list_sources, read_masked_data
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve
from ccm_ctl.fleet.nodes.inventory import read_facts, read_inventory, require_nodes
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.runs.background_runs import BackgroundRuns
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.open_runs import look_at_ends
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.run_request import prepare_own
from ccm_ctl.fleet.runs.stored_session import read_session_events
from ccm_ctl.fleet.trust.authors import read_authors
from ccm_ctl.render.resource_diffs import diff_blocks
from ccm_ctl.studio.evaluation import Evaluation, evaluate
from ccm_ctl.studio.studio_pages import lint_text, read_body
from ccm_ctl.studio.template_files import TemplateFiles
from ccm_ctl.studio.workspace import Workspace

log = logging.getLogger(__name__)

DEADLINE_S = 600
"""The time limit, in seconds, for nodes to start a plan. It is short because the user waits for the result."""
PLANS_AT_ONCE = 10
PLANS_KEPT = 50
"""The maximum number of plans whose state is kept for the page. The state of older ones is read from the broker."""
PLAN_LIMIT_S = 900.0
"""Nodes that have not finished a plan within this time are treated as lost. Use `ccmctl plan` for a plan that takes longer."""
DOCUMENTS = 10
"""The maximum number of documents whose data are used for a manifest."""
NODES_SHOWN = 50
"""The maximum number of a plan's nodes whose events are read for the page."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


class EvaluateRequest(Struct, frozen=True, kw_only=True):
    """
    A manifest, an expression, and the node whose facts are used.

    Attributes:
        path: The manifest's path in the open folder. "": it is not saved yet.
        data: The documents whose data are used. Each overrides the previous ones and the manifest's data.
    """

    node: str
    text: str = ""
    expression: str = ""
    path: str = ""
    data: tuple[str, ...] = ()


class PlanRequest(Struct, frozen=True, kw_only=True):
    """A manifest to plan, and its nodes: selectors, of which at least one must match, and an expression."""

    text: str
    name: str = "studio"
    targets: tuple[str, ...] = ()
    where: str = ""


class BundleRequest(Struct, frozen=True, kw_only=True):
    """A manifest to store."""

    text: str
    name: str = "studio"


class StudioFleetPages:
    """
    The API of the Studio page for a fleet. For plans and bundles, `require_user` checks the right to act.

    Args:
        fleet: The bus.
        worker: Renders templates, and is closed with the server. None: templates are not rendered.
        workspace: The folder whose files templates may read. None: there is no such folder.
    """

    def __init__(
        self, fleet: Fleet, worker: RenderWorker | None = None, workspace: Workspace | None = None
    ) -> None:
        self._fleet = fleet
        self._worker = worker
        self._workspace = workspace
        self._facts = RecentAnswers()
        self._plans = BackgroundRuns(fleet, at_once=PLANS_AT_ONCE, limit_s=PLAN_LIMIT_S, kept=PLANS_KEPT)
        self._data = RecentAnswers()
        self._evaluating = WorkLimiter()

    def add_to(self, application: web.Application) -> None:
        """Add the routes. An evaluation does not require the right to act, because it changes nothing."""
        application.on_cleanup.append(self._end)
        application[READING].add("/api/studio/evaluate")
        application.router.add_get("/api/studio/nodes", self._nodes)
        application.router.add_get("/api/studio/data", self._documents)
        application.router.add_post("/api/studio/evaluate", self._evaluate)
        application.router.add_post("/api/studio/plan", self._plan)
        application.router.add_get("/api/studio/plan/{run}", self._planned)
        application.router.add_post("/api/studio/bundle", self._store)

    async def _end(self, _application: web.Application) -> None:
        await self._plans.end()
        if self._worker is not None:
            await asyncio.to_thread(self._worker.close)

    async def _nodes(self, request: web.Request) -> web.Response:
        """Return the names of the nodes."""
        inventory = await read_inventory(self._fleet)
        return answer({"nodes": list(inventory.nodes)})

    async def _evaluate(self, request: web.Request) -> web.Response:
        """Evaluate a manifest for a node."""
        said = await read_body(request, EvaluateRequest)

        async def read() -> dict[str, Any]:
            inventory = await require_nodes(self._fleet, [said.node])
            node = inventory.need(said.node)
            await read_facts(self._fleet, inventory, [node.name])
            return dict(node.facts)

        facts = await self._facts.give(said.node, read)
        urls = said.data[:DOCUMENTS]
        data = await self._data.give((said.node, urls), lambda: read_masked_data(self._fleet, facts, urls))
        files = TemplateFiles(self._workspace, said.path)
        user = sender_of(request).name

        async def work() -> Evaluation:
            async with self._evaluating.place(user):
                return await asyncio.to_thread(
                    evaluate, facts, said.text, said.expression, data=data, files=files, worker=self._worker
                )

        # the thread continues if the browser disconnects, so its place is occupied until the thread ends
        task = asyncio.create_task(work(), name="studio:evaluate")
        task.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return answer(await asyncio.shield(task))

    async def _documents(self, request: web.Request) -> web.Response:
        """`?node=NAME`: return the documents that each assignment of a node reads."""
        sources = await list_sources(self._fleet, request.query.get("node", ""))
        return answer({"sources": sources})

    async def _plan(self, request: web.Request) -> web.Response:
        """Start a plan. The page then shows the planned changes. Nothing is changed on nodes."""
        said = await read_body(request, PlanRequest)
        content = await asyncio.to_thread(checked_content, said.text, said.name)
        _, resolved = await resolve(self._fleet, TargetSpec(targets=said.targets, where=said.where))
        if content.bundle is not None:
            await self._fleet.manifests.put(content.digest, content.packed)
        plan = ManifestRequest(
            protocol=MANIFEST_PLAN,
            name=content.name,
            digest=content.digest,
            manifest=content.text,
            bundle=content.bundle,
            diff=True,
            deadline=self._fleet.clock.now() + timedelta(seconds=DEADLINE_S),
        )
        launch = prepare_own(self._fleet, plan, resolved, "plan", content.name)
        user = sender_of(request)
        launch = in_the_name_of(user, launch, self._fleet)
        by = name_of(user, self._fleet)
        log.info("a plan", extra={"run": launch.record.run, "by": by, "nodes": len(resolved.nodes)})
        await self._plans.start(launch)
        return answer(
            {"run": launch.record.run, "nodes": len(resolved.nodes), "offline": len(resolved.offline)}
        )

    async def _planned(self, request: web.Request) -> web.Response:
        """Return the progress of a plan and the planned changes. Nodes with equal diffs are combined into one entry."""
        run = await self._state_of(request.match_info["run"])
        # read before the nodes, because more of them may end while the events of the others are read
        is_done = all(node.state.is_final for node in run.nodes.values())
        changing = [name for name, node in sorted(run.nodes.items()) if node.state is NodeState.CHANGED]
        events = [
            (name, event)
            for name in changing[:NODES_SHOWN]
            for event in await read_session_events(self._fleet, run.run, name)
        ]
        failed = [
            {"node": name, "state": str(node.state), "reason": node.reason}
            for name, node in sorted(run.nodes.items())
            if node.state.is_final and node.state not in (NodeState.CHANGED, NodeState.STABLE)
        ]
        return answer(
            {
                "counts": {str(state): count for state, count in run.counts().items()},
                "is_done": is_done,
                "blocks": await asyncio.to_thread(diff_blocks, events, Style(width=100)),
                "left_out": max(0, len(changing) - NODES_SHOWN),
                "failed": failed[:NODES_SHOWN],
            }
        )

    async def _state_of(self, word: str) -> Run:
        if run := self._plans.find(word):
            return run
        recorded = await History(self._fleet).load(word)
        return await look_at_ends(self._fleet, recorded, await read_authors(self._fleet))

    async def _store(self, request: web.Request) -> web.Response:
        """Store a bundle, and reply with its digest."""
        said = await read_body(request, BundleRequest)
        content = as_bundle(await asyncio.to_thread(checked_content, said.text, said.name))
        await self._fleet.manifests.put(content.digest, content.packed)
        by = name_of(sender_of(request), self._fleet)
        log.info("a bundle is stored", extra={"digest": content.digest, "by": by})
        return answer({"digest": content.digest})


def checked_content(text: str, name: str) -> Content:
    """
    Return a manifest that is ready to be sent. Blocking.

    Raises:
        InputError: `lint` finds an error.
        UsageError: The manifest cannot have this name.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:80]}: a name has letters, digits, `.`, `_` and `-`")
    errors = [one for one in lint_text(text, f"{name}.yaml") if one.level == "error"]
    if errors:
        raise InputError(f"lint finds {len(errors)} errors, the first: {errors[0].message}; nothing was sent")
    body = text.encode()
    content = Content(name=name, digest=hashlib.sha256(body).hexdigest(), text=text, document=text)
    return content if len(body) <= INLINE_LIMIT_BYTES else replace(as_bundle(content), text="")
