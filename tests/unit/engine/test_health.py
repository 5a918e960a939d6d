"""Health checks of a manifest's resources: templates in rules, and what becomes of the resource."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.health import HealthResult, HealthStatus
from tests.support.engine import Bench, bench

MANIFEST = """
data: {path: /srv/x, size: 3, token: geheim}
ccm:
  resources:
    - note:
        name: a
        text: x
        health_checks:
          - name: rules
            goss_rules:
              %s
"""


async def run(on: Bench, rules: str) -> list[HealthResult]:
    on.files.put("/work/m.yaml", MANIFEST % rules)
    await on.engine.apply(ManifestSource(path="m.yaml"), on.options())
    return on.events[0].health_check


async def test_a_plan_does_not_check_resources_it_would_change() -> None:
    on = bench()
    on.files.put("/work/m.yaml", MANIFEST % "file: {/srv/x: {exists: true}}")

    summary = await on.engine.apply(ManifestSource(path="m.yaml"), on.options(noop=True))

    event = on.events[0]
    why = "unknown until applied: the health checks are not run in a plan that would change the resource"
    assert (event.changed, event.failed, event.unknown) == (True, False, why)
    assert event.health_check == [HealthResult(status=3, tries=0, name="rules", output=why)]
    assert (summary.state, summary.unknown_count) == ("changed", 1)


async def test_a_noop_of_ccm_apply_checks_resources_it_would_change_too() -> None:
    on = bench()
    on.files.put("/work/m.yaml", MANIFEST % "file: {/srv/x: {exists: true}}")

    summary = await on.engine.apply(ManifestSource(path="m.yaml"), on.options(noop=True, checks_planned=True))

    event = on.events[0]
    assert (event.changed, event.failed, event.unknown) == (True, True, "")
    assert [one.status for one in event.health_check or []] == [HealthStatus.CRITICAL]
    assert (summary.state, summary.unknown_count) == ("failed", 0)


async def test_a_plan_checks_stable_resources() -> None:
    on = bench()
    on.board.notes = {"a": "x"}
    on.files.put("/work/m.yaml", MANIFEST % "file: {/srv/x: {exists: true}}")

    await on.engine.apply(ManifestSource(path="m.yaml"), on.options(noop=True))

    assert on.outcomes == [("a", "failed")]


async def test_templates_in_rules_are_rendered_in_keys_and_keep_their_types() -> None:
    on = bench()
    on.files.put("/srv/x", "abc")

    found = await run(on, '"file": {"{{ Data.path }}": {exists: true, size: "{{ Data.size }}"}}')

    assert found == [HealthResult(status=0, name="rules", output="Count: 2, Failed: 0, Skipped: 0")]
    assert on.outcomes == [("a", "changed")]


async def test_a_rule_that_fails_fails_the_resource_and_is_named_in_its_error() -> None:
    on = bench()

    await run(on, "file: {/srv/x: {exists: true}}")

    assert on.outcomes == [("a", "failed")]
    assert on.events[0].error == [
        "health check rules is CRITICAL: file /srv/x exists: found false, wanted true"
    ]


async def test_rules_that_cannot_be_rendered_make_the_check_unknown() -> None:
    on = bench()

    found = await run(on, 'file: {"{{ Data.path + 1 }}": {exists: true}}')

    assert [(one.status, one.name) for one in found] == [(3, "rules")]
    assert on.events[0].error[0].startswith("health check rules is UNKNOWN: ")


async def test_secrets_in_rules_leave_nowhere() -> None:
    on = bench()

    await run(
        on,
        'http: {"http://localhost/": {status: 200, username: u, password: passwort, '
        'request-headers: ["Authorization: Bearer {{ Data.token }}", "Accept: text/html"]}}',
    )

    written = msgspec.json.encode(on.events[0]).decode()
    assert "passwort" not in written
    assert "geheim" not in written
    assert "Accept: text/html" in written


@pytest.mark.parametrize("password", ["geheim", "{{ Data.token }}"], ids=["written", "by a template"])
async def test_a_secret_of_a_rule_is_in_no_result(password: str) -> None:
    on = bench()

    await run(
        on,
        f'http: {{"http://localhost/": {{status: 200, username: u, password: "{password}"}}}}\n'
        "              file: {/srv/geheim: {exists: true}}",
    )

    assert on.events[0].error == [
        "health check rules is CRITICAL: file /srv/*** exists: found false, wanted true"
    ]
    assert "geheim" not in msgspec.json.encode(on.events[0]).decode()


async def test_the_rules_of_the_page_are_accepted() -> None:
    page = (Path(__file__).parents[3] / "docs/concepts/health.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0].replace("\n", "\n        ")
    on = bench()
    on.files.put(
        "/work/m.yaml",
        f"data: {{port: 8080}}\nccm:\n  resources:\n    - note:\n        name: a\n        {example}",
    )

    plan = await on.engine.load(ManifestSource(path="m.yaml"), on.options())

    (check,) = plan.loaded.resources[0].wanted.health_checks
    assert (check.name, check.format, check.tries, list(check.goss_rules)) == (
        "web",
        "goss",
        5,
        ["service", "port", "http", "file"],
    )


async def test_the_matcher_xml_fails_its_resource() -> None:
    on = bench()
    on.files.put("/work/m.yaml", MANIFEST % 'file: {/srv/x: {exists: true, contents: {xml: {"//a": b}}}}')

    summary = await on.engine.apply(ManifestSource(path="m.yaml"), on.options())

    assert summary.failed_resources == 1
    assert re.search(
        r"UNKNOWN: .*the matcher `xml` is not supported.*use `match-regexp`", on.events[0].error[0]
    )
