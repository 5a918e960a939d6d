"""`rescue`: a resource that is managed only if an earlier one failed."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.request import ManifestSource, StopFlag
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import InputError, ManifestError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import Bench, bench

UNMET = "skipped due to unmet requirement"

TEXT = """ccm:
  fail_on_error: {ends}
  resources:
    - note: {{name: first, text: x}}
    - note: {{name: second, text: x, require: [note#first]}}
    - note: {{name: back, text: x, rescue: {rescue}}}
    - note: {{name: told, text: x, rescue: {rescue}, require: [note#back]}}
    - note: {{name: last, text: x}}
"""


async def apply(
    on: Bench, rescue: str = "[note#first]", *, ends: bool = False, text: str = TEXT, **options: Any
) -> SessionSummary:
    on.files.put("/work/m.yaml", text.format(rescue=rescue, ends=str(ends).lower()))
    return await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))


def failing(*names: str) -> Bench:
    on = bench()
    on.board.broken = dict.fromkeys(names, "unable")
    return on


async def test_it_is_skipped_while_nothing_failed() -> None:
    on = failing()

    summary = await apply(on)

    assert summary.state == "changed"
    assert on.outcomes == [
        ("first", "changed"),
        ("second", "changed"),
        ("back", "skipped"),
        ("told", "skipped"),
        ("last", "changed"),
    ]


async def test_it_is_managed_after_a_failure_and_the_run_stays_failed() -> None:
    on = failing("first")

    summary = await apply(on)

    assert summary.state == "failed"
    assert on.outcomes == [
        ("first", "failed"),
        ("second", UNMET),
        ("back", "changed"),
        ("told", "changed"),
        ("last", "changed"),
    ]


@pytest.mark.parametrize(
    "rescue", ["[note#second]", "[note#second, note#first]", "[note#first, note#second]"]
)
async def test_it_is_managed_if_one_of_several_failed_or_lacked_a_requirement(rescue: str) -> None:
    on = failing("first")

    await apply(on, rescue)

    assert on.outcomes[2:4] == [("back", "changed"), ("told", "changed")]


@pytest.mark.parametrize("rescue", ["[note#first]", "[note#second, note#first]"])
async def test_it_is_managed_although_the_failure_ends_the_run(rescue: str) -> None:
    on = failing("first")

    summary = await apply(on, rescue, ends=True)

    assert summary.state == "failed"
    assert on.outcomes == [("first", "failed"), ("back", "changed"), ("told", "changed")]


async def test_what_the_ended_run_did_not_reach_is_an_unmet_requirement_and_no_trigger() -> None:
    on = failing("first")
    text = TEXT.replace("require: [note#back]", "require: [note#second]").replace(
        "name: back, text: x", "name: back, text: x, subscribe: [note#second]"
    )

    await apply(on, ends=True, text=text)

    assert on.outcomes == [("first", "failed"), ("back", "changed"), ("told", UNMET)]
    assert on.events[2].unmet_requirements == ["note#second"]


async def test_a_rescue_that_fails_ends_nothing_more() -> None:
    on = failing("first", "back")

    await apply(on, ends=True)

    assert on.outcomes == [("first", "failed"), ("back", "failed"), ("told", UNMET)]
    assert [message for _, message, _ in on.notes].count(
        "Terminating manifest execution due to failed resource"
    ) == 1


async def test_a_stopped_run_rescues_nothing() -> None:
    on, stop = failing("first"), StopFlag()
    written = on.board.write

    async def write(wanted: Any) -> None:
        stop.set("stopped by ann")
        await written(wanted)

    on.board.write = write  # type: ignore[method-assign]
    await apply(on, ends=True, stop=stop)

    assert on.outcomes == [("first", "failed"), ("back", "skipped"), ("told", "skipped")]


async def test_a_child_manifest_is_a_group() -> None:
    on = failing("inner")
    on.files.put("/work/child.yaml", "ccm: {resources: [{note: {name: inner, text: x}}]}")
    text = TEXT.replace("note: {{name: first, text: x}}", "apply: {{name: child.yaml}}").replace(
        "require: [note#first]", "require: [apply#child.yaml]"
    )

    await apply(on, "[apply#child.yaml]", text=text)

    assert on.outcomes[:4] == [
        ("inner", "failed"),
        ("child.yaml", "failed"),
        ("second", UNMET),
        ("back", "changed"),
    ]


CHILD = """ccm:
  fail_on_error: true
  resources:
    - note: {name: inner, text: x}
    - note: {name: first, alias: other, text: x}
    - note: {name: undo, text: x, rescue: [note#NAME]}
"""


@pytest.mark.parametrize(
    ("name", "outcome"), [("first", "skipped"), ("other", "skipped"), ("inner", "changed")]
)
async def test_a_resource_of_the_same_name_in_another_manifest_is_not_rescued(
    name: str, outcome: str
) -> None:
    on = failing("first", "inner")
    on.files.put("/work/child.yaml", CHILD.replace("NAME", name))
    text = TEXT.replace("note: {{name: last, text: x}}", "apply: {{name: child.yaml}}")

    await apply(on, text=text)

    assert on.outcomes[-3:] == [("inner", "failed"), ("undo", outcome), ("child.yaml", "failed")]


async def test_an_alias_is_rescued() -> None:
    on = failing("first")

    await apply(
        on, "[note#other]", ends=True, text=TEXT.replace("name: first,", "name: first, alias: other,")
    )

    assert on.outcomes == [("first", "failed"), ("back", "changed"), ("told", "changed")]


async def test_a_child_manifest_is_checked_before_it_is_applied() -> None:
    on = failing("inner")
    on.files.put("/work/child.yaml", CHILD.replace("NAME", "nope"))

    await apply(on, text=TEXT.replace("note: {{name: last, text: x}}", "apply: {{name: child.yaml}}"))

    assert on.outcomes[-1] == ("child.yaml", "failed")
    assert on.events[-1].error[0].endswith("which is not declared before it in this manifest")


@pytest.mark.parametrize("rescue", ["[note#last]", "[note#nope]", "[note#back]"])
async def test_what_is_not_declared_before_it_is_refused_before_any_change(rescue: str) -> None:
    on = failing()

    with pytest.raises(ManifestError) as caught:
        await apply(on, rescue)

    assert caught.value.message.endswith("which is not declared before it in this manifest")
    assert caught.value.place is not None
    assert caught.value.place.line == 6
    assert on.events == []


async def test_a_single_resource_has_no_rescue() -> None:
    on = failing()

    with pytest.raises(InputError, match="`rescue` is only for resources of a manifest"):
        await on.engine.ensure("note", {"name": "a", "rescue": ["note#b"]}, on.options())


def test_lint_knows_it() -> None:
    text = b"""ccm:
  resources:
    - exec: {name: a, command: /bin/true}
    - exec: {name: b, command: /bin/true, rescue: [exec#a, exec#c]}
"""
    document = make_document(text, "m.yaml", "/work")

    plain = [one.message for one in lint(document, Catalog())]
    strict = [one.message for one in lint(document, Catalog(), strict_ccm=True)]

    assert plain == ["exec#b: `exec#c` in `rescue` is not declared"]
    assert "Choria CCM's `exec` has no `rescue`; only ccm-fleet supports it" in strict
