"""Child manifests: their modes, their data, their outcomes, and where they end."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.outcome import SessionSummary
from tests.support.engine import Bench, bench


def manifest(*resources: str, top: str = "", section: str = "") -> str:
    listed = "\n".join(f"    - {one}" for one in resources)
    return f"{top}\nccm:\n  {section}\n  resources:\n{listed}\n"


async def run(on: Bench, files: dict[str, str], **options: Any) -> SessionSummary:
    for name, text in files.items():
        on.files.put(f"/work/{name}", text)
    return await on.engine.apply(ManifestSource(path="m.yaml"), on.options(**options))


async def test_a_childs_events_come_before_its_parents_and_name_it() -> None:
    on = bench()

    summary = await run(
        on,
        {
            "m.yaml": manifest("apply: {name: sub/c.yaml}", "note: {name: z, text: z}"),
            "sub/c.yaml": manifest("apply: {name: d.yaml}"),
            "sub/d.yaml": manifest("note: {name: a, text: x}"),
        },
    )

    assert [(one.name, one.parent) for one in on.events] == [
        ("a", "apply#sub/c.yaml > apply#d.yaml"),
        ("d.yaml", "apply#sub/c.yaml"),
        ("sub/c.yaml", ""),
        ("z", ""),
    ]
    assert (summary.total_resources, summary.changed_resources) == (4, 4)
    assert (on.events[2].status.resource_count, on.events[2].status.changed_count) == (1, 1)


async def test_a_child_that_cannot_be_loaded_fails_its_resource_and_no_other() -> None:
    on = bench()

    await run(
        on,
        {
            "m.yaml": manifest(
                "apply: {name: none.yaml}", "apply: {name: bad.yaml}", "note: {name: z, text: z}"
            ),
            "bad.yaml": manifest("note: {name: a, text: x}", "nite: {name: b}"),
        },
    )

    assert on.outcomes == [("none.yaml", "failed"), ("bad.yaml", "failed"), ("z", "changed")]
    assert "the child manifest /work/none.yaml cannot be read" in on.events[0].error[0]
    assert "/work/bad.yaml:6:7: unknown resource type `nite`" in on.events[1].error[0]
    assert on.board.notes == {"z": "z"}


async def test_failure_in_a_child_manifest_is_a_failure_of_its_resource() -> None:
    on = bench()
    on.board.broken = {"a": "unable"}

    await run(
        on,
        {
            "m.yaml": manifest("apply: {name: c.yaml}"),
            "c.yaml": manifest("note: {name: a, text: x}", "note: {name: b, text: x, require: [note#a]}"),
        },
    )

    assert on.events[-1].error == ["child manifest had 2 failed resources"]
    assert on.notes[-1] == (
        "error",
        "Child manifest had failures",
        {"manifest": "c.yaml", "resources": 2, "changed": 0, "failed": 2, "skipped": 0},
    )


async def test_an_interruption_of_a_child_fails_its_resource() -> None:
    on = bench()

    await run(
        on,
        {
            "m.yaml": manifest("apply: {name: c.yaml}", "note: {name: z, text: z}"),
            "c.yaml": manifest("note: {name: a, text: x}", "note: {name: b, require: [note#no]}"),
        },
    )

    assert on.outcomes == [("a", "changed"), ("c.yaml", "failed"), ("z", "changed")]


class TestNoop:
    FILES = {
        "m.yaml": manifest(
            "apply: {name: c.yaml, noop: true}", "note: {name: z, text: z, subscribe: [apply#c.yaml, note#a]}"
        ),
        "c.yaml": manifest("note: {name: a, text: x}"),
    }

    async def test_of_a_child_triggers_nothing_real(self) -> None:
        on = bench()
        on.board.notes = {"z": "z"}

        await run(on, self.FILES)

        assert on.outcomes == [("a", "changed"), ("c.yaml", "changed"), ("z", "stable")]
        assert on.events[0].noop
        assert on.events[1].status.announced
        assert on.board.notes == {"z": "z"}

    async def test_noop_of_the_whole_run_announces_triggered_resources(self) -> None:
        on = bench()
        on.board.notes = {"z": "z"}

        await run(on, self.FILES, noop=True)

        assert on.outcomes[-1] == ("z", "refreshed")
        assert on.events[-1].noop_message == "Would have rewritten"

    async def test_cannot_be_taken_away_by_a_child(self) -> None:
        on = bench()

        await run(
            on,
            {
                "m.yaml": manifest("apply: {name: c.yaml, noop: false}"),
                "c.yaml": manifest("note: {name: a, text: x}"),
            },
            noop=True,
        )

        assert on.board.notes == {}

    async def test_together_with_health_checks_only_fails_the_resource(self) -> None:
        on = bench()

        await run(
            on,
            {
                "m.yaml": manifest("apply: {name: c.yaml, noop: true, health_check_only: true}"),
                "c.yaml": manifest("note: {name: a, text: x}"),
            },
        )

        assert "are mutually exclusive" in on.events[0].error[0]


async def test_health_checks_alone_enter_children_and_grandchildren() -> None:
    on = bench()
    on.runner.when("check", code=2)
    checked = "note: {name: a, text: x, health_checks: [{command: check}]}"

    await run(
        on,
        {
            "m.yaml": manifest("apply: {name: c.yaml}"),
            "c.yaml": manifest("apply: {name: d.yaml}"),
            "d.yaml": manifest(checked),
        },
        health_check_only=True,
    )

    assert on.outcomes == [("a", "failed"), ("d.yaml", "failed"), ("c.yaml", "failed")]
    assert on.board.notes == {}


async def test_a_child_that_is_asked_for_health_checks_only_runs_nothing_else() -> None:
    on = bench()
    on.runner.when("check")

    await run(
        on,
        {
            "m.yaml": manifest("apply: {name: c.yaml, health_check_only: true}"),
            "c.yaml": manifest("note: {name: a, text: x, health_checks: [{command: check}]}"),
        },
    )

    assert (on.board.notes, on.outcomes[0]) == ({}, ("a", "stable"))


class TestData:
    CHILD = manifest(
        "note: {name: a, text: \"{{ Data.word }} {{ Data.own ?? 'none' }}\"}",
        top="data: {word: child, own: c}",
    )

    async def test_noop_of_the_parent_overrides_the_childs(self) -> None:
        on = bench()

        await run(
            on,
            {"m.yaml": manifest("apply: {name: c.yaml}", top="data: {word: parent}"), "c.yaml": self.CHILD},
        )

        assert on.board.notes == {"a": "parent c"}

    async def test_that_is_given_hides_the_parents(self) -> None:
        on = bench()

        await run(
            on,
            {
                "m.yaml": manifest("apply: {name: c.yaml, data: {own: given}}", top="data: {word: parent}"),
                "c.yaml": self.CHILD,
            },
        )

        assert on.board.notes == {"a": "child given"}

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            pytest.param({"hiera": ("o.yaml",)}, "child given", id="hiera documents do not"),
            pytest.param(
                {"hiera": ("o.yaml",), "keeps_hiera": True}, "outer given", id="those of an agent do"
            ),
            pytest.param({"data": {"own": "outer"}}, "child outer", id="resolved data does"),
        ],
    )
    async def test_from_outside_reaches_a_child_that_is_given_data(
        self, options: dict[str, Any], text: str
    ) -> None:
        on = bench()

        await run(
            on,
            {
                "m.yaml": manifest("apply: {name: c.yaml, data: {own: given}}"),
                "c.yaml": self.CHILD,
                "o.yaml": "data: {word: outer}",
            },
            **options,
        )

        assert on.board.notes == {"a": text}


class TestDepth:
    async def test_ends_at_ten_levels(self) -> None:
        on = bench()
        files = {
            f"c{n}.yaml": manifest(f"note: {{name: n{n}, text: x}}", f"apply: {{name: c{n + 1}.yaml}}")
            for n in range(12)
        }

        await run(on, {"m.yaml": files.pop("c0.yaml"), **files})

        assert sorted(on.board.notes) == [f"n{n}" for n in range(10)]
        deepest = next(one for one in on.events if one.name == "c10.yaml")
        assert "nested more than 10 levels deep" in deepest.error[0]

    async def test_ends_at_once_for_a_manifest_that_includes_itself_forever(self) -> None:
        on = bench()

        await run(on, {"m.yaml": manifest("note: {name: a, text: x}", "apply: {name: ./m.yaml}")})

        assert on.outcomes == [("a", "changed"), ("./m.yaml", "failed")]
        assert "includes itself with the same data" in on.events[1].error[0]

    async def test_a_data_error_in_a_child_fails_it(self) -> None:
        on = bench()

        await run(
            on,
            {
                "m.yaml": manifest(
                    'note: {name: "n{{ Data.n }}", text: x}',
                    'apply: {name: m.yaml, data: {n: "{{ Data.n + 1 }}"}, control: {if: "Data.n < 2"}}',
                    top="data: {n: 0}",
                )
            },
        )

        assert sorted(on.board.notes) == ["n0", "n1", "n2"]
        assert {outcome for _, outcome in on.outcomes} == {"changed", "skipped"}


async def test_children_can_be_forbidden_to_have_children() -> None:
    on = bench()

    await run(
        on,
        {
            "m.yaml": manifest("apply: {name: c.yaml, allow_apply: false}"),
            "c.yaml": manifest("note: {name: a, text: x}", "apply: {name: d.yaml}"),
            "d.yaml": manifest("note: {name: b}"),
        },
    )

    assert (on.board.notes, on.outcomes) == ({}, [("c.yaml", "failed")])
    assert "`allow_apply: false` forbids" in on.events[0].error[0]


@pytest.mark.parametrize("name", ["http://host/c.tgz", "a:c.yaml", "file:///c.yaml"])
async def test_a_child_is_a_file_and_no_url(name: str) -> None:
    on = bench()

    with pytest.raises(Exception, match="is a URL, and a child manifest must be a file"):
        await run(on, {"m.yaml": manifest(f'apply: {{name: "{name}"}}')})


async def test_a_deferred_template_sees_the_current_content_when_its_turn_comes() -> None:
    on = bench()

    await run(
        on,
        {"m.yaml": manifest("note: {name: a, later: \"{{ Data.word + '!' }}\"}", top="data: {word: hi}")},
    )

    assert on.board.notes == {"a": "hi!"}


async def test_a_deferred_template_that_fails_breaks_the_run_off_with_its_place() -> None:
    on = bench()

    summary = await run(
        on,
        {
            "m.yaml": manifest(
                "note: {name: a, text: x}", "note: {name: b, later: \"{{ lookup('data.no') }}\"}"
            )
        },
    )

    assert on.outcomes == [("a", "changed")]
    assert summary.reason.startswith("m.yaml:6:23: ")
