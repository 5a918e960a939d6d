"""Programs of a run that an operator ends."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.engine.request import StopFlag
from ccm_agent.engine.stoppable_runner import StoppableRunner
from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command
from ccm_agent.testing.runner import FakeRunner


class Stage:
    """A run whose program hangs."""

    def __init__(self) -> None:
        self.stop = StopFlag()
        self.runner = FakeRunner()
        self.started = asyncio.Event()
        self.runner.when("sleep", hangs=True, effect=self.started.set)
        self.runner.when("true")

    def begin(self, *argv: str) -> asyncio.Task[object]:
        """Start a program of the run."""
        runner = StoppableRunner(self.runner, self.stop)
        return asyncio.create_task(runner.run(Command(argv=argv)), name="program")


async def test_kill_ends_the_current_program_and_starts_no_other() -> None:
    at = Stage()
    program = at.begin("sleep", "1d")
    await at.started.wait()

    at.stop.set("stopped by maria", by="maria", is_kill=True)

    with pytest.raises(CommandError, match=r"^sleep: ended: stopped by maria$"):
        await program
    with pytest.raises(CommandError, match=r"^true: not started: stopped by maria$"):
        await at.begin("true")
    assert at.runner.lines == ["sleep 1d"]
    assert at.stop.has_taken_effect


async def test_stop_lets_the_current_program_continue_until_it_becomes_a_kill() -> None:
    at = Stage()
    program = at.begin("sleep", "1d")
    await at.started.wait()

    at.stop.set("stopped by maria", by="maria")
    await at.begin("true")
    went_on = not program.done()
    at.stop.set("stopped by anna", by="anna", is_kill=True)

    with pytest.raises(CommandError, match="stopped by maria"):
        await program
    assert went_on
    assert at.runner.lines == ["sleep 1d", "true"]


async def test_run_that_is_cancelled_is_not_taken_for_a_killed_one() -> None:
    at = Stage()
    program = at.begin("sleep", "1d")
    await at.started.wait()

    program.cancel()

    with pytest.raises(asyncio.CancelledError):
        await program
    assert not at.stop.has_taken_effect
