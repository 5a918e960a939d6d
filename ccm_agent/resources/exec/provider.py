"""What a provider of commands can do."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution


class ExecProvider(Provider[ExecProperties, ExecState], Protocol):
    """
    Runs commands and their guards.

    `status` looks for what `creates` names and runs both guards, always, under noop too; CommandError for a guard that cannot be
    run, is ended by a signal or takes too long.
    """

    async def execute(self, wanted: ExecProperties) -> Execution:
        """
        Run the command to its end, whatever its exit code.

        Raises:
            CommandError: It cannot be started.
        """
        ...
