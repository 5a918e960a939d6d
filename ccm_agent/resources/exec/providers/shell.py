"""Commands in a shell: pipes, redirections, variables."""

from __future__ import annotations

from ccm_agent.model.ports import Files, Runner
from ccm_agent.resources.contract import OutputCallback
from ccm_agent.resources.exec.providers.commands import Commands

SHELL = "/bin/sh"


class Shell(Commands):
    """Passes a command line to `/bin/sh -c` unchanged."""

    def __init__(
        self, runner: Runner, files: Files, say: OutputCallback, *, runs_guards: bool = True
    ) -> None:
        super().__init__(runner, files, say, lambda line: (SHELL, "-c", line), runs_guards=runs_guards)
