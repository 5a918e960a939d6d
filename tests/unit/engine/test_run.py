"""Manifests and single resources, from text to summary, on a board of notes."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.request import ApplyOptions, ManifestSource, StopFlag
from ccm_agent.model.errors import (
    BusUnavailableError,
    DataError,
    DocumentError,
    ExpressionError,
    HostError,
    InputError,
    ManifestError,
    NoProviderError,
)
from ccm_agent.model.outcome import SessionStart, SessionSummary
from ccm_agent.resources.contract import ProviderSpec, ResourceContext
from tests.support.engine import Bench, Board, bench, note_type


async def apply(on: Bench, text: str, path: str = "/work/m.yaml", **options: Any) -> SessionSummary:
    on.files.put(path, text)
    return await on.engine.apply(ManifestSource(path=path), on.options(**options))


def manifest(*resources: str, top: str = "", section: str = "") -> str:
    listed = "\n".join(f"    - {one}" for one in resources)
    return f"{top}\nccm:\n  {section}\n  resources:\n{listed}\n"


async def test_a_change_is_made_verified_and_reported() -> None:
    on = bench()

    summary = await apply(on, manifest("note: {name: a, text: hello}"))

    event = on.events[0]
    assert on.board.notes == {"a": "hello"}
    assert (event.changed, event.final_ensure, event.provider) == (True, "present", "board")
    assert (event.status.text, event.status.changed, event.status.stable) == ("hello", True, False)
    assert (summary.state, summary.changed_resources, summary.manifest) == ("changed", 1, "/work/m.yaml")


async def test_a_second_run_is_stable() -> None:
    on = bench()
    text = manifest("note: {name: a, text: hello}")

    first, second = await apply(on, text), await apply(on, text)

    assert (first.state, second.state) == ("changed", "stable")
    assert first.digest == second.digest
    assert on.events[1].status.stable


async def test_noop_changes_nothing_and_reports_all_changes() -> None:
    on = bench()

    summary = await apply(on, manifest("note: {name: a, text: x, bold: true}"), noop=True)

    event = on.events[0]
    assert on.board.notes == {}
    assert (event.noop, event.noop_message) == (True, "Would have written it, would have underlined it")
    assert (event.final_ensure, event.status.noop, summary.changed_resources) == ("absent", True, 1)


async def test_a_resource_that_is_still_wrong_after_its_steps_has_failed() -> None:
    on = bench()
    on.board.broken = {"a": "wrong"}

    summary = await apply(on, manifest("note: {name: a, text: x}", "note: {name: b, text: y}"))

    assert on.outcomes == [("a", "failed"), ("b", "changed")]
    assert on.events[0].error == ["failed to reach desired state present: it says 'scribble'"]
    assert (on.events[0].code, on.events[0].status, summary.state) == ("host.desired_state", None, "failed")


async def test_the_output_of_a_failed_resource_is_in_event_and_summary() -> None:
    on = bench()
    on.board.broken = {"a": "unable"}

    summary = await apply(on, manifest("note: {name: a, text: x}"))

    assert (on.events[0].error, on.events[0].output) == (["the pen is empty"], "scratch\n")
    assert [(one.resource, one.output, one.code) for one in summary.failed] == [
        ("note#a", "scratch\n", "host.error")
    ]


async def test_a_bug_fails_its_resource_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    on = bench()
    on.board.broken = {"a": "bug"}

    await apply(on, manifest("note: {name: a, text: x}", "note: {name: b, text: y}"))

    assert on.outcomes == [("a", "failed"), ("b", "changed")]
    assert on.events[0].error == ["internal error: ZeroDivisionError: division by zero"]
    assert "unexpected error" in caplog.text


async def test_an_impossible_resource_is_not_tried() -> None:
    on = bench()
    on.board.notes = {"a": "carved in stone"}

    await apply(on, manifest("note: {name: a, text: x}"))

    assert on.events[0].error == ["it is carved in stone"]
    assert on.board.notes == {"a": "carved in stone"}


async def test_fail_on_error_stops_at_the_first_failure() -> None:
    on = bench()
    on.board.broken = {"a": "unable"}

    summary = await apply(
        on, manifest("note: {name: a, text: x}", "note: {name: b}", section="fail_on_error: true")
    )

    assert on.outcomes == [("a", "failed")]
    assert (summary.total_resources, summary.reason) == (1, "")
    assert on.notes[-1][1] == "Terminating manifest execution due to failed resource"


class TestControl:
    async def test_decides_before_templates_are_rendered(self) -> None:
        on = bench()

        await apply(
            on,
            manifest('note: {name: a, later: "{{ lookup(\'data.no\') }}", control: {if: "false"}}'),
        )

        assert on.outcomes == [("a", "skipped")]

    async def test_of_facts_and_data(self) -> None:
        on = bench()

        await apply(
            on,
            manifest(
                "note: {name: a, text: x, control: {if: \"Facts.os == 'linux'\", unless: 'Data.off'}}",
                top="data: {off: false}",
            ),
        )

        assert on.outcomes == [("a", "changed")]

    async def test_that_is_not_boolean_breaks_the_run_off_with_its_place(self) -> None:
        on = bench()

        summary = await apply(
            on, manifest("note: {name: a, text: x}", 'note: {name: b, control: {if: "1"}}', "note: {name: c}")
        )

        assert on.outcomes == [("a", "changed")]
        assert summary.reason.startswith("/work/m.yaml:6:23: a condition must")
        assert (summary.state, summary.code) == ("failed", "input.expression")


class TestRequire:
    async def test_of_a_failed_resource_skips(self) -> None:
        on = bench()
        on.board.broken = {"a": "unable"}

        summary = await apply(
            on,
            manifest(
                "note: {name: a, alias: first, text: x}",
                "note: {name: b, text: y, require: [note#first]}",
                "note: {name: c, text: z, require: [note#b]}",
            ),
        )

        assert on.outcomes == [
            ("a", "failed"),
            ("b", "skipped due to unmet requirement"),
            ("c", "skipped due to unmet requirement"),
        ]
        assert on.events[1].unmet_requirements == ["note#first"]
        assert (summary.skipped_resources, summary.requirements_unmet_count) == (2, 2)

    async def test_of_a_skipped_resource_is_met(self) -> None:
        on = bench()

        await apply(
            on,
            manifest(
                'note: {name: a, control: {if: "false"}}', "note: {name: b, text: y, require: [note#a]}"
            ),
        )

        assert on.outcomes == [("a", "skipped"), ("b", "changed")]

    @pytest.mark.parametrize(
        "resources",
        [
            pytest.param(("note: {name: a, require: [note#b]}", "note: {name: b}"), id="by name"),
            pytest.param(("note: {name: a, require: [note#b]}", "note: {name: c, alias: b}"), id="by alias"),
            pytest.param(
                ('note: {name: a, require: ["note#{{ Data.b }}"]}', "note: {name: b}"), id="rendered"
            ),
            pytest.param(
                ("note: {name: a, require: [note#b]}", 'note: {name: "{{ Data.b }}"}'), id="rendered later"
            ),
        ],
    )
    async def test_of_one_that_is_declared_later_is_refused_before_any_change(
        self, resources: tuple[str, ...]
    ) -> None:
        on = bench()

        with pytest.raises(ManifestError) as caught:
            await apply(on, manifest("note: {name: first, text: x}", *resources, top="data: {b: b}"))

        assert on.events == []
        assert "note#a requires `note#b`, which is declared later: move it up" in str(caught.value)
        assert caught.value.place is not None
        assert caught.value.place.path == "$.ccm.resources[1].note.require[0]"

    @pytest.mark.parametrize(
        ("first", "outcome"),
        [
            pytest.param(
                "note: {name: a, require: [note#b], control: {if: 'false'}}", "skipped", id="skipped"
            ),
            pytest.param("note: {name: b}\n    - note: {name: a, require: [note#b]}", "changed", id="both"),
        ],
    )
    async def test_that_never_comes_to_it_is_left_alone(self, first: str, outcome: str) -> None:
        on = bench()

        await apply(on, manifest(first, "note: {name: b}"))

        assert ("a", outcome) in on.outcomes

    async def test_of_one_that_is_declared_nowhere_breaks_the_run_off(self) -> None:
        on = bench()

        summary = await apply(on, manifest("note: {name: a, require: [note#b]}"))

        assert on.events == []
        assert "note#a requires `note#b`, which has no result yet: declare it earlier" in summary.reason

    async def test_is_rendered(self) -> None:
        on = bench()

        await apply(
            on,
            manifest(
                "note: {name: a, text: x}",
                'note: {name: b, text: y, require: ["{{ Data.ref }}"]}',
                top='data: {ref: "note#a"}',
            ),
        )

        assert on.outcomes == [("a", "changed"), ("b", "changed")]


class TestSubscribe:
    async def test_runs_the_steps_though_nothing_differs(self) -> None:
        on = bench()
        on.board.notes = {"b": "y"}

        await apply(on, manifest("note: {name: a, text: x}", "note: {name: b, text: y, subscribe: [note#a]}"))

        assert on.outcomes == [("a", "changed"), ("b", "refreshed")]
        assert (on.events[1].changed, on.events[1].triggered_by) == (True, "note#a")

    async def test_a_subscription_to_an_unknown_resource_fails_only_that_resource(self) -> None:
        on = bench()

        await apply(on, manifest("note: {name: a, subscribe: [note#z]}", "note: {name: b, text: y}"))

        assert on.outcomes == [("a", "failed"), ("b", "changed")]
        assert "note#a subscribes to `note#z`" in on.events[0].error[0]


class TestHealthChecks:
    async def test_fail_the_resource_and_are_counted(self) -> None:
        on = bench()
        on.runner.when("check", code=2, stdout="on fire\nreally\n")

        summary = await apply(on, manifest("note: {name: a, text: x, health_checks: [{command: check}]}"))

        event = on.events[0]
        assert (event.changed, event.failed) == (True, True)
        assert event.error == ["health check check is CRITICAL: on fire"]
        assert [(one.status, one.tries, one.output) for one in event.health_check] == [
            (2, 1, "on fire\nreally")
        ]
        assert (summary.health_check_critical_count, summary.failed_resources) == (1, 1)

    async def test_alone_change_nothing(self) -> None:
        on = bench()
        on.runner.when("check")

        await apply(
            on,
            manifest(
                "note: {name: a, text: x, health_checks: [{command: check}]}", "note: {name: b, text: y}"
            ),
            health_check_only=True,
        )

        assert on.board.notes == {}
        assert [(one.name, one.health_check_only, len(one.health_check)) for one in on.events] == [
            ("a", True, 1),
            ("b", True, 0),
        ]

    async def test_that_cannot_run_are_unknown_with_the_reason(self) -> None:
        on = bench()
        on.runner.when("check", error="there is no such program")

        await apply(on, manifest("note: {name: a, text: x, health_checks: [{command: check}]}"))

        assert on.events[0].health_check[0].status == 3
        assert "there is no such program" in on.events[0].health_check[0].output


async def test_noop_and_health_checks_exclude_each_other() -> None:
    on = bench()

    with pytest.raises(ManifestError, match="are mutually exclusive"):
        await apply(on, manifest("note: {name: a}"), noop=True, health_check_only=True)

    assert on.events == []


async def test_resources_left_by_a_stop_are_skipped_and_reported() -> None:
    stop = StopFlag()
    on = bench()
    on.files.put("/work/m.yaml", manifest("note: {name: a, text: x}", "note: {name: b}", "note: {name: c}"))

    summary = await on.engine.apply(
        ManifestSource(path="/work/m.yaml"),
        ApplyOptions(
            on_event=on.events.append,
            on_resource=lambda name, *_: stop.set() if name == "note#b" else None,
            stop=stop,
        ),
    )

    assert on.outcomes == [("a", "changed"), ("b", "skipped"), ("c", "skipped")]
    assert on.events[1].error == ["stopped"]
    assert (summary.state, summary.reason, summary.code) == ("stopped", "stopped", "run.stopped")


async def test_stop_that_comes_with_the_last_resource_leaves_nothing_out() -> None:
    stop = StopFlag()
    on = bench()
    on.files.put("/work/m.yaml", manifest("note: {name: a, text: x}"))

    summary = await on.engine.apply(
        ManifestSource(path="/work/m.yaml"),
        ApplyOptions(on_event=lambda _: stop.set("stopped by maria", by="maria"), stop=stop),
    )

    assert (summary.state, summary.reason, summary.stopped_by) == ("changed", "", "")


async def test_run_that_the_agent_interrupts_has_failed() -> None:
    stop = StopFlag()
    stop.set("interrupted", code="run.interrupted")
    on = bench()
    on.files.put("/work/m.yaml", manifest("note: {name: a, text: x}"))

    summary = await on.engine.apply(ManifestSource(path="/work/m.yaml"), ApplyOptions(stop=stop))

    assert (summary.state, summary.reason, summary.code) == ("failed", "interrupted", "run.interrupted")


async def test_the_start_is_reported_before_anything_and_the_position_of_each() -> None:
    starts: list[SessionStart] = []
    positions: list[tuple[str, int, int]] = []
    on = bench()
    on.files.put("/work/m.yaml", manifest("note: {name: a, text: x}", "note: {name: b}"))

    await on.engine.apply(
        ManifestSource(path="m.yaml", name="site", digest="d" * 64, data_revisions={"kv://B/k": 7}),
        ApplyOptions(
            on_start=starts.append,
            on_resource=lambda *said: positions.append(said),
            node="n1",
            run="r1",
            cause="request",
        ),
    )

    start = starts[0]
    assert (start.manifest, start.digest, start.resources, start.node, start.run, start.cause) == (
        "site", "d" * 64, 2, "n1", "r1", "request",
    )  # fmt: skip
    assert (start.data_revisions, start.agent_version) == ({"kv://B/k": 7}, "1.2.3")
    assert positions == [("note#a", 1, 2), ("note#b", 2, 2)]


async def test_awaitables_from_callbacks_are_awaited_in_order() -> None:
    order: list[str] = []
    on = bench()
    on.files.put("/work/m.yaml", manifest("note: {name: a}", "note: {name: b}"))

    async def on_event(event: Any) -> None:
        order.append(event.name)

    await on.engine.apply(ManifestSource(path="m.yaml"), ApplyOptions(on_event=on_event))

    assert order == ["a", "b"]


async def test_hiera_documents_go_over_the_manifests_data_and_their_rules_hold() -> None:
    on = bench()
    on.files.put("/work/h.yaml", "data: {word: over}\n")
    on.files.put("/work/rule.yaml", 'data:\n  # @require\n  user: ""\n')
    text = manifest('note: {name: a, text: "{{ Data.word }}"}', top="data: {word: own}")

    await apply(on, text, hiera=("h.yaml",))

    assert on.board.notes == {"a": "over"}
    with pytest.raises(DataError, match="the key `user` is required"):
        await apply(on, text, hiera=("rule.yaml",))


def second(resource: str, **more: str) -> str:
    """A manifest whose first resource is right."""
    return manifest("note: {name: before, text: x}", resource, **more)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        pytest.param("", ManifestError, "the manifest is empty", id="empty"),
        pytest.param("[1]", ManifestError, "a manifest must be a mapping", id="a list"),
        pytest.param(
            "cmm: {resources: []}", ManifestError, "did you mean `ccm` instead of `cmm`?", id="no section"
        ),
        pytest.param("ccm: {resources: []}", ManifestError, "has no resources", id="no resources"),
        pytest.param(
            "ccm: {resources: [~, {}]}", ManifestError, "has no resources", id="nothing in the list"
        ),
        pytest.param(
            second("note: {name: a}", top="hierarchy: {order: [default], merge: Deep}"),
            DocumentError,
            "unknown merge `Deep`: write `first` or `deep`",
            id="merge in capitals",
        ),
        pytest.param("ccm: {resorces: []}", DocumentError, "did you mean `resources`?", id="typo in section"),
        pytest.param(
            "ccm:\n\tresources: []", DocumentError, "/work/m.yaml:2:1: a tab cannot be used", id="tab"
        ),
        pytest.param(
            second("notes: {name: a}"),
            ManifestError,
            "/work/m.yaml:6:7: unknown resource type `notes`, did you mean `note`?",
            id="unknown type",
        ),
        pytest.param(
            second("note: {name: a, txet: x}"),
            DocumentError,
            "/work/m.yaml:6:23: note#a: unknown key `txet`, did you mean `text`?",
            id="typo in a key",
        ),
        pytest.param(
            second('note: {name: a, text: "{{ nope }}"}'),
            ExpressionError,
            "/work/m.yaml:6:23: note#a: ",
            id="template",
        ),
        pytest.param(
            second("note: {name: /a}"),
            InputError,
            "/work/m.yaml:6:7: note#/a: a note has no path",
            id="refused by the type",
        ),
        pytest.param(
            second("note: {name: a, mode: 0644}"),
            InputError,
            "/work/m.yaml:6:23: note#a: `mode` must be quoted",
            id="unquoted mode",
        ),
        pytest.param(
            second("note: {name: a, control: {when: x}}"),
            InputError,
            "/work/m.yaml:6:33: note#a: unknown key `when`",
            id="typo in control",
        ),
        pytest.param(
            second("note: {name: a}", top="overrides:"),
            InputError,
            "`overrides` must be a mapping",
            id="null overrides",
        ),
    ],
)
async def test_the_mistake_with_a_manifest_is_found_before_anything_is_changed(
    text: str, error: type[InputError], message: str
) -> None:
    on = bench()

    with pytest.raises(error) as caught:
        await apply(on, text)

    assert message in str(caught.value)
    assert (on.board.notes, on.events) == ({}, [])


async def test_keys_of_the_ccm_section_without_a_value_are_as_if_they_were_not_there() -> None:
    on = bench()
    text = manifest("note: {name: a, text: x}").replace(
        "ccm:\n", "ccm:\n  fail_on_error:\n  resources_jet_file: ~\n  pre_message: 5\n  post_message: null\n"
    )

    await apply(on, text)

    plan = await on.engine.load(ManifestSource(text=text.encode(), name="m.yaml"), on.options())
    assert on.board.notes == {"a": "x"}
    assert (plan.loaded.fail_on_error, plan.loaded.pre_message, plan.loaded.post_message) == (False, "5", "")


async def test_a_manifest_may_be_written_in_flow_style() -> None:
    on = bench()

    await apply(on, "{data: {w: x}, ccm: {resources: [{note: {name: a, text: '{{ Data.w }}'}}]}} # all")

    assert on.board.notes == {"a": "x"}


async def test_a_missing_manifest_is_named() -> None:
    with pytest.raises(ManifestError, match=r"none\.yaml: cannot be read"):
        await bench().engine.apply(ManifestSource(path="none.yaml"), ApplyOptions())


async def test_a_provider_that_is_missing_breaks_the_run_off() -> None:
    on = bench()

    summary = await apply(
        on,
        manifest("note: {name: a, text: x}", "note: {name: b, provider: nope}", "note: {name: c, text: z}"),
    )

    assert on.outcomes == [("a", "changed")]
    assert summary.reason == (
        "/work/m.yaml:6:7: note#b: the type `note` has no provider `nope`: it has board"
    )
    assert summary.code == NoProviderError.code


async def test_keys_that_mean_nothing_are_warned_about_but_for_those_that_begin_with_x() -> None:
    on = bench()

    await apply(on, manifest("note: {name: a}", top="extra: 1\nx-anchor: 2"))

    assert [sentence for level, sentence, _ in on.notes if level == "warning"] == [
        "/work/m.yaml:1:1: unknown key `extra`; for your own keys, use the prefix `x-`"
    ]


async def test_secrets_are_in_no_event_not_even_in_errors() -> None:
    on = bench()
    on.board.broken = {"a": "wrong"}

    summary = await apply(
        on, manifest("note: {name: a, text: says hunter22, pin: hunter22, url: 'https://me:s3cret99@host/x'}")
    )

    event = on.events[0]
    assert (event.properties["pin"], event.properties["text"]) == ("***", "says ***")
    assert event.properties["url"] == "https://***@host/x"
    assert "hunter22" not in str(event) + str(summary)
    assert "s3cret99" not in str(event) + str(summary)


async def test_a_secret_is_in_no_reason_of_a_run_that_breaks_off() -> None:
    on = bench()

    summary = await apply(
        on,
        manifest(
            "note: {name: a, text: x, pin: hunter22}",
            "note: {name: b, later: \"{{ lookup('data.hunter22') }}\"}",
        ),
    )

    assert (on.outcomes, summary.state) == ([("a", "changed")], "failed")
    assert "data.***" in summary.reason
    assert "hunter22" not in str(summary)


async def test_a_secret_is_in_no_line_that_people_are_reported() -> None:
    board = Board()

    def make(context: ResourceContext) -> Board:
        context.say("the pin is hunter22", line=1)
        return board

    talking = note_type(board, name="talk", providers=(ProviderSpec(name="board", make=make),))
    on = bench(talking, board=board)

    await apply(on, manifest("note: {name: a, text: x, pin: hunter22}", "talk: {name: b, text: x}"))

    assert ("info", "the pin is ***", {"line": 1}) in on.notes
    assert "hunter22" not in str(on.notes)


class TestEnsure:
    async def test_applies_one_resource_with_templates(self) -> None:
        on = bench()

        event = await on.engine.ensure(
            "note", {"name": "a", "text": "{{ Facts.os }}"}, on.options(data={"x": 1})
        )

        assert (event.changed, on.board.notes, len(on.events)) == (True, {"a": "linux"}, 1)

    async def test_of_an_unknown_type_is_refused(self) -> None:
        with pytest.raises(ManifestError, match="unknown resource type `nite`, did you mean `note`"):
            await bench().engine.ensure("nite", {"name": "a"}, ApplyOptions())

    async def test_without_a_store_that_is_named_changes_nothing(self, tmp_path: Any) -> None:
        on = bench()

        with pytest.raises(Exception, match="does not exist; create one with `ccm session new`"):
            await on.engine.ensure(
                "note", {"name": "a", "text": "x"}, on.options(session=str(tmp_path / "no"))
            )

        assert on.board.notes == {}

    async def test_a_session_includes_events_of_another_process(self, tmp_path: Any) -> None:
        board = Board()
        first, second = bench(board=board), bench(board=board)

        await first.engine.ensure("note", {"name": "a", "text": "x"}, first.options(session=str(tmp_path)))
        event = await second.engine.ensure(
            "note", {"name": "b", "text": "y", "subscribe": ["note#a"]}, second.options(session=str(tmp_path))
        )

        assert event.refreshed


class TestStatus:
    async def test_looks_and_changes_nothing(self) -> None:
        on = bench()
        on.board.notes = {"linux": "x"}

        found = await on.engine.status("note", "{{ Facts.os }}", ApplyOptions())

        assert (found.ensure, found.text, found.name) == ("present", "x", "linux")

    async def test_of_a_type_that_a_name_does_not_say_enough_about(self) -> None:
        with pytest.raises(
            ManifestError, match="the status of `apply` resources is not supported: use `ccm apply --noop`"
        ):
            await bench().engine.status("apply", "x.yaml", ApplyOptions())


class TestRegistration:
    ENTRY = "{cluster: c, service: s, protocol: http, address: 10.0.0.1, priority: 1}"

    async def publish(self, **options: Any) -> tuple[Bench, list[str]]:
        published: list[str] = []

        async def register(entry: Any) -> None:
            published.append(entry.service)

        on = bench(register=register)
        on.board.broken = {"bad": "unable"}
        await apply(
            on,
            manifest(
                f"note: {{name: good, text: x, register_when_stable: [{self.ENTRY}]}}",
                f"note: {{name: bad, text: x, register_when_stable: [{self.ENTRY}]}}",
                f'note: {{name: off, control: {{if: "false"}}, register_when_stable: [{self.ENTRY}]}}',
            ),
            **options,
        )
        return on, published

    async def test_registrations_are_published_only_for_stable_resources(self) -> None:
        assert (await self.publish())[1] == ["s"]

    async def test_is_not_published_under_noop(self) -> None:
        assert (await self.publish(noop=True))[1] == []

    async def test_does_not_stop_convergence_when_the_broker_is_away(self) -> None:
        async def register(entry: Any) -> None:
            raise BusUnavailableError("no broker answers")

        on = bench(register=register)

        summary = await apply(
            on,
            manifest(
                f"note: {{name: a, text: x, register_when_stable: [{self.ENTRY}]}}",
                "note: {name: b, text: y}",
            ),
        )

        assert (summary.state, on.notes[-1][1]) == ("changed", "Registration failed")


async def test_a_type_whose_provider_does_not_work_here_reports_why() -> None:
    from ccm_agent.resources.contract import ProviderSpec

    lost = ProviderSpec(name="tool", make=lambda _context: None, is_usable=lambda _facts, _probe: False)
    on = bench(note_type(Board(), name="lost", providers=(lost,)))

    summary = await apply(on, manifest("lost: {name: a}"))

    assert (
        "no provider of `lost` is available on this host: the programs of tool are not installed"
        in summary.reason
    )


class DeferringBoard(Board):
    """A provider whose changes share a last step: all notes are pinned at once."""

    def __init__(self, pinned: list[str]) -> None:
        super().__init__()
        self.pinned = pinned
        self.is_stuck = False
        self._new: list[str] = []

    async def write(self, wanted: Any) -> None:
        await super().write(wanted)
        self._new.append(wanted.name)

    async def finish(self) -> None:
        if self._new and self.is_stuck:
            raise HostError("there are no pins")
        if self._new:
            self.pinned.append("+".join(self._new))
            self._new.clear()


def deferring() -> tuple[Bench, DeferringBoard]:
    """A bench with `memo`, whose provider defers its last step, beside `note`."""
    board = DeferringBoard([])
    on = bench(note_type(board, name="memo"))
    on.board.write, write = None, on.board.write  # type: ignore[method-assign, assignment]

    async def noted(wanted: Any) -> None:
        board.pinned.append(f"note {wanted.name}")
        await write(wanted)

    on.board.write = noted  # type: ignore[method-assign]
    return on, board


async def test_a_deferred_step_comes_before_another_provider_and_at_the_end() -> None:
    on, board = deferring()
    memo = "memo: {{name: {0}, text: x}}".format

    await apply(on, manifest(memo("a"), memo("b"), "note: {name: n, text: x}", memo("c"), memo("d")))

    assert board.pinned == ["a+b", "note n", "c+d"]


async def test_a_deferred_step_that_fails_fails_what_follows_and_the_run() -> None:
    on, board = deferring()
    board.is_stuck = True

    summary = await apply(on, manifest("memo: {name: a, text: x}", "note: {name: n, text: x}"))

    assert on.outcomes == [("a", "changed"), ("n", "failed")]
    assert (board.pinned, summary.state, summary.reason) == ([], "failed", "there are no pins")


async def test_a_deferred_step_is_made_up_for_when_an_error_ends_the_run() -> None:
    on, board = deferring()

    summary = await apply(
        on, manifest("memo: {name: a, text: x}", "memo: {name: b, text: x, control: {if: '1'}}")
    )

    assert (board.pinned, summary.state) == (["a"], "failed")
    assert summary.code == "input.expression"


async def test_the_error_that_ends_a_run_stays_if_the_deferred_step_fails_too() -> None:
    on, board = deferring()
    board.is_stuck = True

    summary = await apply(
        on, manifest("memo: {name: a, text: x}", "memo: {name: b, text: x, control: {if: '1'}}")
    )

    assert (summary.state, summary.code) == ("failed", "input.expression")


async def test_a_noop_makes_no_deferred_step() -> None:
    on, board = deferring()

    await apply(on, manifest("memo: {name: a, text: x}", "note: {name: n, text: x}"), noop=True)

    assert board.pinned == []


@pytest.mark.parametrize(("is_kill", "pinned"), [(True, []), (False, ["a"])])
async def test_a_kill_makes_no_deferred_step_and_a_stop_does(is_kill: bool, pinned: list[str]) -> None:
    on, board = deferring()
    stop, write = StopFlag(), board.write

    async def write_and_stop(wanted: Any) -> None:
        await write(wanted)
        stop.set("stopped", is_kill=is_kill)

    board.write = write_and_stop  # type: ignore[method-assign]

    await apply(on, manifest("memo: {name: a, text: x}", "note: {name: n, text: x}"), stop=stop)

    assert on.outcomes == [("a", "changed"), ("n", "skipped")]
    assert board.pinned == pinned
