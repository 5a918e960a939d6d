"""Finds files in a directory that no package installed or that have changed since, for `ccm import file:PATH`."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from collections.abc import Collection, Mapping

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import FileInfo, Tree, TreeEntry
from ccm_agent.model.records.host_import import LeftOutResource, printable
from ccm_agent.resources.checks import why_no_path
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import (
    ExistingResource,
    ExistingResources,
    refuse_relative,
)
from ccm_agent.resources.file.model import DIRECTORY, FileProperties
from ccm_agent.resources.packaged import find_unchanged
from ccm_agent.resources.secret_signs import find_sign

TREE_LIMIT_BYTES = 256 << 20
"""The maximum size of a tree that is read. Use an archive for a larger tree."""
SPECIAL_BITS = 0o7000
ENTER_BIT = 0o001
"""The execute permission for other users. Without it, they cannot access the content of a directory."""


async def find_files(context: ResourceContext, path: str) -> ExistingResources:
    """
    Return the directories and files at and below a path, with their content.

    A symlink is a resource of the type `symlink`. Files that are unchanged since their package installed them are left out
    without a report, as are directories and symlinks of packages. Devices, setuid files, names that are not text, and files
    with signs of a secret are left out and reported by name.

    Raises:
        UsageError: The path is not absolute.
        FileError: The path does not exist, cannot be read, or its content is too large.
    """
    refuse_relative("file", path, "/etc/nginx")
    entries = await _read(context, path)
    # Another user may replace a file after it was read. The digest shows that mode and owner belong to the content that was read.
    limits = {name: [len(entry.content)] for name, entry in entries.items() if entry.kind == "file"}
    looks = {
        look.path: look for look in await context.files.inspect(sorted(entries), digest=limits, follow=False)
    }
    usual = await find_unchanged(
        context,
        {name: entry.content for name, entry in entries.items() if entry.kind == "file"},
        [name for name, entry in entries.items() if entry.kind in ("directory", "symlink")],
    )
    closed = {
        name for name, entry in entries.items() if entry.kind == "directory" and not entry.mode & ENTER_BIT
    }
    own = {name: entry for name, entry in entries.items() if name not in usual}
    # searching a large tree for secrets takes seconds
    reasons = await asyncio.to_thread(
        lambda: {name: _why_left_out(name, entry, looks[name]) for name, entry in own.items()}
    )
    resources, left_out = [], []
    for name, entry in own.items():
        reason = reasons[name]
        if not reason and entry.kind == "file" and is_within(name, closed):
            reason = "is in a private directory"
        if reason:
            left_out.append(LeftOutResource(type="file", name=printable(name), reason=reason))
        else:
            resources.append(_resource(name, entry, looks[name]))
    return ExistingResources(resources=tuple(resources), left_out=tuple(left_out))


async def _read(context: ResourceContext, path: str) -> Mapping[str, TreeEntry]:
    """Return the entries by absolute path. A directory precedes its content."""
    (look,) = await context.files.inspect([path], digest=False, follow=False)
    if look.kind == "absent":
        raise FileError(f"{path}: does not exist")
    if look.kind == "file":
        content = await context.files.read(path, TREE_LIMIT_BYTES)
        return {path: TreeEntry(path="", content=content, mode=look.mode)}
    if look.kind == "symlink":
        return {path: TreeEntry(path="", kind="symlink", mode=0)}
    if look.kind != "directory":
        raise FileError(f"{path}: is neither a file nor a directory")
    tree: Tree = await context.port("trees").read(path, TREE_LIMIT_BYTES)
    found = {path: TreeEntry(path="", kind="directory", mode=look.mode)}
    return found | {posixpath.join(path, entry.path): entry for entry in tree.entries}


def _why_left_out(name: str, entry: TreeEntry, look: FileInfo) -> str:
    if printable(name) != name or not name.isprintable():
        return "its name is not printable text"
    if "{{" in name or "{%" in name:
        return "its name would be read as a template"
    if look.kind != entry.kind:
        return "changed while it was read"
    if entry.kind == "symlink":
        return _why_no_link(name, look.link)
    if entry.kind not in ("file", "directory"):
        return "is a FIFO, socket or device"
    if look.mode & SPECIAL_BITS:
        return f"has special permissions (mode {look.mode:04o})"
    if entry.kind == "directory":
        mode = f"{look.mode:04o}"
        if FileProperties(name=name, ensure=DIRECTORY, mode=mode).mode_bits == look.mode:
            return ""
        return f"has mode {mode}, and this type lets users enter each directory that they may read or write"
    if hashlib.sha256(entry.content).hexdigest() != look.sha256:
        return look.undigested or "changed while it was read"
    return find_sign(entry.content, look.mode)


def is_within(path: str, tops: Collection[str]) -> bool:
    """Whether an absolute path is one of these paths or below one of them."""
    while path != "/" and path not in tops:
        path = posixpath.dirname(path)
    return path in tops


def _why_no_link(name: str, target: str) -> str:
    from ccm_agent.resources.symlink.resource import is_own_target

    if why := why_no_path(target):
        return f"is a symlink whose target {why}"
    return "is a symlink to itself" if is_own_target(name, target) else ""


def _resource(name: str, entry: TreeEntry, look: FileInfo) -> ExistingResource:
    if entry.kind == "symlink":
        link = {"target": look.link, "owner": look.owner, "group": look.group}
        return ExistingResource(kind="symlink", name=name, properties=link)
    properties = {
        "ensure": DIRECTORY if entry.kind == "directory" else "present",
        "owner": look.owner,
        "group": look.group,
        "mode": f"{look.mode:04o}",
    }
    content = None if entry.kind == "directory" else entry.content
    return ExistingResource(kind="file", name=name, properties=properties, content=content)
