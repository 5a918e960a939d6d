"""Implements `ignore`: some properties are set when a resource is created, and not managed afterwards."""

from __future__ import annotations

from msgspec.structs import replace

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.resource import ABSENT, CommonProperties, CommonState
from ccm_agent.model.suggestions import did_you_mean
from ccm_agent.resources.contract import AnyType


def check_ignore(kind: AnyType, wanted: CommonProperties) -> None:
    """
    Refuse names that `ignore` does not support.

    Raises:
        PropertyError: A name is not supported. The error includes the name's position.
    """
    for number, name in enumerate(wanted.ignore):
        if name not in kind.ignorable:
            raise PropertyError(_why_not(kind, name), place=Place(path=f"$.ignore[{number}]"))


def without_ignored(kind: AnyType, wanted: CommonProperties, found: CommonState) -> CommonProperties:
    """Return the managed properties of a resource: all if it does not exist yet, otherwise those that are not ignored."""
    if found.ensure == ABSENT:
        return wanted
    changes = {field: value for name in wanted.ignore for field, value in kind.ignorable[name].items()}
    return replace(wanted, **changes)


def _why_not(kind: AnyType, name: str) -> str:
    if not kind.ignorable:
        return f"`ignore` is not supported for the type `{kind.name}`"
    if name in kind.properties.__struct_fields__:
        known = ", ".join(f"`{one}`" for one in kind.ignorable)
        return f"`{name}` cannot be ignored; for the type `{kind.name}`, `ignore` accepts {known}"
    return f"the type `{kind.name}` has no property `{name}`{did_you_mean(name, kind.ignorable)}"
