"""`ccm lint`: what it prints, writes and ends with."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from ccm_agent.cli import main
from ccm_agent.cli.record_types import HOST_RECORDS, HostFindingLine

WRONG = """\
ccm:
  resources:
    - exec:
        - 'true':
            creats: x
"""
UNQUOTED = """\
ccm:
  resources:
    - package:
        - nginx: {ensure: 1.10}   # pinned
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.yaml").write_text(WRONG)
    (tmp_path / "version.yaml").write_text(UNQUOTED)
    return tmp_path


def test_findings_are_shown_with_their_lines_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    status = main.run(["lint", "wrong.yaml", "version.yaml"])

    assert (status, capsys.readouterr().out) == (
        1,
        "wrong.yaml:5:13: error: exec#true: unknown key `creats`, did you mean `creates`? [unknown-property]\n"
        "  5 |             creats: x\n"
        "    |             ^^^^^^\n"
        "version.yaml:4:19: warning: unquoted `ensure` is a number and is read as 1.1; put it in quotes [unquoted]\n"
        "  4 |         - nginx: {ensure: 1.10}   # pinned\n"
        "    |                   ^^^^^^\n"
        "1 error, 1 warning\n",
    )


def test_a_record_has_the_documented_fields(capsys: pytest.CaptureFixture[str]) -> None:
    status = main.run(["lint", "wrong.yaml", "--json"])

    printed = capsys.readouterr().out
    assert status == 1
    assert isinstance(msgspec.json.decode(printed, type=HOST_RECORDS), HostFindingLine)
    assert json.loads(printed) == {
        "record": "finding",
        "manifest": "wrong.yaml",
        "level": "error",
        "rule": "unknown-property",
        "message": "exec#true: unknown key `creats`, did you mean `creates`?",
        "place": {
            "source": "wrong.yaml",
            "line": 5,
            "column": 13,
            "path": "$.ccm.resources[0].exec[0].true.creats",
        },
        "can_fix": False,
    }


def test_fix_adds_quotes_and_reports_remaining_findings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["lint", "version.yaml", "--fix"])

    assert (status, capsys.readouterr().out) == (0, "1 fixed\n")
    assert (folder / "version.yaml").read_text() == UNQUOTED.replace("1.10", '"1.10"')


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        pytest.param(["version.yaml"], 0, id="a warning"),
        pytest.param(["version.yaml", "--warnings-fail"], 1, id="a warning that counts"),
        pytest.param(["version.yaml", "--warnings-fail", "--ignore", "unquoted"], 0, id="an ignored warning"),
        pytest.param(["wrong.yaml", "--ignore", "order,unknown-property"], 0, id="an ignored error"),
        pytest.param(["site"], 0, id="a directory"),
    ],
)
def test_the_exit_code_reports_whether_a_manifest_is_valid(
    arguments: list[str], status: int, folder: Path
) -> None:
    (folder / "site").mkdir()
    (folder / "site/manifest.yaml").write_text("ccm: {resources: [{exec: {name: 'true'}}]}\n")

    assert main.run(["lint", *arguments]) == status


def test_a_file_that_cannot_be_read_does_not_hide_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    status = main.run(["lint", "none.yaml", "version.yaml"])

    printed = capsys.readouterr()
    assert (status, printed.err) == (1, "ccm: MANIFEST none.yaml: No such file or directory\n")
    assert printed.out.endswith("1 warning\n")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("ordr", "--ignore ordr: unknown rule, did you mean `order`?"),
        (
            "syntax",
            "--ignore syntax: this rule cannot be ignored; files that break it cannot be checked further",
        ),
    ],
)
def test_a_code_that_cannot_be_ignored_is_refused(
    code: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["lint", "wrong.yaml", "--ignore", code]) == 1

    assert sentence in capsys.readouterr().err
