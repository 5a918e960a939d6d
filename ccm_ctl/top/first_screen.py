"""
The first screen of `ccmctl top`, drawn without Textual.

Importing Textual takes longer than reading a fleet of a thousand nodes. During the import, this screen shows the data that were
already read, in the layout of the Textual view. Key presses are processed after the import.
"""

from __future__ import annotations

import contextlib
import os
import termios
from typing import TYPE_CHECKING, TextIO

from ccm_agent.clikit.table import COLORS
from ccm_ctl.top.lines import counts_line, keys_line, status_line
from ccm_ctl.top.rows import COLUMNS, VIEWS, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from ccm_ctl.top.fleet_watch import FleetWatch
    from ccm_ctl.top.lines import Part

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
"""Escape sequences that switch to the terminal's second screen (without a cursor, long lines are cut off) and back."""

_LOOKS = {
    "bold": "1", "underline": "4", "reverse": "7",
    "red": "31", "green": "32", "yellow": "33", "magenta": "35", "bright_black": "90",
}  # fmt: skip

AROUND_TABLE = 4
"""The number of lines of a screen that are not rows: counts, status, headings and keys."""


@contextlib.contextmanager
def silent_second_screen(out: TextIO, keyboard: TextIO) -> Iterator[None]:
    """
    Show the terminal's second screen during the block, and do not echo key presses.

    The block must leave the second screen itself if it succeeds, as Textual does. After an error, this function leaves it.
    """
    device = keyboard.fileno()
    before = termios.tcgetattr(device)
    silent = [*before[:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:]]
    try:
        termios.tcsetattr(device, termios.TCSANOW, silent)
        _write(out, _ENTER)
        yield
    except BaseException:
        _write(out, _LEAVE)
        raise
    finally:
        termios.tcsetattr(device, termios.TCSANOW, before)


def draw_first_screen(out: TextIO, watch: FleetWatch, now: datetime, *, color: bool) -> None:
    """Draw the data about nodes that were already read."""
    columns, lines = os.get_terminal_size(out.fileno())
    _write(out, "\x1b[2J\x1b[H" + "\r\n".join(first_screen(watch, now, columns, lines, color=color)))


def first_screen(watch: FleetWatch, now: datetime, columns: int, lines: int, *, color: bool) -> list[str]:
    """Return the lines of the screen, limited to the screen's width."""
    view = VIEWS[0]
    rows = rows_of(view, watch, now)
    titles = COLUMNS[view]
    widths = [
        max(len(title), *(len(row.cells[place]) for row in rows)) if rows else len(title)
        for place, title in enumerate(titles)
    ]
    shown = rows[: max(lines - AROUND_TABLE, 0)]
    table: list[list[Part]] = [[(_in_columns(titles, widths), "bold underline")]]
    for place, row in enumerate(shown):
        look = COLORS[row.meaning]
        table.append([(_in_columns(row.cells, widths), look if place else f"{look} reverse")])
    blank: list[list[Part]] = [[]] * (lines - AROUND_TABLE - len(shown))
    picture = [counts_line(watch, now), status_line(watch, view), *table, *blank, keys_line(view)]
    return [_painted(parts, columns, color=color) for parts in picture[:lines]]


def _in_columns(cells: tuple[str, ...], widths: list[int]) -> str:
    return "".join(f" {cell:<{width}} " for cell, width in zip(cells, widths, strict=True))


def _painted(parts: list[Part], columns: int, *, color: bool) -> str:
    """Return parts as one styled line. Without color, only bold, underline and reverse are used."""
    painted, left = "", columns
    for text, look in parts:
        cut = text[:left]
        left -= len(cut)
        codes = [_LOOKS[word] for word in look.split() if color or len(_LOOKS[word]) == 1]
        painted += f"\x1b[{';'.join(codes)}m{cut}\x1b[0m" if codes and cut else cut
    return painted


def _write(out: TextIO, text: str) -> None:
    out.write(text)
    out.flush()
