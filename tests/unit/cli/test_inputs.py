"""What flags give."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccm_agent.cli import inputs
from ccm_agent.model.errors import DocumentError, UsageError


def test_pairs_split_at_the_first_sign_and_the_last_of_a_name_wins() -> None:
    assert inputs.pairs(("a=b:c", "d=", "a=e", "f:g=h"), "--fact") == {"a": "e", "d": "", "f": "g=h"}


@pytest.mark.parametrize("text", ["a", "=b"])
def test_an_invalid_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write NAME=VALUE"):
        inputs.pairs((text,), "--fact")


def test_facts_of_the_command_line_win_over_those_of_a_file_and_stay_text(tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text("env: file\nn: 5\nhost: {a: 1}\n")

    facts = inputs.more_facts(("env=cli", "n=7", "host=mine"), str(tmp_path / "facts.yaml"))

    assert facts == {"env": "cli", "n": "7", "host": "mine"}


def test_an_empty_file_holds_no_facts(tmp_path: Path) -> None:
    (tmp_path / "facts.yaml").write_text("")

    assert inputs.more_facts((), str(tmp_path / "facts.yaml")) == {}


def test_a_file_that_holds_no_mapping_or_is_not_valid_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    (tmp_path / "bad.yaml").write_text("a: [\n")
    (tmp_path / "bytes").write_bytes(b"\xff")

    with pytest.raises(UsageError, match="must be a mapping"):
        inputs.read_mapping(str(tmp_path / "list.yaml"), "--facts")
    with pytest.raises(DocumentError, match=r"bad\.yaml:"):
        inputs.read_mapping(str(tmp_path / "bad.yaml"), "--facts")
    with pytest.raises(UsageError, match="not UTF-8"):
        inputs.read_mapping(str(tmp_path / "bytes"), "--facts")
    with pytest.raises(UsageError, match="No such file"):
        inputs.read_mapping(str(tmp_path / "none"), "--facts")


@pytest.mark.timeout(5)
def test_a_pipe_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(UsageError, match="not a regular file"):
        inputs.read_text(str(tmp_path / "pipe"), "--facts")


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        pytest.param("A=1\nB=x y\n", {"A": "1", "B": "x y"}, id="plain"),
        pytest.param("A=\"double\"\nB='single'\n", {"A": "double", "B": "single"}, id="quoted"),
        pytest.param(
            'A="open\nB=a"b"c\nC="\n', {"A": '"open', "B": 'a"b"c', "C": '"'}, id="other quotes stay"
        ),
        pytest.param("# A=1\n\nB\n=C\nexport D=4\n", {"D": "4"}, id="other lines say nothing"),
        pytest.param("A=b=c\n", {"A": "b=c"}, id="signs in values"),
    ],
)
def test_env_files_are_read_line_by_line(text: str, variables: dict[str, str]) -> None:
    assert inputs.parse_env(text) == variables


def test_the_env_file_wins_over_the_environment_and_empty_variables_are_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("A=file\nEMPTY=\n")
    monkeypatch.chdir(tmp_path)
    for name, value in {"A": "process", "B": "process", "C": ""}.items():
        monkeypatch.setenv(name, value)

    found = inputs.environment(True)

    assert (found["A"], found["B"], "C" in found, "EMPTY" in found) == ("file", "process", False, False)
    assert inputs.environment(False)["A"] == "process"
