"""`timeout`: a resource that takes too long is ended and fails, and the run goes on."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.engine.request import ManifestSource
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import TimeLimitError
from ccm_agent.model.ports import Command
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import UndoRules
from ccm_agent.resources.time_limit import TimeLimit
from ccm_agent.storage.undo_store import UndoStore
from ccm_agent.system.runner import SystemRunner
from ccm_agent.testing.clock import FakeClock
from tests.support.engine import Bench, Board, NoteProperties, NoteState, bench, note_type


class HangingBoard(Board):
    """
    A board whose tool hangs.

    Attributes:
        hangs: Verbs that hang.
        ended: Verbs that were cancelled while they hung.
    """

    def __init__(self, *hangs: str) -> None:
        super().__init__()
        self.hangs = set(hangs)
        self.ended: list[str] = []
        self.has_hung = asyncio.Event()

    async def status(self, wanted: NoteProperties) -> NoteState:
        await self._hang("status", wanted)
        return await super().status(wanted)

    async def write(self, wanted: NoteProperties) -> None:
        await self._hang("write", wanted)
        await super().write(wanted)

    async def _hang(self, verb: str, wanted: NoteProperties) -> None:
        if verb in self.hangs and wanted.name == "slow":
            self.has_hung.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended.append(verb)


def host(*hangs: str, **changes: Any) -> tuple[Bench, HangingBoard]:
    board = HangingBoard(*hangs)
    on = bench(board=board)
    kind = replace(note_type(board), **changes)
    on.engine.deps.catalog._found["note"] = kind  # type: ignore[attr-defined]
    return on, board


TEXT = """ccm:
  resources:
    - note: {name: slow, text: a, timeout: 1ms}
    - note: {name: after, text: b, require: [note#slow]}
    - note: {name: other, text: c, timeout: 5m}
"""


async def apply(on: Bench, text: str = TEXT, **options: Any) -> str:
    on.files.put("/work/m.yaml", text)
    summary = await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))
    return summary.state


async def test_a_change_that_hangs_is_ended_and_the_run_goes_on() -> None:
    on, board = host("write")

    state = await apply(on)

    assert (state, board.ended) == ("failed", ["write"])
    assert on.outcomes == [
        ("slow", "failed"),
        ("after", "skipped due to unmet requirement"),
        ("other", "changed"),
    ]
    assert on.events[0].error == ["it took longer than its `timeout` of 1ms and was stopped"]
    assert on.events[0].code == "host.timeout"


async def test_a_look_that_hangs_is_ended_also_in_a_plan() -> None:
    on, board = host("status")
    text = TEXT.replace("text: a", 'text: a, later: "{{ `x` }}"')

    board.look_ahead = None  # type: ignore[assignment, method-assign]
    await apply(on, text, noop=True)

    assert board.ended == ["status"]
    assert [(name, outcome) for name, outcome in on.outcomes if name != "after"] == [
        ("slow", "failed"),
        ("other", "changed"),
    ]


async def test_the_look_after_an_ended_change_is_limited_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def earlier(*_of: Any) -> Any:
        from ccm_agent.model.records.undo import EarlierState

        return EarlierState(properties={"ensure": ABSENT})

    monkeypatch.setattr("ccm_agent.engine.undo.LOOK_LIMIT_S", 0.001)
    on, board = host("write", "status", undo=UndoRules(earlier=earlier, identify=lambda state: {}))
    store = UndoStore(tmp_path, FakeClock(), keep_s=3600, limit_bytes=1 << 20)

    await apply(on, undo_log=store, run="0" * 27)

    assert (board.ended, on.outcomes[0]) == (["write", "status"], ("slow", "failed"))


async def test_cancelling_the_run_is_no_time_limit() -> None:
    on, board = host("write")
    text = TEXT.replace("1ms", "1h")
    on.files.put("/work/m.yaml", text)
    run = asyncio.create_task(on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options()))
    async with asyncio.timeout(10):
        await board.has_hung.wait()
        run.cancel()

        with pytest.raises(asyncio.CancelledError):
            await run

    assert board.ended == ["write"]


async def test_a_time_limit_of_the_work_itself_stays_that() -> None:
    async def work() -> None:
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        await TimeLimit("1h").run(work())


async def test_the_parts_of_a_resource_share_the_time() -> None:
    limit = TimeLimit("1ms")
    with pytest.raises(TimeLimitError):
        await limit.run(asyncio.Event().wait())

    with pytest.raises(TimeLimitError):
        await limit.run(asyncio.Event().wait())


async def test_a_program_is_ended_with_its_children(tmp_path: Path) -> None:
    fifo = tmp_path / "held"
    os.mkfifo(fifo)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    script = f"exec 3>{fifo}; sleep 1000 3>&3 & wait"
    command = Command(argv=("/bin/sh", "-c", script))
    runner = SystemRunner(term_grace_s=0.2)

    with pytest.raises(TimeLimitError):
        await TimeLimit("300ms").run(runner.run(command))

    # the pipe has no writer any more, so it is at its end instead of empty
    assert os.read(reader, 1) == b""
    os.close(reader)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "`timeout` is `0`: it must be more than 0 and at most 1d"),
        ("-5m", "`timeout` is `-5m`: it must be more than 0 and at most 1d"),
        ("5M", "`timeout` is `5M`: it must be more than 0 and at most 1d"),
        (f"{'9' * 400}s", f"`timeout` is `{'9' * 400}s`: it must be more than 0 and at most 1d"),
        ("soon", "`soon` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m"),
        ("5minutes", "`5minutes`: unknown unit `minutes`; use ns, us, ms, s, m, h, d, w, M or y"),
        ("5", "`5` is not a duration: write a number and a unit, such as 30s, 5m or 1h30m"),
        ('"5m\\n"', None),
    ],
)
def test_a_limit_that_is_none_is_refused(value: str, message: str | None) -> None:
    text = f"ccm:\n  resources:\n    - package: {{name: zsh, ensure: present, timeout: {value}}}\n"

    found = lint(make_document(text.encode(), "m.yaml", "/"), Catalog())

    assert [one.message for one in found] == ([] if message is None else [f"package#zsh: {message}"])


def test_a_child_manifest_has_no_limit_of_its_own() -> None:
    text = b"ccm:\n  resources:\n    - apply: {name: c.yaml, timeout: 5m}\n"

    (finding,) = lint(make_document(text, "m.yaml", "/"), Catalog())

    assert (
        finding.message
        == "apply#c.yaml: `apply` has no `timeout`: set it for the resources of the child manifest"
    )


@pytest.mark.parametrize("name", ["exec", "archive", "scaffold"])
def test_types_with_a_time_limit_keep_it(name: str) -> None:
    assert Catalog().find(name).rules.limits_resource == frozenset()
