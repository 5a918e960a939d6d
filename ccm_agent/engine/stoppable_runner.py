"""A runner whose programs an operator can kill: `ccmctl run stop --kill`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ccm_agent.engine.request import StopFlag
from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Completed, Runner


class StoppableRunner:
    """A `Runner` for one run. When the run is killed, the current program is killed and no other program is started."""

    def __init__(self, runner: Runner, stop: StopFlag) -> None:
        self._runner = runner
        self._stop = stop

    async def run(self, command: Command, on_line: Callable[[str], None] | None = None) -> Completed:
        """
        See `Runner.run`.

        Raises:
            CommandError: The program could not be started, or the run was killed.
        """
        if self._stop.is_kill:
            raise self._killed(command, "not started")
        # a separate task can be canceled while the resource continues and reports the outcome
        program = asyncio.create_task(self._runner.run(command, on_line), name="engine:program")
        end = self._stop.on_kill(program.cancel)
        try:
            return await program
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or current.cancelling():
                raise  # the agent has canceled the run itself
            raise self._killed(command, "ended") from None
        finally:
            end()

    def _killed(self, command: Command, what: str) -> CommandError:
        self._stop.has_taken_effect = True
        return CommandError(f"{command.argv[0]}: {what}: {self._stop.reason}")
