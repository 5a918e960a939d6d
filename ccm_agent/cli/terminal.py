"""The only writer to standard output and standard error of `ccm`."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ccm_agent.cli import lines
from ccm_agent.model.outcome import TransactionEvent


class Terminal:
    """
    Where output goes.

    Attributes:
        log: Takes log lines and summaries: standard output, or standard error where standard output holds data.
        out: Takes data.
    """

    def __init__(self, *, data_on_stdout: bool = False) -> None:
        self.out: TextIO = sys.stdout
        self.log: TextIO = sys.stderr if data_on_stdout else sys.stdout
        self._color = self.log.isatty() and "NO_COLOR" not in os.environ

    def event(self, event: TransactionEvent) -> None:
        """A line for an outcome."""
        for line in (lines.event_line(event, color=self._color), *lines.output_lines(event)):
            self.log.write(line + "\n")

    def note(self, level: str, message: str, fields: dict[str, object] | None = None) -> None:
        """A line for something else."""
        self.log.write(lines.note_line(level, message, fields or {}, color=self._color) + "\n")

    def text(self, text: str) -> None:
        """Words for people, as they are."""
        self.log.write(text)

    def data(self, text: str) -> None:
        """Data, and a final newline."""
        self.out.write(text + "\n")

    def flush(self) -> None:
        """Everything is out before the process does something else with these streams."""
        self.log.flush()
        self.out.flush()


def warn(message: str) -> None:
    """What an operator should know, on standard error."""
    sys.stdout.flush()
    sys.stderr.write(f"ccm: warning: {lines.plain(message)}\n")


def complain(message: str) -> None:
    """An error, on standard error; what it quotes of an archive or a server orders no terminal about."""
    sys.stdout.flush()
    sys.stderr.write("ccm: error: " + "\n".join(map(lines.plain, message.split("\n"))) + "\n")
