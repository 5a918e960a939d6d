import os
from pathlib import Path

import pytest

from ccm_agent.agent.state.state_folder import StateLock
from ccm_agent.model.errors import FileError, LockError


def test_a_folder_is_for_one_agent_at_a_time_and_the_error_names_it(tmp_path: Path) -> None:
    first, second = StateLock(tmp_path / "state"), StateLock(tmp_path / "state")
    first.take()

    with pytest.raises(LockError) as caught:
        second.take()

    assert str(caught.value) == (
        f"{tmp_path}/state: the agent of process {os.getpid()} uses this state folder; give each agent its own `state_dir`"
    )
    first.release()
    second.take()
    second.release()


def test_a_folder_that_cannot_be_locked_is_an_error_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(FileError):
        StateLock(tmp_path / "state").take()


def test_a_symlink_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileError):
        StateLock(tmp_path).take()

    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_folder_in_which_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """A bundle that lies there unpacked is applied as it lies there."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(mode)

    with pytest.raises(FileError) as caught:
        StateLock(tmp_path / "state").take()

    assert str(caught.value) == (
        f"{tmp_path}/state: other users can write there (mode {mode:04o}) and could control this agent; "
        f"run `chmod 0700 {tmp_path}/state`"
    )
    assert list((tmp_path / "state").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    os.chown(tmp_path / "state", 65534, 65534)

    with pytest.raises(FileError) as caught:
        StateLock(tmp_path / "state").take()

    assert str(caught.value) == (
        f"{tmp_path}/state: user 65534 owns it and could control this agent; run `chown root {tmp_path}/state`"
    )


def test_a_read_only_location_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    claim = StateLock(tmp_path / "state")

    claim.take()

    claim.release()


def test_so_is_a_folder_of_sources_elsewhere_that_exists(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    claim = StateLock(tmp_path / "state", cache)
    claim.take()
    claim.release()
    cache.mkdir()
    cache.chmod(0o777)

    with pytest.raises(FileError) as caught:
        claim.take()

    assert str(caught.value).startswith(f"{cache}: other users can write there (mode 0777)")
