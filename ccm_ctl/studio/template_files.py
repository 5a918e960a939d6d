"""
Templates next to the open manifest, for previews.

Like manifests, they are read below the folder that `ccmctl studio` opened, without following links. The dashboard does not open a
folder, so its templates cannot read files.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator

from ccm_agent.model.errors import CcmError, ExpressionError
from ccm_agent.model.ports import Tree, TreeEntry
from ccm_ctl.studio.workspace import Workspace

ENTRIES = 500
"""The maximum number of files and directories of one scaffold."""
TREE_BYTES = 4 << 20
DEPTH = 20


class TemplateFiles:
    """
    The files that templates of one manifest may read.

    Args:
        workspace: The open folder. None: no folder is open.
        manifest: The path of the manifest in the folder. Names of files are relative to its directory. "": it is not saved yet.
    """

    def __init__(self, workspace: Workspace | None = None, manifest: str = "") -> None:
        self._workspace = workspace
        self._directory = posixpath.dirname(manifest)

    def read(self, name: str) -> bytes:
        """
        Return the content of a file.

        Raises:
            ExpressionError: The path is outside of the folder, or there is no such file.
        """
        workspace, path = self._find(name)
        try:
            return workspace.read_bytes(path)
        except CcmError as err:
            raise ExpressionError(err.message) from err

    def read_tree(self, name: str) -> Tree:
        """
        Return a directory of templates. Links are entries of the kind "other", which no scaffold renders.

        Raises:
            ExpressionError: The path is outside of the folder, there is no such directory, or it is too large.
        """
        workspace, path = self._find(name)
        try:
            with workspace.opened_directory(path) as directory:
                return Tree(
                    kind="directory", entries=tuple(_entries(directory, "", [ENTRIES, TREE_BYTES], path))
                )
        except CcmError as err:
            raise ExpressionError(err.message) from err
        except OSError as err:
            raise ExpressionError(f"{path}: cannot be read: {err.strerror}") from err

    def _find(self, name: str) -> tuple[Workspace, str]:
        if name.startswith("/"):
            raise ExpressionError(
                f"{name} is read on the node, so it is evaluated there only; a plan shows it"
            )
        if self._workspace is None:
            raise ExpressionError(
                f"{name}: no folder is open here; `ccmctl studio FOLDER` reads templates next to the manifest"
            )
        path = posixpath.normpath(posixpath.join(self._directory, name))
        if path == ".." or path.startswith("../"):
            raise ExpressionError(f"{name} is not in the folder that is open")
        return self._workspace, path


def _entries(directory: int, above: str, room: list[int], source: str) -> Iterator[TreeEntry]:
    """
    Yield the entries of an open directory and its subdirectories. `room` contains the remaining numbers of entries and bytes.
    """
    for name in sorted(os.listdir(directory)):
        path = f"{above}{name}"
        room[0] -= 1
        if room[0] < 0 or path.count("/") >= DEPTH:
            raise ExpressionError(f"{source}: more than {ENTRIES} entries or {DEPTH} levels; a plan shows it")
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield TreeEntry(path=path, kind="directory")
            inner = os.open(
                name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory
            )
            try:
                yield from _entries(inner, f"{path}/", room, source)
            finally:
                os.close(inner)
        elif stat.S_ISREG(mode):
            content = _content(name, directory, room[1], source)
            room[1] -= len(content)
            yield TreeEntry(path=path, content=content)
        else:
            yield TreeEntry(path=path, kind="other")


def _content(name: str, directory: int, room: int, source: str) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ExpressionError(f"{source}: {name} is no longer a regular file")
        content = file.read(room + 1)
    if len(content) > room:
        raise ExpressionError(f"{source}: more than {TREE_BYTES >> 20} MiB; a plan shows it")
    return content
