"""Facts that people write."""

import logging
import os
from pathlib import Path

import pytest

from ccm_agent.facts import files
from ccm_agent.model.errors import DocumentError, FileError


def _write(folder: Path, **contents: str) -> None:
    for name, content in contents.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


def test_later_files_win_and_lists_are_joined(tmp_path: Path) -> None:
    system, user = tmp_path / "system", tmp_path / "user"
    _write(system, facts_json='{"role": "web", "l": [1], "m": {"a": 1}}', facts_yaml="role: db\nm: {b: 2}\n")
    (system / "facts.d").mkdir()
    (system / "facts.d/20.json").write_text('{"l": [3], "late": true}')
    (system / "facts.d/10.yaml").write_text("l: [2]\nlate: false\n")
    _write(user, facts_yaml="role: mine\n")

    assert files.gather([str(system), str(user)]) == {
        "role": "mine",
        "l": [1, 2, 3],
        "m": {"a": 1, "b": 2},
        "late": True,
    }


def test_only_json_and_yaml_are_read_whatever_the_case(tmp_path: Path) -> None:
    folder = tmp_path / "facts.d"
    folder.mkdir()
    for name in ("a.yml", "b.YAML", "c.txt", "d.yaml.bak", "e.Json", ".hidden.yaml"):
        (folder / name).write_text('{"' + name + '": 1}')
    (tmp_path / "facts.YAML").write_text("no: 1")
    (tmp_path / "facts.yml").write_text("no: 1")

    assert set(files.gather([str(tmp_path)])) == {"b.YAML", "e.Json", ".hidden.yaml"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("facts.json", '{"a": '),
        ("facts.json", "[1]"),
        ("facts.yaml", "a: [1\n"),
        ("facts.yaml", "- a\n"),
        ("facts.yaml", "a: 1\na: 2\n"),
    ],
)
def test_a_broken_file_is_skipped_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: str
) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "facts.d").mkdir()
    (tmp_path / "facts.d/good.yaml").write_text("good: 1\n")

    with caplog.at_level(logging.ERROR):
        assert files.gather([str(tmp_path)]) == {"good": 1}

    assert [record.__dict__["file"] for record in caplog.records] == [str(tmp_path / name)]


@pytest.mark.parametrize("content", ["", "null\n"])
def test_an_empty_file_has_no_facts(tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str) -> None:
    (tmp_path / "facts.yaml").write_text(content)

    assert files.gather([str(tmp_path)]) == {}
    assert not caplog.records


def test_symlinks_are_skipped(tmp_path: Path) -> None:
    away = tmp_path / "away"
    _write(away, linked_yaml="linked: 1\n")
    there = tmp_path / "there"
    there.mkdir()
    (there / "facts.yaml").symlink_to(away / "linked.yaml")
    (there / "facts.json").write_text('{"good": 1}')
    (there / "facts.d").symlink_to(away)

    assert files.gather([str(there)]) == {"good": 1}


def test_a_directory_that_is_a_symlink_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/facts.yaml").write_text("a: 1\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert files.gather([str(tmp_path / "link")]) == {"a": 1}


def test_a_fifo_and_a_directory_in_place_of_a_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "facts.yaml")
    (tmp_path / "facts.json").mkdir()

    assert files.gather([str(tmp_path)]) == {}


def test_a_relative_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "facts.yaml").write_text("a: 1\n")
    monkeypatch.chdir(tmp_path)

    assert files.gather(["."]) == {}


@pytest.mark.parametrize(
    ("environ", "places"),
    [
        ({"HOME": "/root"}, ("/etc/choria/ccm", "/root/.config/choria/ccm")),
        ({"HOME": "/root", "XDG_CONFIG_HOME": "/x"}, ("/etc/choria/ccm", "/x/choria/ccm")),
        ({}, ("/etc/choria/ccm",)),
    ],
)
def test_the_users_directory_follows_the_environment(
    environ: dict[str, str], places: tuple[str, ...]
) -> None:
    assert files.directories(environ) == places


def test_a_file_that_was_named_may_be_json_or_yaml_or_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(' {"env": "json"}')
    (tmp_path / "b").write_text("env: yaml\n")
    (tmp_path / "c").symlink_to(tmp_path / "b")
    (tmp_path / "d").write_text("")

    assert [files.read_file(str(tmp_path / name)) for name in "abcd"] == [
        {"env": "json"},
        {"env": "yaml"},
        {"env": "yaml"},
        {},
    ]


def test_a_file_that_was_named_must_be_there_and_hold_a_mapping(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("- a\n")

    with pytest.raises(DocumentError, match="facts must be a mapping"):
        files.read_file(str(tmp_path / "list"))
    with pytest.raises(FileError, match="no such file"):
        files.read_file(str(tmp_path / "nope"))
    with pytest.raises(FileError, match="not a regular file"):
        files.read_file(str(tmp_path))
