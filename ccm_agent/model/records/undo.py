"""What a node keeps of the changes of a run, so that an operator can undo them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from ccm_agent.model.errors import InputError
from ccm_agent.model.ports import FileInfo
from ccm_agent.model.resource import ABSENT, PRESENT

CHANGED_SINCE = "undo.changed_since"
"""Code of a resource that an undo leaves alone, because it is not as the run left it."""

NOT_UNDONE = "undo.impossible"
"""Code of a resource that an undo cannot bring back to its earlier state."""

FILE_LIMIT_BYTES = 32 << 20
"""The largest content of a file that is kept."""

SPECIAL_BITS = 0o7000
"""setuid, setgid and sticky bit: the type `file` does not manage them."""

Identity = dict[str, str | None]
"""What a state is recognized by, by property; None: this property could not be read."""


class EarlierState(Struct, frozen=True, kw_only=True):
    """
    The state of a resource before a change.

    Attributes:
        type, name: The resource that brings it back, if it is another one, such as the file of an edit; "": the resource itself.
            States of both types must be recognized by the same properties.
        properties: What brings the resource back to it, without its name.
        content: SHA-256 (hex) of the kept content that they refer to; "" if there is none.
        size_bytes: Size of that content.
        path: The file with that content; "" if it is the name.
        why_not: Why nothing brings it back; "" if the properties do.
    """

    type: str = ""
    name: str = ""
    properties: dict[str, Any] = {}
    content: str = ""
    size_bytes: int = 0
    path: str = ""
    why_not: str = ""


NOT_UTF8 = "\ufffd"
"""Replaces bytes that are not UTF-8 in what a provider reads."""


def checked_state(what: str, properties: dict[str, Any], check: Callable[[], None]) -> EarlierState:
    """
    Return a state, or why the resource's type cannot write it although it was there.

    Args:
        what: The beginning of that text: "its earlier line".
        properties: See `EarlierState`.
        check: Raises an error for properties that are not valid.
    """
    if NOT_UTF8 in str(properties):
        return EarlierState(why_not=f"{what} is not UTF-8")
    try:
        check()
    except InputError as err:
        return EarlierState(why_not=f"{what} cannot be written: {err}")
    return EarlierState(properties=properties)


def was_symlink(target: str) -> EarlierState:
    """Return the state of a symlink that a file replaced."""
    return EarlierState(why_not=f"it was a symlink to {target}, and symlinks are not restored")


class EarlierFile(Struct, frozen=True, kw_only=True):
    """
    A file or directory before a change.

    Attributes:
        is_directory: It is a directory.
        owner, group: Names, or numbers as text.
        mode: Four octal digits.
        sha256, size_bytes: Of the content that was kept; "" and 0 if none was asked for.
        why_not: Why it is not kept; "" if it is.
    """

    is_directory: bool = False
    owner: str = ""
    group: str = ""
    mode: str = ""
    sha256: str = ""
    size_bytes: int = 0
    why_not: str = ""

    def as_state(self, *, type_name: str = "", name: str = "") -> EarlierState:
        """Return what brings it back: properties of the `file` type; see `EarlierState` for type and name."""
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
    """Return what a `file` is recognized by, as its type does; the path was inspected through a symlink at its end."""
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
    """Return what a `symlink` is recognized by, as its type does; the path itself was inspected."""
    return {
        "ensure": PRESENT if look.kind == "symlink" else look.kind,
        "target": look.link.encode(errors="surrogateescape").decode(errors="replace"),
        "owner": str(look.uid),
        "group": str(look.gid),
    }


PART_TYPES = {"file": identify_file, "symlink": identify_symlink}
"""The types that restore parts of a changed resource; see `UndoRules.parts`."""


class KeepFile(Protocol):
    """Keeps a file of this host for an undo. Never raises."""

    async def __call__(self, path: str, *, with_content: bool) -> EarlierFile: ...


class UndoEntry(Struct, kw_only=True, omit_defaults=True):
    """
    One resource that a run changed.

    Attributes:
        type, name: The resource; the name is masked if `why_not` says why it cannot be undone.
        properties: What brings it back to its earlier state, without its name.
        content: SHA-256 (hex) of the kept content that `properties` refer to; "" if there is none.
        size_bytes: Size of that content.
        left: What the run left; None while that is not known.
        why_not: Why it cannot be undone; "" if it can.
        is_secret: Diffs do not show its lines: not every local user could read them, or they have secrets that a later run does
            not know.
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
    What undoes one run.

    Attributes:
        run: The run that is undone.
        folder: Where kept contents are, named by their digests.
        entries: The resources, in the order in which they are undone: the last one that the run changed first.
    """

    run: str
    folder: str
    entries: list[UndoEntry]


class UndoLog(Protocol):
    """
    Keeps on this node what runs change; `storage.undo_store.UndoStore` is the real one.

    Attributes:
        folder: Where contents are kept, each in a file named by its digest.
        file_limit_bytes: Larger contents are not kept.
    """

    folder: str
    file_limit_bytes: int

    async def make_room(self, run: str, size_bytes: int, *, undone: str = "") -> str:
        """
        Make room for a content by forgetting older runs; why there is none, "" if there is. Never raises.

        Args:
            run: The run that needs it.
            size_bytes: Of the content.
            undone: The run that it undoes, whose contents it still needs; "" if none.
        """
        ...

    async def before(self, run: str, entry: UndoEntry) -> None:
        """Record a resource before it is changed. Never raises."""
        ...

    async def after(self, run: str, entry: UndoEntry, *, has_changed: bool) -> None:
        """Record what a change left, in `entry.left`. Never raises."""
        ...

    async def close(self, run: str) -> None:
        """The run has ended: make its record outlive a power cut, and forget what is too old. Never raises."""
        ...
