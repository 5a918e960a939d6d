"""Decides the steps of a file resource. No I/O."""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterator, Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.scalars import explain_unquoted
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import canonical_path, check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.file.model import (
    DIRECTORY,
    KEEP,
    MASK,
    SCHEMES,
    FileProperties,
    FileState,
    parse_mode,
)
from ccm_agent.resources.owners import is_same_owner

if TYPE_CHECKING:
    from ccm_agent.resources.file.provider import FileProvider

_SHA256 = lazy_pattern(r"[0-9a-fA-F]{64}")


def check(wanted: FileProperties) -> None:
    """Refuse invalid properties."""
    check_each(
        wanted,
        _check_name,
        _check_mode,
        _check_force,
        _check_content,
        _check_checksum,
        _check_replace,
        lambda wanted: _check_given(wanted, "owner"),
        lambda wanted: _check_given(wanted, "group"),
        lambda wanted: _check_given(wanted, "mode"),
    )


def check_when_applied(wanted: FileProperties, written: Mapping[str, Any]) -> None:
    """Refuse the mode of a file without quotes; see `ResourceType`. Choria CCM accepts such a mode for a directory."""
    mode = written.get("mode")
    if isinstance(mode, int) and wanted.ensure == PRESENT:
        refuse(
            f"failed to reach desired state: present: mode mismatch: state=0{mode} requested={mode}; "
            + explain_unquoted("mode", mode),
            "mode",
        )


def _check_force(wanted: FileProperties) -> None:
    if wanted.force and wanted.ensure != ABSENT:
        refuse(
            f"`force: true` is only valid with `ensure: absent`, not with `ensure: {wanted.ensure}`", "force"
        )
    if wanted.force and wanted.name == "/":
        refuse("`force: true` cannot be used with the root of the file system", "force")


def _check_content(wanted: FileProperties) -> None:
    if wanted.content is not None and wanted.source:
        refuse("`content` and `source` are mutually exclusive: remove one of them", "source")


def _check_replace(wanted: FileProperties) -> None:
    if not wanted.replace and not wanted.manages_content:
        refuse("`replace: false` requires `content` or `source`", "replace")


def _check_given(wanted: FileProperties, field: str) -> None:
    if wanted.ensure != ABSENT and not getattr(wanted, field):
        refuse(f"`{field}` cannot be empty: every file needs an explicit {field}", field)


def _check_checksum(wanted: FileProperties) -> None:
    if not wanted.checksum:
        return
    if not _SHA256.fullmatch(wanted.checksum):
        refuse("`checksum` is not SHA-256 in hex: 64 digits from 0 to f", "checksum")
    if not wanted.source:
        refuse("`checksum` requires `source`, because it is the digest of its content", "checksum")
    wanted.checksum = wanted.checksum.lower()


def _check_name(wanted: FileProperties) -> None:
    name = wanted.name
    if not name.startswith("/"):
        refuse(f"the path of a file must be absolute, but `{name}` does not begin with a slash", "name")
    if canonical_path(name) != name:
        refuse(f"the path of a file must be canonical: write `{canonical_path(name)}` for `{name}`", "name")


def _check_mode(wanted: FileProperties) -> None:
    mode = wanted.mode
    if not mode:
        return
    try:
        bits = parse_mode(mode)
    except ValueError:
        refuse(
            f'mode `{mode}` is not an octal number: write three or four digits from 0 to 7, such as "0644"',
            "mode",
        )
    if bits > 0o777:
        refuse(f"mode `{mode}` exceeds 0777: setuid, setgid and sticky bits cannot be managed", "mode")


def find_extensions(written: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find extensions of Choria CCM in properties as written; see `ResourceType`."""
    mode, source = written.get("mode"), written.get("source")
    if isinstance(mode, str):
        if MASK.fullmatch(mode) and "x" in mode:
            yield "mode", "does not support `x` in a `mode`"
        elif mode.startswith(("0o", "0O")):
            yield "mode", f"does not accept `mode: {mode}`, write only the digits"
        elif len(mode) == 3 and mode.isdigit() and written.get("ensure") != DIRECTORY:
            yield "mode", f"never accepts a file's mode for `mode: {mode}`, write `0{mode}`"
    if isinstance(source, str) and source.startswith(SCHEMES):
        yield "source", "does not fetch its `source` from the web"


def reach(wanted: FileProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    named = (wanted.name,)
    is_tree = wanted.ensure == ABSENT and wanted.force
    return HostAccess(
        paths=() if is_tree else named,
        trees=named if is_tree else (),
        reads=(wanted.source,) if wanted.source else (),
    )


def finalize(wanted: FileProperties) -> None:
    """Normalize the source. `.` and `..` are resolved by text, without regard to symlinks."""
    if wanted.source and not wanted.is_url:
        wanted.source = posixpath.normpath(wanted.source)


def decide(wanted: FileProperties, found: FileState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the file type; see docs/resources/file.md."""
    if wanted.ensure == ABSENT:
        return _absent(wanted, found)
    if wanted.keeps_something:
        wanted = _with_kept(wanted, found)
    if wanted.ensure == DIRECTORY:
        return _directory(wanted, found)
    return _file(wanted, found)


def _with_kept(wanted: FileProperties, found: FileState) -> FileProperties:
    """
    Replace an unmanaged owner, group or mode digit with the current value. A new file gets the default mode and the user of
    this process.
    """
    metadata = found.metadata
    is_there = metadata.uid >= 0
    mode = wanted.mode
    if "x" in mode:
        mode = f"{parse_mode(mode, int(metadata.mode, 8)) if metadata.mode else wanted.mode_bits:04o}"
    return replace(
        wanted,
        owner=(str(metadata.uid) if is_there else "") if wanted.owner == KEEP else wanted.owner,
        group=(str(metadata.gid) if is_there else "") if wanted.group == KEEP else wanted.group,
        mode=mode,
    )


def _absent(wanted: FileProperties, found: FileState) -> Decision:
    if found.ensure == ABSENT and not found.metadata.link:
        return Decision()
    if found.ensure != DIRECTORY:
        noop = "Would have removed the file"
    elif wanted.force:
        noop = "Would have recursively removed the directory"
    else:
        noop = "Would have removed the directory"
    compare = (lambda p: p.compare(wanted, found)) if found.ensure == PRESENT else None
    return Decision(
        steps=(Step(noop=noop, action=lambda p: p.remove(wanted)),),
        reason=f"it still exists: found {found.ensure}",
        changes=(PropertyChange(property="ensure", before=found.ensure, after=ABSENT),),
        contents=compare,
    )


def _directory(wanted: FileProperties, found: FileState) -> Decision:
    if found.ensure != DIRECTORY:
        reason = f"found {found.ensure}, wanted directory"
    else:
        reason = _attributes(wanted, found)
        if reason and found.metadata.link:
            return Decision(
                error=FileError(
                    f"{wanted.name} is a symlink to the directory {found.metadata.link}: {reason}, but attributes are not "
                    "set through a symlink; manage the directory by its own path"
                )
            )
    if not reason:
        return Decision()
    return _one("Would have created directory", lambda p: p.create_directory(wanted), reason, wanted, found)


def _file(wanted: FileProperties, found: FileState) -> Decision:
    if found.ensure == DIRECTORY:
        return Decision(error=FileError(f"{wanted.name} exists as a directory; cannot manage it as a file"))
    if found.ensure == ABSENT:
        what = "the file" if wanted.manages_content else "an empty file with requested attributes"
        return _one(
            f"Would have created {what}",
            lambda p: p.store(wanted),
            "it is absent, wanted present",
            wanted,
            found,
            is_content=True,
        )
    if found.source and wanted.replace:
        error = found.source.error or _wrong_source(wanted, found.source.checksum)
        if error:
            return Decision(error=FileError(f"source {found.source.path}: {error}"))
    difference = _content(wanted, found)
    reason = difference or _attributes(wanted, found)
    if not reason:
        return Decision()
    if wanted.manages_content and wanted.replace:
        noop, is_content = "Would have created the file", bool(difference)
        return _one(noop, lambda p: p.store(wanted), reason, wanted, found, is_content=is_content)
    return _one("Would have updated attributes", lambda p: p.set_attributes(wanted), reason, wanted, found)


def _wrong_source(wanted: FileProperties, checksum: str) -> str:
    if not wanted.checksum or checksum == wanted.checksum:
        return ""
    return f"checksum mismatch: found {checksum}, wanted {wanted.checksum}"


def _content(wanted: FileProperties, found: FileState) -> str:
    """Return the difference of the content; "" if it is the same or not managed."""
    if not wanted.manages_content or not wanted.replace:
        return ""
    metadata = found.metadata
    if found.source:
        checksum, size = found.source.checksum, found.source.size
    else:
        content = (wanted.content or "").encode()
        checksum, size = sha256(content).hexdigest(), len(content)
    if checksum and checksum == metadata.checksum:
        return ""
    if (not metadata.checksum and metadata.size and not metadata.error) or not checksum:
        # the content was not read, because its size differs
        return (
            f"content mismatch: found {metadata.size} bytes, wanted {f'{size} bytes' if size else checksum}"
        )
    return f"content mismatch: found checksum {metadata.checksum or 'none'}, wanted {checksum}"


def _attributes(wanted: FileProperties, found: FileState) -> str:
    """Return the first difference in owner, group and mode; "" if there is none."""
    metadata = found.metadata
    if not is_same_owner(wanted.owner, metadata.owner, metadata.uid):
        return f"owner mismatch: found {metadata.owner or 'none'}, wanted {wanted.owner}"
    if not is_same_owner(wanted.group, metadata.group, metadata.gid):
        return f"group mismatch: found {metadata.group or 'none'}, wanted {wanted.group}"
    mode = f"{wanted.mode_bits:04o}"
    # `mode_bits` adds the execute permission of a directory, even to a mode that is ignored
    is_ignored = "mode" in wanted.ignore and wanted.mode == metadata.mode
    if metadata.mode != mode and not is_ignored:
        return f"mode mismatch: found {metadata.mode or 'none'}, wanted {mode}"
    return ""


def _changes(wanted: FileProperties, found: FileState) -> Iterator[PropertyChange]:
    """Yield the properties that differ from the current state, except the content."""
    metadata = found.metadata
    if found.ensure != wanted.ensure:
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure)
    if wanted.owner and not is_same_owner(wanted.owner, metadata.owner, metadata.uid):
        yield PropertyChange(property="owner", before=metadata.owner, after=wanted.owner)
    if wanted.group and not is_same_owner(wanted.group, metadata.group, metadata.gid):
        yield PropertyChange(property="group", before=metadata.group, after=wanted.group)
    if metadata.mode != (mode := f"{wanted.mode_bits:04o}"):
        yield PropertyChange(property="mode", before=metadata.mode, after=mode)


def _one(
    noop: str,
    action: Callable[[FileProvider], Awaitable[FileState | None]],
    reason: str,
    wanted: FileProperties,
    found: FileState,
    *,
    is_content: bool = False,
) -> Decision:
    return Decision(
        steps=(Step(noop=noop, action=action),),
        reason=reason,
        changes=tuple(_changes(wanted, found)),
        contents=(lambda p: p.compare(wanted, found)) if is_content else None,
    )
