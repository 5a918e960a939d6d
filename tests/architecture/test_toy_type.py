"""
A new type touches one folder: what `ccm dev new-type` writes is found by everything, and nothing else is edited for it.

The folder is put on the catalog's path from outside, so that the source tree stays as it is.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import ccm_agent.resources
from ccm_agent.cli.main import run
from ccm_agent.model.errors import ManifestError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import ProviderSpec
from ccm_agent.resources.registry import ProviderRegistry
from ccm_agent.resources.schema import manifest_schema

TOP = Path(__file__).resolve().parents[2]
CODE = "ccm_agent/resources/motto"
WRITTEN = [
    f"{CODE}/__init__.py",
    f"{CODE}/model.py",
    f"{CODE}/providers/__init__.py",
    f"{CODE}/providers/posix.py",
    f"{CODE}/resource.py",
    "docs/resources/motto.md",
    "tests/unit/resources/motto/test_motto.py",
]


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What a test imports is gone after it."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if "motto" in name or name.startswith("acme"):
            del sys.modules[name]
    vars(ccm_agent.resources).pop("motto", None)
    importlib.invalidate_caches()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgetful: None) -> Path:
    """A directory with the toy type in it, which the catalog's path leads to."""
    assert run(["dev", "new-type", "motto", str(tmp_path / "tree")]) == 0
    more = str(tmp_path / "tree/ccm_agent/resources")
    monkeypatch.setattr(ccm_agent.resources, "__path__", [*ccm_agent.resources.__path__, more])
    importlib.invalidate_caches()
    return tmp_path / "tree"


@pytest.fixture
def generate() -> ModuleType:
    """The program behind `make generate`."""
    spec = importlib.util.spec_from_file_location("generate", TOP / ".ci/generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_type_is_one_folder_with_its_test_and_its_page(tree: Path) -> None:
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()) == WRITTEN


def test_the_catalog_lists_it_and_the_registry_picks_its_provider(tree: Path) -> None:
    catalog = Catalog()

    kind = catalog.find("motto")

    assert "motto" in catalog.names()
    assert kind in catalog.all()
    assert kind.name == "motto"


async def test_the_registry_picks_its_provider(tree: Path) -> None:
    catalog = Catalog()

    assert (await ProviderRegistry(catalog).pick(catalog.find("motto"), "", {})).name == "posix"


def test_ensure_offers_it_with_its_own_flags(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ensure", "--help"]) == 0
    assert "motto" in capsys.readouterr().out

    assert run(["ensure", "motto", "--help"]) == 0
    assert "--text TEXT" in capsys.readouterr().out


def test_ensure_and_status_manage_it(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tree / "notice"

    assert run(["ensure", "motto", str(path), "--text", "hi"]) == 0
    assert path.read_text() == "hi"
    capsys.readouterr()

    assert run(["status", "motto", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == "hi"


def test_a_manifest_holds_it(tree: Path) -> None:
    path = tree / "notice"
    manifest = tree / "m.yaml"
    manifest.write_text(f"ccm:\n  resources:\n    - motto: [{{{path}: {{text: hi}}}}]\n")

    assert run(["apply", str(manifest), "--no-report"]) == 0
    assert path.read_text() == "hi"


def test_the_schemas_know_it(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    definitions = manifest_schema(Catalog().all())["$defs"]

    assert definitions["resource"]["properties"]["motto"] == {"$ref": "#/$defs/motto"}
    assert definitions["motto_properties"]["properties"]["text"]["description"] == "The file's content."

    assert run(["schema", "motto"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["ensure"]["enum"] == ["present", "absent"]


def test_generate_writes_its_schema_and_its_table(
    tree: Path, generate: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generate, "TOP", tree)

    tables, schemas = generate.property_tables(), generate.type_schemas()

    page = tables[tree / "docs/resources/motto.md"]
    assert "| `text` | The file's content. |" in page
    assert tree / "schemas/v1/resource_motto.json" in schemas


@pytest.mark.timeout(240)  # it runs ruff, mypy and pytest
def test_its_own_test_passes_and_linters_find_nothing(tree: Path) -> None:
    shutil.copytree(
        TOP / "ccm_agent",
        tree / "ccm_agent",
        ignore=shutil.ignore_patterns("__pycache__"),
        dirs_exist_ok=True,
    )
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    settings = str(TOP / "pyproject.toml")
    programs = [
        ["pytest", "-q", "-c", os.devnull, "--rootdir", ".", "-o", "asyncio_mode=auto", "tests"],
        ["ruff", "check", "--no-cache", "--config", settings, CODE, "tests"],
        ["ruff", "format", "--no-cache", "--check", "--config", settings, CODE, "tests"],
    ]

    for program in programs:
        done = subprocess.run(
            [sys.executable, "-m", *program],
            cwd=tree,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout + done.stderr if done.returncode else "") == (0, "")


def test_existing_files_are_never_overwritten(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}

    assert run(["dev", "new-type", "motto", str(tree)]) == 1
    assert "resource type `motto` already exists" in capsys.readouterr().err

    assert {
        path: path.read_bytes() for path in tree.rglob("*") if path.is_file() and path in before
    } == before


@pytest.mark.parametrize("name", ["Motto", "../motto", "class", "", "a-b", "1a"])
def test_an_invalid_name_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["dev", "new-type", name, str(tmp_path / "tree")]) == 1

    assert "is not a valid name of a type" in capsys.readouterr().err
    assert not (tmp_path / "tree").exists()


# ---- of others, by entry point ----


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgetful: None) -> Path:
    """An installed distribution that brings a type and a provider of files."""
    site = tmp_path / "site"
    assert run(["dev", "new-type", "motto", str(site), "--package", "acme_types", "--provider", "wall"]) == 0
    (site / "acme_provider.py").write_text(
        "from ccm_agent.resources.contract import ProviderSpec\n"
        "SPEC = ProviderSpec(name='acme', make=lambda context: object(), rank=90)\n"
        "WRONG = 5\n"
    )
    info = site / "acme-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[ccm.types]\nmotto = acme_types.motto:TYPE\nbroken = acme_provider:WRONG\ngone = acme_gone:TYPE\n\n"
        "[ccm.providers]\nfile.acme = acme_provider:SPEC\nfile.wrong = acme_provider:WRONG\n"
    )
    monkeypatch.syspath_prepend(str(site))
    return site


def test_a_type_of_another_owner_is_found_by_its_entry_point(
    distribution: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog()

    assert {"motto", "broken"} <= set(catalog.names())
    assert catalog.find("motto").properties.__module__ == "acme_types.motto.model"

    assert run(["schema", "motto"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "motto"


def test_an_entry_point_that_is_not_a_type_is_an_error_that_names_it(distribution: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        Catalog().find("broken")

    assert caught.value.message == "the entry point `broken` of ccm.types is not a resource type of that name"


def test_broken_entry_point_is_reported_with_its_package(distribution: Path) -> None:
    with pytest.raises(ManifestError) as caught:
        Catalog().find("gone")

    assert caught.value.message == (
        "the entry point `gone` of acme (acme_gone:TYPE) cannot be loaded: No module named 'acme_gone'"
    )


async def test_a_provider_of_another_owner_is_picked_by_name_and_after_ours_otherwise(
    distribution: Path,
) -> None:
    catalog = Catalog()
    registry, kind = ProviderRegistry(catalog), catalog.find("file")

    theirs = await registry.pick(kind, "acme", {})

    assert isinstance(theirs, ProviderSpec)
    assert (theirs.name, (await registry.pick(kind, "", {})).name) == ("acme", "posix")
