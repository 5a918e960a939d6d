"""
The environment of a manifest's expressions and templates in a preview. It provides a node's facts and data, and the files next to
the manifest.

The manifest is from a browser, and this process has the operator's credentials. Expressions are evaluated in this process, with
the limits of an agent. Templates are rendered in the render process (ADR 31). Neither can access environment variables, the
broker, or other files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ccm_agent.model.errors import ExpressionError, TemplateError, TemplateLimitError
from ccm_agent.model.ports import RenderWorker
from ccm_agent.templates.allowance import Allowance, size_of
from ccm_agent.templates.env import Environment
from ccm_agent.templates.rendering import Renderer
from ccm_agent.templates.values import from_bytes
from ccm_ctl.studio.template_files import TemplateFiles

CPU_S = 3.0
STEPS = 4_000_000
MEMORY_BYTES = 64 << 20
RENDER_S = 10.0
"""The total time, in seconds, for rendering the templates of a manifest."""
RENDERED_BYTES = 8 << 20
"""The maximum total output of all templates of a manifest."""


class TemplateEnvironment(Environment):
    """
    The environment of one preview. Blocking: use it in one thread.

    Args:
        facts, data: The node's facts and data, with secrets masked.
        files: The files next to the manifest.
        worker: Renders templates. None: templates are not rendered.
    """

    def __init__(
        self,
        facts: Mapping[str, Any],
        data: Mapping[str, Any],
        files: TemplateFiles,
        worker: RenderWorker | None,
    ) -> None:
        super().__init__(
            facts=dict(facts),
            data=dict(data),
            registrations=_refuse("registrations"),
            kv_get=_refuse("kvGet"),
            allowance=Allowance(STEPS, MEMORY_BYTES, CPU_S, is_timed=True),
            renderer=Renderer(_BudgetedWorker(worker)) if worker else None,
        )
        self._given_facts = facts
        self._files = files
        self._worker = worker

    def with_data(self, data: Mapping[str, Any]) -> TemplateEnvironment:
        """Return an environment with other data that shares this environment's limits."""
        made = TemplateEnvironment(self._given_facts, data, self._files, self._worker)
        made.allowance, made.renderer = self.allowance, self.renderer
        return made

    def read_file(self, path: str) -> str:
        """Return a file next to the manifest."""
        text = from_bytes(self._files.read(path))
        self.allowance.hold(size_of(text))
        return text

    def render(self, engine: str, body: str, **options: Any) -> str:
        """Render a template outside of this process. See `Environment.render`."""
        if self.renderer is None:
            raise TemplateError("templates are not rendered here; a plan shows them")
        text = super().render(engine, body, **options)
        self.allowance.hold(size_of(text))
        return text


class _BudgetedWorker:
    """A `RenderWorker` whose jobs share a time limit and an output limit."""

    def __init__(self, worker: RenderWorker) -> None:
        self._worker = worker
        self._end = time.monotonic() + RENDER_S
        self._room = RENDERED_BYTES

    def call(self, request: bytes, hear: Callable[[bytes], bytes | None]) -> None:
        if time.monotonic() > self._end:
            raise TemplateLimitError(f"the templates of the manifest take more than {RENDER_S:g} s")

        def counted(message: bytes) -> bytes | None:
            self._room -= len(message)
            if self._room < 0:
                raise TemplateLimitError(
                    f"the templates of the manifest produce more than {RENDERED_BYTES >> 20} MiB"
                )
            return hear(message)

        self._worker.call(request, counted)

    def close(self) -> None:
        """Do nothing, because all previews share the worker."""


def _refuse(name: str) -> Any:
    def refused(*_arguments: object) -> NoReturn:
        raise ExpressionError(
            f"{name}() queries the broker, so it is evaluated on the node only; a plan shows it"
        )

    return refused
