"""The policy file: read only if no other user could have written it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ccm_agent.agent.runs.admission import LIMIT_BYTES, read_policy
from ccm_agent.agent.state.settings import parse_config, read_config
from ccm_agent.model.errors import CcmError, DocumentError, FileError

TYPES = ("exec", "file")
DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
ALL_TYPES = ("apply", "archive", "exec", "file", "package", "scaffold", "service")


def write(folder: Path, text: str = "default: deny\n", mode: int = 0o644) -> Path:
    path = folder / "policy.yaml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_policy_is_read(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path), TYPES, is_required=True)

    assert policy is not None
    assert not policy.is_default_allow


def test_the_example_that_is_shipped_is_one(tmp_path: Path) -> None:
    text = (DEPLOY / "examples" / "policy.yaml").read_text()

    policy = read_policy(write(tmp_path, text), ALL_TYPES, is_required=True)

    assert policy is not None
    assert [rule.name for rule in policy.rules] == [
        "administrators",
        "web team",
        "everyone else looks first",
    ]


def test_a_missing_file_means_no_policy_unless_the_configuration_names_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"

    assert read_policy(path, TYPES, is_required=False) is None
    with pytest.raises(FileError) as caught:
        read_policy(path, TYPES, is_required=True)

    assert "the file does not exist" in str(caught.value)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646, 0o622])
def test_a_file_to_which_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(FileError) as caught:
        read_policy(write(tmp_path, mode=mode), TYPES, is_required=False)

    assert f"other users can write to it (mode {mode:04o})" in str(caught.value)
    assert "chmod go-w" in str(caught.value)


def test_a_folder_in_which_others_may_put_another_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    tmp_path.chmod(0o777)

    with pytest.raises(FileError) as caught:
        read_policy(path, TYPES, is_required=False)

    assert f"{tmp_path}: other users can write" in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path)
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 65534, 65534)

    with pytest.raises(FileError) as caught:
        read_policy(path, TYPES, is_required=False)

    assert "user 65534 owns it" in str(caught.value)


def test_a_symlink_is_judged_by_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    path = write(tmp_path / "real", mode=0o666)
    (tmp_path / "link.yaml").symlink_to(path)

    with pytest.raises(FileError):
        read_policy(tmp_path / "link.yaml", TYPES, is_required=False)

    path.chmod(0o644)
    assert read_policy(tmp_path / "link.yaml", TYPES, is_required=False) is not None


def test_a_fifo_a_folder_and_a_huge_file_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    huge = tmp_path / "huge"
    huge.write_bytes(b"#" * (LIMIT_BYTES + 1))

    for path in (tmp_path / "fifo", tmp_path / "folder", huge):
        with pytest.raises(CcmError):
            read_policy(path, TYPES, is_required=False)


def test_an_unreadable_policy_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(FileError):
        read_policy(tmp_path / ("x" * 300), TYPES, is_required=False)


def test_a_mistake_has_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "default: deny\nforbid: {types: [exce]}\n")

    with pytest.raises(DocumentError) as caught:
        read_policy(path, TYPES, is_required=False)

    assert str(caught.value).startswith(f"{path}:2")
    assert "did you mean `exec`?" in str(caught.value)


def test_the_file_is_beside_the_configuration_unless_that_names_another(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("interval: 5m\n")
    named = parse_config("policy_file: /etc/other.yaml")

    beside = read_config(config)

    assert (beside.policy_file, beside.is_policy_required) == (str(tmp_path / "policy.yaml"), False)
    assert (named.policy_file, named.is_policy_required) == ("/etc/other.yaml", True)
    with pytest.raises(DocumentError):
        parse_config("policy_file: other.yaml")
