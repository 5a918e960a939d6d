"""
Lines of /etc/hosts.

Source: hosts(5).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence

from msgspec import Struct

from ccm_agent.resources.host.model import HostEntry

_BLANKS = re.compile(r"[ \t\r\f\v]+")
"""Field separators. str.split() is not used, because it also splits at other characters, such as a no-break space."""
_FRONT = re.compile(r"[ \t]*[^ \t]+([ \t]+)")


def normal_address(text: str) -> str:
    """Return an address in the form of inet_ntop(3); "" if the text is not an address."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, text))
        except (OSError, ValueError):
            continue
    return ""


def read_entries(lines: Sequence[str]) -> Mapping[str, tuple[HostEntry, ...]]:
    """Return the entries by canonical name in lower case, in the order of their lines."""
    entries: dict[str, list[HostEntry]] = {}
    for parsed in map(_parse, lines):
        if parsed is not None:
            entries.setdefault(parsed.name.lower(), []).append(parsed.entry)
    return {name: tuple(found) for name, found in entries.items()}


def with_entries(
    lines: Sequence[str], name: str, addresses: Sequence[str], aliases: Sequence[str] | None
) -> list[str]:
    """
    Return the lines with exactly one line for each desired address of a host.

    A line of the host that already has a desired address is kept. The host's other lines are rewritten with the missing
    addresses, or removed. New lines are inserted after the last line of the host. Comments are kept.

    Args:
        lines: The lines of the file.
        name: The canonical name.
        addresses: The desired addresses.
        aliases: The desired aliases. With None, each line keeps its aliases.
    """
    own = {index: one for index, one in enumerate(map(_parse, lines)) if one and one.is_of(name)}
    missing = dict.fromkeys(map(normal_address, addresses))
    after: dict[int, str] = {}
    for index, one in own.items():
        address = one.entry.address
        if address in missing or (aliases is None and address in after.values()):
            missing.pop(address, None)
            after[index] = address
    left = list(missing)
    for index in own:
        if index not in after and left:
            after[index] = left.pop(0)
    end = max(own, default=len(lines) - 1) + 1
    kept = [
        own[index].rewrite(line, after[index], aliases) if index in own else line
        for index, line in enumerate(lines[:end])
        if index not in own or index in after
    ]
    return [*kept, *(_render(one, (name, *(aliases or ()))) for one in left), *lines[end:]]


def without_entries(lines: Sequence[str], name: str) -> list[str]:
    """Return the lines, except the lines of a host."""
    return [one for one in lines if not ((parsed := _parse(one)) and parsed.is_of(name))]


class _Line(Struct, frozen=True, kw_only=True):
    """A line with an entry: its canonical name, and its comment, which begins with `#`."""

    name: str
    entry: HostEntry
    comment: str

    def is_of(self, name: str) -> bool:
        return self.name.lower() == name.lower()

    def rewrite(self, line: str, address: str, aliases: Sequence[str] | None) -> str:
        """Return the line with the given address and aliases. If they are the same, the line is unchanged."""
        entry = HostEntry(address=address, aliases=self.entry.aliases if aliases is None else tuple(aliases))
        if entry == self.entry:
            return line
        front = _FRONT.match(line)
        changed = _render(address, (self.name, *entry.aliases), front[1] if front else " ")
        return f"{changed} {self.comment}" if self.comment else changed


def _render(address: str, names: Sequence[str], blank: str = " ") -> str:
    return f"{address}{blank}{' '.join(names)}"


def _parse(line: str) -> _Line | None:
    """Return the parts of a line. None for a comment or a line that the resolver ignores."""
    body, mark, comment = line.partition("#")
    address, *names = _BLANKS.split(body.strip(" \t\r\f\v"))
    address = normal_address(address)
    if not address or not names:
        return None
    entry = HostEntry(address=address, aliases=tuple(names[1:]))
    return _Line(name=names[0], entry=entry, comment=f"{mark}{comment}".rstrip())
