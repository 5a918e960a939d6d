"""Checks of properties. Errors name the property, and all errors are reported, not only the first."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import NoReturn, TypeVar

from ccm_agent.model.errors import InputError, Place, PropertyError

P = TypeVar("P")

PATH_BYTES = 4095
"""The kernel's limits for a path and a name, without the final NUL: path_resolution(7)."""
NAME_BYTES = 255
SHOWN = 100
"""The maximum number of characters of a path in an error."""


def refuse(message: str, field: str) -> NoReturn:
    """Raise PropertyError for a field. For example, the position of the field `retry.tries` is `$.retry.tries`."""
    raise PropertyError(message, place=Place(path=f"$.{field}"))


def check_each(wanted: P, *checks: Callable[[P], None]) -> None:
    """
    Run every check, even after one of them has failed.

    Args:
        wanted: The properties.
        checks: The checks to run, in this order. Each raises an error about one problem.

    Raises:
        PropertyError: The first error. The errors of the other checks are in `others`.
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
    """Return the error itself and the errors that it contains."""
    return [err, *err.others] if isinstance(err, PropertyError) else [err]


def why_no_path(text: str) -> str:
    """Return the reason why a text cannot be a path in a manifest. "" if it can."""
    if not text.isprintable():
        return "contains a control character, or bytes that are not UTF-8"
    size = len(text.encode(errors="replace"))
    longest = max(len(part.encode(errors="replace")) for part in text.split("/"))
    if size > PATH_BYTES or longest > NAME_BYTES:
        return f"is longer than {PATH_BYTES} bytes, or has a name longer than {NAME_BYTES} bytes"
    return ""


def check_path_text(text: str, field: str) -> None:
    """Refuse a property that cannot be a path in a manifest; see `why_no_path`."""
    if why := why_no_path(text):
        refuse(f"`{field}` {why}", field)


def check_path_name(name: str, what: str) -> None:
    """
    Refuse a name that is not an absolute, canonical path.

    Args:
        name: The name of a resource.
        what: The kind of object at the path, for errors, such as "symlink".
    """
    check_path_text(name, "name")
    if not name.startswith("/"):
        refuse(
            f"the path of a {what} must be absolute, but `{name[:SHOWN]}` does not begin with a slash", "name"
        )
    canonical = canonical_path(name)
    if canonical != name:
        refuse(
            f"the path of a {what} must be canonical: write `{canonical[:SHOWN]}` for `{name[:SHOWN]}`",
            "name",
        )


def canonical_path(path: str) -> str:
    """Return an absolute path without `.`, `..` and double slashes."""
    # POSIX allows a special meaning of two slashes at the start, but Linux does not use it
    return posixpath.normpath("/" + path.lstrip("/"))
