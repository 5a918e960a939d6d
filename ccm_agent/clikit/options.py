"""
The options of a command as one typed struct.

A command declares its options and their help with click, and their names and types in a subclass of `Options`. `takes` builds
the struct. Tests compare the fields with the options of each command.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, TypeVarTuple

import msgspec

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

PROPERTIES = "properties"
"""The field for all parameters without a field of their own, such as the flags that are made from a type's schema."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """
    Values of options, by the names of their click parameters.

    A field whose type is a subclass of `Options` is a group, which is built from the same parameters. A command can omit the
    option of a field that has a default.
    """


O = TypeVar("O", bound=Options)  # noqa: E741


def takes(struct: type[O]) -> Callable[[Callable[[*Ts, O], R]], Callable[..., R]]:
    """Decorate a command to receive its options as one struct, after the positional arguments from click or the program."""

    def decorate(function: Callable[[*Ts, O], R]) -> Callable[..., R]:
        @functools.wraps(function)
        def call(*before: Any, **given: Any) -> R:
            return function(*before, make_options(struct, given))

        call.takes = struct  # type: ignore[attr-defined]
        return call

    return decorate


def make_options(struct: type[O], given: Mapping[str, Any]) -> O:
    """
    Build a struct from the parameters of a command.

    Raises:
        TypeError: A parameter has no field, or a field without a default has no parameter.
    """
    rest = dict(given)
    made = _take(struct, rest)
    if rest:
        raise TypeError(f"{struct.__name__} has no field for {', '.join(sorted(rest))}")
    return made


def _take(struct: type[O], rest: dict[str, Any]) -> O:
    groups = option_groups(struct)
    values: dict[str, Any] = {}
    for name in struct.__struct_fields__:
        if name in groups:
            values[name] = _take(groups[name], rest)
        elif name in rest and name != PROPERTIES:
            values[name] = rest.pop(name)
    if PROPERTIES in struct.__struct_fields__:
        values[PROPERTIES] = dict(rest)
        rest.clear()
    return struct(**values)


@functools.cache
def option_groups(struct: type[Options]) -> dict[str, type[Options]]:
    """Return the fields of a struct that are option structs, by the names of their types. Does not import other types."""
    found = {}
    for base in struct.__mro__[: struct.__mro__.index(Options)]:
        for name, written in base.__annotations__.items():
            kind = getattr(sys.modules[base.__module__], written, None)
            if isinstance(kind, type) and issubclass(kind, Options):
                found[name] = kind
    return found
