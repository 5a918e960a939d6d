"""
The git commit of a manifest's directory, for the history of an assignment.

Nothing in the repository is executed. Git only returns the commit and lists its files. This module compares the files of the work
tree, so git does not read them. Hooks, filters and programs in the repository's configuration are therefore not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import os
import shutil
import stat
import tarfile
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ccm_ctl.fleet.content import Content

_LIMIT_S = 10
"""The time limit for git, in seconds. A repository on a slow file system may exceed it and is then ignored."""

_KEPT = ("HOME", "PATH", "SUDO_UID", "XDG_CONFIG_HOME")
"""
Environment variables that git gets. Git's own variables are left out, such as GIT_DIR in a hook that runs `ccmctl`.

The configuration of the user and the system is read, because it contains `safe.directory`.
"""

_SETTINGS = {
    "LC_ALL": "C",
    "GIT_ALLOW_PROTOCOL": "none",  # objects that are missing in a partial clone are not fetched
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_TERMINAL_PROMPT": "0",
}

_OPTIONS = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.bareRepository=explicit",
)

_LINK, _EXECUTABLE, _FILE = "120000", "100755", "100644"


class GitCommit(Struct, frozen=True, kw_only=True):
    """
    The commit of a directory.

    Attributes:
        commit: Its ID, in hex.
        is_dirty: Whether the bundle differs from the commit.
    """

    commit: str
    is_dirty: bool


async def read_commit(content: Content, path: Path) -> GitCommit | None:
    """
    Return the commit that is checked out in a manifest's directory.

    Args:
        content: The packed manifest.
        path: The file or directory from which it was read.

    Returns:
        None if git is not installed or does not answer in time, if git finds no trusted repository for the path, or if the
        commit contains none of the packed files.
    """
    git, folder, name = await asyncio.to_thread(_look, path)
    if git is None:
        return None
    try:
        async with asyncio.timeout(_LIMIT_S):
            printed = await _git(git, folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
            commit = printed.decode().strip()
            what = (commit, "--", name) if name else ("-r", commit)
            listed = await _git(git, folder, "ls-tree", "-z", *what)
    except (TimeoutError, OSError, ValueError):
        return None
    is_dirty = await asyncio.to_thread(_is_dirty, content.packed, folder, name, _parse(listed))
    return None if is_dirty is None else GitCommit(commit=commit, is_dirty=is_dirty)


def _look(path: Path) -> tuple[str | None, Path, str]:
    """Return the path of git, the directory of a manifest, and the manifest's name if it is a single file. Blocking."""
    whole = path.absolute()
    git = shutil.which("git")
    return (git, whole.parent, whole.name) if whole.is_file() else (git, whole, "")


def _is_dirty(packed: bytes, folder: Path, name: str, tracked: Mapping[str, tuple[str, str]]) -> bool | None:
    """Whether a bundle differs from the files of a commit. None if the commit contains none of them. Blocking."""
    digits = len(next(iter(tracked.values()))[1]) if tracked else 0
    bundle = _packed_ids(packed, digits)
    if name:
        (only,) = bundle.values()
        bundle = {name: only}
    if not bundle.keys() & tracked.keys():
        return None
    # files that exist but are not in the bundle are excluded by .ccmignore
    gone = [path for path in tracked.keys() - bundle.keys() if not os.path.lexists(folder / path)]
    return bool(gone) or any(tracked.get(path) != one for path, one in bundle.items())


async def _git(git: str, folder: Path, *words: str) -> bytes:
    """
    Return the output of git.

    Raises:
        ValueError: Git failed.
    """
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        git,
        *_OPTIONS,
        *words,
        cwd=folder,
        env={**environ, **_SETTINGS},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        raise ValueError(f"git {words[0]}: exit code {process.returncode}")
    return printed


def _parse(listed: bytes) -> dict[str, tuple[str, str]]:
    """Return the mode and ID of each file in the output of `git ls-tree -z`, except submodules."""
    found = {}
    for line in listed.split(b"\0"):
        about, tab, name = line.partition(b"\t")
        words = about.decode().split()
        if tab and words[1] == "blob":
            found[os.fsdecode(name)] = words[0], words[2]
    return found


def _packed_ids(packed: bytes, digits: int) -> Mapping[str, tuple[str, str]]:
    """Return the mode and ID that git would store for each packed file without filters. Blocking."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(packed))) as tar:
        for entry in tar:
            if entry.isdir():
                continue
            file = None if entry.issym() else tar.extractfile(entry)
            content = file.read() if file is not None else os.fsencode(entry.linkname)
            digest = (
                hashlib.sha256()
                if digits == hashlib.sha256().digest_size * 2
                else hashlib.sha1(usedforsecurity=False)
            )
            digest.update(b"blob %d\0" % len(content) + content)
            mode = _LINK if entry.issym() else _EXECUTABLE if entry.mode & stat.S_IXUSR else _FILE
            found[entry.name] = mode, digest.hexdigest()
    return found
