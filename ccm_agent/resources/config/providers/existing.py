"""The keys of a configuration file, for `ccm import config:PATH`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from ccm_agent.model.codec import decode_yaml, encode_yaml
from ccm_agent.model.errors import CcmError, UsageError
from ccm_agent.model.records.host_import import holds_template
from ccm_agent.resources.config.formats.yaml_text import plain
from ccm_agent.resources.config.keys import is_same
from ccm_agent.resources.config.model import EXTENSIONS, ConfigProperties
from ccm_agent.resources.config.providers.posix import SLOW_LIMIT_BYTES, change_content, read_values
from ccm_agent.resources.config.resource import check
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_relative
from ccm_agent.resources.file_editor import read_existing
from ccm_agent.resources.secret_signs import find_name_sign, find_setting_sign, is_secret_name

KEYS_LIMIT = 500
"""The maximum number of keys of a file. A larger file is better imported as a file."""
INI_WORK_LIMIT = 2_000_000
"""The maximum product of keys and lines of an ini file. Each key is searched for in all lines."""
PARTS_LIMIT = 100_000
"""The maximum number of parts of all values. Aliases in YAML may make them much larger than the file."""
SHOWN = 100


async def find_keys(context: ResourceContext, path: str) -> ExistingResources:
    """
    Return a file's keys as one resource.

    Keys that a manifest cannot describe and keys with signs of a secret are left out and reported by name. So is the whole file
    if users cannot all read it, if it is as its package installed it, or if it cannot be read in its format.

    Raises:
        UsageError: The path is not absolute, or its extension is unknown.
        FileError: The file does not exist.
    """
    refuse_relative("config", path, "/etc/app.yaml")
    form = ConfigProperties(name=path).file_format
    if not form:
        raise UsageError(
            f"config:{path}: its extension is none of {', '.join(EXTENSIONS)}; write file:{path}"
        )
    builder = ExistingBuilder("config", ConfigProperties, check)
    content, reason = await read_existing(context, path, SLOW_LIMIT_BYTES)
    if reason:
        builder.leave_out(path, reason)
    else:
        try:
            await asyncio.to_thread(_add_keys, builder, path, form, content)
        except CcmError as err:
            builder.leave_out(path, err.message)
        except RecursionError:
            builder.leave_out(path, "is nested too deeply")
    return builder.result()


def _add_keys(builder: ExistingBuilder[ConfigProperties], path: str, form: str, content: bytes) -> None:
    """Add the resource, and leave out keys. Blocking. Raises CcmError if the file is left out."""
    values: dict[str, Any] = {}
    try:
        read = read_values(form, content)
    except CcmError as err:
        # what follows may quote the file
        raise UsageError(err.message.partition(":")[0]) from err
    found = list(islice(_leaves(form, read), KEYS_LIMIT + 1))
    if len(found) > KEYS_LIMIT:
        raise UsageError(f"has more than {KEYS_LIMIT} keys; use file:{path}")
    if form == "ini" and len(found) * content.count(b"\n") > INI_WORK_LIMIT:
        raise UsageError(f"has too many keys and lines; use file:{path}")
    left = [PARTS_LIMIT]
    for names, given in found:
        if any(find_name_sign(str(name)) for name in names):
            raise UsageError("has the name of a key that looks like a secret")
        shown = _shown(names)
        if reason := _why_no_name(names):
            builder.leave_out(path, f"its key `{shown}` {reason}")
            continue
        key, value = _dotted(names), plain(given, left)
        if reason := "has a YAML tag" if _has_tag(given) else _why_left_out(path, form, key, value, content):
            builder.leave_out(path, f"its key `{shown}` {reason}")
        else:
            values[key] = value
    if not values:
        builder.leave_out(path, "has no keys to import")
        return
    if change_content(ConfigProperties(name=path, values=values), content) != content:
        raise UsageError(f"an apply would change it; use file:{path}")
    builder.add(path, {"values": values})


def _shown(names: tuple[Any, ...]) -> str:
    """Return the names for a report. Names below one such as `tokens` may be secrets, and are left out."""
    shown = list(map(str, names))
    end = next((i for i, name in enumerate(shown) if is_secret_name(name)), len(shown))
    return ".".join(shown[: end + 1])[:SHOWN]


def _leaves(form: str, value: Any, names: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the values in nested mappings with their paths. A mapping that is empty or has an anchor is one value."""
    if form == "ini":
        yield from value.items()
        return
    if not names and not isinstance(value, dict):
        if value is None:
            return
        raise UsageError("its values have no keys")
    has_anchor = getattr(getattr(value, "anchor", None), "value", None) and names
    if not isinstance(value, dict) or has_anchor or (names and not value):
        yield names, value
        return
    for name, one in value.items():
        yield from _leaves(form, one, (*names, name))


def _why_no_name(names: tuple[Any, ...]) -> str:
    """Return why names cannot be written as a key; "" if they can."""
    if not all(isinstance(name, str) for name in names):
        return "has a name that is not text"
    if not all(name and name.isprintable() and '"' not in name for name in names):
        return "has a name that a manifest cannot have"
    return ""


def _has_tag(value: Any) -> bool:
    """Whether a value of ruamel.yaml, or one inside it, has a tag such as `!Ref`, which a manifest cannot have."""
    if getattr(getattr(value, "tag", None), "trval", None):
        return True
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(map(_has_tag, inner))


def _dotted(names: tuple[str, ...]) -> str:
    return ".".join(f'"{name}"' if "." in name else str(name) for name in names)


def _why_left_out(path: str, form: str, key: str, value: Any, content: bytes) -> str:
    sign = find_setting_sign(key, value)
    # an ini file is split at the first `:` or `=`, which may be inside a URL
    if not sign and form == "ini":
        name = key.rpartition(".")[2].strip('"')
        sign = find_name_sign(f"{name}:{value}") or find_name_sign(f"{name}={value}")
    if sign:
        return sign
    try:
        kept = decode_yaml(encode_yaml({key: value}))
        is_kept = is_same(kept, {key: value}) and is_same(
            msgspec.json.decode(msgspec.json.encode(value)), value
        )
    except (CcmError, ValueError, TypeError, OverflowError, msgspec.MsgspecError):
        is_kept = False
    if not is_kept:
        return (
            "has a value that a manifest does not keep, such as a date or mappings whose keys are not sorted"
        )
    if holds_template({key: value}):
        return "has text that would be read as a template"
    if form == "ini":
        try:
            change_content(ConfigProperties(name=path, values={key: value}), content)
        except CcmError as err:
            return f"cannot be managed: {err.message}"
    return ""
