"""Checks of properties: their errors name the property, and all are reported, not only the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from ccm_agent.model.errors import InputError, Place, PropertyError

P = TypeVar("P")

PATH_BYTES = 4095
"""The kernel's limits, without the final NUL: path_resolution(7)."""
NAME_BYTES = 255


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
