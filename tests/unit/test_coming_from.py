"""The pages for users of other programs: each resource on them is valid, and each type is on the page of types."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ccm_agent.cli import main
from ccm_agent.resources.catalog import Catalog

TOP = Path(__file__).resolve().parents[2]
PROGRAMS = ("ansible", "puppet", "salt")
DATA = {
    "motd": "hello",
    "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB",
    "sites": ["a"],
}


def rows(program: str) -> list[tuple[str, str]]:
    """The tasks of a page: theirs and ours."""
    page = (TOP / f"docs/coming-from-{program}.md").read_text().partition("## Words")[0]
    return re.findall(r"^\| `(.+?)`.* \| `(.+)` \|$", page, re.MULTILINE)


ROWS = [
    pytest.param(*row, id=f"{program}-{n}") for program in PROGRAMS for n, row in enumerate(rows(program))
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_page_has_the_same_twenty_tasks(program: str) -> None:
    assert [ours for _, ours in rows(program)] == [ours for _, ours in rows("ansible")]
    assert len(rows(program)) == 20


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

    assert theirs
    assert main.run(["lint", str(manifest)]) == 0, capsys.readouterr()


@pytest.mark.parametrize("program", ["ansible", "salt"])
def test_tasks_written_in_yaml_can_be_read(program: str) -> None:
    assert [theirs for theirs, _ in rows(program) if "{%" not in theirs and not yaml.safe_load(theirs)] == []


def test_each_type_is_on_the_page_of_types() -> None:
    page = (TOP / "docs/concepts/resources.md").read_text()

    assert [name for name in Catalog().names() if f"[{name}](../resources/{name}.md)" not in page] == []
