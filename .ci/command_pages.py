"""The reference of every command of `ccm` and `ccmctl`, in Markdown, from the same help screens as the man pages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from help_screens import EXIT_CODES, Screen, screens
from tables import plain, table

EXIT_SENTENCE = re.compile(r"^Exit codes?: ")
HELP = "-h, --help"
"""Every command has it; the page says so once."""

HEADS = {"Arguments": "Argument", "Options": "Option", "Commands": "Command"}
"""The first column's head, where it is not the title of the section."""


def commands(program: str) -> str:
    """Each command of a program, parents before children."""
    return "\n\n".join(part for screen in screens() if screen.path[0] == program for part in _command(screen))


def exit_codes(program: str) -> str:
    """The exit codes of a program."""
    return table(["Exit code", "Meaning"], EXIT_CODES[program])


def _command(screen: Screen) -> Iterator[str]:
    yield f"{'#' * max(len(screen.path), 2)} {screen.name}"
    yield f"```text\n{screen.usage}\n```"
    exits = [text for text in screen.paragraphs if EXIT_SENTENCE.match(text)]
    yield from (_paragraph(text) for text in screen.paragraphs if text not in exits)
    for title, rows in screen.sections.items():
        shown = [(_name(screen, title, name), plain(text)) for name, text in rows if name != HELP]
        if shown:
            yield table([HEADS.get(title, title), "Meaning"], shown)
    if screen.examples:
        # not `sh`, whose blocks are run in a test: what these name does not exist there
        yield "\n".join(["```text", *screen.examples, "```"])
    yield from (plain(text) for text in exits)


def _paragraph(text: str) -> str:
    """A paragraph; one of several lines keeps them."""
    return f"```text\n{text}\n```" if "\n" in text else plain(text)


def _name(screen: Screen, title: str, name: str) -> str:
    """The first cell of a row; a command is a link to its part of the page."""
    return (
        f"[`{screen.name} {name}`](#{'-'.join([*screen.path, name])})" if title == "Commands" else f"`{name}`"
    )
