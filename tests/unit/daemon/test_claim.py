import os
from pathlib import Path

import pytest

from ccm_agent.daemon.claim import Claim
from ccm_agent.model.errors import FileError, LockError


def test_a_folder_is_for_one_agent_at_a_time_and_the_error_names_it(tmp_path: Path) -> None:
    first, second = Claim(tmp_path / "state"), Claim(tmp_path / "state")
    first.take()

    with pytest.raises(LockError) as caught:
        second.take()

    assert str(caught.value) == (
        f"{tmp_path}/state: process {os.getpid()} is an agent with this state folder; give each its own `state_dir`"
    )
    first.release()
    second.take()
    second.release()


def test_a_folder_that_cannot_be_locked_is_an_error_of_this_host(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")

    with pytest.raises(FileError):
        Claim(tmp_path / "state").take()


def test_a_symlink_in_the_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(FileError):
        Claim(tmp_path).take()

    assert not (tmp_path / "elsewhere").exists()
