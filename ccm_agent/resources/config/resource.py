"""Checks the properties of a config resource. No I/O. `edited_files.decide` makes the decision."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import DocumentError
from ccm_agent.model.resource import ABSENT
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.config.keys import DEPTH_LIMIT, KeyChange, checked, parse_key
from ccm_agent.resources.config.model import EXTENSIONS, FORMATS, ConfigProperties
from ccm_agent.resources.edited_files import check_path, check_validate


def check(wanted: ConfigProperties) -> None:
    """Refuse invalid properties."""
    check_each(wanted, check_path, check_validate, _check_format, _check_keys, _check_values)


def changes_of(wanted: ConfigProperties) -> list[KeyChange]:
    """
    Return the desired changes of a resource.

    Raises:
        DocumentError: A key is not a valid path.
    """
    is_removed = wanted.ensure == ABSENT
    if wanted.key:
        path = parse_key(wanted.key) if isinstance(wanted.key, str) else checked(tuple(wanted.key))
        return [KeyChange(path=path, value=wanted.value, is_removed=is_removed)]
    return [
        KeyChange(path=parse_key(key), value=value, is_removed=is_removed)
        for key, value in wanted.values.items()
    ]


def _check_format(wanted: ConfigProperties) -> None:
    if wanted.format and wanted.format not in FORMATS:
        refuse(f"`format` must be one of {', '.join(FORMATS)}, not `{wanted.format}`", "format")
    if not wanted.file_format:
        known = ", ".join(EXTENSIONS)
        refuse(f"the file extension is not one of {known}: set `format`", "format")


def _check_keys(wanted: ConfigProperties) -> None:
    if wanted.key and wanted.values:
        refuse("`key` and `values` are mutually exclusive", "values")
    if not wanted.key and not wanted.values:
        refuse("set `key` and `value`, or `values`", "key")
    if wanted.key and wanted.ensure != ABSENT and wanted.value is None:
        refuse("the key has no `value`; for null, use `values`", "value")
    if wanted.value is not None and not wanted.key:
        refuse("the `value` has no `key`", "value")
    try:
        paths = [one.path for one in changes_of(wanted)]
    except DocumentError as err:
        refuse(err.message, "key" if wanted.key else "values")
    inside = {path[:length] for path in paths for length in range(1, len(path))}
    for path in paths:
        if path in inside:
            refuse(f"`{'.'.join(path)}` contains another of the keys: combine them into one value", "values")
    if len(set(paths)) < len(paths):
        refuse("a key occurs twice", "values")


def _check_values(wanted: ConfigProperties) -> None:
    _check_depth(wanted.value, "value", DEPTH_LIMIT)
    _check_depth(wanted.values, "values", DEPTH_LIMIT)


def _check_depth(value: Any, place: str, left: int) -> None:
    if left < 0:
        refuse(f"the value is nested more than {DEPTH_LIMIT} levels deep", place)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
        refuse("the keys of a mapping must be strings", place)
    for one in inner:
        _check_depth(one, place, left - 1)
