"""Locks that processes of this host share."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.model.errors import LockError
from ccm_agent.model.ports import Locks
from ccm_agent.system.locks import SystemLocks, lock_directory
from ccm_agent.testing.locks import FakeLocks

TOP = Path(__file__).parents[3]
WAIT_S = 10.0
HOLD = """
import asyncio, sys
from ccm_agent.system.locks import SystemLocks

async def main():
    async with SystemLocks(sys.argv[1], program="ccm apply").hold("package"):
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.fixture(params=["fake", "host"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Locks:
    return FakeLocks() if request.param == "fake" else SystemLocks(str(tmp_path))


@pytest.fixture
def other_process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the package lock until its standard input is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env={"PYTHONPATH": str(TOP)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


async def test_one_at_a_time_in_the_order_in_which_they_came(locks: Locks) -> None:
    said: list[str] = []

    async def work(name: str) -> None:
        async with locks.hold("package"):
            said.append(f"{name} begins")
            await asyncio.sleep(0)
            said.append(f"{name} ends")

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        for name in ("a", "b", "c"):
            group.create_task(work(name))

    assert said == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


async def test_locks_of_two_names_know_nothing_of_each_other(locks: Locks) -> None:
    async with asyncio.timeout(WAIT_S), locks.hold("package"), locks.hold("service"):
        pass


async def test_a_waiter_reports_the_lock_and_its_holder(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    locks = SystemLocks(str(tmp_path))

    async def wait() -> None:
        async with locks.hold("package"):
            assert locks.waits_for == {}

    async with asyncio.timeout(WAIT_S):
        task = asyncio.create_task(wait())
        while not locks.waits_for:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
        told = dict(locks.waits_for)
        assert other_process.stdin
        other_process.stdin.close()
        await task

    assert list(told) == ["package"]
    assert told["package"].startswith(f"ccm apply (pid {other_process.pid}) since 20")
    assert locks.waits_for == {}


async def test_a_full_disk_does_not_prevent_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    locks = SystemLocks(str(tmp_path))

    async with asyncio.timeout(WAIT_S):
        for _ in range(2):
            async with locks.hold("package"):
                pass


async def test_a_lock_is_free_again_after_a_failure(locks: Locks) -> None:
    with pytest.raises(KeyError):
        async with locks.hold("package"):
            raise KeyError

    async with asyncio.timeout(WAIT_S), locks.hold("package"):
        pass


async def test_a_cancelled_waiter_holds_no_lock(locks: Locks) -> None:
    async def wait() -> None:
        async with locks.hold("package"):
            raise AssertionError("it was never free")

    async with locks.hold("package"):
        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async with asyncio.timeout(WAIT_S), locks.hold("package"):
        pass


async def test_another_process_is_waited_for(tmp_path: Path, other_process: subprocess.Popen[str]) -> None:
    locks = SystemLocks(str(tmp_path))
    has_it = asyncio.Event()

    async def wait() -> None:
        async with locks.hold("package"):
            has_it.set()

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        group.create_task(wait())
        await asyncio.sleep(0)
        assert not has_it.is_set()
        other_process.communicate()
        await has_it.wait()


async def test_the_lock_of_a_killed_process_is_free(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    other_process.kill()

    async with asyncio.timeout(WAIT_S), SystemLocks(str(tmp_path)).hold("package"):
        pass


async def test_a_waiter_that_times_out_names_the_holder(
    tmp_path: Path, other_process: subprocess.Popen[str]
) -> None:
    with pytest.raises(LockError) as caught:
        async with SystemLocks(str(tmp_path), patience_s=0.05).hold("package"):
            pass

    message = caught.value.message
    assert message.startswith(
        f"the package lock of this host is still held by ccm apply (pid {other_process.pid}) since 2"
    )
    assert message.endswith("Z after 0.05 s; wait until it ends, or stop it")


async def test_a_waiter_on_its_own_process_times_out_with_a_reason(tmp_path: Path) -> None:
    locks = SystemLocks(str(tmp_path), program="ccm agent", patience_s=0.05)

    async with locks.hold("package"):
        with pytest.raises(LockError) as caught:
            async with locks.hold("package"):
                pass

    assert caught.value.message == (
        f"the package lock of this host is still held by ccm agent (pid {os.getpid()}) after 0.05 s; wait until it "
        "ends, or stop it"
    )


async def test_a_directory_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(LockError) as caught:
        async with SystemLocks(f"{tmp_path}/file/locks").hold("package"):
            pass

    assert caught.value.message == (
        f"{tmp_path}/file/locks/package.lock: the lock cannot be created: Not a directory"
    )


async def test_a_symlink_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "package.lock").symlink_to("victim")

    with pytest.raises(LockError):
        async with SystemLocks(str(tmp_path)).hold("package"):
            pass

    assert (tmp_path / "victim").read_text() == "kept"


@pytest.mark.parametrize("before", [None, 0o644], ids=["new", "from before"])
async def test_no_other_user_can_open_the_lock_file(tmp_path: Path, before: int | None) -> None:
    if before:
        (tmp_path / "package.lock").touch(mode=before)

    async with SystemLocks(str(tmp_path)).hold("package"):
        assert (tmp_path / "package.lock").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["../x", "", "a/b", "A"])
async def test_a_name_that_would_lead_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LockError) as caught:
        async with SystemLocks(str(tmp_path)).hold(name):
            pass

    assert caught.value.message == f"{name!r} cannot be the name of a lock"


def test_root_locks_in_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert lock_directory() == "/run/ccm"


def test_others_lock_where_only_they_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    with_runtime = lock_directory()
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("HOME", "/home/me")

    assert (with_runtime, lock_directory()) == ("/run/user/1000/ccm", "/home/me/.local/state/ccm")
