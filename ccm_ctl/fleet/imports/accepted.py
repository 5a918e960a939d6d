"""
Decide which of the resources that nodes report may be in a site.

A node can report anything, and other nodes apply the site. Therefore nothing that a node reports is evaluated. Templates are
refused, as well as properties that run commands or decide whether a resource is managed, such as `health_checks` and `control`.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ccm_agent.bus.object_descriptions import is_digest
from ccm_agent.model.errors import InputError
from ccm_agent.model.records.host_import import (
    HOST_BYTES,
    RESOURCES_LIMIT,
    FoundResource,
    HostResources,
    LeftOutResource,
    holds_template,
    is_absolute,
    is_inside,
    printable,
)
from ccm_agent.model.resource import CommonProperties

NAME_LIMIT = 1000
"""The maximum length of a name, in characters."""

REASON_LIMIT = 300
"""The maximum length of a reason in the report, in characters."""

_FORBIDDEN = frozenset({*CommonProperties.__struct_fields__, "defaults"} - {"ensure"})
_LARGEST = 1 << 63

_PROPERTIES = {
    "file": frozenset({"ensure", "owner", "group", "mode"}),
    "directory": frozenset({"ensure", "owner", "group", "file_mode", "directory_mode"}),
    "symlink": frozenset({"target", "owner", "group"}),
    "systemd_unit": frozenset({"unit", "drop_in"}),
    "config": frozenset({"values"}),
    "container": frozenset(
        {
            "ensure",
            "image",
            "enable",
            "command",
            "environment",
            "environment_files",
            "ports",
            "volumes",
            "network",
            "user",
            "labels",
            "memory",
            "restart",
            "health_command",
            "health_interval",
        }
    ),
}
"""The properties of these types that a node may report. All others would refer to content from elsewhere, or run programs."""

_NEEDS = {
    "file": frozenset({"symlink"}),
    "directory": frozenset({"symlink"}),
    "repository": frozenset({"file", "symlink"}),
}
"""The types of the resources that a node may report in addition, because a resource of the requested type needs them."""

_NEVER_SENT = frozenset({".git", ".ccmignore"})
"""File names that bundles exclude."""

Check = Callable[[str, Mapping[str, Any]], None]
"""Checks the properties of a resource (second argument, including `name`) of a type. Raises InputError if they are invalid."""


def accept_resources(
    found: HostResources, types: Collection[str], check: Check
) -> tuple[list[FoundResource], list[LeftOutResource]]:
    """
    Return the resources of a node that may be in a site, and those that are left out, with reasons.

    Args:
        found: The node's report.
        types: The requested types, some with a path.
        check: Checks the properties of a resource.

    Raises:
        InputError: There are too many resources, or one has a type that was not requested.
    """
    count = len(found.resources) + len(found.left_out)
    if count > RESOURCES_LIMIT:
        raise InputError(f"it reports {count} resources; at most {RESOURCES_LIMIT} are accepted")
    sizes = [each.size_bytes for one in found.resources for each in one.contents]
    if len(sizes) > RESOURCES_LIMIT or sum(sizes) > HOST_BYTES:
        raise InputError(
            f"it reports {len(sizes)} files with {(sum(sizes) >> 20) + 1} MiB; at most {HOST_BYTES >> 20} MiB are accepted"
        )
    kinds = {one.partition(":")[0] for one in types}
    keys = {one.properties.get("signed_by") for one in found.resources if one.type == "repository"}
    places = _places(found.resources)
    files = set(places.values())
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
        if one.section not in kinds or (one.needed_by and one.type not in _NEEDS.get(one.needed_by, ())):
            raise InputError(
                f"it reports a resource of the type {shown(one.type, 50)}, which was not requested"
            )
        is_twice = (one.type, one.name) in accepted
        reason = "is reported twice" if is_twice else _refusal(one, check) or _misplaced(one, types, keys)
        if not reason and one.contents and _is_below_file(places[one.type, one.name], files):
            reason = "is inside a reported file"
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
    """Return a node's text in a form that fits on one line of a report."""
    return printable(text[:limit])


def _refusal(one: FoundResource, check: Check) -> str:
    if not one.name or len(one.name) > NAME_LIMIT or not one.name.isprintable() or one.name == "defaults":
        return "has a name that manifests do not allow"
    if forbidden := sorted(_FORBIDDEN & one.properties.keys()):
        return f"has `{forbidden[0]}`, which is not imported"
    if not _is_plain(one.properties):
        return "has a number that is too large"
    if holds_template([one.name, one.properties]):
        return "has text that would be read as a template"
    if reason := _why_no_contents(one):
        return reason
    source = {"source": "source"} if one.contents else {}
    try:
        check(one.type, {"name": one.name, **one.properties, **source})
    except InputError as err:
        return " ".join(err.message.split())
    return ""


def _why_no_contents(one: FoundResource) -> str:
    """Return why the files that a node reports with a resource cannot be in a site. "": they can."""
    allowed = _PROPERTIES.get(one.type)
    if allowed is not None and (forbidden := sorted(one.properties.keys() - allowed)):
        return f"has `{forbidden[0]}`, which is not imported"
    if any(each.sha256 and not is_digest(each.sha256) for each in one.contents):
        return "has no valid digest"
    paths = [each.path for each in one.contents]
    if one.type == "directory":
        return _why_no_tree(one)
    has_one = one.type == "systemd_unit" or (one.type == "file" and one.properties.get("ensure") == "present")
    if paths != [""] * has_one or any(not each.sha256 for each in one.contents):
        return "has the wrong contents for its type"
    return "" if not paths else _why_no_path(one.name.removeprefix("/"))


def _why_no_tree(one: FoundResource) -> str:
    paths = [each.path for each in one.contents]
    files = {each.path for each in one.contents if each.sha256}
    if len(set(paths)) < len(paths) or any(_is_below_file(path, files) for path in paths):
        return "has conflicting entries"
    return next(filter(None, map(_why_no_path, [one.name.removeprefix("/"), *paths])), "")


def _why_no_path(path: str) -> str:
    if not is_inside(path) or holds_template(path):
        return "has a path that manifests do not allow"
    if sent := _NEVER_SENT.intersection(path.split("/")):
        return f"has {min(sent)} in its path, which manifests do not allow"
    return ""


def _misplaced(one: FoundResource, types: Collection[str], keys: Collection[object]) -> str:
    """Return why a file was not requested, or "" if it was."""
    if one.type not in ("file", "directory", "config", "symlink"):
        return ""
    if one.needed_by == "repository":
        is_wanted = one.name in keys
    elif one.type in ("directory", "config"):
        is_wanted = f"{one.type}:{one.name}" in types
    else:
        tops = [word.partition(":")[2] for word in types if word.startswith(f"{one.section}:")]
        is_wanted = any(one.name == top or one.name.startswith(f"{top}/") for top in tops)
    return "" if is_wanted and is_absolute(one.name) else "is not in a directory that was requested"


def _places(resources: Iterable[FoundResource]) -> dict[tuple[str, str], str]:
    """Return the paths of the contents of files and units within the site's folder for their type."""
    return {
        (one.type, one.name): f"{one.type}/{one.name.removeprefix('/')}" for one in resources if one.contents
    }


def _is_below_file(path: str, files: Collection[str]) -> bool:
    """Whether a parent directory of the path is one of these files."""
    while path := posixpath.dirname(path):
        if path in files:
            return True
        if path == "/":
            break
    return False


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(one) for one in value.values())
    if isinstance(value, list):
        return all(_is_plain(one) for one in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -_LARGEST <= value < _LARGEST
