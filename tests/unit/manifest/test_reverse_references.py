"""`before` and `notify` become `require` and `subscribe` of the resources that they name."""

from __future__ import annotations

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.engine.run import PreparedManifest
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint, lint_request
from ccm_agent.model.errors import ManifestError, PropertyError
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import Bench, bench


def manifest(*resources: str) -> str:
    return "ccm:\n  resources:\n" + "".join(f"    - {one}\n" for one in resources)


async def load(on: Bench, text: str) -> PreparedManifest:
    on.files.put("/work/m.yaml", text)
    return await on.engine.load(ManifestSource(path="/work/m.yaml"), on.options())


async def references(*resources: str) -> dict[str, tuple[list[str], list[str]]]:
    """`require` and `subscribe` of each resource, by name."""
    prepared = await load(bench(), manifest(*resources))
    wanted = [one.wanted for one in prepared.loaded.resources]
    return {one.name: (one.require, one.subscribe) for one in wanted}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("first", "last", "require", "subscribe"),
    [
        pytest.param("before: [note#b]", "", ["note#a"], [], id="before"),
        pytest.param("notify: [note#b]", "", [], ["note#a"], id="notify"),
        pytest.param("before: [note#b], notify: [note#b]", "", ["note#a"], ["note#a"], id="both"),
        pytest.param("before: [note#x]", "alias: x", ["note#a"], [], id="by the alias of the target"),
        pytest.param("before: [note#b, note#b]", "", ["note#a"], [], id="named twice"),
        pytest.param("before: [note#b]", "require: [note#a]", ["note#a"], [], id="written on both sides"),
        pytest.param('before: ["note#{{ `b` }}"]', "", ["note#a"], [], id="by an expression"),
    ],
)
async def test_a_reference_is_added_to_its_target(
    first: str, last: str, require: list[str], subscribe: list[str]
) -> None:
    found = await references(f"note: {{name: a, {first}}}", f"note: {{name: b, {last}}}")

    assert found == {"a": ([], []), "b": (require, subscribe)}


async def test_references_that_are_written_come_first() -> None:
    found = await references(
        "note: {name: a, before: [note#c]}", "note: {name: b}", "note: {name: c, require: [note#b]}"
    )

    assert found["c"] == (["note#b", "note#a"], [])


async def test_defaults_of_a_list_are_shared_and_references_are_not() -> None:
    found = await references(
        "note: {name: a, before: [note#b]}",
        "note: [{defaults: {require: [note#a]}}, {b: {}}, {c: {}}]",
        "note: {name: d, require: [note#c]}",
    )

    assert found == {"a": ([], []), "b": (["note#a"], []), "c": (["note#a"], []), "d": (["note#c"], [])}


async def test_each_later_resource_of_a_name_is_a_target() -> None:
    on = bench()
    text = manifest("note: {name: b}", "note: {name: a, before: [note#b]}", "note: {name: b}")

    prepared = await load(on, text)

    assert [one.wanted.require for one in prepared.loaded.resources] == [[], [], ["note#a"]]


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        pytest.param(
            ["note: {name: b}", "note: {name: a, before: [note#b]}"],
            "m.yaml:4:32: note#a: `note#b` in `before` is not declared later: move it down",
            id="the target is declared before it",
        ),
        pytest.param(
            ["note: {name: a, notify: [note#a]}"],
            "m.yaml:3:32: note#a: `note#a` in `notify` is not declared later: move it down",
            id="itself",
        ),
        pytest.param(
            ["note: {name: a, before: [note#b]}", "note: {name: b, before: [note#a]}"],
            "m.yaml:4:32: note#b: `note#a` in `before` is not declared later: move it down",
            id="a cycle",
        ),
        pytest.param(
            ["note: {name: a, before: [note#nginz]}", "note: {name: nginx}"],
            "m.yaml:3:32: note#a: `note#nginz` in `before` is not declared in this manifest, did you mean `note#nginx`?",
            id="a misspelled name",
        ),
        pytest.param(
            ["note: {name: a, before: [unknown#b]}"],
            "m.yaml:3:32: note#a: `unknown#b` in `before` is not declared in this manifest",
            id="an unknown type",
        ),
        pytest.param(
            ["note: {name: a, before: [service]}", "note: {name: b}"],
            "m.yaml:3:32: note#a: `service` is not a valid reference; write `type#name`, such as `package#nginx`",
            id="not a reference",
        ),
        pytest.param(
            ["note: {name: a, notify: [apply#child.yaml]}", "apply: {name: child.yaml}"],
            "m.yaml:3:32: note#a: `apply#child.yaml` in `notify` cannot be refreshed: the type `apply` has no `subscribe`; "
            "`before` orders without a refresh",
            id="a type without subscribe",
        ),
    ],
)
async def test_a_wrong_target_is_refused_before_anything_is_changed(
    resources: list[str], message: str
) -> None:
    on = bench()

    with pytest.raises((ManifestError, PropertyError)) as caught:
        await load(on, manifest(*resources))

    assert str(caught.value) == f"/work/{message}"


@pytest.mark.parametrize(
    "value",
    [
        "before: note#b",
        "before: {a: b}",
        "before: [[note#b]]",
        "before: [5]",
        'before: [""]',
        'notify: ["#"]',
    ],
)
async def test_a_value_that_is_no_list_of_references_is_refused(value: str) -> None:
    with pytest.raises((ManifestError, PropertyError, Exception)) as caught:
        await load(bench(), manifest(f"note: {{name: a, {value}}}", "note: {name: b}"))

    assert getattr(caught.value, "code", "").startswith("input.")


async def test_an_unmet_requirement_is_as_if_the_target_required_it() -> None:
    outcomes = []
    for text in (
        manifest("note: {name: a, text: x, before: [note#b]}", "note: {name: b, text: y}"),
        manifest("note: {name: a, text: x}", "note: {name: b, text: y, require: [note#a]}"),
    ):
        on = bench()
        on.board.broken = {"a": "unable"}
        on.files.put("/work/m.yaml", text)
        await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options())
        outcomes.append([(one.name, one.outcome.value, one.unmet_requirements) for one in on.events])

    assert (
        outcomes[0]
        == outcomes[1]
        == [("a", "failed", []), ("b", "skipped due to unmet requirement", ["note#a"])]
    )


@pytest.mark.parametrize("noop", [False, True])
async def test_a_refresh_is_as_if_the_target_subscribed(noop: bool) -> None:
    outcomes = []
    for text in (
        manifest("note: {name: a, text: x, notify: [note#b]}", "note: {name: b, text: y}"),
        manifest("note: {name: a, text: x}", "note: {name: b, text: y, subscribe: [note#a]}"),
    ):
        on = bench()
        on.board.notes = {"b": "y"}
        on.files.put("/work/m.yaml", text)
        await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(noop=noop))
        outcomes.append([(one.name, one.outcome.value, one.triggered_by) for one in on.events])

    assert outcomes[0] == outcomes[1] == [("a", "changed", ""), ("b", "refreshed", "note#a")]


async def test_a_large_manifest_with_one_last_target_is_linked_once_each() -> None:
    names = [f"n{number}" for number in range(3000)]
    notes = [f"note: {{name: {name}, before: [note#last]}}" for name in names]

    found = await references(*notes, "note: {name: last}")

    assert found["last"][0] == [f"note#{name}" for name in names]


@pytest.mark.parametrize("field", ["before", "notify"])
async def test_a_single_resource_cannot_name_later_ones(field: str) -> None:
    on = bench()

    with pytest.raises(PropertyError, match=f"`{field}` is only for resources of a manifest"):
        await on.engine.ensure("note", {"name": "a", field: ["note#b"]}, on.options())

    properties = {"name": "x", "ensure": "running", field: ["service#b"]}
    (finding,) = lint_request("service", properties)
    assert (finding.rule, finding.message) == (
        "property",
        f"service#x: `{field}` is only for resources of a manifest",
    )


SERVICES = """ccm:
  resources:
    - service: {name: early, ensure: running}
    - service:
        name: a
        ensure: running
        before: [service#late, service#early, service#nothing, "service#{{ Facts.x }}"]
        notify: [service#late, package#zsh]
    - package: {name: zsh, ensure: present}
    - service: {name: late, ensure: running}
"""


def test_lint_reports_targets_that_are_not_declared_later() -> None:
    found = lint(make_document(SERVICES.encode(), "m.yaml", "/site"), Catalog(), ignored={"fact"})

    assert [(one.rule, str(one.place), one.message) for one in found] == [
        (
            "reference",
            "m.yaml:7:32",
            "service#a: `service#early` in `before` is not declared later: move it down",
        ),
        ("reference", "m.yaml:7:47", "service#a: `service#nothing` in `before` is not declared"),
        (
            "reference",
            "m.yaml:8:32",
            "service#a: `package#zsh` in `notify` cannot be refreshed: the type `package` has no `subscribe`; "
            "`before` orders without a refresh",
        ),
    ]


def test_lint_leaves_targets_alone_that_only_a_node_knows() -> None:
    text = """ccm:
  resources:
    - service: {name: a, ensure: running, notify: [service#b]}
    - service: {name: "{{ Facts.host.info.hostname }}", ensure: running}
"""

    assert lint(make_document(text.encode(), "m.yaml", "/site"), Catalog()) == []


def test_strict_lint_names_both() -> None:
    text = "ccm:\n  resources:\n    - service: {name: a, ensure: running, before: [service#b], notify: [service#b]}\n"
    text += "    - service: {name: b, ensure: running}\n"
    found = lint(make_document(text.encode(), "m.yaml", "/site"), Catalog(), strict_ccm=True)

    assert [one.message for one in found] == [
        "Choria CCM's `service` has no `before`; only ccm-fleet supports it",
        "Choria CCM's `service` has no `notify`; only ccm-fleet supports it",
    ]
