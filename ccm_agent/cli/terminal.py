"""What `ccm` writes besides results and errors: a line for each outcome, as Choria CCM writes it."""

from __future__ import annotations

import sys
from typing import TextIO

from ccm_agent.cli import lines
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.outcome import TransactionEvent

PROGRAM = "ccm"


class HostTerminal(Terminal):
    """
    The terminal of a command that manages resources.

    Attributes:
        log: Takes outcomes and summaries: standard output, or standard error where standard output holds data.
    """

    def __init__(self, *, data_on_stdout: bool = False) -> None:
        super().__init__(PROGRAM)
        self.log: TextIO = sys.stderr if data_on_stdout else sys.stdout
        self._log_color = (self.live_style if data_on_stdout else self.style).color

    def event(self, event: TransactionEvent) -> None:
        """A line for an outcome."""
        for line in (lines.event_line(event, color=self._log_color), *lines.output_lines(event)):
            self.log.write(line + "\n")

    def report(self, level: str, message: str, fields: dict[str, object] | None = None) -> None:
        """A line for something else."""
        self.log.write(lines.note_line(level, message, fields or {}, color=self._log_color) + "\n")

    def text(self, text: str) -> None:
        """Text that an operator reads, as it is."""
        self.log.write(text)

    def data(self, text: str) -> None:
        """Data, and a final newline."""
        self.out.write(text + "\n")

    def flush(self) -> None:
        """Everything is out before the process does something else with these streams."""
        self.log.flush()
        self.out.flush()


def warn(message: str) -> None:
    """Something that the operator should know, on standard error."""
    sys.stdout.flush()
    Terminal(PROGRAM).warn(message)
