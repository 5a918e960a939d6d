"""`ccm lint --fix` adds quotes and changes nothing else."""

from __future__ import annotations

import pytest

from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.fix import fix
from ccm_agent.manifest.lint import lint


def fixed(text: str) -> str:
    found = lint(make_document(text.encode(), "m.yaml", "/"))
    new = fix(text, found)
    assert not any(one.can_fix for one in lint(make_document(new.encode(), "m.yaml", "/")))
    return new


def test_modes_and_versions_get_quotes_and_comments_stay() -> None:
    text = """\
# managed by ops
ccm:
  resources:
    - file:
        - defaults: {owner: root, group: root, mode: 0644}   # for all
        - /a-b/ü: {ensure: present}
        - /b:
            ensure: present
            mode:   755    # scripts
        - /c: {ensure: present, mode: 0o600}
    - package:
        - foo-bar: {ensure: 1.10}
        - tool: {ensure:    2}
"""

    assert fixed(text) == text.replace("mode: 0644", 'mode: "0644"').replace("755", '"0755"').replace(
        "0o600", '"0600"'
    ).replace("1.10", '"1.10"').replace("   2", '   "2"')


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"ccm": {"resources": [{"package": {"name": "x", "ensure": 1.10}}]}}', id="JSON"),
        pytest.param(
            "x-v: &v 1.10\nccm: {resources: [{package: {name: x, ensure: *v}}]}",
            id="an alias of another place",
        ),
        pytest.param("ccm: {resources: [{package: {name: x, ensure: &v 1.10}}]}", id="an anchor"),
        pytest.param("ccm: {resources: [{package: {name: x, ensure: .inf}}]}", id="no digits"),
    ],
)
def test_uncertain_findings_are_not_fixed(text: str) -> None:
    found = lint(make_document(text.encode(), "m.yaml", "/"))

    assert [one.rule for one in found] == ["unquoted"]
    assert fix(text, found) == text
