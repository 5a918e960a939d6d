"""Findings of `ccm lint`, and their format: the place, the message, and the source line with a marker below it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.model import codec
from ccm_agent.model.errors import CcmError, Place
from ccm_agent.model.formats.urls import MASK, looks_secret, mask_urls

if TYPE_CHECKING:
    from ccm_agent.manifest.document import ManifestDocument, Path

ERROR, WARNING = "error", "warning"

FIXED = frozenset({"unquoted"})
"""Rules with findings that `ccm lint --fix` can fix."""

SHOWN_BEFORE = 40
"""The number of columns of a long line that are shown before the place."""
SHOWN_WIDTH = 72
"""The number of columns of a line that are shown."""

_WORD = re.compile(r"[^\s:,{}\[\]]+")
_KEY_AND_VALUE = re.compile(
    r"(?<![\w.-])(?P<key>[\w.-]++)(?P<quote>[\"']?)(?P<mark>\s*+[:=]\s*+)(?P<value>[^\s])"
)


def _plain(text: str, _level: str) -> str:
    return text


class Finding(Struct, frozen=True, kw_only=True):
    """
    A problem in a manifest.

    Attributes:
        level: "error" if `ccm apply` would refuse it on some node; "warning" if it is allowed but probably a mistake.
        place: The place in the document.
        message: The problem, its reason and the fix.
        rule: The code of the rule, such as "syntax" or "strict-ccm".
        can_fix: Whether `ccm lint --fix` can fix it.
    """

    level: str
    message: str
    rule: str
    place: Place = Place()
    can_fix: bool = False

    def __str__(self) -> str:
        return (
            f"{self.place}: {self.level}: {self.message}"
            if str(self.place)
            else f"{self.level}: {self.message}"
        )


def format_finding(finding: Finding, text: str, paint: Callable[[str, str], str] = _plain) -> str:
    """
    Format a finding in lines for people, without a final newline.

        site.yaml:6:9: error: file#/etc/motd: unknown key `contents`, did you mean `content`? [unknown-property]
          6 |         contents: hello
            |         ^^^^^^^^

    Args:
        finding: The finding.
        text: The document with the finding.
        paint: Colors a word by its level.
    """
    place = finding.place
    head = f"{place}: " if str(place) else ""
    level = paint(f"{finding.level}:", finding.level)
    return "\n".join([f"{head}{level} {finding.message} [{finding.rule}]", *_excerpt(text, place)])


def _excerpt(text: str, place: Place) -> list[str]:
    """Return the numbered source line and a marker below the word; an empty list if the place has no line."""
    lines = text.split("\n")
    if not 0 < place.line <= len(lines):
        return []
    written = lines[place.line - 1].rstrip("\r")
    masked = _masked(written)
    indentation = len(masked) - len(masked.lstrip())
    column = min(place.column or indentation + 1, len(written) + 1)
    if masked[: column - 1] != written[: column - 1]:
        column = indentation + 1  # the marker would be at the wrong column, so the whole line is marked
    found = _WORD.match(masked, column - 1)
    marked = len(found[0]) if found else 1
    begin = max(0, column - 1 - SHOWN_BEFORE) if len(masked) > SHOWN_WIDTH else 0
    shown = _printable(masked)[begin : begin + SHOWN_WIDTH]
    before = shown[: column - 1 - begin]
    mark = "^" * max(1, min(marked, len(shown) - len(before)))
    number = str(place.line)
    return [f"  {number} | {shown}", f"  {' ' * len(number)} | {' ' * _width(before)}{mark}"]


def _masked(line: str) -> str:
    """Mask the passwords of URLs in a line, and the value of a key with a secret name."""
    line = mask_urls(line)
    found = _KEY_AND_VALUE.search(line)
    while found is not None:
        if looks_secret(found["key"]):
            return f"{line[: found.start('value')]}{MASK}"
        found = _KEY_AND_VALUE.search(line, found.end("mark"))
    return line


def _printable(line: str) -> str:
    """
    Replace characters that move the cursor or change the direction of writing. The length does not change.
    """
    return "".join(
        char if char.isprintable() and unicodedata.bidirectional(char) not in _DIRECTIONS else " "
        for char in line
    )


_DIRECTIONS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})


def _width(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


class Report:
    """
    The findings in one document.

    Attributes:
        findings: The findings, not sorted.
        document: The document; None for the properties of a request, which have no place.
    """

    def __init__(self, document: ManifestDocument | None) -> None:
        self.findings: list[Finding] = []
        self.document = document

    def add(self, level: str, rule: str, message: str, path: Path = ()) -> None:
        """Add a finding about the value at a path."""
        self.add_at(level, rule, message, self.place(path))

    def add_at(self, level: str, rule: str, message: str, place: Place) -> None:
        """Add a finding with a known place. The same finding at the same place is added only once."""
        finding = Finding(level=level, rule=rule, message=message, place=place, can_fix=rule in FIXED)
        if finding not in self.findings:
            self.findings.append(finding)

    def add_error(self, err: CcmError, rule: str) -> None:
        """Add an error that has a place."""
        self.add_at(ERROR, rule, err.message, err.place or Place())

    def place(self, path: Path) -> Place:
        """Return the file, line and column of a path."""
        if self.document is None:
            return Place(path=codec.path_text(path) if path else "")
        return codec.locate(self.document.text, path, self.document.name)
