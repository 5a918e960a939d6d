"""The page for users of Ansible: each resource on it is valid, and each type is on the page of types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ccm_agent.cli import main
from ccm_agent.resources.catalog import Catalog

TOP = Path(__file__).resolve().parents[2]
PAGE = (TOP / "docs/coming-from-ansible.md").read_text()
ROWS = re.findall(r"^\| `(.+?)`.* \| `(.+)` \|$", PAGE.partition("## Words")[0], re.MULTILINE)
DATA = {
    "motd": "hello",
    "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB",
    "sites": ["a"],
}


def test_the_page_has_twenty_tasks() -> None:
    assert len(ROWS) == 20


@pytest.mark.parametrize(("theirs", "ours"), ROWS)
def test_each_resource_is_valid(
    theirs: str, ours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resources = [yaml.safe_load(ours)]
    if "subscribe" in ours:
        resources.insert(0, {"file": [{"/etc/motd": {"ensure": "absent"}}]})
    (tmp_path / "motd").touch()
    manifest = tmp_path / "m.yaml"
    manifest.write_text(yaml.safe_dump({"data": DATA, "ccm": {"resources": resources}}))

    assert main.run(["lint", str(manifest)]) == 0, capsys.readouterr()
    assert yaml.safe_load(theirs)


def test_each_type_is_on_the_page_of_types() -> None:
    page = (TOP / "docs/concepts/resources.md").read_text()

    assert [name for name in Catalog().names() if f"[{name}](../resources/{name}.md)" not in page] == []
