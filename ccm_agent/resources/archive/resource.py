"""Decides the steps of an archive resource. No I/O."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from ccm_agent.model.errors import DocumentError, Place, PropertyError
from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import ContentInfo, PropertyChange
from ccm_agent.resources.archive.model import (
    KINDS,
    RIGHT_MODE,
    ArchiveMetadata,
    ArchiveProperties,
    ArchiveState,
    kind_of,
)
from ccm_agent.resources.changes import FileChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.owners import is_same_owner

CHECKSUM = re.compile(r"[0-9a-fA-F]{64}")


def check(wanted: ArchiveProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        _check_url,
        _check_cleanup,
        lambda wanted: _check_path(wanted.name, "name"),
        lambda wanted: _check_canonical(wanted.extract_parent, "extract_parent"),
        _check_creates,
        lambda wanted: _check_given(wanted, "owner"),
        lambda wanted: _check_given(wanted, "group"),
        _check_timeout,
    )


def check_by_lint(wanted: ArchiveProperties) -> None:
    """Refuse properties that would make the download or the extraction fail; see `ResourceType`."""
    check_each(
        wanted,
        _check_port,
        lambda wanted: _check_path(wanted.extract_parent, "extract_parent"),
        _check_checksum,
    )


def _check_cleanup(wanted: ArchiveProperties) -> None:
    if wanted.cleanup and not wanted.extract_parent:
        refuse("`cleanup` requires `extract_parent` to be set", "cleanup")
    if wanted.cleanup and not wanted.creates:
        refuse(
            "`cleanup` requires `creates` to be set; otherwise each run would download the archive again",
            "cleanup",
        )


def _check_creates(wanted: ArchiveProperties) -> None:
    _check_canonical(wanted.creates, "creates")


def _check_canonical(path: str, field: str) -> None:
    if path and posixpath.normpath(path) != path:
        refuse(f"`{field}` must be a path without `.` and `..`, not `{path}`", field)


def _check_given(wanted: ArchiveProperties, field: str) -> None:
    if not getattr(wanted, field):
        refuse(f"`{field}` cannot be empty", field)


def _check_checksum(wanted: ArchiveProperties) -> None:
    if wanted.checksum and not CHECKSUM.fullmatch(wanted.checksum):
        refuse("`checksum` is not a SHA-256: write its 64 hexadecimal digits", "checksum")


def _check_timeout(wanted: ArchiveProperties) -> None:
    if not wanted.timeout:
        return
    try:
        parse_duration(wanted.timeout)
    except DocumentError as err:
        raise DocumentError(err.message, place=Place(path="$.timeout")) from err


def _check_url(wanted: ArchiveProperties) -> None:
    if not wanted.url:
        refuse("`url` cannot be empty", "url")
    try:
        parts = urlsplit(wanted.url)
    except ValueError:
        # the text of the error would contain the user and the password of the URL
        refuse("`url` cannot be read: its host is not valid", "url")
    host = parts.netloc.rpartition("@")[2].rpartition("]")[2]
    if not all("0" <= digit <= "9" for digit in host.partition(":")[2]):
        refuse("`url` cannot be read: its port is not a number", "url")
    if not parts.scheme:
        refuse("`url` must be absolute: begin it with http:// or https://", "url")
    file = posixpath.basename(parts.path) if parts.netloc or parts.path.startswith("/") else ""
    ends = ", ".join(KINDS)
    if not file:
        refuse("`url` must end in a file name", "url")
    if not kind_of(file):
        refuse(f"the file name in `url` must end in one of {ends}", "url")
    if not kind_of(wanted.name):
        refuse(f"`name` must end in one of {ends}", "name")
    if kind_of(file) != kind_of(wanted.name):
        refuse(
            f"`url` and `name` must have the same archive format: one is {kind_of(file)}, the other is {kind_of(wanted.name)}",
            "name",
        )


def _check_port(wanted: ArchiveProperties) -> None:
    try:
        _ = urlsplit(wanted.url).port
    except ValueError:
        refuse("`url` cannot be read: its port must be a number up to 65535", "url")


def _check_path(path: str, field: str) -> None:
    if path and not (path.startswith("/") and not path.startswith("//") and posixpath.normpath(path) == path):
        refuse(f"`{field}` must be an absolute path without `.` and `..`, not `{path}`", field)


def reach(wanted: ArchiveProperties) -> HostAccess:
    """Return the host objects that the resource accesses. Unpacking can write anything below the directory."""
    trees = (wanted.extract_parent,) if wanted.extract_parent and wanted.ensure != ABSENT else ()
    return HostAccess(paths=(wanted.name,), trees=trees, reads=(wanted.url,) if wanted.url else ())


def decide(wanted: ArchiveProperties, found: ArchiveState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision tables of the archive type; see docs/resources/archive.md."""
    metadata = found.metadata
    if wanted.ensure == ABSENT:
        if found.ensure == ABSENT:
            return Decision()
        return Decision(
            steps=(_remove("Would have removed", wanted),),
            reason="the archive file still exists",
            changes=(PropertyChange(property="ensure", before=found.ensure, after=ABSENT),),
        )
    reason = _difference(wanted, metadata)
    if not reason:
        return Decision()
    if context.verifying:
        return Decision(steps=(_download(wanted),), reason=reason)
    if _must_extract(wanted, metadata) and not wanted.extract_parent.startswith("/"):
        # Choria CCM downloads the archive first and then fails
        message = f"`extract_parent` must be an absolute path, not `{wanted.extract_parent}`"
        return Decision(error=PropertyError(message))
    return Decision(
        steps=tuple(_steps(wanted, metadata)),
        reason=reason,
        changes=tuple(_changes(wanted, metadata)),
        contents=_contents(wanted, metadata),
    )


def _difference(wanted: ArchiveProperties, found: ArchiveMetadata) -> str:
    """Return the difference from the desired state; "" if there is none."""
    if wanted.creates and not found.creates_exists:
        return f"creates path missing: {wanted.creates}"
    if wanted.cleanup:
        return "the archive file still exists, but `cleanup` is set" if found.archive_exists else ""
    if not found.archive_exists:
        return "the archive file is missing"
    if wanted.checksum and not _has_checksum(wanted, found):
        return f"checksum mismatch: found {found.checksum or f'{found.size} bytes'}, wanted {wanted.checksum}"
    return _attribute_difference(wanted, found)


def _attribute_difference(wanted: ArchiveProperties, found: ArchiveMetadata) -> str:
    if not is_same_owner(wanted.owner, found.owner, found.uid):
        return f"owner mismatch: found {found.owner}, wanted {wanted.owner}"
    if not is_same_owner(wanted.group, found.group, found.gid):
        return f"group mismatch: found {found.group}, wanted {wanted.group}"
    if found.mode and int(found.mode, 8) & ~RIGHT_MODE:
        return f"mode mismatch: found {found.mode}, wanted at most {RIGHT_MODE:04o}"
    return ""


def _is_right(wanted: ArchiveProperties, found: ArchiveMetadata) -> bool:
    return found.archive_exists and bool(wanted.checksum) and _has_checksum(wanted, found)


def _needs_download(wanted: ArchiveProperties, found: ArchiveMetadata) -> bool:
    is_right = _is_right(wanted, found)
    # if only the archive file is left over, remove it without downloading it again
    is_left_over = wanted.cleanup and found.creates_exists and (is_right or not wanted.checksum)
    return not is_right and not is_left_over


def _must_extract(wanted: ArchiveProperties, found: ArchiveMetadata) -> bool:
    # without `creates`, an existing archive was already unpacked after its download
    is_missing = bool(wanted.creates) and not found.creates_exists
    return bool(wanted.extract_parent) and (_needs_download(wanted, found) or is_missing)


def _steps(wanted: ArchiveProperties, found: ArchiveMetadata) -> list[Step]:
    steps: list[Step] = []
    needs_download = _needs_download(wanted, found)
    if needs_download:
        steps.append(_download(wanted))
    if _must_extract(wanted, found):
        steps.append(Step(noop="Would have extracted", action=lambda p: p.extract(wanted)))
    if wanted.cleanup:
        steps.append(_remove("Would have cleaned up", wanted))
    elif not needs_download and _attribute_difference(wanted, found):
        steps.append(Step(noop="Would have updated attributes", action=lambda p: p.set_attributes(wanted)))
    return steps


def _changes(wanted: ArchiveProperties, found: ArchiveMetadata) -> Iterator[PropertyChange]:
    if not found.archive_exists and not wanted.cleanup:
        yield PropertyChange(property="ensure", before=ABSENT, after=wanted.ensure)
    elif found.archive_exists and wanted.cleanup:
        yield PropertyChange(property="ensure", before=PRESENT, after=ABSENT)
    if found.archive_exists and not wanted.cleanup:
        if not is_same_owner(wanted.owner, found.owner, found.uid):
            yield PropertyChange(property="owner", before=found.owner, after=wanted.owner)
        if not is_same_owner(wanted.group, found.group, found.gid):
            yield PropertyChange(property="group", before=found.group, after=wanted.group)
        if found.mode and (bits := int(found.mode, 8)) & ~RIGHT_MODE:
            yield PropertyChange(property="mode", before=found.mode, after=f"{bits & RIGHT_MODE:04o}")
    if _must_extract(wanted, found):
        yield PropertyChange(property="extract_parent", after=wanted.extract_parent)


def _contents(
    wanted: ArchiveProperties, found: ArchiveMetadata
) -> Callable[[Any], Awaitable[Sequence[FileChange]]] | None:
    """Return the archive file before and after the change. Its new content is only known after the download."""
    if not _needs_download(wanted, found) or wanted.cleanup:
        return None
    change = FileChange(
        path=wanted.name,
        why="the archive is downloaded only during an apply",
        was_there=found.archive_exists,
        old=ContentInfo(size_bytes=found.size, sha256=found.checksum) if found.archive_exists else None,
        new=ContentInfo(sha256=wanted.checksum.lower()),
    )

    async def contents(provider: Any) -> Sequence[FileChange]:
        return [change]

    return contents


def _download(wanted: ArchiveProperties) -> Step:
    return Step(noop="Would have downloaded", action=lambda p: p.download(wanted))


def _remove(noop: str, wanted: ArchiveProperties) -> Step:
    return Step(noop=noop, action=lambda p: p.remove(wanted))


def _has_checksum(wanted: ArchiveProperties, found: ArchiveMetadata) -> bool:
    return found.checksum == wanted.checksum.lower()
