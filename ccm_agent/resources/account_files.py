"""
Reads users and groups from the files in /etc.

Only accounts in local files are managed, because the shadow tools only change local files. `getent` without names would
enumerate a directory service (LDAP, SSSD). This can take minutes and puts load on its servers. One read of a file serves many
resources.

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
"""The default range of account numbers that packages do not use. It applies if login.defs does not set a range."""

LIMIT_BYTES = 64 << 20
"""The maximum size of an account file, enough for about 500,000 accounts."""

_DIGITS = 10
"""The number of digits of the largest account number."""

FEW = 16
"""Up to this number of names, searching the text is faster than splitting all of its lines."""


async def read_accounts(files: Files, path: str) -> str:
    """
    Return the text of an account file.

    Raises:
        FileError: The file cannot be read.
    """
    return (await files.read(path, LIMIT_BYTES)).decode(errors="replace")


def entries(text: str, names: Collection[str], fields: int) -> dict[str, list[str]]:
    """
    Return the entries with these names, each split at its colons.

    Args:
        text: The content of the file.
        names: Names of users or groups.
        fields: The number of fields of an entry. Lines with a different number of fields are skipped, as in the C library.
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
    Return the range of account numbers that packages do not use, as set in login.defs.

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
    """Return the number in a field. -1 if the field is not a number."""
    return int(field) if field.isascii() and field.isdigit() and len(field) <= _DIGITS else -1
