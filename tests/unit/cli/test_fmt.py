"""`ccm fmt`: what it writes, prints and ends with."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from ccm_agent.cli import main

OLD = "ccm:\n  resources:\n  - exec:\n    -   'true': {}   # always\n"
NEW = "ccm:\n  resources:\n    - exec:\n        - 'true': {}   # always\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site/manifest.yaml").write_text(OLD)
    (tmp_path / "right.yaml").write_text(NEW)
    return tmp_path


def test_files_are_written_in_place_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "site/manifest.yaml").chmod(0o640)

    status = main.run(["fmt", "site", "right.yaml"])

    assert (status, capsys.readouterr().out) == (0, "site/manifest.yaml\n")
    assert (folder / "site/manifest.yaml").read_text() == NEW
    assert (folder / "site/manifest.yaml").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        pytest.param(["--check", "site"], 1, "site/manifest.yaml: would be formatted\n", id="check"),
        pytest.param(["--check", "right.yaml"], 0, "", id="check of a formatted file"),
        pytest.param(
            ["--diff", "site"],
            0,
            "--- site/manifest.yaml\n+++ site/manifest.yaml (formatted)\n@@ -1,4 +1,4 @@\n ccm:\n   resources:\n"
            "-  - exec:\n-    -   'true': {}   # always\n+    - exec:\n+        - 'true': {}   # always\n",
            id="diff",
        ),
    ],
)
def test_nothing_is_written_when_only_asked(
    arguments: list[str], status: int, printed: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["fmt", *arguments]) == status

    assert capsys.readouterr().out == printed
    assert (folder / "site/manifest.yaml").read_text() == OLD


def test_standard_input_is_formatted_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(OLD.encode())))

    assert main.run(["fmt", "-"]) == 0

    assert capsys.readouterr().out == NEW


def test_a_file_that_is_not_yaml_stays_and_does_not_hide_the_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.yaml").write_text("a: [1\n")

    status = main.run(["fmt", "broken.yaml", "site"])

    printed = capsys.readouterr()
    assert (status, printed.out) == (1, "site/manifest.yaml\n")
    assert printed.err.startswith("ccm: broken.yaml:1:4: the list that opens with `[` is not closed")
    assert (folder / "broken.yaml").read_text() == "a: [1\n"


def test_json_is_left_alone(folder: Path) -> None:
    (folder / "m.json").write_text('{"ccm":\n  {}}')

    assert main.run(["fmt", "m.json"]) == 0

    assert (folder / "m.json").read_text() == '{"ccm":\n  {}}'
