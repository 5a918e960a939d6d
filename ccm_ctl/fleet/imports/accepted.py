"""
Which of the resources that nodes report may be in a site.

A node can report anything, and other nodes apply the site. So nothing that a node reports is evaluated: no templates, and none of
the properties that run commands or decide what is managed, such as `health_checks` and `control`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import (
    RESOURCES_LIMIT,
    FoundResource,
    HostResources,
    LeftOutResource,
    holds_template,
    printable,
)
from ccm_agent.model.resource import CommonProperties

NAME_LIMIT = 1000
"""Characters of a name."""

REASON_LIMIT = 300
"""Characters of a reason in the report."""

_FORBIDDEN = frozenset({*CommonProperties.__struct_fields__, "defaults"} - {"ensure"})
_LARGEST = 1 << 63

Check = Callable[[str, Mapping[str, Any]], None]
"""Checks the properties of a resource by its type, `name` among them; InputError for invalid ones."""


def accept_resources(
    found: HostResources, types: Collection[str], check: Check
) -> tuple[list[FoundResource], list[LeftOutResource]]:
    """
    Return the resources of a node that may be in a site, and what is left out, with reasons.

    Args:
        found: What the node reports.
        types: The types that it was asked for.
        check: Checks properties by the type. It is called once for equal resources if it remembers them.

    Raises:
        InputError: There are too many, or one of a type that the node was not asked for.
    """
    count = len(found.resources) + len(found.left_out)
    if count > RESOURCES_LIMIT:
        raise InputError(f"it reports {count} resources, and at most {RESOURCES_LIMIT} are accepted")
    accepted: dict[tuple[str, str], FoundResource] = {}
    left_out = [
        LeftOutResource(
            type=shown(one.type, NAME_LIMIT),
            name=shown(one.name, NAME_LIMIT),
            reason=shown(one.reason, REASON_LIMIT),
        )
        for one in found.left_out
    ]
    for one in found.resources:
        if one.type not in types:
            raise InputError(
                f"it reports a resource of the type {shown(one.type, 50)}, which was not requested"
            )
        reason = "is reported twice" if (one.type, one.name) in accepted else _refusal(one, check)
        if reason:
            left_out.append(
                LeftOutResource(
                    type=one.type, name=shown(one.name, NAME_LIMIT), reason=shown(reason, REASON_LIMIT)
                )
            )
        else:
            accepted[one.type, one.name] = one
    return list(accepted.values()), left_out


def shown(text: str, limit: int) -> str:
    """A text of a node, as a line of a report."""
    return printable(text[:limit])


def _refusal(one: FoundResource, check: Check) -> str:
    if not one.name or len(one.name) > NAME_LIMIT or not one.name.isprintable() or one.name == "defaults":
        return "has a name that no manifest can have"
    if forbidden := sorted(_FORBIDDEN & one.properties.keys()):
        return f"has `{forbidden[0]}`, which is not imported"
    if not _is_plain(one.properties):
        return "has a number that is too large"
    if holds_template([one.name, one.properties]):
        return "has text that would be read as a template"
    try:
        check(one.type, {"name": one.name, **one.properties})
    except InputError as err:
        return " ".join(err.message.split())
    return ""


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(one) for one in value.values())
    if isinstance(value, list):
        return all(_is_plain(one) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -_LARGEST <= value < _LARGEST
