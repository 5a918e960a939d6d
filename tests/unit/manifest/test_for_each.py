"""`for_each`: one entry becomes a resource for each element of a list."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.engine.render import render_plan
from ccm_agent.engine.request import ManifestSource
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.model.errors import InputError, PropertyError
from ccm_agent.model.outcome import SessionSummary
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import Bench, bench


async def apply(on: Bench, text: str, **options: Any) -> SessionSummary:
    on.files.put("/work/m.yaml", text)
    return await on.engine.apply(ManifestSource(path="/work/m.yaml"), on.options(**options))


def manifest(resource: str, data: str = "[a, b]", more: str = "") -> str:
    return f"data: {{sites: {data}}}\nccm:\n  resources:\n    - note: {resource}\n{more}"


async def notes(resource: str, data: str = "[a, b]") -> dict[str, str]:
    on = bench()
    await apply(on, manifest(resource, data))
    return on.board.notes


LOOKUP = "for_each: \"{{ lookup('data.sites') }}\""


@pytest.mark.parametrize(
    ("resource", "data", "expected"),
    [
        pytest.param(f'{{name: "n-{{{{ item }}}}", {LOOKUP}}}', "[a, b]", {"n-a": "", "n-b": ""}, id="texts"),
        pytest.param(f'{{name: "{{{{ item }}}}", {LOOKUP}}}', "[1, 2]", {"1": "", "2": ""}, id="numbers"),
        pytest.param(
            f'{{name: "{{{{ item.name }}}}", text: "{{{{ item.port }}}}", {LOOKUP}}}',
            "[{name: a, port: 80}, {name: b, port: 81}]",
            {"a": "80", "b": "81"},
            id="mappings",
        ),
        pytest.param(
            f'{{name: "{{{{ item.key }}}}", text: "{{{{ item.value.port }}}}", {LOOKUP}}}',
            "{a: {port: 80}, b: {port: 81}}",
            {"a": "80", "b": "81"},
            id="a mapping",
        ),
        pytest.param(
            '{name: "{{ item }}", for_each: [x, "{{ lookup(`data.sites`)[0] }}"]}',
            "[a, b]",
            {"x": "", "a": ""},
            id="a list in the manifest",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", later: "late {{{{ item }}}}", {LOOKUP}}}',
            "[a, b]",
            {"a": "late a", "b": "late b"},
            id="a field that is rendered late",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", later: "{{{{ template(`<${{ item }}>`) }}}}", {LOOKUP}}}',
            "[a]",
            {"a": "<a>"},
            id="a template within an expression",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", control: {{if: "item != \'a\'"}}, {LOOKUP}}}',
            "[a, b]",
            {"b": ""},
            id="control",
        ),
        pytest.param(
            f'{{name: "{{{{ item.name }}}}", text: "{{{{ lookup(\'item.port\', 80) }}}}", {LOOKUP}}}',
            "[{name: a}, {name: b, port: 81}]",
            {"a": "80", "b": "81"},
            id="a lookup in the item",
        ),
        pytest.param(
            f'[{{"{{{{ item }}}}": {{{LOOKUP}}}}}]', "[a, b]", {"a": "", "b": ""}, id="as a name of a list"
        ),
        pytest.param(
            f'[{{defaults: {{{LOOKUP}}}}}, {{"x-{{{{ item }}}}": {{}}}}, {{"y-{{{{ item }}}}": {{}}}}]',
            "[a]",
            {"x-a": "", "y-a": ""},
            id="as a default of a list",
        ),
    ],
)
async def test_each_element_makes_a_resource(resource: str, data: str, expected: dict[str, str]) -> None:
    assert await notes(resource, data) == expected


async def test_an_empty_list_makes_none() -> None:
    on = bench()

    summary = await apply(
        on, manifest(f'{{name: "{{{{ item }}}}", {LOOKUP}}}', "[]", "    - note: {name: other}\n")
    )

    assert (summary.state, on.outcomes) == ("changed", [("other", "changed")])


async def test_resources_refer_to_those_of_an_element() -> None:
    on = bench()
    on.board.broken = {"a": "unable"}
    last = f'    - note: {{name: "after-{{{{ item }}}}", {LOOKUP}, require: ["note#{{{{ item }}}}"]}}\n'
    first = f'{{name: "{{{{ item }}}}", {LOOKUP}, before: [note#end]}}'

    await apply(on, manifest(first, more=last + "    - note: {name: end}\n"))

    assert on.outcomes == [
        ("a", "failed"),
        ("b", "changed"),
        ("after-a", "skipped due to unmet requirement"),
        ("after-b", "changed"),
        ("end", "skipped due to unmet requirement"),
    ]


async def test_events_and_the_next_resource_know_no_item() -> None:
    on = bench()
    more = '    - note: {name: plain, later: "{{ item }}"}\n'

    summary = await apply(on, manifest(f'{{name: "{{{{ item }}}}", {LOOKUP}}}', "[a]", more))

    assert on.outcomes == [("a", "changed")]
    assert on.events[0].properties.for_each is None
    assert "unknown name item" in summary.reason


async def test_a_health_check_sees_the_item() -> None:
    on = bench()
    on.runner.when("/bin/check", stdout="OK")
    check = 'health_checks: [{command: "/bin/check {{ item }}", name: "{{ item }}"}]'

    await apply(on, manifest(f'{{name: "{{{{ item }}}}", {LOOKUP}, {check}}}', "[a]"))

    assert [one.name for one in on.events[0].health_check] == ["a"]


async def test_a_rendered_manifest_means_the_same() -> None:
    on = bench()
    text = manifest(
        f'{{name: "{{{{ item.n }}}}", text: x, later: "<{{{{ item.n }}}}>", {LOOKUP}}}', "[{n: a}, {n: b}]"
    )
    on.files.put("/work/m.yaml", text)
    prepared = await on.engine.load(ManifestSource(path="/work/m.yaml"), on.options())

    rendered = render_plan(prepared.loaded)
    again = bench()
    await apply(again, rendered)

    assert again.board.notes == {"a": "<a>", "b": "<b>"}


async def test_managed_names_are_those_of_the_elements() -> None:
    on = bench()
    resource = f'{{name: "{{{{ item }}}}", control: {{unless: "item == \'b\'"}}, {LOOKUP}}}'
    on.files.put("/work/m.yaml", manifest(resource))

    found = await on.engine.managed(ManifestSource(path="/work/m.yaml"), on.options())

    assert list(found.values()) == ["note#a"]


@pytest.mark.parametrize(
    ("resource", "data", "message"),
    [
        pytest.param(
            f"{{name: same, {LOOKUP}}}",
            "[a, b]",
            "element 2 (b) of `for_each`: the note has the same name as an earlier one: use `item` in it",
            id="the same name",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            "[a, a]",
            "element 2 (a) of `for_each`: the note has the same name as an earlier one: use `item` in it",
            id="an element twice",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", alias: x, {LOOKUP}}}',
            "[a, b]",
            "element 2 (b) of `for_each`: the note has the same alias as an earlier one: use `item` in it",
            id="the same alias",
        ),
        pytest.param(
            f'{{name: "{{{{ item.name }}}}", {LOOKUP}, ensure: "{{{{ item.ensure }}}}"}}',
            "[{name: a, ensure: present}, {name: b, ensure: presnt}]",
            "element 2 (b) of `for_each`: note#b: `ensure` is `presnt`, did you mean `present`?",
            id="a wrong value",
        ),
        pytest.param(
            f'{{name: "{{{{ item.name }}}}", {LOOKUP}}}',
            "[{name: a}, b]",
            "element 2 (b) of `for_each`: note#{{ item.name }}: ",
            id="an element of another form",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            '["/a"]',
            "element 1 (/a) of `for_each`: note#/a: a note has no path",
            id="a value that the type refuses",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            '["", x]',
            "element 1 of `for_each`: note#?: the name is empty: a resource needs one",
            id="an empty name",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            '["a\\nb: |", "a\\nb: |"]',
            "element 2 of `for_each`: ",
            id="a hostile element is not quoted",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            "text",
            "`for_each` must return a list or a mapping, not text",
            id="a text",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            "5",
            "`for_each` must return a list or a mapping, not `int`",
            id="a number",
        ),
        pytest.param(
            '{name: "{{ item }}", for_each: }',
            "[]",
            "`for_each` must return a list or a mapping, not nothing",
            id="nothing",
        ),
        pytest.param(
            '{name: "{{ item }}", for_each: "{{ lookup(\'data.sitez\') }}"}',
            "[]",
            "lookup of 'data.sitez' found nothing",
            id="a missing key",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}}}',
            str(list(range(10_001))),
            "`for_each` creates 10001 resources in this manifest, but at most 10000 are allowed",
            id="too many",
        ),
        pytest.param(
            f'{{name: "{{{{ item }}}}", {LOOKUP}, nmae: x}}',
            "[a]",
            "element 1 (a) of `for_each`: note#a: unknown key `nmae`, did you mean `name`?",
            id="an unknown property",
        ),
    ],
)
async def test_what_is_wrong_is_refused_before_anything_is_changed(
    resource: str, data: str, message: str
) -> None:
    on = bench()

    with pytest.raises(InputError) as caught:
        await apply(on, manifest(resource, data))

    assert message in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.place is not None
    assert caught.value.place.line >= 4
    assert on.board.notes == {}


async def test_two_entries_share_the_bound() -> None:
    on = bench()
    more = f'    - note: {{name: "x{{{{ item }}}}", {LOOKUP}}}\n'

    with pytest.raises(InputError, match="creates 12000 resources in this manifest"):
        await apply(on, manifest(f'{{name: "{{{{ item }}}}", {LOOKUP}}}', str(list(range(6000))), more))


async def test_a_single_resource_has_no_elements() -> None:
    on = bench()

    with pytest.raises(PropertyError, match="`for_each` is only for resources of a manifest"):
        await on.engine.ensure("note", {"name": "a", "for_each": ["x"]}, on.options())


SERVICES = """ccm:
  resources:
    - service:
        - "{{ item }}":
            for_each: "{{ lookup('data.x') }}"
            ensure: "{{ item.ensure }}"
            control: {if: "item.on"}
    - service: {name: plain, ensure: running, control: {if: "item.on"}}
    - service: {name: constant, ensure: running, for_each: [a, b]}
    - service: {name: "{{ item }}", ensure: running, for_each: "{{ item }}"}
"""


def test_lint_knows_where_item_has_a_value() -> None:
    found = lint(make_document(SERVICES.encode(), "m.yaml", "/site"), Catalog())

    assert sorted(
        {(one.place.line, one.rule, one.message.partition(";")[0].partition(":")[0]) for one in found}
    ) == [
        (8, "expression", "unknown name item"),
        (9, "property", "`for_each` gives each resource the same name"),
        (10, "expression", "unknown name item"),
    ]


def test_strict_lint_names_it() -> None:
    text = b'ccm:\n  resources:\n    - service: {name: "{{ item }}", ensure: running, for_each: [a]}\n'

    found = lint(make_document(text, "m.yaml", "/site"), Catalog(), strict_ccm=True)

    assert [one.message for one in found] == [
        "Choria CCM's `service` has no `for_each`; only ccm-fleet supports it"
    ]
