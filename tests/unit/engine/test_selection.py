"""Runs of a part of a manifest: what is applied, what is left out, and what is said about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import ManifestError, PropertyError, UsageError
from ccm_agent.model.outcome import LOCKED, NOT_SELECTED, SessionSummary
from ccm_agent.model.selection import ResourceSelection, make_selection
from tests.support.engine import Bench, bench
from tests.support.refreshes import Host, fresh_host

SITE = """
ccm:
  resources:
    - note: {name: conf, text: a, tags: [web, tls]}
    - note: {name: page, text: b, alias: index, tags: [web]}
    - note: {name: job, text: c, require: [note#conf], subscribe: [note#index]}
"""


async def apply(text: str, on: Bench | None = None, **options: Any) -> tuple[SessionSummary, Bench]:
    on = on or bench()
    on.files.put("/work/m.yaml", text)
    summary = await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))
    return summary, on


@pytest.mark.parametrize(
    ("selection", "written"),
    [
        pytest.param({"only": ("note#page",)}, ["page"], id="by name"),
        pytest.param({"only": ("note#index",)}, ["page"], id="by alias"),
        pytest.param({"tags": ("web",)}, ["conf", "page"], id="by tag"),
        pytest.param({"tags": ("tls", "other")}, ["conf"], id="by one of two tags"),
        pytest.param({"only": ("note#job",), "tags": ("tls",)}, ["conf", "job"], id="by name or tag"),
        pytest.param({"skip_tags": ("web",)}, ["job"], id="all without a tag"),
        pytest.param({"tags": ("web",), "skip_tags": ("tls",)}, ["page"], id="with one tag, without another"),
    ],
)
async def test_only_what_is_selected_is_applied(
    selection: dict[str, tuple[str, ...]], written: list[str]
) -> None:
    summary, on = await apply(SITE, selection=ResourceSelection(**selection))

    assert sorted(on.board.notes) == written
    assert (summary.state, summary.changed_resources, summary.skipped_resources) == (
        "changed",
        len(written),
        3 - len(written),
    )


async def test_a_resource_that_is_left_out_is_not_even_looked_at() -> None:
    _, on = await apply(SITE, selection=ResourceSelection(only=("note#page",)))

    assert set(on.board.looks) == {"page"}
    assert [(one.name, one.outcome.value, one.code) for one in on.events] == [
        ("conf", "skipped", NOT_SELECTED),
        ("page", "changed", ""),
        ("job", "skipped", NOT_SELECTED),
    ]
    assert on.events[0].error == ["not selected by --only note#page"]


async def test_requirements_that_were_left_out_are_named_and_do_not_stop_the_resource() -> None:
    summary, on = await apply(SITE, selection=ResourceSelection(only=("note#job",)))

    assert on.board.notes == {"job": "c"}
    assert summary.left_out == ["note#job requires note#conf", "note#job subscribes to note#index"]
    assert [fields for level, _, fields in on.notes if level == "warning"] == [
        {"needs": "note#job requires note#conf"},
        {"needs": "note#job subscribes to note#index"},
    ]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        pytest.param(
            {"only": ("note#pgae",)},
            "no resource of /work/m.yaml matches --only note#pgae, did you mean `note#page`?",
            id="name",
        ),
        pytest.param(
            {"tags": ("wbe",)}, "no resource of /work/m.yaml matches --tags wbe, did you mean `web`?", id="tag"
        ),
        pytest.param(
            {"only": ("note#page",), "skip_tags": ("web",)},
            "no resource of /work/m.yaml matches --only note#page --skip-tags web",
            id="a tag that excludes the only one",
        ),
    ],
)  # fmt: skip
async def test_a_selection_that_matches_nothing_is_refused_before_a_change(
    selection: dict[str, tuple[str, ...]], message: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        await apply(SITE, selection=ResourceSelection(**selection))

    assert caught.value.message == message


PARENT = """
ccm:
  resources:
    - note: {name: top, text: a}
    - apply:
        - child.yaml: {tags: [inner]}
"""
CHILD = """
ccm:
  resources:
    - note: {name: one, text: b, tags: [x]}
    - note: {name: two, text: c}
"""


@pytest.mark.parametrize(
    ("selection", "written"),
    [
        pytest.param({"only": ("note#two",)}, ["two"], id="a resource of the child"),
        pytest.param({"tags": ("x",)}, ["one"], id="a tag in the child"),
        pytest.param({"only": ("apply#child.yaml",)}, ["one", "two"], id="the whole child"),
        pytest.param({"tags": ("inner",)}, ["one", "two"], id="a tag of the child"),
        pytest.param({"only": ("note#top",)}, ["top"], id="a resource beside the child"),
        pytest.param({"skip_tags": ("inner",)}, ["top"], id="without the child"),
    ],
)
async def test_child_manifests_are_selected_as_a_whole_or_in_part(
    selection: dict[str, tuple[str, ...]], written: list[str]
) -> None:
    on = bench()
    on.files.put("/work/child.yaml", CHILD)

    await apply(PARENT, on, selection=ResourceSelection(**selection))

    assert sorted(on.board.notes) == written


async def test_a_selection_that_matches_nothing_in_a_child_either_fails_the_run() -> None:
    on = bench()
    on.files.put("/work/child.yaml", CHILD)

    summary, _ = await apply(PARENT, on, selection=ResourceSelection(only=("note#none",)))

    assert (summary.state, summary.reason) == (
        "failed",
        "no resource of /work/m.yaml matches --only note#none",
    )
    assert on.board.notes == {}


async def test_a_locked_resource_is_skipped_with_the_reason_and_the_rest_is_applied() -> None:
    def lock(references: Any) -> str:
        return "locked until noon by maria: disk" if "note#index" in references else ""

    summary, on = await apply(SITE, lock=lock)

    assert sorted(on.board.notes) == ["conf", "job"]
    assert (summary.state, summary.skipped_resources, summary.failed_resources) == ("changed", 1, 0)
    assert [(one.code, one.error) for one in on.events if one.skipped] == [
        (LOCKED, ["locked until noon by maria: disk"])
    ]


TWO = """
ccm:
  resources:
    - note: {name: conf, text: "TEXT", tags: [conf]}
    - exec: {name: reload, refreshonly: true, subscribe: [note#conf]}
"""


@pytest.fixture
def host() -> Iterator[Host]:
    with fresh_host() as made:
        made.files["m.yaml"] = TWO
        yield made


async def test_a_subscriber_that_was_left_out_is_refreshed_by_the_next_whole_run(host: Host) -> None:
    first = await host.apply(selection=ResourceSelection(tags=("conf",)))
    told = [(one.name, one.outcome.value) for one in host.events]
    await host.apply()

    assert told == [("conf", "changed"), ("reload", "skipped")]
    assert first is not None
    assert first.refresh_pending == ["exec#reload"]
    assert [(one.name, one.outcome.value) for one in host.events] == [
        ("conf", "stable"),
        ("reload", "refreshed"),
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            (["nginx"], [], []),
            "--only nginx: is not a resource; write type#name, such as service#nginx",
            id="no type",
        ),
        pytest.param(
            ([], ["a b"], []),
            "--tags a b: is not a tag: letters, digits and `_.:-`, beginning with a letter or digit, at most 64 characters",
            id="no tag",
        ),
        pytest.param(
            ([f"a#{n}" for n in range(101)], [], []),
            "--only: 101 are named, but at most 100 are allowed",
            id="too many",
        ),
    ],
)  # fmt: skip
def test_contradictory_options_are_refused(
    options: tuple[list[str], list[str], list[str]], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        make_selection(*options)

    assert str(caught.value) == message


def test_tags_may_be_separated_by_commas() -> None:
    assert make_selection([], ["a, b", "c"], []) == ResourceSelection(tags=("a", "b", "c"))
    assert make_selection([], [], []) is None


async def test_a_tag_that_no_option_could_name_is_refused() -> None:
    with pytest.raises(PropertyError, match="`a b` is not a valid tag"):
        await apply("ccm:\n  resources:\n    - note: {name: a, tags: [a b]}\n")
