"""
The change of a resource: properties before and after, and lines of files. A plan and a later apply use the same description.

A node makes a `ResourceDiff` only if the request asks for it and the node's policy does not withhold it.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from ccm_agent.model.formats.field_rules import Extension
from ccm_agent.model.formats.untrusted_json import Count

ShowLines = Annotated[
    bool,
    Extension,
    Meta(
        description="Show changed lines in diffs, even if not every user of the host may read the file. Otherwise "
        "diffs of such files show only the number of changed lines."
    ),
]
"""The property `diff` of types that write files."""

DIFF_LIMIT_BYTES = 64 * 1024
"""
Limit of all texts in one resource's diffs. An event on the bus may contain less text, because its total size is
limited.
"""

DIFF_LIMIT_LINES = 400
"""Limit of all lines in one resource's diffs."""

RUN_LIMIT_BYTES = 1 << 20
"""Limit of all texts in the diffs of one run on one node. Further files are listed only with line counts."""

FILES_LISTED = 200
"""The maximum number of files in the diff of one resource. Further files are only counted."""

VALUE_LENGTH = 1000
"""The maximum number of characters of a property's value or a command in a diff."""


class PropertyChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A property before and after the change.

    Attributes:
        property: The name of the property.
        before, after: Its values; "" if there is no value. Sensitive values are `***` on both sides.
    """

    property: str
    before: str = ""
    after: str = ""


class ContentInfo(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    Size and SHA-256 (hex) of a file's content. The digest is "" if it would require reading or fetching
    more data.
    """

    size_bytes: Count = 0
    sha256: str = ""


class FileDiff(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The change of one file's content.

    Attributes:
        path: The file.
        action: "create", "change" or "remove".
        form: "text": `text` is the diff; "lines": only line counts are shown; "binary" or "digests":
            sizes and digests.
        text: A unified diff without the lines that name the files, masked.
        added, removed: Number of lines.
        left_out: Number of lines that were left out at the end of `text`.
        why: Why `text` is empty or incomplete.
        before, after: Size and digest of binary and large files; None if the file does not exist or its lines are counted.
    """

    path: str
    action: str = "change"
    form: str = "text"
    text: str = ""
    added: Count = 0
    removed: Count = 0
    left_out: Count = 0
    why: str = ""
    before: ContentInfo | None = None
    after: ContentInfo | None = None


class ResourceDiff(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The changes of a resource.

    Attributes:
        properties: The changed properties.
        files: The first FILES_LISTED files with changed content.
        files_left_out: Number of further files.
        command: The command of an `exec` resource.
        refresh: The subscribed resource (`type#name`) that caused this change.
        why: Why there is no diff, such as a policy that withholds it.
    """

    properties: list[PropertyChange] = []
    files: list[FileDiff] = []
    files_left_out: Count = 0
    command: str = ""
    refresh: str = ""
    why: str = ""


def shortened(diff: ResourceDiff, limit_bytes: int) -> ResourceDiff:
    """
    Return a diff with at most `limit_bytes` of text in total.

    Texts are cut at the end of a line and report the number of lines that are left out. A limit of 0 also
    shortens everything else.
    """
    left = limit_bytes
    files = []
    for one in diff.files:
        short = cut(one, left)
        left -= len(short.text.encode(errors="replace"))
        files.append(short)
    if limit_bytes > 0:
        return replace(diff, files=files)
    return replace(
        diff,
        files=[replace(one, path=one.path[:200], why=one.why[:200]) for one in files[:20]],
        files_left_out=diff.files_left_out + len(files[20:]),
        properties=[
            PropertyChange(property=one.property, before=one.before[:200], after=one.after[:200])
            for one in diff.properties[:20]
        ],
        command=diff.command[:200],
        refresh=diff.refresh[:200],
        why=diff.why[:200],
    )


def cut(diff: FileDiff, limit_bytes: int) -> FileDiff:
    """Return the diff of a file with at most `limit_bytes` of text, cut at the end of a line."""
    data = diff.text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return diff
    end = data.rfind(b"\n", 0, max(limit_bytes, 0)) + 1
    return replace(diff, text=data[:end].decode(), left_out=diff.left_out + data.count(b"\n", end))
