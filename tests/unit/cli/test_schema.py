"""`ccm schema`: what it prints, and what it writes for an editor."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from ccm_agent.cli import main

WANTED = {"yaml.schemas": {"./.vscode/ccm-manifest.schema.json": ["manifest.yaml", "*.ccm.yaml"]}}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "name"), [([], "manifest"), (["file"], "resource_file")], ids=["manifest", "type"]
)
def test_a_schema_has_an_id_that_does_not_depend_on_its_place(
    arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["schema", *arguments]) == 0

    schema = json.loads(capsys.readouterr().out)
    assert schema["$id"] == f"https://ccm-fleet.github.io/ccm-fleet/schemas/v1/{name}.json"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_the_schema_of_manifests_finds_a_misspelled_property(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["schema"])
    validator = jsonschema.Draft202012Validator(json.loads(capsys.readouterr().out))
    right = {"ccm": {"resources": [{"file": [{"/etc/motd": {"ensure": "absent"}}]}]}}
    wrong = {"ccm": {"resources": [{"file": [{"/etc/motd": {"ensure": "absent", "forse": True}}]}]}}

    assert [validator.is_valid(right), validator.is_valid(wrong)] == [True, False]


def test_vscode_gets_the_schema_and_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main.run(["schema", "--vscode"])

    assert (status, capsys.readouterr().out) == (
        0,
        ".vscode/ccm-manifest.schema.json: written\n.vscode/settings.json: written\n",
    )
    assert json.loads((folder / ".vscode/settings.json").read_text()) == WANTED
    assert json.loads((folder / ".vscode/ccm-manifest.schema.json").read_text())["title"] == "Manifest"


@pytest.mark.parametrize(
    ("settings", "is_shown"),
    [
        pytest.param('{"editor.tabSize": 2}', True, id="without the schema"),
        pytest.param('{\n// mine\n"editor.tabSize": 2}', True, id="with comments"),
        pytest.param(json.dumps(WANTED | {"editor.tabSize": 2}), False, id="with the schema"),
    ],
)
def test_settings_that_exist_stay(
    settings: str, is_shown: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".vscode").mkdir()
    (folder / ".vscode/settings.json").write_text(settings)

    assert main.run(["schema", "--vscode"]) == 0

    assert (".vscode/settings.json: already exists; add this to it:\n" in capsys.readouterr().out) is is_shown
    assert (folder / ".vscode/settings.json").read_text() == settings


def test_vscode_is_about_manifests_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["schema", "file", "--vscode"]) == 1

    assert "--vscode writes the schema of manifests; omit TYPE" in capsys.readouterr().err
