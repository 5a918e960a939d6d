"""A plan on a host where an earlier resource of the manifest would bring what a later one needs."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import CommandError, PropertyError
from ccm_agent.model.outcome import SessionSummary
from tests.support.engine import Bench, Board, NoteProperties, NoteState, bench, note_type

TEXT = """ccm:
  fail_on_error: true
  resources:
    - note: {name: package, text: x}
    - note: {name: service, text: x}
    - note: {name: last, text: x, require: [note#service]}
"""
WHY = "unknown until applied: note#package would change first; now: no unit of that name"


class FreshHost(Board):
    """A board on which `service` cannot be looked at before `package` is there."""

    error: Exception = CommandError("no unit of that name")
    look_ahead = None  # type: ignore[assignment]

    async def status(self, wanted: NoteProperties) -> NoteState:
        if wanted.name == "service" and "package" not in self.notes:
            raise self.error
        return await super().status(wanted)


def fresh(*, is_extension: bool = False) -> Bench:
    board = FreshHost()
    return bench(note_type(board, is_extension=is_extension), board=board)


async def run(on: Bench, text: str = TEXT, **options: Any) -> SessionSummary:
    on.files.put("/work/m.yaml", text)
    return await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))


async def test_what_cannot_be_read_before_an_earlier_change_is_unknown_in_a_plan() -> None:
    on = fresh()

    summary = await run(on, noop=True)

    assert on.outcomes == [("package", "changed"), ("service", "unknown until applied"), ("last", "changed")]
    assert (on.events[1].unknown, on.events[1].error) == (WHY, [])
    assert (summary.state, summary.unknown_count) == ("changed", 1)


async def test_the_apply_succeeds() -> None:
    on = fresh()

    summary = await run(on)

    assert (summary.state, summary.failed_resources) == ("changed", 0)


async def test_it_fails_if_nothing_would_change_before_it() -> None:
    on = fresh()

    await run(on, TEXT.replace("    - note: {name: package, text: x}\n", ""), noop=True)

    assert on.outcomes == [("service", "failed")]


async def test_an_apply_that_cannot_read_it_fails() -> None:
    on = fresh()
    on.board.broken = {"package": "unable"}

    await run(on, TEXT.replace("fail_on_error: true", "fail_on_error: false"))

    assert on.outcomes[1] == ("service", "failed")


async def test_an_error_of_the_manifest_stays_one() -> None:
    on = fresh()
    on.board.error = PropertyError("a wrong value")  # type: ignore[attr-defined]

    await run(on, noop=True)

    assert on.outcomes[1] == ("service", "failed")


@pytest.mark.parametrize(("is_extension", "outcome"), [(False, "failed"), (True, "unknown until applied")])
async def test_in_a_local_plan_the_types_of_choria_ccm_fail_as_there(
    *, is_extension: bool, outcome: str
) -> None:
    on = fresh(is_extension=is_extension)

    await run(on, noop=True, checks_planned=True)

    assert on.outcomes[1] == ("service", outcome)


async def test_a_change_of_the_parent_manifest_counts_in_a_child() -> None:
    on = fresh()
    on.files.put("/work/child.yaml", "ccm: {resources: [{note: {name: service, text: x}}]}")
    text = TEXT.replace("note: {name: service, text: x}", "apply: {name: child.yaml}").replace(
        "require: [note#service]", "require: [apply#child.yaml]"
    )

    await run(on, text, noop=True)

    assert on.outcomes[1] == ("service", "unknown until applied")
    assert on.events[1].unknown == WHY
