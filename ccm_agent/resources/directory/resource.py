"""Decides the steps of a directory resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm_agent.model.errors import DocumentError, FileError, PropertyError
from ccm_agent.model.formats.urls import mask_url
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import (
    SHOWN,
    canonical_path,
    check_each,
    check_path_name,
    check_path_text,
    refuse,
)
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.directory.model import DirectoryMetadata, DirectoryProperties, DirectoryState
from ccm_agent.resources.directory.protected import PROTECTED, TIDIED
from ccm_agent.resources.globs import compile_glob

_MODE = re.compile(r"0?[0-7]{3}")
GLOBS_MAX = 100


def check(wanted: DirectoryProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        lambda wanted: check_path_name(wanted.name, "directory"),
        _check_source,
        _check_purge,
        _check_protected,
        lambda wanted: check_path_text(wanted.owner, "owner"),
        lambda wanted: check_path_text(wanted.group, "group"),
        _check_recurse,
        lambda wanted: _check_mode(wanted.file_mode, "file_mode"),
        _check_directory_mode,
        _check_age,
        _check_size,
        _check_matches,
        _check_force,
    )


def _check_source(wanted: DirectoryProperties) -> None:
    source = wanted.source
    if "://" in source:
        refuse(
            f"`source` must be a directory, not the URL {mask_url(source)[:SHOWN]}: fetch it with an `archive` resource first",
            "source",
        )
    check_path_text(source, "source")
    if not source.startswith("/"):
        return
    inner = canonical_path(source)
    is_whole = wanted.purge or wanted.recurse or wanted.has_limits
    if _is_within(wanted.name, inner) or (is_whole and _is_within(inner, wanted.name)):
        refuse("`source` and the directory cannot contain each other", "source")


def _is_within(path: str, top: str) -> bool:
    return path == top or path.startswith(f"{top.rstrip('/')}/")


def _check_purge(wanted: DirectoryProperties) -> None:
    if not wanted.purge:
        return
    if not wanted.source:
        refuse("`purge` requires `source`: it removes files that are not in `source`", "purge")
    if wanted.has_limits:
        refuse("`purge` cannot be used with `max_age` or `max_size`", "purge")


def _check_protected(wanted: DirectoryProperties) -> None:
    if wanted.name in refused_directories(wanted):
        refuse(
            f"`{wanted.name}` is a system directory, to which only files of `source` can be added; name a directory below it",
            "name",
        )


def refused_directories(wanted: DirectoryProperties) -> tuple[str, ...]:
    """Return the directories that the resource must not manage. Empty if it only adds the files of its source."""
    if wanted.ensure == ABSENT or wanted.purge or wanted.recurse or wanted.has_attributes:
        return PROTECTED
    if wanted.has_limits:
        return tuple(path for path in PROTECTED if path not in TIDIED)
    return ()


def _check_recurse(wanted: DirectoryProperties) -> None:
    if wanted.recurse and not wanted.has_attributes:
        refuse("`recurse` requires `owner`, `group`, `file_mode` or `directory_mode`", "recurse")


def _check_mode(mode: str, field: str) -> None:
    if mode and not _MODE.fullmatch(mode):
        refuse(
            f'`{field}` must be three or four octal digits up to 0777, such as "0640", not `{mode[:SHOWN]}`',
            field,
        )


def _check_directory_mode(wanted: DirectoryProperties) -> None:
    mode = wanted.directory_mode
    _check_mode(mode, "directory_mode")
    if mode and any(int(digit) & 6 and not int(digit) & 1 for digit in mode[-3:]):
        refuse(
            f"`directory_mode` {mode} lets users read a directory that they cannot enter: add the execute bits, such as "
            '"0755"',
            "directory_mode",
        )


def _check_age(wanted: DirectoryProperties) -> None:
    try:
        age_s = wanted.max_age_s
    except DocumentError as err:
        refuse(err.message, "max_age")
    if wanted.max_age and age_s <= 0:
        refuse(f"`max_age` must be more than 0, not `{wanted.max_age}`", "max_age")


def _check_size(wanted: DirectoryProperties) -> None:
    try:
        _ = wanted.max_size_bytes
    except DocumentError as err:
        refuse(err.message, "max_size")


def _check_matches(wanted: DirectoryProperties) -> None:
    if wanted.matches and not wanted.has_limits:
        refuse("`matches` requires `max_age` or `max_size`", "matches")
    if len(wanted.matches) > GLOBS_MAX:
        refuse(f"`matches` has more than {GLOBS_MAX} globs", "matches")
    for glob in wanted.matches:
        if not glob:
            refuse("a glob in `matches` cannot be empty", "matches")
        check_path_text(glob, "matches")
        try:
            compile_glob(glob, "matches")
        except PropertyError as err:
            refuse(err.message, "matches")


def _check_force(wanted: DirectoryProperties) -> None:
    if wanted.force and wanted.ensure != ABSENT:
        refuse("`force: true` is only valid with `ensure: absent`", "force")


def reach(wanted: DirectoryProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    is_tree = wanted.ensure == ABSENT or wanted.source or wanted.recurse or wanted.has_limits
    return HostAccess(
        paths=() if is_tree else (wanted.name,),
        trees=(wanted.name,) if is_tree else (),
        reads_trees=(wanted.source,) if wanted.source and wanted.ensure != ABSENT else (),
    )


def decide(wanted: DirectoryProperties, found: DirectoryState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the directory type; see docs/resources/directory.md."""
    metadata = found.metadata
    if metadata.error:
        return Decision(error=FileError(metadata.error))
    if wanted.ensure == ABSENT and metadata.entries and not wanted.force:
        return Decision(
            error=FileError(
                f"{wanted.name} contains {_entries(metadata.entries)}: `force: true` removes it with its content"
            )
        )
    if not _pending(metadata, context):
        return Decision()
    noop = _noop(wanted, metadata)
    return Decision(
        steps=(Step(noop=noop, action=lambda p: p.sync(wanted)),),
        reason=_reason(metadata),
        changes=tuple(_changes(wanted, found)),
        contents=lambda p: p.compare(wanted),
    )


def _pending(metadata: DirectoryMetadata, context: DecisionContext) -> int:
    removed = metadata.removed.count
    if context.verifying:
        removed -= metadata.expired  # other programs may have written more files
    return metadata.added.count + metadata.changed.count + metadata.attributes.count + removed


def _changes(wanted: DirectoryProperties, found: DirectoryState) -> Iterator[PropertyChange]:
    if found.ensure != wanted.ensure:
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure or PRESENT)
    yield from found.metadata.details


def _noop(wanted: DirectoryProperties, metadata: DirectoryMetadata) -> str:
    if wanted.ensure == ABSENT:
        what = f" with {_entries(metadata.entries)}" if metadata.entries else ""
        text = f"Would have removed the directory{what}"
    else:
        verbs = (
            ("added", metadata.added),
            ("changed", metadata.changed),
            ("set owner or mode of", metadata.attributes),
            ("removed", metadata.removed),
        )
        parts = [f"{verb} {_entries(entries.count)}" for verb, entries in verbs if entries.count]
        *first, last = parts
        text = "Would have " + (f"{', '.join(first)} and {last}" if first else last)
    if metadata.lost.count:
        text += f"; an undo will not restore {_entries(metadata.lost.count)}: {metadata.lost_because}"
    return text


def _reason(metadata: DirectoryMetadata) -> str:
    for verb, entries in (
        ("is missing", metadata.added),
        ("has different content", metadata.changed),
        ("has a different owner or mode", metadata.attributes),
        ("still exists", metadata.removed),
    ):
        if entries.count:
            more = f" (and {entries.count - 1} more)" if entries.count > 1 else ""
            return f"{entries.first[0]} {verb}{more}"
    return ""


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
