"""
Lines of authorized_keys.

Source: sshd(8), section "AUTHORIZED_KEYS FILE FORMAT"; RFC 4253, section 6.6.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from msgspec import Struct

from ccm_agent.model.records.host_import import printable

LINE_LENGTH = 16_384
FILE_BYTES = 1 << 20
"""The maximum size of a file that is read or written."""

_TYPE = re.compile(r"(?:sk-)?(?:ssh|ecdsa|rsa)-[a-z0-9@.-]+", re.ASCII)
_BLANKS = re.compile(r"[ \t]+")
_LENGTH_BYTES = 4


class KeyLine(Struct, frozen=True, kw_only=True):
    """
    A line with a key.

    Attributes:
        options: The options before the key, such as `from="10.0.0.0/8"`; "" if there are none.
        kind: The key's type.
        blob: The key in base64.
        comment: The text after the key.
    """

    options: str
    kind: str
    blob: str
    comment: str

    @property
    def shown(self) -> str:
        """The key for display: type, fingerprint as printed by ssh-keygen, and comment."""
        digest = base64.b64encode(sha256(base64.b64decode(self.blob)).digest()).decode().rstrip("=")
        restricted = "restricted " if self.options else ""
        # the comment is under the user's control and may contain terminal escape sequences, or bytes that are not UTF-8
        comment = printable(self.comment)
        return f"{restricted}{self.kind} SHA256:{digest} {comment}".strip()


def parse_line(line: str) -> KeyLine | None:
    """Return the parts of a line; None if it does not contain a valid key, such as a comment."""
    rest = line.strip(" \t")
    if not rest or rest.startswith("#"):
        return None
    options = ""
    kind, after = _divided(rest)
    if not _TYPE.fullmatch(kind):
        end = _end_of_options(rest)
        options, rest = rest[:end], rest[end:].lstrip(" \t")
        kind, after = _divided(rest)
    blob, comment = _divided(after)
    if not _TYPE.fullmatch(kind) or not _is_blob(blob, kind):
        return None
    return KeyLine(options=options, kind=kind, blob=blob, comment=comment.strip())


def _divided(text: str) -> tuple[str, str]:
    """Split a text at its first sequence of blanks. As in sshd, tabs are also blanks."""
    first, *rest = _BLANKS.split(text, maxsplit=1)
    return first, "".join(rest)


def _end_of_options(text: str) -> int:
    """Return the position of the first blank outside quotes."""
    is_quoted = False
    for index, character in enumerate(text):
        if character == '"' and text[index - 1 : index] != "\\":
            is_quoted = not is_quoted
        elif character in " \t" and not is_quoted:
            return index
    return len(text)


def _is_blob(blob: str, kind: str) -> bool:
    """Whether the decoded key begins with the name of its type."""
    try:
        data = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return False
    size = int.from_bytes(data[:_LENGTH_BYTES], "big")
    return data[_LENGTH_BYTES : _LENGTH_BYTES + size] == kind.encode() and len(data) > _LENGTH_BYTES + size


def lines_of(text: str) -> list[str]:
    """Return the non-empty lines of a file."""
    return [line for line in text.split("\n") if line.strip()]


def valid_lines(content: bytes | None) -> list[str]:
    """Return the lines of a file that may be kept: valid keys and comments. Lines that sshd ignores are omitted."""
    lines = lines_of((content or b"").decode(errors="replace"))
    return [line for line in lines if line.isprintable() and (line.startswith("#") or parse_line(line))]


def merge_lines(found: Sequence[str], wanted: Sequence[str], *, is_exclusive: bool) -> list[str]:
    """
    Return the lines that the file should contain.

    A line with a desired key but different options is replaced, because a key must not be kept without its desired restrictions.
    Comments of keys may differ.
    """
    if is_exclusive:
        return list(dict.fromkeys(wanted))
    parsed = {line: parse_line(line) for line in (*found, *wanted)}
    options = {key.blob: key.options for line in wanted if (key := parsed[line])}
    kept = [
        line
        for line in found
        if not (key := parsed[line]) or options.get(key.blob, key.options) == key.options
    ]
    known = {key.blob for line in kept if (key := parsed[line])}
    added = [
        line
        for line in dict.fromkeys(wanted)
        if (key.blob not in known if (key := parsed[line]) else line not in kept)
    ]
    return kept + added


def shown_lines(lines: Iterable[str]) -> str:
    """Return the keys in lines, for a diff."""
    return "; ".join(key.shown for line in lines if (key := parse_line(line)))
