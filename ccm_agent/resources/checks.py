"""Checks of properties: their errors name the property, and all are reported, not only the first."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ccm_agent.model.errors import InputError, Place, PropertyError

P = TypeVar("P")

PATH_BYTES = 4095
"""The kernel's limits, without the final NUL: path_resolution(7)."""
NAME_BYTES = 255
SHOWN = 100
"""The most characters of a path in an error."""


def refuse(message: str, field: str) -> NoReturn:
    """Raise the error of a property: the field `retry.tries` is at `$.retry.tries`."""
    raise PropertyError(message, place=Place(path=f"$.{field}"))


def check_each(wanted: P, *checks: Callable[[P], None]) -> None:
    """
    Run every check, also after one has failed.

    Args:
        wanted: The properties.
        checks: Each raises an error about one thing. They run in this order.

    Raises:
        PropertyError: The first error, with those of the other checks in `others`.
    """
    errors: list[InputError] = []
    for check in checks:
        try:
            check(wanted)
        except InputError as err:
            errors += errors_in(err)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        first, *others = errors
        raise PropertyError(first.message, place=first.place, others=tuple(others)) from first


def errors_in(err: InputError) -> list[InputError]:
    """Yield an error and the other errors that it carries."""
    return [err, *err.others] if isinstance(err, PropertyError) else [err]


def why_no_path(text: str) -> str:
    """Return why a text cannot be a path in a manifest; "" if it can."""
    if not text.isprintable():
        return "contains a control character, or bytes that are not UTF-8"
    size = len(text.encode(errors="replace"))
    longest = max(len(part.encode(errors="replace")) for part in text.split("/"))
    if size > PATH_BYTES or longest > NAME_BYTES:
        return f"is longer than {PATH_BYTES} bytes, or a part of it than {NAME_BYTES}"
    return ""


def check_path_text(text: str, field: str) -> None:
    """Refuse a property that cannot be a path in a manifest; see `why_no_path`."""
    if why := why_no_path(text):
        refuse(f"`{field}` {why}", field)


def check_path_name(name: str, what: str) -> None:
    """
    Refuse a name that is not an absolute and canonical path.

    Args:
        name: The name of a resource.
        what: What is at the path, for errors: "symlink".
    """
    check_path_text(name, "name")
    if not name.startswith("/"):
        refuse(
            f"the path of a {what} must be absolute, and `{name[:SHOWN]}` does not begin with a slash", "name"
        )
    canonical = canonical_path(name)
    if canonical != name:
        refuse(
            f"the path of a {what} must be canonical: write `{canonical[:SHOWN]}` for `{name[:SHOWN]}`",
            "name",
        )


def canonical_path(path: str) -> str:
    """Return an absolute path without `.`, `..` and double slashes."""
    # POSIX allows a special meaning of two slashes at the start; Linux does not have one
    return posixpath.normpath("/" + path.lstrip("/"))
