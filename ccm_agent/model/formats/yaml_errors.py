"""
Turn libyaml's syntax errors into messages and places that a user understands.

Imported only after a syntax error.
"""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import DocumentError, Place

_SENTENCES = (
    ("unexpected end of stream", "the quotes that open here are not closed"),
    (
        "mapping values are not allowed",
        "`: ` is not allowed here: put the value in quotes, or fix the indentation",
    ),
    (
        "mapping keys are not allowed",
        "`?` is not allowed here: put the value in quotes",
    ),
    ("expected ',' or ']'", "the list that opens with `[` is not closed, or a comma is missing"),
    ("expected ',' or '}'", "the mapping that opens with `{` is not closed, or a comma is missing"),
    (
        "did not find expected '-' indicator",
        "this is not part of the list around it: fix the indentation or add `- `",
    ),
    (
        "did not find expected key",
        "a key is expected here: fix the indentation, or put the value before it in quotes",
    ),
    (
        "could not find expected ':'",
        "this line is not `key: value`: fix the indentation, or put the text in quotes",
    ),
    (
        "did not find expected <document start>",
        "the document has ended before this: fix the indentation, or begin another document with `---`",
    ),
    (
        "block sequence entries are not allowed",
        "a list item is not allowed here: put it on its own line with the right indentation",
    ),
    (
        "unknown escape character",
        "there is no such escape in double quotes; write \\\\ for a backslash, or use single quotes",
    ),
    (
        "did not find expected hexdecimal number",
        "an escape with \\x, \\u or \\U needs 2, 4 or 8 hexadecimal digits",
    ),
    (
        "invalid Unicode character escape",
        "this escape is not a character; write the character itself, not a pair of \\u escapes",
    ),
    ("indentation indicator equal to 0", "the digit after `|` or `>` is the indentation, from 1 to 9"),
    ("unexpected ':'", "a `:` inside of `{ }` needs a space after it"),
    ("exceeded maximum nesting depth", "nested too deeply to be read"),
    ("expected node content", "a value is expected here; text that begins with this character needs quotes"),
)


def syntax_error(text: str, source: str, err: Any) -> DocumentError:
    """Convert libyaml's error about a text."""
    mark = getattr(err, "problem_mark", None)
    if mark is None:
        return _reader_error(text, source, err)
    problem = str(err.problem)
    opened = getattr(err, "context_mark", None)
    if opened is not None and ("unexpected end of stream" in problem or "expected ','" in problem):
        mark = opened  # an unclosed bracket is reported at its opening
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    message = _sentence(problem, line, mark.column)
    return DocumentError(message, place=Place(source, mark.line + 1, mark.column + 1))


def character_error(text: str, source: str, at: int) -> DocumentError:
    """Return the error about a character that YAML does not allow, or that libyaml treats as a line break."""
    code = ord(text[at])
    escape = f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    message = f'the character U+{code:04X} is not allowed: write it as "{escape}", in double quotes'
    if code == 0:
        message = "this is not a text file: it contains a NUL character; is it UTF-16?"
    return DocumentError(
        message, place=Place(source, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
    )


def _sentence(problem: str, line: str, column: int) -> str:
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        return "a tab cannot be used for indentation: use spaces"
    if "cannot start any token" in problem:
        char = line[column : column + 1]
        if char == "\t":
            return "a tab is not allowed here: use spaces"
        what = "a backtick" if char == "`" else f"`{char}`"
        return f"text cannot begin with {what}: put it in quotes"
    message = next((sentence for words, sentence in _SENTENCES if words in problem), problem)
    if "{{" in line or "${" in line:
        message += "; put a value that contains an expression in quotes"
    return message


def _reader_error(text: str, source: str, err: Any) -> DocumentError:
    # the position of libyaml's reader is in bytes
    at = len(text.encode()[: max(0, getattr(err, "position", 0) or 0)].decode(errors="ignore"))
    if at < len(text):
        return character_error(text, source, at)
    return DocumentError(str(getattr(err, "reason", None) or err), place=Place(source))
