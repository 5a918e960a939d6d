"""Checks the names and numbers of users and groups in properties before anything is changed."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from ccm_agent.model.errors import Place, PropertyError

LARGEST_ID = (1 << 32) - 2
"""The largest user or group number. The next number means "unchanged" to chown(2)."""

NAME_LENGTH = 32
"""The maximum length of a name, as in the shadow tools and utmp(5)."""

LIST_LENGTH = 100_000
"""The maximum length of a joined list of names, in characters. The kernel limits one argument to 131,072 bytes."""

AccountId = Annotated[int, Meta(ge=0, le=LARGEST_ID)]
"""The number of a user or group."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?", re.ASCII)


def check_name(name: str, what: str, field: str) -> None:
    """
    Refuse a name that would be misread by the shadow tools or in an account file.

    Args:
        name: The name.
        what: "user" or "group".
        field: The property that contains it.

    Raises:
        PropertyError: The name is invalid.
    """
    place = Place(path=f"$.{field}")
    if len(name) > NAME_LENGTH:
        shown = f"{name[:NAME_LENGTH]}…"
        raise PropertyError(
            f"the {what} name {shown!r} has {len(name)} characters; at most {NAME_LENGTH} are allowed",
            place=place,
        )
    if not _NAME.fullmatch(name):
        raise PropertyError(
            f"invalid {what} name {name!r}: it must begin with a letter, a digit or `_`, and may contain only letters, digits "
            "and `_.-`",
            place=place,
        )
    if name.isdigit():
        raise PropertyError(f"invalid {what} name {name!r}: programs would treat it as a number", place=place)


def check_number(text: str, field: str) -> None:
    """Refuse a number that is too large for a group."""
    if len(text) > len(str(LARGEST_ID)) or int(text) > LARGEST_ID:
        raise PropertyError(
            f"`{field}` is out of range: the maximum is {LARGEST_ID}", place=Place(path=f"$.{field}")
        )


def check_names(names: list[str] | None, what: str, field: str) -> None:
    """Refuse a list that contains an invalid name or is too long for one argument; see `check_name`."""
    for name in names or ():
        check_name(name, what, field)
    if len(",".join(names or ())) > LIST_LENGTH:
        raise PropertyError(
            f"`{field}` is too long: its {len(names or ())} names have more than {LIST_LENGTH} characters",
            place=Place(path=f"$.{field}"),
        )


def check_exclusive(names: list[str] | None, *, is_exclusive: bool, field: str) -> None:
    """Refuse `<field>_exclusive` if `<field>` is not set."""
    if is_exclusive and names is None:
        raise PropertyError(
            f"`{field}_exclusive` needs `{field}`; use `{field}: []` for none",
            place=Place(path=f"$.{field}_exclusive"),
        )


def merge(found: list[str], wanted: list[str], *, is_exclusive: bool) -> list[str]:
    """Return the desired list, sorted: the resource's names and, unless it is exclusive, the current names."""
    return sorted(set(wanted) if is_exclusive else {*found, *wanted})
