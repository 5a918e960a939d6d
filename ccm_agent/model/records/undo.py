"""A node's records of the changes of a run. An operator can use them to undo the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from ccm_agent.model.errors import InputError
from ccm_agent.model.ports import FileInfo
from ccm_agent.model.resource import ABSENT, PRESENT

CHANGED_SINCE = "undo.changed_since"
"""Code of a resource that an undo leaves unchanged, because it has changed since the run."""

NOT_UNDONE = "undo.impossible"
"""Code of a resource that an undo cannot restore to its earlier state."""

FILE_LIMIT_BYTES = 32 << 20
"""The largest file content that is kept."""

SPECIAL_BITS = 0o7000
"""setuid, setgid and sticky bit. The type `file` does not manage them."""

Identity = dict[str, str | None]
"""The values that identify a state, by property; None if a property could not be read."""


class EarlierState(Struct, frozen=True, kw_only=True):
    """
    The state of a resource before a change.

    Attributes:
        type, name: The resource that restores the state if it is a different resource, such as the file of an
            edit; "" for the resource itself. The same properties must identify states of both types.
        properties: The properties that restore the resource, without its name.
        content: SHA-256 (hex) of the kept content to which they refer; "" if there is none.
        size_bytes: Size of that content.
        path: The file with that content; "" if it is the resource's name.
        why_not: Why the state cannot be restored; "" if it can.
    """

    type: str = ""
    name: str = ""
    properties: dict[str, Any] = {}
    content: str = ""
    size_bytes: int = 0
    path: str = ""
    why_not: str = ""


NOT_UTF8 = "\ufffd"
"""Replaces bytes that are not UTF-8 in texts that a provider reads."""


def checked_state(what: str, properties: dict[str, Any], check: Callable[[], None]) -> EarlierState:
    """
    Return a state, or the reason why the resource's type cannot restore it.

    Args:
        what: The beginning of the reason: "its earlier line".
        properties: See `EarlierState`.
        check: A function that raises an error for invalid properties.
    """
    if NOT_UTF8 in str(properties):
        return EarlierState(why_not=f"{what} is not UTF-8")
    try:
        check()
    except InputError as err:
        return EarlierState(why_not=f"{what} cannot be written: {err}")
    return EarlierState(properties=properties)


def was_symlink(target: str) -> EarlierState:
    """Return the state of a symlink that was replaced by a file."""
    return EarlierState(why_not=f"it was a symlink to {target}, and symlinks are not restored")


class EarlierFile(Struct, frozen=True, kw_only=True):
    """
    A file or directory before a change.

    Attributes:
        is_directory: Whether it is a directory.
        owner, group: Names, or numbers as text.
        mode: Four octal digits.
        sha256, size_bytes: Digest and size of the kept content; "" and 0 if it was not requested.
        why_not: The reason why its content is not kept; "" if it is kept.
    """

    is_directory: bool = False
    owner: str = ""
    group: str = ""
    mode: str = ""
    sha256: str = ""
    size_bytes: int = 0
    why_not: str = ""

    def as_state(self, *, type_name: str = "", name: str = "") -> EarlierState:
        """
        Return the state that restores it, with properties of the `file` type; see `EarlierState` for type
        and name.
        """
        if self.why_not:
            return EarlierState(why_not=self.why_not)
        properties = {
            "ensure": "directory" if self.is_directory else "present",
            "owner": self.owner,
            "group": self.group,
            "mode": self.mode,
        }
        if self.sha256:
            properties |= {"source": self.sha256, "checksum": self.sha256}
        return EarlierState(
            type=type_name,
            name=name,
            properties=properties,
            content=self.sha256,
            size_bytes=self.size_bytes,
        )


def identify_file(look: FileInfo) -> Identity:
    """
    Return the values that identify a `file`. The inspection must follow a symlink at the end of the path, as
    the type `file` does.
    """
    if look.kind == "absent":
        return {"ensure": ABSENT, "link": look.link}
    is_directory = look.kind == "directory"
    return {
        "ensure": look.kind if is_directory else PRESENT,
        "link": look.link,
        "content": "" if is_directory else look.sha256 or None,
        "owner": str(look.uid),
        "group": str(look.gid),
        "mode": f"{look.mode & 0o777:04o}",
    }


def identify_symlink(look: FileInfo) -> Identity:
    """Return the values that identify a `symlink`. The inspection must not follow the symlink."""
    return {
        "ensure": PRESENT if look.kind == "symlink" else look.kind,
        "target": look.link.encode(errors="surrogateescape").decode(errors="replace"),
        "owner": str(look.uid),
        "group": str(look.gid),
    }


PART_TYPES = {"file": identify_file, "symlink": identify_symlink}
"""The types that restore parts of a changed resource; see `UndoRules.parts`."""


class KeepFile(Protocol):
    """Stores a copy of one of this host's files for an undo. Never raises."""

    async def __call__(self, path: str, *, with_content: bool) -> EarlierFile: ...


class UndoEntry(Struct, kw_only=True, omit_defaults=True):
    """
    One resource that a run changed.

    Attributes:
        type, name: The resource. The name is masked if `why_not` is set.
        properties: The properties that restore its earlier state, without its name.
        content: SHA-256 (hex) of the kept content that `properties` refer to; "" if there is none.
        size_bytes: Size of that content.
        left: The state after the run; None while it is unknown.
        why_not: Why the change cannot be undone; "" if it can.
        is_secret: Whether diffs must not show its lines. Not every local user could read them, or they contain
            secrets that are unknown to a later run.
    """

    type: str
    name: str
    properties: dict[str, Any] = {}
    content: str = ""
    size_bytes: int = 0
    left: Identity | None = None
    why_not: str = ""
    is_secret: bool = False


class UndoRecord(Struct, frozen=True, kw_only=True):
    """
    The record for undoing one run.

    Attributes:
        run: The run that is undone.
        folder: The folder of the kept contents, which are named by their digests.
        entries: The resources in the order in which they are undone, which is the reverse order of their changes.
    """

    run: str
    folder: str
    entries: list[UndoEntry]


class UndoLog(Protocol):
    """
    Records the changes of runs on this node. `storage.undo_store.UndoStore` implements it.

    Attributes:
        folder: The folder of kept contents, each in a file named by its digest.
        file_limit_bytes: Larger contents are not kept.
    """

    folder: str
    file_limit_bytes: int

    async def make_room(self, run: str, size_bytes: int, *, undone: str = "") -> str:
        """
        Make room for a content by deleting records of older runs. Returns the reason why there is no room, or
        "". Never raises.

        Args:
            run: The run that needs the space.
            size_bytes: Size of the content.
            undone: The run that is being undone, because its contents are still needed; "" for none.
        """
        ...

    async def before(self, run: str, entry: UndoEntry) -> None:
        """Record a resource before it is changed. Never raises."""
        ...

    async def after(self, run: str, entry: UndoEntry, *, has_changed: bool) -> None:
        """Record the state after a change, in `entry.left`. Never raises."""
        ...

    async def close(self, run: str) -> None:
        """End the record of a run: write it durably, and delete records that are too old. Never raises."""
        ...
