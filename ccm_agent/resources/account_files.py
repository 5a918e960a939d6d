"""
Reads users and groups from the files in /etc.

Local files decide what is managed. The shadow tools change nothing else, and `getent` without names would enumerate a directory
service (LDAP, SSSD), which can take minutes and loads its servers. One read of a file answers for any number of resources.

Source: passwd(5), group(5), shadow(5), login.defs(5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Files

PASSWD, SHADOW = "/etc/passwd", "/etc/shadow"
GROUP, GSHADOW = "/etc/group", "/etc/gshadow"
PASSWD_FIELDS, SHADOW_FIELDS, GROUP_FIELDS = 7, 9, 4
LOGIN_DEFS = "/etc/login.defs"
REGULAR = range(1000, 60_001)
"""The numbers of accounts that no package creates, if login.defs has none."""

LIMIT_BYTES = 64 << 20
"""About 500,000 accounts."""

_DIGITS = 10
"""Of the largest number of an account."""

FEW = 16
"""Up to this number of names, searching the text is faster than splitting all of its lines."""


async def read_accounts(files: Files, path: str) -> str:
    """
    Return the text of one of the files.

    Raises:
        FileError: It cannot be read.
    """
    return (await files.read(path, LIMIT_BYTES)).decode(errors="replace")


def entries(text: str, names: Collection[str], fields: int) -> dict[str, list[str]]:
    """
    Return the entries of some names, each split at its colons.

    Args:
        text: The file.
        names: Names of users or groups.
        fields: The number of fields of an entry. Other lines are skipped, as the C library does.
    """
    found: dict[str, list[str]] = {}
    lines = _search(text, names) if len(names) <= FEW else text.split("\n")
    for line in lines:
        name = line.partition(":")[0]
        # the first entry of a name takes precedence
        if name in names and name not in found and line.count(":") == fields - 1:
            found[name] = line.split(":")
    return found


async def regular_numbers(files: Files, kind: str) -> range:
    """
    Return the numbers of accounts that no package creates.

    Args:
        kind: "UID" or "GID".
    """
    try:
        text = await read_accounts(files, LOGIN_DEFS)
    except FileError:
        return REGULAR
    words = {words[0]: words[1] for line in text.split("\n") if len(words := line.split()) == 2}
    least, most = number(words.get(f"{kind}_MIN", "")), number(words.get(f"{kind}_MAX", ""))
    return range(REGULAR.start if least < 1 else least, REGULAR.stop if most < 1 else most + 1)


def _search(text: str, names: Collection[str]) -> Iterator[str]:
    for name in names:
        start = text.find(f"\n{name}:") + 1
        if start or text.startswith(f"{name}:"):
            end = text.find("\n", start)
            yield text[start:] if end < 0 else text[start:end]


def members_of(entry: list[str]) -> list[str]:
    """Return the members in an entry of /etc/group, sorted."""
    return sorted({name for name in entry[3].split(",") if name})


def number(field: str) -> int:
    """Return a number in an entry; -1 if it is not one."""
    return int(field) if field.isascii() and field.isdigit() and len(field) <= _DIGITS else -1
