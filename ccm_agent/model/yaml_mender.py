"""
What becomes of a text that libyaml does not read as the reference does: mended where it is right, else an error that says
what to do.

Loaded only for such a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from ccm_agent.model.errors import DocumentError, Place

T = TypeVar("T")

MAX_MENDS = 1_000
"""Places where libyaml stumbles over what is right; each costs another pass, so there is an end to it."""

_LINE_BREAKS = "\x85\u2028\u2029"
"""Line breaks to YAML 1.1, characters like any other to YAML 1.2."""

_CONTROLS = "".join(
    map(
        chr,
        (
            *range(1, 9),
            0xB,
            0xC,
            *range(0xE, 0x20),
            *range(0x7F, 0x85),
            *range(0x86, 0xA0),
            0xFEFF,
            0xFFFE,
            0xFFFF,
        ),
    )
)
"""What libyaml refuses; not NUL, which only stands in a file that is no text at all."""

_FIRST = "%,}:?"
"""What plain text may begin with in the reference and not in libyaml, each where `_begins_text` says."""

_ALIKE = {
    "%": re.compile(r"(?m:^ .*[ \t\[,]%.*$)"),
    ":": re.compile(r"[\[,] *:(?=[^\s,\[\]{}])"),
}
"""Where more of the same may begin text, hidden in one go: what is hidden inside of other text does no harm."""

_AFTER_DASH = re.compile(r" *(?:[-?:] +)*[-?:] *")
_ITEM_OR_PAIR = re.compile(r"""-(?:\s|$)|(?:"[^"]*"|'[^']*'|[^\s"'\[{|>#][^#]*?)[ \t]*:(?:\s|$)""")

_KEY_ALONE = re.compile(r"[{,]\s*[^\s:{}\[\],][^:{}\[\],]*:}\Z")

_BARE_DOCUMENT = re.compile(r"^\.\.\.[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)* *\Z", re.MULTILINE)
_END_FIRST = re.compile(r"\.\.\.(?=[ \t]*(?:#[^\n]*)?\r?(?:\n|\Z))")
_NOTHING = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*")
_SURROGATES = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


class Mender:
    """
    Rewrites what libyaml would refuse or misread, and puts it back into the values.

    A pair of `\\u` escapes for one character becomes one escape. A tab at the head of a block scalar's first line, after its
    indentation, is content, and so are control characters; Unicode's own line breaks break no line; some signs may begin plain
    text. Private characters stand in for those until the values are there. Tabs may stand after a dash and in lines with nothing
    but a comment, and the last key in `{ }` may end in its colon. A document may follow the end of another without a mark of its
    own. Lines stay where they are.
    """

    def __init__(self, text: str, source: str) -> None:
        self.source = source
        self.private = next((base for base in (0xF0000, 0x100000) if not _holds(text, base)), 0)
        self.text = self._hidden(text, _LINE_BREAKS)
        self.complaint: DocumentError | None = None

    def read(self, reader: Callable[[str], T]) -> T:
        """
        What `reader` makes of the text, mended as often as it takes.

        Raises:
            DocumentError: The text is wrong indeed.
        """
        import yaml

        for _ in range(MAX_MENDS):
            try:
                return reader(self.text)
            except yaml.YAMLError as err:
                self._mend(err)
            except DocumentError as err:
                said = self.restored(err.message)
                raise err if said == err.message else DocumentError(said, place=err.place) from None
        message = (
            f"more than {MAX_MENDS:,} values that begin with a sign or hold an escaped surrogate pair: put them in"
            " quotes, and write characters themselves"
        )
        raise DocumentError(message, place=Place(self.source))

    def _mend(self, err: Any) -> None:
        mark = getattr(err, "problem_mark", None)
        if mark is None:
            if "control characters" in str(getattr(err, "reason", "")):
                hidden = self._hidden(self.text, _CONTROLS)
                if hidden != self.text:
                    self.text = hidden
                    return
        elif self._mend_at(mark.index, str(err.problem), err):
            return
        raise self.complaint or _syntax_error(self.text, self.source, err) from err

    def _mend_at(self, at: int, problem: str, err: Any) -> bool:
        """Mend what libyaml stumbled over there; False when it is wrong."""
        if "Unicode character escape" in problem:
            if found := _SURROGATES.search(self.text, max(0, at - 2), at + 12):
                code = 0x10000 + ((int(found[1], 16) - 0xD800) << 10) + (int(found[2], 16) - 0xDC00)
                self._put(f"\\U{code:08x}", found.start(), found.end())
            return found is not None
        if "tab character where an indentation" in problem and err.problem_mark.column > 0:
            self.complaint = _syntax_error(self.text, self.source, err)
            self._hide_at(at)
            return True
        if "cannot start any token" in problem and _is_space(self.text, at):
            end = at + len(self.text[at:]) - len(self.text[at:].lstrip(" \t"))
            self._put(" " * (end - at), at, end)
            return True
        if "unexpected ':'" in problem and _KEY_ALONE.search(self.text[: at + 2]):
            self._put(": ", at, at + 1)
            return True
        if "<document start>" in problem and (end := self._end_before(at)) >= 0:
            self._put("---", end, end + 3)
            return True
        if (
            "expected node content" in problem
            and _END_FIRST.match(self.text, at)
            and _NOTHING.fullmatch(self.text[:at])
        ):
            self._put("#", at, at + 1)
            return True
        if self.private and _begins_text(self.text, at, err):
            char = self.text[at]
            self._hide_at(at)
            if char in _ALIKE:
                self.text = _ALIKE[char].sub(lambda found: self._hidden(found[0], char), self.text)
            return True
        return False

    def _put(self, new: str, start: int, end: int) -> None:
        self.text = f"{self.text[:start]}{new}{self.text[end:]}"

    def _hide_at(self, at: int) -> None:
        char = self.text[at]
        self._put(self._hidden(char, char), at, at + 1)

    def _end_before(self, at: int) -> int:
        """Where the `...` stands that ended a document just before a place; -1 when none did."""
        found = _BARE_DOCUMENT.search(self.text[:at])
        return found.start() if found else -1

    def _hidden(self, text: str, chars: str) -> str:
        """The text with private characters for these; as it is when it holds such itself."""
        return (
            text.translate({ord(char): self.private + ord(char) for char in chars}) if self.private else text
        )

    def restore(self, value: object) -> object:
        """The values with every character back in its place."""
        return _translated(value, self._table()) if self.private else value

    def restored(self, text: str) -> str:
        """One text with every character back in its place."""
        return text.translate(self._table()) if self.private else text

    def _table(self) -> dict[int, str]:
        return {self.private + ord(char): char for char in _LINE_BREAKS + _CONTROLS + _FIRST + "\t"}


def _is_space(text: str, at: int) -> bool:
    """Whether a tab means no more than a space: behind spaces in an empty line, or between a dash and a value of one piece."""
    if text[at : at + 1] != "\t":
        return False
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    before, rest = text[start:at], text[at : end if end >= 0 else len(text)].strip()
    if not before.strip():
        return rest[:1] in ("", "#") and (before != "" or not text[:at].strip())
    return _AFTER_DASH.fullmatch(before) is not None and not _ITEM_OR_PAIR.match(rest)


def _begins_text(text: str, at: int, err: Any) -> bool:
    """
    Whether what libyaml stumbled over begins plain text for the reference.

    A `%` does in a line that is indented, a `,` or `}` outside of `[ ]` and `{ }`, a `:` inside them when no white space
    follows, a `?` with nothing behind it.
    """
    char, following = text[at : at + 1], text[at + 1 : at + 2]
    problem, is_flow = str(err.problem), "flow" in str(err.context)
    if char == "%":
        return "cannot start any token" in problem and text[text.rfind("\n", 0, at) + 1] == " "
    if char == "?":
        return "mapping keys are not allowed" in problem and following in ("", "\r", "\n")
    if "expected node content" not in problem:
        return False
    return not is_flow if char in (",", "}") else is_flow and char == ":" and not following.isspace()


def _holds(text: str, base: int) -> bool:
    return re.search(f"[{chr(base)}-{chr(base + 0xFFFF)}]", text) is not None


def _translated(value: object, table: dict[int, str]) -> object:
    if isinstance(value, str):
        return value.translate(table)
    if isinstance(value, list):
        return [_translated(one, table) for one in value]
    if isinstance(value, dict):
        return {key.translate(table): _translated(one, table) for key, one in value.items()}
    return value


_SENTENCES = (
    ("unexpected end of stream", "the quotes that open here are not closed"),
    (
        "mapping values are not allowed",
        "`: ` cannot stand here: put the value in quotes, or mend the indentation",
    ),
    ("expected ',' or ']'", "the list that opens with `[` is not closed, or a comma is missing"),
    ("expected ',' or '}'", "the mapping that opens with `{` is not closed, or a comma is missing"),
    (
        "did not find expected '-' indicator",
        "this does not belong to the list around it: mend the indentation or add `- `",
    ),
    (
        "did not find expected key",
        "a key was expected here: mend the indentation, or put the value before it in quotes",
    ),
    (
        "could not find expected ':'",
        "this line is no `key: value`: mend the indentation, or put the text in quotes",
    ),
    (
        "did not find expected <document start>",
        "the document has ended here, and this does not belong to it: mend the indentation",
    ),
    (
        "block sequence entries are not allowed",
        "a list item cannot stand here: put it on a line of its own, with the right indentation",
    ),
    (
        "unknown escape character",
        "no such escape in double quotes; write \\\\ for a backslash, or use single quotes",
    ),
    (
        "did not find expected hexdecimal number",
        "an escape with \\x, \\u or \\U needs 2, 4 or 8 hexadecimal digits",
    ),
    ("invalid Unicode character escape", "this escape is no character"),
    ("indentation indicator equal to 0", "the digit after `|` or `>` is the indentation, from 1 to 9"),
    ("expected node content", "a value was expected here"),
    (
        "control characters are not allowed",
        "this is no text file: it holds a NUL character; is it UTF-16?",
    ),
)


def _syntax_error(text: str, source: str, err: Any) -> DocumentError:
    problem = str(getattr(err, "problem", None) or getattr(err, "reason", None) or err)
    mark = getattr(err, "problem_mark", None)
    opened = getattr(err, "context_mark", None)
    if opened is not None and ("unexpected end of stream" in problem or "expected ','" in problem):
        mark = opened  # what was never closed is mended where it opens
    if mark is None:
        return DocumentError(_sentence(problem, "", ""), place=_reader_place(text, source, err))
    lines = text.split("\n")
    line = lines[mark.line] if mark.line < len(lines) else ""
    message = _sentence(problem, line, line[mark.column : mark.column + 1])
    return DocumentError(message, place=Place(source, mark.line + 1, mark.column + 1))


def _sentence(problem: str, line: str, char: str) -> str:
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" in indentation:
        return "a tab cannot be used for indentation: use spaces"
    if "cannot start any token" in problem:
        what = "a tab" if char == "\t" else "a backtick" if char == "`" else f"`{char}`"
        return f"{what} cannot begin plain text: put the value in quotes"
    message = next((sentence for words, sentence in _SENTENCES if words in problem), problem)
    if "{{" in line or "${" in line:
        message += "; a value with an expression in it is safest in quotes"
    return message


def _reader_place(text: str, source: str, err: Any) -> Place:
    # libyaml's reader counts bytes
    before = text.encode()[: max(0, getattr(err, "position", 0) or 0)].decode(errors="ignore")
    return Place(source, before.count("\n") + 1, len(before) - before.rfind("\n"))
