"""
The only module that writes to standard output and standard error.

Results go to standard output, as text for people or, with `json`, as one record per line. Notes, questions and the live line go
to standard error, so a pipe receives only results. Color and the live line are used only on terminals. `TERM=dumb` turns off
both, and `NO_COLOR` turns off color. `FORCE_COLOR` turns on color everywhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TextIO

from msgspec import Struct

from ccm_agent.clikit import records
from ccm_agent.clikit.cells import UNLIMITED, Cell, Column, Style, paint
from ccm_agent.clikit.text import one_line, safe, safe_drawn
from ccm_agent.model.errors import CcmError, UsageError

# one line is redrawn, because rich.live uses a second thread and its output scrolls away in tmux and in CI logs
_CLEAR = "\r\x1b[2K"
_Fields = ParamSpec("_Fields")


class Terminal:
    """
    The output of a command.

    Attributes:
        program: The program's name, which is the prefix of errors and warnings.
        json: Whether to print records instead of text.
        out: Standard output.
        merges: Whether nodes with equal cells may share a row of a table.
    """

    def __init__(
        self,
        program: str,
        *,
        json: bool = False,
        out: TextIO | None = None,
        err: TextIO | None = None,
        source: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.program = program
        self.json = json
        self.merges = True
        self.out: TextIO = out or sys.stdout
        self._err = err or sys.stderr
        self._source = source or sys.stdin
        self._environ = os.environ if environ is None else environ
        self._live = ""

    @property
    def is_live(self) -> bool:
        """Whether a live line can be shown. Standard error must be a capable terminal, and `--json` must not be set."""
        return not self.json and self._err.isatty() and self._environ.get("TERM") != "dumb"

    @property
    def style(self) -> Style:
        """Return the width and color of standard output."""
        return self._style(self.out)

    @property
    def live_style(self) -> Style:
        """Return the width and color of standard error."""
        return self._style(self._err)

    def show(self, text: str) -> None:
        """Print a result for people. Prints nothing with `--json`, because records contain the same information."""
        if text and not self.json:
            self._write(self.out, safe_drawn(text, color=self.style.color))

    def table(
        self,
        columns: Sequence[Column],
        rows: Sequence[Sequence[str | Cell]],
        otherwise: str = "",
        *,
        unit: str = "rows",
        narrow: str = "",
        is_worst_last: bool = False,
        is_repeatable: bool = True,
    ) -> None:
        """
        Print a table for people, or `otherwise` if there are no rows. With `--json`, print nothing. See `draw` for the arguments.

        If the command changes something (not `is_repeatable`), all rows are printed, because they cannot be printed again.
        """
        from ccm_agent.clikit.table import AGAIN, draw

        if self.json:
            return
        if not rows:
            self.show(otherwise)
        for piece in draw(
            columns,
            rows,
            self.style,
            unit=unit,
            narrow=narrow,
            is_worst_last=is_worst_last,
            again=AGAIN if is_repeatable else "",
        ):
            self.show(piece)

    def record(self, kind: Callable[_Fields, Struct], /, *_: _Fields.args, **fields: _Fields.kwargs) -> None:
        """
        Print a record for programs. Prints nothing without `--json`. The record is buffered until the next `flush`.

        Args:
            kind: The Struct of the record. Its tag is the record's name. The type checker compares the fields with the Struct.
            fields: The fields in the order of printing. Fields that are None are left out.
        """
        if self.json:
            self.out.write(records.record(records.tag_of(kind), **fields))

    def flush(self) -> None:
        """Flush the output. Commands call this once per batch of results, because thousands may arrive per second."""
        self.out.flush()

    def raw(self, text: str) -> None:
        """Print a document unchanged for a program or a file. Control characters are not escaped."""
        self._write(self.out, text)

    def secret(self, text: str) -> None:
        """Print a result that only its owner may read. If standard output is a file, its mode becomes 0600 first."""
        with contextlib.suppress(OSError, ValueError):  # it is not a file, or belongs to another user
            number = self.out.fileno()
            if stat.S_ISREG(os.fstat(number).st_mode):
                os.fchmod(number, 0o600)
        self._write(self.out, text)

    def note(self, text: str) -> None:
        """Print a note on standard error."""
        self._write(self._err, f"{safe(text)}\n")

    def note_drawn(self, text: str) -> None:
        """Print text that was drawn with `live_style`, such as a table, on standard error."""
        self._write(self._err, f"{safe_drawn(text, color=self.live_style.color)}\n")

    def live(self, line: str) -> None:
        """Redraw the live line; "" removes it."""
        if self.is_live and line != self._live:
            self._live = ""
            self._put(self._err, _CLEAR + safe_drawn(line, color=True) if line else _CLEAR)
            self._live = line

    def break_off(self) -> None:
        """Clean up after Ctrl-C: remove the live line, and start a new line after the terminal's `^C`."""
        if self._live:
            self.live("")
        elif self._err.isatty():
            self._put(self._err, "\n")

    @property
    def can_ask(self) -> bool:
        """Whether an operator can be asked. `--json` must not be set, and input and output must be a terminal."""
        return not self.json and self._source.isatty() and self._err.isatty()

    @property
    def can_edit(self) -> bool:
        """Whether an editor can be started. Standard input and output must be a terminal."""
        return self._source.isatty() and self.out.isatty()

    async def ask(self, question: str, *, otherwise: str) -> bool:
        """
        Ask the operator a yes-or-no question. Any answer except yes means no.

        Raises:
            UsageError: There is no terminal for the question; `otherwise` is the advice in the message.
        """
        return await self.answer(question, otherwise=otherwise) in ("y", "yes")

    async def answer(self, question: str, *, otherwise: str, choices: str = "y/N") -> str:
        """
        Ask the operator a question, and return the answer in lowercase, or "" for the default.

        Raises:
            UsageError: There is no terminal for the question; `otherwise` is the advice in the message.
        """
        if not self.can_ask:
            raise UsageError(f'cannot ask "{question}" without a terminal; {otherwise}')
        self._write(self._err, f"{safe(question)} [{choices}] ")
        return (await _line_of(self._source)).strip().lower()

    def warn(self, text: str) -> None:
        """Print a warning on standard error."""
        style = self._style(self._err)
        self._write(self._err, f"{self.program}: {paint('warning:', 'change', style)} {safe(text)}\n")

    def fail_with(self, sentence: str) -> None:
        """Report a failure that has no exception, such as an interruption."""
        self._write(
            self._err, f"{paint(f'{self.program}:', 'bad', self._style(self._err))} {safe(sentence)}\n"
        )

    def fail(self, err: CcmError) -> None:
        """Report an error: a sentence for people, and with `--json` also a record."""
        if self.json:
            self.out.write(records.record(records.ERROR, code=err.code, message=str(err)))
        style = self._style(self._err)
        first, *rest = safe(str(err)).splitlines() or [one_line(err.code)]
        self._write(
            self._err, "\n".join([f"{paint(f'{self.program}:', 'bad', style)} {first}", *rest]) + "\n"
        )

    def _style(self, stream: TextIO) -> Style:
        is_forced = self._environ.get("FORCE_COLOR", "0") not in ("", "0")
        color = not self._environ.get("NO_COLOR") and (is_forced or self._environ.get("TERM") != "dumb")
        if not stream.isatty():
            return Style(width=UNLIMITED, color=color and is_forced, merges=None if self.merges else False)
        columns, lines = _size(self._environ, stream)
        return Style(width=max(columns, 20), color=color, merges=self.merges, height=lines)

    def _write(self, stream: TextIO, text: str) -> None:
        live = self._live
        self.live("")
        self._put(stream, text)
        if live and stream is self.out:
            self.live(live)

    def _put(self, stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()


def _size(environ: Mapping[str, str], stream: TextIO) -> tuple[int, int]:
    """Return the width and height of a terminal. Works like `shutil`, which is slow to import."""
    try:
        found = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):  # a test may use a terminal without a file descriptor
        found = os.terminal_size((0, 0))
    given = environ.get("COLUMNS", "")
    columns = int(given) if given.isdecimal() else 0
    return columns or found.columns or 80, found.lines or 24


async def _line_of(stream: TextIO) -> str:
    """Read a line from a terminal without blocking the event loop, so that Ctrl-C and the connection keep working."""
    import asyncio

    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(stream.fileno(), readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(stream.fileno())
    return stream.readline()  # a terminal delivers complete lines
