"""`ccm apply --render`."""

from __future__ import annotations

from ccm_agent.engine.render import render_plan
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from tests.support.engine import bench


async def test_what_is_rendered_is_a_manifest_without_secrets() -> None:
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
        "        later: '{{ Data.w }}'\n"
        "        pin: '***'\n"
        "        text: hi world\n"
        "data:\n"
        "  w: world"
    )
