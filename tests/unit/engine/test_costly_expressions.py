"""Expressions that take long: never on the event loop, and not for ever."""

from __future__ import annotations

import asyncio
import time

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import ExpressionLimitError
from ccm_agent.templates import allowance
from tests.support.engine import bench

LONG = "let l = 1..1400; any(l, any(l, # == -1))"
"""Two million steps, about a second."""

PAUSE_S = 0.5
"""What a loaded machine may keep the loop waiting; the expression takes longer where it is evaluated on the loop."""


class Watch:
    """The longest time for which the loop did nothing else."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def __aenter__(self) -> Watch:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            begun = time.perf_counter()
            await asyncio.sleep(0.001)
            self.longest_s = max(self.longest_s, time.perf_counter() - begun)


async def warm_up() -> None:
    """Import what expressions need, which takes long where no bytecode is kept."""
    on = bench()
    note = """note: {name: a, text: "{{ any([1], # == 1) }}", later: "{{ 1 + 1 }}", control: {if: "1 < 2"}}"""
    on.files.put("/work/m.yaml", f"ccm:\n  resources:\n    - {note}\n")
    await on.engine.apply(ManifestSource(path="m.yaml"), on.options())


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param(f'note: {{name: a, text: "{{{{ {LONG} }}}}"}}', id="property"),
        pytest.param(f'note: {{name: a, later: "{{{{ {LONG} }}}}"}}', id="deferred property"),
        pytest.param(f'note: {{name: a, text: "false", control: {{unless: "{LONG}"}}}}', id="control"),
    ],
)
async def test_the_loop_continues_while_a_manifests_expression_is_evaluated(resource: str) -> None:
    await warm_up()
    on = bench()
    on.files.put("/work/m.yaml", f"ccm:\n  resources:\n    - {resource}\n")

    async with Watch() as watch:
        summary = await on.engine.apply(ManifestSource(path="m.yaml"), on.options())

    assert summary.changed_resources == 1
    assert on.board.notes == {"a": "false"}
    assert watch.longest_s < PAUSE_S


async def test_the_loop_continues_while_a_documents_expression_is_evaluated() -> None:
    await warm_up()
    on = bench()
    on.files.put("/work/d.yaml", f'data: {{ok: "{{{{ {LONG} }}}}"}}\n')
    on.files.put("/work/m.yaml", 'ccm:\n  resources:\n    - note: {name: a, text: "{{ Data.ok }}"}\n')

    async with Watch() as watch:
        await on.engine.apply(ManifestSource(path="m.yaml"), on.options(hiera=("d.yaml",)))

    assert on.board.notes == {"a": "false"}
    assert watch.longest_s < PAUSE_S


async def test_all_expressions_of_a_manifest_share_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "STEPS", 200_000)
    on = bench()
    lines = "".join(
        f'    - note: {{name: n{number}, text: "{{{{ any(1..60000, # == -1) }}}}"}}\n' for number in range(30)
    )
    on.files.put("/work/m.yaml", f"ccm:\n  resources:\n{lines}")

    with pytest.raises(ExpressionLimitError) as caught:
        await on.engine.apply(ManifestSource(path="m.yaml"), on.options())

    assert caught.value.code == "expression.too_costly"
    assert caught.value.place is not None
    assert caught.value.place.source == "m.yaml"
    assert "note#n3: the expressions take more than 200000 steps" in caught.value.message
    assert on.board.notes == {}


async def test_texts_of_many_resources_do_not_fill_the_memory() -> None:
    on = bench()
    lines = "".join(
        f"    - note: {{name: n{number}, text: \"{{{{ let e = repeat('é', 200000); e + e + e + e }}}}\"}}\n"
        for number in range(100)
    )
    on.files.put("/work/m.yaml", f"ccm:\n  resources:\n{lines}")

    with pytest.raises(ExpressionLimitError, match="make more than 268435456 bytes of values"):
        await on.engine.apply(ManifestSource(path="m.yaml"), on.options())
