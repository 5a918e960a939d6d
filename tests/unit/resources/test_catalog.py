"""Types are found by folder and by entry point, and imported when they are asked for."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import ManifestError
from ccm_agent.resources import catalog as module
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ProviderSpec
from tests.support.engine import Board, note_type

THEIRS = note_type(Board(), name="theirs")
PROVIDER = ProviderSpec(name="pacman", make=lambda _context: None)


@pytest.fixture
def points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    monkeypatch.setattr(
        module, "_entry_points", lambda group: tuple(one for one in found if one.group == group)
    )
    return found


def test_our_own_types_are_folders_beside_the_catalog() -> None:
    found = Catalog()

    assert {"apply", "exec", "file", "package", "service"} <= set(found.names())
    assert found.find("file").name == "file"
    assert found.find("file") is found.find("file")


def test_only_requested_modules_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / "toys" / name).mkdir(parents=True)
        (tmp_path / "toys" / name / "__init__.py").write_text(
            f"from tests.support.engine import Board, note_type\nTYPE = note_type(Board(), name={name!r})\n"
        )
    (tmp_path / "toys" / "__init__.py").touch()
    (tmp_path / "toys" / "module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    found = Catalog("toys")

    assert (found.names(), found.find("one").name) == (["one", "two"], "one")
    assert "toys.two" not in sys.modules
    assert [kind.name for kind in found.all()] == ["one", "two"]


@pytest.mark.parametrize("name", ["fiel", "File", "../file", "contract", "", "file.model"])
def test_an_unknown_type_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(ManifestError, match="unknown resource type") as caught:
        Catalog().find(name)

    assert ("did you mean `file`?" in str(caught.value)) == (name in ("fiel", "File", "../file"))


def test_a_broken_type_reports_its_error_and_is_not_called_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_types" / "bad").mkdir(parents=True)
    (tmp_path / "broken_types" / "__init__.py").touch()
    (tmp_path / "broken_types" / "bad" / "__init__.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        Catalog("broken_types").find("bad")


def test_types_and_providers_of_others_come_by_entry_point(points: list[EntryPoint]) -> None:
    here = "tests.unit.resources.test_catalog"
    points += [
        EntryPoint("theirs", f"{here}:THEIRS", "ccm.types"),
        EntryPoint("wrong", f"{here}:THEIRS", "ccm.types"),
        EntryPoint("package.pacman", f"{here}:PROVIDER", "ccm.providers"),
    ]
    found = Catalog()

    assert found.find("theirs").name == "theirs"
    assert "theirs" in found.names()
    assert [spec.name for spec in found.foreign_providers("package")] == ["pacman"]
    assert found.foreign_providers("file") == []
    with pytest.raises(ManifestError, match="is not a resource type of that name"):
        found.find("wrong")


def test_an_own_type_does_not_read_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(group: str) -> Any:
        raise AssertionError(group)

    monkeypatch.setattr(module, "_entry_points", fail)

    assert Catalog().find("exec").name == "exec"
