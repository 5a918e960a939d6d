"""A directory with its files as one resource, for `ccm import directory:PATH`."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence

from ccm_agent.model.errors import UsageError
from ccm_agent.model.ports import FileInfo, TreeEntry
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.directory.model import DirectoryProperties
from ccm_agent.resources.directory.resource import check
from ccm_agent.resources.existing import (
    ExistingBuilder,
    ExistingResource,
    ExistingResources,
    refuse_relative,
)
from ccm_agent.resources.file.model import DIRECTORY
from ccm_agent.resources.file.providers.existing import ENTER_BIT, find_files, is_within

NEW_MODES = {True: 0o755, False: 0o644}
"""The modes of new files: executable (True) or not (False). If all files have these modes, `file_mode` is not needed."""


async def find_directory(context: ResourceContext, path: str) -> ExistingResources:
    """
    Return a directory whose `source` contains the files that `find_files` returns for it.

    Symlinks in it are separate resources. Owner, group and modes are properties if they are the same for all entries. Otherwise
    the differences are reported. `purge` is not set, because entries that were left out must not be removed.

    Raises:
        UsageError: The path is not absolute or is not a directory.
        FileError: The directory cannot be read, or its content is too large.
    """
    refuse_relative("directory", path, "/srv/www")
    (top,) = await context.files.inspect([path], digest=False, follow=False)
    if top.kind not in ("directory", "absent"):
        raise UsageError(f"directory:{path}: is not a directory; write file:{path}")
    found = await find_files(context, path)
    builder = ExistingBuilder("directory", DirectoryProperties, check)
    files = [one for one in found.resources if one.content is not None]
    own = {one.name: one.properties["mode"] for one in found.resources if _is_directory(one)}
    private = {name for name, mode in own.items() if name != path and not int(mode, 8) & ENTER_BIT}
    for name in sorted(private):
        builder.leave_out(name, "is a private directory")  # a new directory would be readable by all users
    if files or own:
        open_ones = [name for name in own if not is_within(name, private)]
        directories = _directories(path, [*open_ones, *(posixpath.dirname(one.name) for one in files)])
        paths = [*directories, *(one.name for one in files)]
        looks = {one.path: one for one in await context.files.inspect(paths, digest=False, follow=False)}
        properties = _attributes(path, builder, directories, [looks[one.name] for one in files], looks)
        builder.add(path, properties, tree=_tree(path, directories, files, looks))
    links = tuple(one for one in found.resources if one.kind == "symlink")
    builder.add_found(ExistingResources(resources=links, left_out=found.left_out))
    return builder.result()


def _is_directory(resource: ExistingResource) -> bool:
    return bool(resource.properties.get("ensure") == DIRECTORY)


def _directories(top: str, paths: Collection[str]) -> list[str]:
    """Return these directories and their parents up to the top. A directory precedes its content."""
    found = {top}
    for path in paths:
        while path not in found:
            found.add(path)
            path = posixpath.dirname(path)
    return sorted(found)


def _tree(
    top: str,
    directories: Sequence[str],
    files: Sequence[ExistingResource],
    looks: Mapping[str, FileInfo],
) -> tuple[TreeEntry, ...]:
    start = len(top) + 1
    entries = [TreeEntry(path=path[start:], kind="directory") for path in directories if path != top]
    entries += [
        TreeEntry(path=one.name[start:], content=one.content or b"", mode=looks[one.name].mode)
        for one in files
    ]
    return tuple(entries)


def _attributes(
    path: str,
    builder: ExistingBuilder[DirectoryProperties],
    directories: Sequence[str],
    files: Sequence[FileInfo],
    looks: Mapping[str, FileInfo],
) -> dict[str, str]:
    """Return the attributes that are the same for all entries, and report those that differ."""
    inside = [looks[one] for one in directories]
    every = [*inside, *files]
    values = {
        "owner": {one.owner for one in every},
        "group": {one.group for one in every},
        "file_mode": {f"{one.mode:04o}" for one in files},
        "directory_mode": {f"{one.mode & 0o777:04o}" for one in inside},
    }
    differing = [name for name, found in values.items() if len(found) > 1]
    if all(one.mode == NEW_MODES[bool(one.mode & 0o100)] for one in files):
        differing = [name for name in differing if name != "file_mode"]
    if differing:
        named = ", ".join(f"`{name}` ({', '.join(sorted(values[name]))})" for name in differing)
        builder.leave_out(path, f"differ among its entries: {named}; `ccm import file:{path}` keeps them")
    return {name: next(iter(found)) for name, found in values.items() if len(found) == 1}
