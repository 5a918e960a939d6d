"""The runner of this host, on real programs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed
from ccm_agent.system.runner import SystemRunner

WAIT_S = 10.0
LONG = 300
"""Seconds that a child would sleep if nobody ended it; no test waits so long."""


@pytest.fixture
def runner() -> SystemRunner:
    return SystemRunner(term_grace_s=0.3)


def sh(script: str, **more: Any) -> Command:
    return Command(argv=("sh", "-c", script), **more)


def is_running(pid: int) -> bool:
    """Whether a process is there; a zombie that init has not fetched yet is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def gone(pid: int) -> None:
    """Wait until a process is no more."""
    while is_running(pid):  # noqa: ASYNC110 - init sets no event of ours
        await asyncio.sleep(0)


class TestWhatAChildSees:
    async def test_its_environment_is_small(
        self, runner: SystemRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SECRET", "of ours")

        done = await runner.run(Command(argv=("/usr/bin/env",)))

        assert sorted(done.stdout.decode().splitlines()) == [
            "LANG=C",
            "LC_ALL=C",
            "PATH=/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin",
        ]

    async def test_variables_come_over_and_besides(self, runner: SystemRunner) -> None:
        done = await runner.run(Command(argv=("/usr/bin/env",), env={"PATH": "/x", "A": "b=c"}))

        assert sorted(done.stdout.decode().splitlines()) == ["A=b=c", "LANG=C", "LC_ALL=C", "PATH=/x"]

    async def test_a_program_runs_in_the_root_directory_by_default(self, runner: SystemRunner) -> None:
        assert (await runner.run(Command(argv=("pwd",)))).stdout == b"/\n"

    async def test_a_program_runs_in_the_given_directory(self, runner: SystemRunner, tmp_path: Path) -> None:
        done = await runner.run(Command(argv=("pwd",), cwd=str(tmp_path)))

        assert done.stdout.decode() == f"{tmp_path}\n"

    async def test_a_program_has_no_input_and_no_terminal(self, runner: SystemRunner) -> None:
        done = await runner.run(sh("cat; test -t 0 || test -t 1 || test -t 2 || echo none; : </dev/tty"))

        assert done.stdout == b"none\n"
        assert b"/dev/tty" in done.stderr

    async def test_a_program_reads_all_of_its_input(self, runner: SystemRunner) -> None:
        done = await runner.run(Command(argv=("wc", "-c"), stdin=b"x" * 3_000_000))

        assert done.stdout.split() == [b"3000000"]

    async def test_a_program_may_leave_its_input_unread(self, runner: SystemRunner) -> None:
        assert await runner.run(Command(argv=("true",), stdin=b"x" * 3_000_000)) == Completed(code=0)

    async def test_a_program_leads_its_own_session(self, runner: SystemRunner) -> None:
        done = await runner.run(
            sh("echo $$; ps -o pgid=,sid= -p $$ 2>/dev/null || cut -d' ' -f5,6 /proc/$$/stat")
        )

        pid, group, session = done.stdout.split()
        assert (group, session) == (pid, pid)

    async def test_a_program_inherits_no_open_file(self, runner: SystemRunner, tmp_path: Path) -> None:
        fd = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
        os.set_inheritable(fd, True)
        try:
            done = await runner.run(sh("ls -l /proc/self/fd"))
        finally:
            os.close(fd)

        assert b"secret" not in done.stdout
        assert done.code == 0

    async def test_a_broken_pipe_ends_it_as_in_a_shell(self, runner: SystemRunner) -> None:
        # python ignores SIGPIPE, and a child that inherited that would complain instead
        done = await runner.run(sh("yes | head -n 1"))

        assert done == Completed(code=0, stdout=b"y\n")


class TestFinding:
    async def test_a_name_is_looked_for_in_the_search_path(
        self, runner: SystemRunner, tmp_path: Path
    ) -> None:
        tool = tmp_path / "ccm-tool"
        tool.write_text("#!/bin/sh\necho $0 $PATH\n")
        tool.chmod(0o755)

        done = await runner.run(
            Command(argv=("ccm-tool",), search_path=f"/nowhere:{tmp_path}", env={"PATH": "/p"})
        )

        assert done.stdout.decode() == f"{tool} /p\n"

    async def test_without_a_search_path_our_own_path_is_searched(
        self, runner: SystemRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tool = tmp_path / "ccm-tool"
        tool.write_text("#!/bin/sh\necho found\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

        assert (await runner.run(Command(argv=("ccm-tool",)))).stdout == b"found\n"

    async def test_a_relative_directory_in_the_path_counts_for_nothing(
        self, runner: SystemRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tool = tmp_path / "ccm-tool"
        tool.write_text("#!/bin/sh\n")
        tool.chmod(0o755)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("PATH", ".:")

        with pytest.raises(CommandError) as caught:
            await runner.run(Command(argv=("ccm-tool",)))

        assert caught.value.message == (
            "ccm-tool: no such program in the search path; install it, or write its absolute path"
        )

    @pytest.mark.parametrize(
        ("command", "message"),
        [
            pytest.param(
                Command(argv=("/etc/passwd",)),
                "/etc/passwd: cannot be started: Permission denied",
                id="not executable",
            ),
            pytest.param(Command(argv=("/",)), "/: cannot be started: Permission denied", id="a directory"),
            pytest.param(
                Command(argv=("/no/such",)),
                "/no/such: cannot be started: No such file or directory",
                id="missing",
            ),
            pytest.param(
                Command(argv=("true",), cwd="/no/such"),
                "true: cannot be run in /no/such: No such file or directory",
                id="no such working directory",
            ),
            pytest.param(
                Command(argv=("true",), cwd="/etc/passwd"),
                "true: cannot be run in /etc/passwd: Not a directory",
                id="a file as working directory",
            ),
            pytest.param(
                Command(argv=("true", "\0")),
                "'true': cannot be started: embedded null byte",
                id="what no argument can hold",
            ),
            pytest.param(
                Command(argv=("true", "x" * 3_000_000)),
                "true: cannot be started: Argument list too long",
                id="too much",
            ),
            pytest.param(
                Command(argv=("ccm-tool",), search_path="/opt/tools:/bin"),
                "ccm-tool: no such program in the search path; install it, or write its absolute path",
                id="not in the search path",
            ),
            pytest.param(Command(argv=()), "the command is empty; name a program", id="nothing"),
        ],
    )
    async def test_a_program_that_cannot_start_reports_why(
        self, runner: SystemRunner, command: Command, message: str
    ) -> None:
        with pytest.raises(CommandError) as caught:
            await runner.run(command)

        assert caught.value.message == message

    async def test_a_script_without_an_interpreter_is_given_to_no_shell(
        self, runner: SystemRunner, tmp_path: Path
    ) -> None:
        tool = tmp_path / "tool"
        tool.write_text("echo x\n")
        tool.chmod(0o755)

        with pytest.raises(CommandError) as caught:
            await runner.run(Command(argv=(str(tool),)))

        assert caught.value.message == f"{tool}: cannot be started: Exec format error"


class TestEnding:
    async def test_a_child_left_behind_does_not_block(self, runner: SystemRunner) -> None:
        async with asyncio.timeout(WAIT_S):
            done = await runner.run(sh(f"sleep {LONG} & echo $!"))

        assert done.code == 0
        pid = int(done.stdout)
        os.kill(pid, 0)  # it was left alone
        os.kill(pid, signal.SIGKILL)

    async def test_late_output_of_children_is_awaited_for_a_moment(self, runner: SystemRunner) -> None:
        done = await runner.run(sh("(sleep 0.05; echo late) & echo early"))

        assert done.stdout == b"early\nlate\n"

    @pytest.mark.parametrize(
        "script", ["sleep {0} & echo $!; wait", "sleep {0} >/dev/null 2>&1 & echo $!; wait"]
    )
    async def test_a_time_limit_ends_the_whole_group(self, runner: SystemRunner, script: str) -> None:
        async with asyncio.timeout(WAIT_S):
            done = await runner.run(sh(script.format(LONG), time_limit_s=0.2))
            await gone(int(done.stdout))

        assert (done.code, done.timed_out) == (-signal.SIGTERM, True)

    async def test_a_program_that_ignores_sigterm_is_killed(self, runner: SystemRunner) -> None:
        async with asyncio.timeout(WAIT_S):
            done = await runner.run(
                sh(f"trap '' TERM; echo ready; sleep {LONG}; sleep {LONG}", time_limit_s=0.2)
            )

        assert (done.code, done.timed_out, done.stdout) == (-signal.SIGKILL, True, b"ready\n")

    async def test_a_straggler_that_ignores_it_is_killed_too(self, runner: SystemRunner) -> None:
        script = f"(trap '' TERM; sleep {LONG}; sleep {LONG}) >/dev/null 2>&1 & echo $!; exec sleep {LONG}"

        async with asyncio.timeout(WAIT_S):
            done = await runner.run(sh(script, time_limit_s=0.2))
            await gone(int(done.stdout))

        assert (done.code, done.timed_out) == (-signal.SIGTERM, True)

    async def test_a_program_that_ends_well_after_sigterm_is_still_late(self, runner: SystemRunner) -> None:
        async with asyncio.timeout(WAIT_S):
            done = await runner.run(sh("trap 'echo bye; exit 0' TERM; sleep 60 & wait", time_limit_s=0.2))

        assert done == Completed(code=0, stdout=b"bye\n", timed_out=True)

    async def test_a_time_limit_of_a_year_is_a_time_limit(self, runner: SystemRunner) -> None:
        assert await runner.run(Command(argv=("true",), time_limit_s=365 * 86_400.0)) == Completed(code=0)

    async def test_a_cancellation_ends_the_whole_group_before_it_continues(
        self, runner: SystemRunner
    ) -> None:
        pids: list[int] = []
        begun = asyncio.Event()

        def on_line(line: str) -> None:
            pids.append(int(line))
            begun.set()

        task = asyncio.create_task(runner.run(sh(f"sleep {LONG} & echo $!; wait"), on_line))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await gone(pids[0])

    async def test_a_second_cancellation_does_not_leave_it_behind(self, runner: SystemRunner) -> None:
        begun = asyncio.Event()
        script = f"trap '' TERM; echo $$; sleep {LONG}; sleep {LONG}"
        pids: list[int] = []

        def on_line(line: str) -> None:
            pids.append(int(line))
            begun.set()

        task = asyncio.create_task(runner.run(sh(script), on_line))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        assert not is_running(pids[0])

    async def test_a_timeout_of_the_caller_is_a_cancellation(self, runner: SystemRunner) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await runner.run(sh(f"sleep {LONG}"))

    async def test_where_the_kernel_does_not_report_ends_it_is_asked(
        self, runner: SystemRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(pid: int) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refuse)

        async with asyncio.timeout(WAIT_S):
            done = await runner.run(sh("echo out; exit 4"))
            late = await runner.run(sh(f"sleep {LONG}", time_limit_s=0.1))

        assert done == Completed(code=4, stdout=b"out\n")
        assert (late.code, late.timed_out) == (-signal.SIGTERM, True)


async def test_a_failure_is_seen_although_our_parent_ignored_the_end_of_children() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        done = await SystemRunner().run(Command(argv=("false",)))
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert done == Completed(code=1)


class TestMuch:
    async def test_output_without_end_costs_no_memory(self, runner: SystemRunner) -> None:
        done = await runner.run(
            Command(argv=("head", "-c", "100000000", "/dev/zero"), output_limit_bytes=1000)
        )

        assert (done.code, len(done.stdout), done.dropped_bytes) == (0, 1000, 99_999_000)

    async def test_every_line_of_many_comes_in_order(self, runner: SystemRunner) -> None:
        lines: list[str] = []

        await runner.run(Command(argv=("seq", "200000")), lines.append)

        assert lines == [str(number) for number in range(1, 200_001)]

    async def test_a_line_of_any_length_comes_whole(self, runner: SystemRunner) -> None:
        lines: list[str] = []

        await runner.run(sh("printf %0300000d 0; echo; echo last"), lines.append)

        assert lines == ["0" * 300_000, "last"]

    async def test_many_run_side_by_side(self, runner: SystemRunner) -> None:
        async with asyncio.timeout(WAIT_S):
            done = await asyncio.gather(
                *(runner.run(sh(f"sleep 0.2; echo {number}")) for number in range(40))
            )

        assert [int(one.stdout) for one in done] == list(range(40))

    async def test_no_descriptor_stays_open(self, runner: SystemRunner) -> None:
        await runner.run(sh("echo warm"))
        before = len(os.listdir("/proc/self/fd"))

        for _ in range(20):
            await runner.run(sh("echo x; echo y >&2", stdin=b"z"))

        assert len(os.listdir("/proc/self/fd")) == before
