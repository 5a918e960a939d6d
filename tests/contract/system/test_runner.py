"""What `Runner` promises, on the fake and on this host."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed, Runner
from ccm_agent.system.runner import SystemRunner
from ccm_agent.testing.runner import FakeRunner

WAIT_S = 10.0


def sh(script: str, **more: Any) -> Command:
    return Command(argv=("sh", "-c", script), **more)


NO_PROGRAM = "ccm-no-such-program: no such program in the search path; install it, or write its absolute path"


@pytest.fixture(params=["fake", "host"])
def runner(request: pytest.FixtureRequest) -> Runner:
    """The runner of this host, and a fake that has been told what the commands of these tests do."""
    if request.param == "host":
        return SystemRunner(term_grace_s=0.2)
    fake = FakeRunner()
    fake.when("sh", "-c", "echo out; echo err >&2; exit 3", code=3, stdout="out\n", stderr="err\n")
    fake.when("sh", "-c", "kill -9 $$", code=-9)
    fake.when("sh", "-c", "printf 0123456789", stdout="0123456789")
    fake.when("sh", "-c", "printf 'one\\ntwo\\n\\nlast'", stdout="one\ntwo\n\nlast")
    fake.when("sh", "-c", "echo begun; sleep 60", stdout="begun\n", hangs=True)
    fake.when("ccm-no-such-program", error=NO_PROGRAM)
    return fake


async def test_code_and_both_streams_are_distinguished(runner: Runner) -> None:
    done = await runner.run(sh("echo out; echo err >&2; exit 3"))

    assert done == Completed(code=3, stdout=b"out\n", stderr=b"err\n")


async def test_streams_are_one_in_the_order_written_when_that_is_wanted(runner: Runner) -> None:
    done = await runner.run(sh("echo out; echo err >&2; exit 3", merge_stderr=True))

    assert done == Completed(code=3, stdout=b"out\nerr\n")


async def test_a_signal_is_a_negative_code(runner: Runner) -> None:
    assert await runner.run(sh("kill -9 $$")) == Completed(code=-9)


async def test_the_end_of_long_output_is_kept(runner: Runner) -> None:
    done = await runner.run(sh("printf 0123456789", output_limit_bytes=4))

    assert done == Completed(code=0, stdout=b"6789", dropped_bytes=6)


async def test_lines_come_without_their_ends(runner: Runner) -> None:
    lines: list[str] = []

    done = await runner.run(sh("printf 'one\\ntwo\\n\\nlast'"), lines.append)

    assert lines == ["one", "two", "", "last"]
    assert done.stdout == b"one\ntwo\n\nlast"


async def test_a_time_limit_ends_it_and_keeps_its_output(runner: Runner) -> None:
    async with asyncio.timeout(WAIT_S):
        done = await runner.run(sh("echo begun; sleep 60", time_limit_s=0.2))

    assert done == Completed(code=-15, stdout=b"begun\n", timed_out=True)


async def test_a_cancellation_is_raised(runner: Runner) -> None:
    begun = asyncio.Event()
    task = asyncio.create_task(runner.run(sh("echo begun; sleep 60"), lambda line: begun.set()))
    async with asyncio.timeout(WAIT_S):
        await begun.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_program_that_cannot_start_is_an_error(runner: Runner) -> None:
    with pytest.raises(CommandError) as caught:
        await runner.run(Command(argv=("ccm-no-such-program",), search_path="/bin"))

    assert caught.value.message == NO_PROGRAM
