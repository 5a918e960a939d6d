"""The terminal output of `ccm` besides data and errors: a line for each outcome, in Choria CCM's format."""

from __future__ import annotations

import sys
from typing import Any, TextIO

import msgspec

from ccm_agent.cli import output
from ccm_agent.clikit.terminal import Terminal
from ccm_agent.model.codec import encode_json
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.model.resource_diff import ResourceDiff

PROGRAM = "ccm"


class HostTerminal(Terminal):
    """
    The terminal of a command that manages resources.

    With `json`, outcomes are printed as records. Only warnings and errors are printed as text.

    Attributes:
        log: The stream for outcomes and summaries: standard output, or standard error if standard output is used for data.
        log_style: The width and color of `log`.
    """

    def __init__(self, *, data_on_stdout: bool = False, json: bool = False) -> None:
        super().__init__(PROGRAM, json=json)
        is_aside = data_on_stdout or json
        self.log: TextIO = sys.stderr if is_aside else sys.stdout
        self.log_style = self.live_style if is_aside else self.style
        self._log_color = self.log_style.color
        self._local_diffs: list[tuple[ResourceDiff, ResourceDiff]] = []

    @property
    def has_reader(self) -> bool:
        """Whether an operator reads outcomes on a terminal."""
        return not self.json and self.log.isatty()

    def on_diff(self, diff: ResourceDiff, local: ResourceDiff) -> None:
        """Show a diff that includes lines which only this user may read. See `engine.request.OnDiff`."""
        self._local_diffs.append((diff, local))

    def event(self, event: TransactionEvent) -> None:
        """Print a line or record for an outcome."""
        if self.json:
            from ccm_agent.cli.record_types import HostEventLine

            raw: Any = msgspec.Raw(encode_json(event))
            self.record(HostEventLine, event=raw)
            return
        for line in (output.event_line(event, color=self._log_color), *output.output_lines(event)):
            self.log.write(line + "\n")
        if event.diff is not None:
            from ccm_agent.clikit.diffs import diff_lines

            self.log.write(diff_lines(self._with_local_diff(event), self.log_style))

    def _with_local_diff(self, event: TransactionEvent) -> TransactionEvent:
        for place, (diff, local) in enumerate(self._local_diffs):
            if diff is event.diff:
                del self._local_diffs[place]
                return msgspec.structs.replace(event, diff=local)
        return event

    def report(self, level: str, message: str, fields: dict[str, object] | None = None) -> None:
        """Print a log line that is not an outcome."""
        if self.json and level not in ("warning", "error"):
            return
        self.log.write(output.note_line(level, message, fields or {}, color=self._log_color) + "\n")

    def text(self, text: str) -> None:
        """Print text for an operator, unchanged."""
        if not self.json:
            self.log.write(text)

    def end(self, code: int, summary: SessionSummary | None = None) -> None:
        """With `json`, print the last record."""
        if self.json:
            from ccm_agent.cli.record_types import HostEndLine

            raw: Any = msgspec.Raw(encode_json(summary)) if summary is not None else None
            self.record(HostEndLine, summary=raw, exit=int(code))

    def data(self, text: str) -> None:
        """Print data, followed by a newline."""
        self.out.write(text + "\n")

    def flush(self) -> None:
        """Flush all output, because the process will now use these streams in another way."""
        self.log.flush()
        self.out.flush()


def warn(message: str) -> None:
    """Print a warning on standard error."""
    sys.stdout.flush()
    Terminal(PROGRAM).warn(message)
