"""
Split a command line into words like a POSIX shell, but without variables, globs or operators.

The rules are those of go-shellquote, which CCM uses: words are separated by spaces, tabs and line feeds (a
carriage return is text). Everything in single quotes is literal. In double quotes a backslash is literal unless
one of $ ` " \\ or a line feed follows.
"""

from __future__ import annotations

from ccm_agent.model.errors import PropertyError

_BLANK = " \t\n"
_ESCAPED_IN_DOUBLE_QUOTES = '$`"\\\n'


def split_words(line: str) -> list[str]:
    """
    Split a command line; return an empty list for a blank line.

    Raises:
        PropertyError: A quote is not closed, or nothing follows a backslash.
    """
    words: list[str] = []
    at = 0
    while True:
        while at < len(line) and line[at] in _BLANK:
            at += 1
        if line.startswith("\\\n", at):  # a line continuation
            at += 2
        elif at == len(line):
            return words
        else:
            word, at = _word(line, at)
            words.append(word)


def _word(line: str, at: int) -> tuple[str, int]:
    """Return the word that begins at an offset, and its end."""
    pieces: list[str] = []
    while at < len(line) and line[at] not in _BLANK:
        if line[at] == "'":
            piece, at = _single(line, at + 1)
        elif line[at] == '"':
            piece, at = _double(line, at + 1)
        elif line[at] == "\\":
            if at + 1 == len(line):
                raise PropertyError(f"nothing follows the backslash at the end: {line}")
            piece, at = line[at + 1].replace("\n", ""), at + 2
        else:
            piece, at = line[at], at + 1
        pieces.append(piece)
    return "".join(pieces), at


def _single(line: str, at: int) -> tuple[str, int]:
    end = line.find("'", at)
    if end < 0:
        raise PropertyError(f"a single quote is not closed: {line}")
    return line[at:end], end + 1


def _double(line: str, at: int) -> tuple[str, int]:
    pieces: list[str] = []
    while at < len(line):
        here, following = line[at], line[at + 1 : at + 2]
        if here == '"':
            return "".join(pieces), at + 1
        if here == "\\" and following and following in _ESCAPED_IN_DOUBLE_QUOTES:
            pieces.append(following.replace("\n", ""))
            at += 2
        else:
            pieces.append(here)
            at += 1
    raise PropertyError(f"a double quote is not closed: {line}")
