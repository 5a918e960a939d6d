"""Changes a directory to its desired state; see `TreeEditor.sync`. All entries are accessed through descriptors."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import TreeChange, TreeDifference, TreeSpec
from ccm_agent.system.accounts import group_id, user_id
from ccm_agent.system.atomic_write import copy_content, reported, write_in
from ccm_agent.system.attributes import set_owner_and_mode
from ccm_agent.system.file_attributes import set_attributes_in
from ccm_agent.system.threads import CancelFlag
from ccm_agent.system.trees.directory import Directory, open_parent
from ccm_agent.system.trees.open_walk import OpenDirectory, open_directory, open_file, open_top

PARENT_MODE = 0o755
_GONE = (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST)


def sync(spec: TreeSpec, look: TreeDifference, stop: CancelFlag) -> None:
    """
    Make the changes that `TreeEditor.look` determined; see `TreeEditor.sync`. An unknown user or a missing source is reported
    before any change.
    """
    user_id(spec.owner), group_id(spec.group)
    with ExitStack() as stack:
        source = None
        if (
            any(change.kind == "file" and change.action != "remove" for change in look.changes)
            and spec.source
        ):
            fd = stack.enter_context(open_top(spec.source, "source "))
            source = stack.enter_context(OpenDirectory(fd, spec.source))
        changes = look.changes
        if changes and not changes[0].path and changes[0].action == "create":
            _make_top(spec, changes[0])
            changes = changes[1:]
        top = stack.enter_context(open_top(spec.path))
        below = stack.enter_context(OpenDirectory(top, spec.path))
        for change in changes:
            stop.check()
            if not change.path:
                _change_top(spec, change)
            elif change.action == "remove":
                _remove(below, change)
            else:
                _make(below, source, change, stop)


def _make_top(spec: TreeSpec, change: TreeChange) -> None:
    with open_parent(spec.path, make_mode=PARENT_MODE) as place:
        _make_directory(place, change)
        place.sync()


def _change_top(spec: TreeSpec, change: TreeChange) -> None:
    with open_parent(spec.path) as place:
        if change.action == "set":
            _set_attributes(place, change)
        else:
            _remove_entry(place, change)
            place.sync()


def _make(below: OpenDirectory, source: OpenDirectory | None, change: TreeChange, stop: CancelFlag) -> None:
    place = below.place(change.path)
    if change.action == "set":
        _set_attributes(place, change)
    elif change.kind == "directory":
        _make_directory(place, change)
        below.note_change()
    elif source is not None:
        _write(place, source.place(change.path), change, stop)


def _set_attributes(place: Directory, change: TreeChange) -> None:
    expected = change.device, change.inode
    set_attributes_in(place, change.new_uid, change.new_gid, change.new_mode, expected)


def _make_directory(place: Directory, change: TreeChange) -> None:
    """
    Create a directory. If it already exists, this is an error, because another user may have moved it here to change its
    permissions.
    """
    with reported(place.path, "the directory cannot be created"):
        os.mkdir(place.name, 0o700, dir_fd=place.fd)
        fd = open_directory(place)
        try:
            made = os.fstat(fd)
            with os.scandir(fd) as inside:
                is_empty = next(inside, None) is None
            if made.st_uid != os.geteuid() or made.st_mode & 0o077 or not is_empty:
                raise FileError(f"{place.path}: another process replaced it just now; try again")
            set_owner_and_mode(fd, change.new_uid, change.new_gid, change.new_mode)
        finally:
            os.close(fd)


def _write(place: Directory, source: Directory, change: TreeChange, stop: CancelFlag) -> None:
    with open_file(source, "source ") as fd:
        size_bytes = os.fstat(fd).st_size
        write_in(
            place,
            lambda new: copy_content(fd, size_bytes, new, stop),
            change.new_uid,
            change.new_gid,
            change.new_mode,
        )


def _remove(below: OpenDirectory, change: TreeChange) -> None:
    try:
        place = below.place(change.path)
    except FileError as err:
        if err.errno == errno.ENOENT:
            return
        raise
    _remove_entry(place, change)
    below.note_change()


def _remove_entry(place: Directory, change: TreeChange) -> None:
    """Remove an inspected entry, unless it has been replaced in the meantime."""
    with reported(place.path, "cannot be removed"):
        seen = place.look()
        if seen is None or not _is_as_seen(seen, change):
            return
        try:
            if stat.S_ISDIR(seen.st_mode):
                os.rmdir(place.name, dir_fd=place.fd)
            else:
                os.unlink(place.name, dir_fd=place.fd)
        except OSError as err:
            if err.errno not in _GONE:
                raise


def _is_as_seen(seen: os.stat_result, change: TreeChange) -> bool:
    if (seen.st_dev, seen.st_ino) != (change.device, change.inode):
        return False
    return stat.S_ISDIR(seen.st_mode) or (seen.st_size, seen.st_mtime_ns) == (
        change.size_bytes,
        change.mtime_ns,
    )
