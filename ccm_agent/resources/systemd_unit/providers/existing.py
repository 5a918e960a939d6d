"""Finds the units and drop-ins in /etc/systemd/system that no package installed, for `ccm import systemd_unit`."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping

from ccm_agent.model.ports import FileInfo, Tree, TreeEntry
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.file.providers.existing import ENTER_BIT
from ccm_agent.resources.packaged import find_unchanged
from ccm_agent.resources.secret_signs import find_sign
from ccm_agent.resources.systemd_unit.model import DIRECTORY, LIMIT_BYTES, MODE, SystemdUnitProperties
from ccm_agent.resources.systemd_unit.providers.verify import FOLDERS
from ccm_agent.resources.systemd_unit.resource import check

FOLDER_BYTES = 64 << 20
ENABLED = (".wants", ".requires", ".upholds")
"""The suffixes of folders in which `systemctl enable` creates symlinks."""
MASK = "/dev/null"


async def find_units(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the files, except the symlinks that `systemctl enable` creates. `ccm import service` covers their state.

    Masked units, symlinks to files in other locations, and files that may contain a secret are omitted and reported by name.

    Raises:
        UsageError: An argument was given.
        FileError: The directory cannot be read, or its files are too large.
    """
    refuse_argument("systemd_unit", argument)
    (look,) = await context.files.inspect([DIRECTORY], digest=False, follow=False)
    if look.kind != "directory":
        return ExistingResources()
    tree: Tree = await context.port("trees").read(DIRECTORY, FOLDER_BYTES)
    entries = {entry.path: entry for entry in tree.entries if entry.kind != "directory"}
    closed = {
        entry.path for entry in tree.entries if entry.kind == "directory" and not entry.mode & ENTER_BIT
    }
    paths = {posixpath.join(DIRECTORY, name): name for name in entries}
    looks: Mapping[str, FileInfo] = {
        paths[one.path]: one
        for one in (await context.files.inspect(list(paths), digest=False, follow=False) if paths else ())
    }
    usual = await find_unchanged(
        context, {path: entries[name].content for path, name in paths.items() if entries[name].kind == "file"}
    )
    builder = ExistingBuilder("systemd_unit", SystemdUnitProperties, check)
    for path, name in paths.items():
        entry, link = entries[name], looks[name].link
        if path in usual or _is_of_enable(name, link):
            continue
        if posixpath.dirname(name) in closed:
            builder.leave_out(
                name, "is in a private directory"
            )  # a new directory would be readable by all users
        elif reason := _why_left_out(path, entry, link):
            builder.leave_out(name, reason)
        else:
            builder.add(name, _place(name), content=entry.content)
    return builder.result()


def _place(name: str) -> dict[str, str]:
    """Return the properties that identify the file, in addition to the name. Empty for a unit's own file."""
    folder, _, drop_in = name.rpartition("/")
    return {"unit": folder.removesuffix(".d"), "drop_in": drop_in} if folder else {}


def _is_of_enable(name: str, link: str) -> bool:
    """
    Whether the symlink may have been created by `systemctl enable`: it refers to a unit, and is in one of the folders or is an
    alias.
    """
    folder = posixpath.dirname(name)
    target = posixpath.normpath(posixpath.join(DIRECTORY, folder, link))
    return bool(link) and (folder.endswith(ENABLED) or not folder) and posixpath.dirname(target) in FOLDERS


def _why_left_out(path: str, entry: TreeEntry, link: str) -> str:
    if entry.kind == "symlink":
        if link == MASK:
            return "is masked, which this type does not support"
        return f"is a symlink to another file; use `ccm import file:{posixpath.dirname(path)}`"
    if entry.kind != "file":
        return "is a FIFO, socket or device"
    folder = posixpath.dirname(path).removeprefix(DIRECTORY).lstrip("/")
    if folder and ("/" in folder or not folder.endswith(".d")):
        return "is in a directory in which systemd reads no units or drop-ins"
    if sign := find_sign(entry.content, entry.mode):
        return sign
    if not entry.content:
        return "is empty, so the unit is masked"
    if len(entry.content) > LIMIT_BYTES:
        return f"is larger than {LIMIT_BYTES >> 20} MiB, so it is not a unit"
    if entry.mode != MODE:
        return f"has mode {entry.mode:04o}, but this type writes {MODE:04o}"
    return ""
