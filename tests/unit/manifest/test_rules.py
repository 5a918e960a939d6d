"""The documentation of the rules: each code is listed, and each example has its finding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ccm_agent.manifest.document import make_document
from ccm_agent.manifest.lint import lint
from ccm_agent.manifest.rules import RULES

PAGE = (Path(__file__).parents[3] / "docs/reference/lint.md").read_text()
EXAMPLES = dict(
    re.findall(
        r"^### `([a-z-]+)`\n(?:(?!^###).)*?^```(?:yaml|text)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )
)


def test_the_page_lists_every_rule_with_its_findings() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| (?:error|warning|error or warning) \| (.*) \|$", PAGE, re.MULTILINE
    )

    assert dict(rows) == RULES
    assert list(EXAMPLES) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_an_example_has_the_finding_and_no_other_error(rule: str) -> None:
    document = make_document(EXAMPLES[rule].encode(), "m.yaml", "/")

    found = {one.rule for one in lint(document, strict_ccm=rule == "strict-ccm")}

    assert found == {rule}


def test_the_example_of_silencing_has_no_findings() -> None:
    text = re.search(r"^## Silencing.*?^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert text is not None

    assert lint(make_document(text[1].encode(), "m.yaml", "/")) == []
