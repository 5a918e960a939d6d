"""
Compares file contents that a provider has read, and creates the diff in an event.

A diff shows the lines of a file only if every local user may read them before and after the change, or if the resource sets
`diff: true`. Otherwise it shows the number of changed lines.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.errors import FileError
from ccm_agent.model.line_diff import diff_lines
from ccm_agent.model.ports import FileInfo, Files
from ccm_agent.model.resource_diff import DIFF_LIMIT_BYTES, DIFF_LIMIT_LINES, ContentInfo, FileDiff, cut
from ccm_agent.model.secret import MASK

COMPARED_BYTES = 1 << 20
"""The largest content that is read for a diff. For larger files, only sizes and digests are shown."""

_READABLE, _ENTERABLE = 0o004, 0o001
_NO_NEWLINE = "\\ No newline at end of file"

Mask = Callable[[str], str]
"""Masks the secrets in a text."""


class FileChange(Struct, frozen=True, kw_only=True):
    """
    The change of a file's content, as read by a provider. It does not leave the process.

    Attributes:
        path: The path of the file.
        before, after: The contents. None if the file does not exist, or if `why` is set.
        is_private: Whether some local users cannot read the file before or after the change.
        why: The reason why the contents are unknown, such as their size.
        was_there, stays: Whether the file exists before and after the change.
        old, new: Size and digest before and after the change, if known.
    """

    path: str
    before: bytes | None = None
    after: bytes | None = None
    is_private: bool = False
    why: str = ""
    was_there: bool = True
    stays: bool = True
    old: ContentInfo | None = None
    new: ContentInfo | None = None


class TextLimits:
    """The remaining limits for the text of further diffs. Each diff reduces them."""

    def __init__(self, size_bytes: int = DIFF_LIMIT_BYTES, lines: int = DIFF_LIMIT_LINES) -> None:
        self.size_bytes = size_bytes
        self.lines = lines

    def fit(self, diff: FileDiff) -> FileDiff:
        """Return the diff, shortened to the remaining limits."""
        kept = "".join(f"{line}\n" for line in diff.text.split("\n")[:-1][: self.lines])
        short = cut(diff, min(self.size_bytes, len(kept.encode(errors="replace"))))
        self.size_bytes -= len(short.text.encode(errors="replace"))
        self.lines -= short.text.count("\n")
        return short


def file_diff(change: FileChange, mask: Mask, *, shows_private: bool) -> FileDiff:
    """
    Return the part of a change that an event may show.

    Args:
        change: The contents.
        mask: Masks the secrets in a text.
        shows_private: Whether the resource sets `diff: true`.
    """
    action = "change" if change.was_there and change.stays else "create" if change.stays else "remove"
    shown = FileDiff(path=mask(change.path), action=action)
    is_counted = change.is_private and not shows_private
    # the digest of a short secret could reveal the secret
    known = {} if is_counted else {"before": change.old, "after": change.new}
    if change.why:
        return replace(shown, form="digests", why=mask(change.why), **known)
    old, new = _text(change.before), _text(change.after)
    if old is None or new is None:
        return replace(shown, form="binary", **known)
    plain_old, plain_new = mask(old), mask(new)
    # a replaced secret is no longer known, so removed lines of a file with secrets are not shown
    has_secrets = (plain_old, plain_new) != (old, new)
    if is_counted:
        added, removed = _counts(diff_lines(_lines(old), _lines(new)))
        why = "not all users can read the file"
        return replace(shown, form="lines", added=added, removed=removed, why=why)
    lines = list(diff_lines(_lines(plain_old), _lines(plain_new)))
    added, removed = _counts(lines)
    if has_secrets:
        lines = [f"-{MASK}" if line.startswith("-") else line for line in lines]
    why = "only masked values differ" if has_secrets and not lines and old != new else ""
    text = "".join(f"{line}\n" for line in lines)
    return replace(shown, text=text, added=added, removed=removed, why=why)


def without_text(diff: FileDiff) -> FileDiff:
    """Return a diff with only its counts. Used if the diffs of a run are too large."""
    why = "the diffs of this run are too large"
    return replace(diff, form="lines", text="", left_out=0, why=why) if diff.text else diff


def _text(content: bytes | None) -> str | None:
    """Return the text of a file. "" if the file does not exist; None if it is binary."""
    if content is None:
        return ""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _lines(text: str) -> list[str]:
    """Return the lines. If the last line does not end with a newline, a marker follows it."""
    lines = text.split("\n")
    if lines[-1] == "":
        return lines[:-1]
    lines[-1] = f"{lines[-1]}\n{_NO_NEWLINE}"
    return lines


def _counts(lines: Iterator[str] | Sequence[str]) -> tuple[int, int]:
    signs = [line[:1] for line in lines]
    return signs.count("+"), signs.count("-")


async def compare_file(files: Files, path: str, mode: int, after: bytes | None) -> FileChange:
    """
    Return the change of a whole file.

    Args:
        files: The files of the host.
        path: The file; a symlink at the end is not followed.
        mode: The new mode of the file.
        after: The content after the change. None if the file is removed.
    """
    (look,) = await files.inspect([path], digest=False, follow=False)
    before, why = await read_for_diff(files, path) if look.kind == "file" else (None, "")
    private = await private_paths(files, [path], mode if after is not None else None)
    return FileChange(
        path=path,
        before=before,
        after=None if why else after,
        is_private=private[path],
        why=why,
        was_there=look.kind == "file",
        stays=after is not None,
    )


async def private_paths(files: Files, paths: Sequence[str], mode: int | None = None) -> dict[str, bool]:
    """
    Return for each path whether its content is private: some local users cannot read it now or with the new mode.

    A path with symlinks is private, because inspecting the path does not show who can read its target.

    Args:
        files: The files of the host.
        paths: Absolute paths. For a missing path, its directory is examined.
        mode: The mode after the change. None if the mode is unchanged or the default is used.
    """
    parents = {parent for path in paths for parent in _parents(path)}
    looks = {look.path: look for look in await files.inspect([*paths, *sorted(parents)], digest=False)}

    def is_private(path: str) -> bool:
        is_hidden = mode is not None and not mode & _READABLE
        return (
            is_hidden
            or _denies(looks[path], _READABLE)
            or any(_denies(looks[one], _ENTERABLE) for one in _parents(path))
        )

    return {path: is_private(path) for path in paths}


def _parents(path: str) -> Iterator[str]:
    while path != "/":
        path = posixpath.dirname(path)
        yield path


def _denies(look: FileInfo, right: int) -> bool:
    if look.kind == "absent" and not look.link:
        return False
    return bool(look.link) or look.kind == "unreadable" or not look.mode & right


async def read_for_diff(files: Files, path: str) -> tuple[bytes | None, str]:
    """Return a file's content, or the reason why it is unknown."""
    try:
        return await files.read(path, COMPARED_BYTES), ""
    except FileError as err:
        return None, err.message.removeprefix(f"{path}: ")
