"""Processes that tests start: a fork of the warm process behaves as the real program does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.fleet import manifest
from tests.support.processes import Process
from tests.support.warm_ccm import TOP

CCM = [sys.executable, "-m", "ccm_agent"]


@pytest.fixture(params=["cold", "warm"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether programs of this tree start as forks."""
    if request.param == "cold":
        monkeypatch.setattr(processes, "WARM", ())
    return str(request.param)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Little, and nothing of this host."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(TOP), "LC_ALL": "C.UTF-8"}


WAITS = manifest(("exec", "waits", {"command": "sleep 60", "timeout": "120s"}))


def waiting(folder: Path, environ: dict[str, str]) -> Process:
    """A process that waits for a program."""
    (folder / "waits.yaml").write_text(WAITS)
    command = [*CCM, "apply", str(folder / "waits.yaml")]
    with (folder / "out").open("wb") as out:
        return processes.start(command, cwd=TOP, env=environ, stdout=out, stderr=out, start_new_session=True)


def test_the_kind_of_process_is_the_one_that_was_asked_for(
    way: str, tmp_path: Path, environ: dict[str, str]
) -> None:
    process = waiting(tmp_path, environ)
    process.kill()
    process.wait(20)

    assert isinstance(process, subprocess.Popen) == (way == "cold")


@pytest.mark.usefixtures("way")
def test_output_errors_and_exit_codes_are_those_of_the_program(environ: dict[str, str]) -> None:
    right = processes.run([*CCM, "eval", "1 + 1"], cwd=TOP, env=environ, timeout=30)
    wrong = processes.run([*CCM, "no-such-verb"], cwd=TOP, env=environ, timeout=30)

    assert (right.returncode, right.stdout, right.stderr) == (0, "2\n", "")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "no-such-verb" in wrong.stderr


@pytest.mark.usefixtures("way")
def test_standard_input_is_read(environ: dict[str, str]) -> None:
    done = processes.run([*CCM, "fmt", "-"], cwd=TOP, env=environ, stdin="data:   {a: 1}\n", timeout=30)

    assert (done.returncode, done.stdout) == (0, "data: {a: 1}\n"), done.stderr


@pytest.mark.usefixtures("way")
def test_environment_is_the_one_that_was_given(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_TESTS", "x")
    words = ["eval", "Environ.OF_THE_TESTS"]

    without = processes.run([*CCM, *words], cwd=TOP, env=environ, timeout=30)
    given = processes.run([*CCM, *words], cwd=TOP, env=environ | {"OF_THE_TESTS": "y"}, timeout=30)

    assert [without.stdout, given.stdout] == ["\n", "y\n"], without.stderr


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_signal_ends_a_process_in_a_session_of_its_own(
    tmp_path: Path, environ: dict[str, str], number: signal.Signals
) -> None:
    process = waiting(tmp_path, environ)
    before = process.poll()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.01)

    session = os.getsid(process.pid)
    process.send_signal(number)
    code = process.wait(20)

    assert before is None
    assert session == process.pid
    assert code == process.returncode == process.poll() != 0
    process.send_signal(signal.SIGTERM)  # goes to no other process


@pytest.mark.usefixtures("way")
def test_process_that_takes_too_long_is_killed(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "waits.yaml").write_text(WAITS)

    with pytest.raises(subprocess.TimeoutExpired):
        processes.run([*CCM, "apply", str(tmp_path / "waits.yaml")], cwd=TOP, env=environ, timeout=3)
