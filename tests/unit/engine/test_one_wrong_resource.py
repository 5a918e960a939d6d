"""A resource that Choria CCM refuses when its turn has come fails alone; `lint` and requests report it at once."""

from __future__ import annotations

import pytest

from ccm_agent.engine.request import ManifestSource
from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.findings import ERROR, WARNING
from ccm_agent.manifest.lint import lint
from ccm_agent.resources.catalog import Catalog
from tests.support.engine import bench

AROUND = """
ccm:
  resources:
    - file: [{{/before: {{ensure: absent}}}}]
    - {resource}
    - file: [{{/after: {{ensure: absent}}}}]
"""

FAILING = [
    pytest.param(
        'file: [{/srv/x: {ensure: present, content: x, owner: root, group: root, mode: 0644}}]',
        'failed to reach desired state: present: mode mismatch: state=0420 requested=420; '
        '`mode` must be quoted, as in mode: "0644"; '
        "unquoted it is the number 420",
        id="unquoted mode of a file",
    ),
    pytest.param(
        'scaffold: [{/srv/x: {ensure: present, source: "https://example.net/x"}}]',
        "cannot read source directory: stat https://example.net/x: no such file or directory; "
        "`source` cannot be a URL: fetch it with an `archive` resource first",
        id="URL as source",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "message"), FAILING)
async def test_the_resource_fails_alone(resource: str, message: str) -> None:
    on = bench(Catalog().find("file"), Catalog().find("scaffold"), port=lambda name: None)
    on.files.put("/before", b"")
    on.files.put("/after", b"")
    on.files.put("/work/m.yaml", AROUND.format(resource=resource))

    summary = await on.engine.apply(ManifestSource(path="m.yaml"), on.options())

    assert [event.error for event in on.events] == [[], [message], []]
    assert (summary.changed_resources, summary.failed_resources) == (2, 1)
    found = await on.files.inspect(["/before", "/srv/x", "/after"])
    assert [one.kind for one in found] == ["absent"] * 3


@pytest.mark.parametrize(
    ("resource", "rule"),
    [
        *[pytest.param(*one.values[:1], rule, id=one.id) for one, rule in zip(FAILING, ("unquoted", "property"), strict=True)],
        pytest.param(
            "archive: [{/srv/x.zip: {ensure: present, url: 'http://e/x.zip', checksum: abc, owner: root, group: root}}]",
            "property",
            id="checksum",
        ),
        pytest.param("package: [{'-y': {ensure: present}}]", "property", id="package name"),
        pytest.param("service: [{'-y': {ensure: running}}]", "property", id="service name"),
        pytest.param(
            "exec: [{'true': {health_checks: [{goss_rules: {fil: {/x: {exists: true}}}}]}}]",
            "property",
            id="unknown kind of goss",
        ),
        pytest.param(
            "exec: [{'true': {health_checks: [{goss_rules: {gossfile: {x.yaml: {}}}}]}}]",
            "property",
            id="relative gossfile",
        ),
    ],
)  # fmt: skip
def test_lint_reports_the_resource(resource: str, rule: str) -> None:
    found = lint(make_document(AROUND.format(resource=resource).encode(), "m.yaml", "/work"))

    assert [(one.level, one.rule) for one in found] == [(ERROR, rule)]


def test_lint_warns_of_a_mode_that_works_for_a_directory() -> None:
    resource = "file: [{/srv/x: {ensure: directory, owner: root, group: root, mode: 0644}}]"

    found = lint(make_document(AROUND.format(resource=resource).encode(), "m.yaml", "/work"))

    assert [(one.level, one.rule) for one in found] == [(WARNING, "unquoted")]
