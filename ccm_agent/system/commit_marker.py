"""
Writes the marker for a completely unpacked archive. It is written last.

The manifest's `creates` is the path of the marker. The marker is written under a temporary name, and renamed when all other
entries exist. If unpacking fails or is killed, there is no marker, and the next run unpacks again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256

import msgspec

from ccm_agent.model.errors import FileError
from ccm_agent.system.archives.archive_entries import ArchiveEntry
from ccm_agent.system.trees.tree import OpenTree


@contextmanager
def marker_written_last(
    tree: OpenTree, entries: Sequence[ArchiveEntry], path: str
) -> Iterator[list[ArchiveEntry]]:
    """
    Yield the entries to write. Entries at and below `path` have a temporary name and are renamed when the block succeeds.

    If the block fails, they are removed. An existing entry at `path` is replaced.

    Args:
        path: The marker's path, relative to the tree; "" for no marker.
    """
    if not path or tree.has(path):
        yield list(entries)
        return
    # derive the name from the path, so that leftovers of a killed process can be found
    digest = sha256(path.encode(errors="surrogateescape")).hexdigest()[:16]
    hidden = posixpath.join(posixpath.dirname(path), f".ccm-{digest}")
    if tree.has(hidden):
        tree.remove(hidden)
    try:
        yield [_moved(entry, path, hidden) for entry in entries]
        if tree.has(hidden):
            _uncover(tree, hidden, path)
    except BaseException as err:
        # an entry of the archive may have been written to this path through a symlink
        for name in (hidden, path):
            if tree.has(name):
                tree.remove(name)
        if isinstance(err, FileError) and hidden in err.message:
            raise FileError(err.message.replace(hidden, path), errno=err.errno) from err
        raise


def _uncover(tree: OpenTree, hidden: str, path: str) -> None:
    try:
        tree.rename(hidden, path)
    except OSError as err:
        raise FileError(
            f"{tree.path}/{path}: cannot move the unpacked content there: {err.strerror}",
            errno=err.errno or 0,
        ) from err


def _moved(entry: ArchiveEntry, path: str, hidden: str) -> ArchiveEntry:
    link = _other(entry.link, path, hidden) if entry.kind == "hardlink" else entry.link
    return msgspec.structs.replace(entry, name=_other(entry.name, path, hidden), link=link)


def _other(name: str, path: str, hidden: str) -> str:
    clean = posixpath.normpath(name)
    if clean != path and not clean.startswith(f"{path}/"):
        return name
    return hidden + clean[len(path) :]
