"""`ccm apply --render`."""

from __future__ import annotations

import msgspec
import pytest
import yaml

from ccm_agent.engine.render import render_plan
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.resources.file import TYPE as FILE
from ccm_agent.resources.package import TYPE as PACKAGE
from tests.support.engine import Bench, bench


async def rendered(on: Bench, text: str, name: str = "m.yaml") -> str:
    plan = await on.engine.load(ManifestSource(text=text.encode(), name=name), ApplyOptions())
    return render_plan(plan.loaded)


async def test_the_rendered_output_is_a_manifest_without_secrets() -> None:
    on = bench()
    text = (
        "data: {w: world}\n"
        "ccm:\n"
        "  pre_message: hello\n"
        "  resources:\n"
        '    - note: {name: "{{ Data.w }}", text: "hi {{ Data.w }}", later: "{{ Data.w }}", pin: hunter22}\n'
    )

    plan = await on.engine.load(ManifestSource(text=text.encode(), name="m.yaml"), ApplyOptions())

    assert render_plan(plan.loaded) == (
        "ccm:\n"
        "  fail_on_error: false\n"
        "  resources:\n"
        "  - note:\n"
        "    - world:\n"
        "        ensure: present\n"
        '        later: "{{ Data.w }}"\n'
        '        pin: "***"\n'
        "        text: hi world\n"
        "data:\n"
        "  w: world"
    )


LIKE_TEMPLATES = [
    "{{ Data.x }}",
    "a ${HOME} b",
    "$${{ 1 }} and {{{ 2 }}}",
    "{{ never",
    "${",
    "\"{{ '}}' }}\"",
    "plain",
]


@pytest.mark.parametrize("content", LIKE_TEMPLATES)
async def test_a_tinycm_manifest_is_unchanged_after_rendering_and_loading(content: str) -> None:
    on = bench(FILE, PACKAGE)
    head = "global: {marker: 'x{{ 1 }}'}\n---\n"
    body = yaml.safe_dump({"file": {"name": "/etc/{{ a }}", "owner": "root", "contents": content}})

    first = await on.engine.load(
        ManifestSource(text=(head + body).encode(), name="site.cm.yml"), ApplyOptions()
    )
    second = await on.engine.load(
        ManifestSource(text=render_plan(first.loaded).encode(), name="m.yaml"), ApplyOptions()
    )

    (one,), (again,) = first.loaded.resources, second.loaded.resources
    turn = {field: second.loaded.expressions.text(getattr(again.wanted, field)) for field in again.pending}
    assert msgspec.structs.replace(again.wanted, **turn) == one.wanted
    assert second.loaded.data == first.loaded.data


async def test_results_of_expressions_are_not_rendered_again() -> None:
    text = (
        "data: {open: '{{ \"{{\" }} 1 }}'}\n"
        "ccm:\n"
        "  resources:\n"
        '    - note: {name: a, text: "{{ Data.open }}", later: "{{ Data.open }}", plain: "{{ 2 }}"}\n'
    )

    once = await rendered(bench(), text)
    twice = await rendered(bench(), once)

    assert yaml.safe_load(once)["ccm"]["resources"] == [
        {
            "note": [
                {
                    "a": {
                        "ensure": "present",
                        "text": '{{ "{{" }} 1 }}',
                        "later": "{{ Data.open }}",
                        "plain": "{{ 2 }}",
                    }
                }
            ]
        }
    ]
    assert yaml.safe_load(once)["data"] == {"open": '{{ "{{" }} 1 }}'}
    assert twice == once
