"""
Man pages, section 1: one for each command of `ccm` and `ccmctl`, made of its help.

    manual.py DIR    write them into DIR, uncompressed, to look at them: man -l DIR/ccmctl-apply.1
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT), str(PROJECT / ".ci")]

from help_screens import EXIT_CODES, Screen, screens  # noqa: E402 -- part of the checkout

ESCAPES = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", '"': "\\(dq"}
"""The characters that mean something to troff, or that it prints as others; a plain hyphen could not be copied as one."""


def manual(made_at: int) -> dict[str, str]:
    """The pages by file name; `made_at` is the day in their footer, in seconds since 1970."""
    found = list(screens())
    return {f"{file_name(one.path)}.1": page(one, found, made_at) for one in found}


def file_name(path: Sequence[str]) -> str:
    """`ccmctl-run-list`."""
    return "-".join(path)


def page(screen: Screen, every: Sequence[Screen], made_at: int) -> str:
    """One page, as man reads it."""
    from ccm_agent.version import VERSION

    day = datetime.fromtimestamp(made_at, UTC).date().isoformat()
    name = file_name(screen.path)
    lines = [
        f'.TH "{name.upper()}" "1" "{day}" "ccm-fleet {VERSION}" "ccm-fleet"',
        ".SH NAME",
        f"{escaped(name)} \\- {escaped(screen.sentence)}",
        ".SH SYNOPSIS",
        f".B {escaped(screen.name)}",
        escaped(screen.usage.removeprefix(screen.name).strip()),
        ".SH DESCRIPTION",
        *_paragraphs(screen.paragraphs),
    ]
    options = {
        title: rows for title, rows in screen.sections.items() if title not in ("Arguments", "Commands")
    }
    for title in ("Arguments", "Commands"):
        if rows := screen.sections.get(title):
            lines += [f".SH {title.upper()}", *_rows(rows)]
    if options:
        lines.append(".SH OPTIONS")
        for title, rows in options.items():
            lines += [*([f".SS {escaped(title)}"] if len(options) > 1 else []), *_rows(rows)]
    if screen.examples:
        lines += [".SH EXAMPLES", ".nf", *map(escaped, screen.examples), ".fi"]
    lines += [".SH EXIT STATUS", *_rows(EXIT_CODES[screen.path[0]])]
    lines += [".SH SEE ALSO", ", ".join(_near(screen, every))]
    return "\n".join(line for line in lines if line) + "\n"


def _near(screen: Screen, every: Sequence[Screen]) -> Iterator[str]:
    """The pages of the command above, of those below, and of the other program."""
    above = [one for one in every if one.path == screen.path[:-1]]
    below = [one for one in every if one.path[:-1] == screen.path]
    programs = [one for one in every if len(one.path) == 1 and one.path[0] != screen.path[0]]
    for one in [*above, *below, *programs]:
        yield f"\\fB{escaped(file_name(one.path))}\\fP(1)"


def _paragraphs(texts: Sequence[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield from (f"{escaped(line)}" for line in text.splitlines())


def _rows(rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, text in rows:
        yield ".TP"
        yield f".B {escaped(name)}"
        yield escaped(text) or "\\&"


def escaped(text: str) -> str:
    """A text that troff prints as it is; a dot at the beginning of a line would be a request."""
    text = "".join(
        ESCAPES.get(letter, letter if letter.isascii() else f"\\[u{ord(letter):04X}]") for letter in text
    )
    return f"\\&{text}" if text.startswith(".") else text


def main(folder: Path) -> None:
    """Write all pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in manual(0).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
