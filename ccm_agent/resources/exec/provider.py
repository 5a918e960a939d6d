"""The Protocol of exec providers."""

from __future__ import annotations

from typing import Protocol

from ccm_agent.resources.contract import Provider
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution


class ExecProvider(Provider[ExecProperties, ExecState], Protocol):
    """
    Runs commands and their guards.

    `status` checks the path of `creates` and always runs both guards, including under noop. It raises CommandError for a guard
    that cannot be run, is killed by a signal or exceeds the time limit.
    """

    async def execute(self, wanted: ExecProperties) -> Execution:
        """
        Run the command until it exits. No exit code raises an error.

        Raises:
            CommandError: The command cannot be started.
        """
        ...
