"""Properties and state of edit resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from ccm_agent.model.formats.field_rules import PublishDigest
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.edited_files import EditedProperties

END_OF_FILE, BEGIN_OF_FILE = "EOF", "BOF"
"""Special values of `insert_after` and `insert_before`: the end and the beginning of the file."""
BEGIN, END = "# BEGIN ccm", "# END ccm"
"""The default lines around a block. `: NAME` follows if the resource has a `path`."""


class Edit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One change of a file. Its fields have the same meaning as the resource's properties of the same names."""

    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = PRESENT
    line: str | None = None
    block: str | None = None
    begin: str = ""
    end: str = ""
    match: str = ""
    multiple: bool = False
    insert_after: str = ""
    insert_before: str = ""


class EditProperties(EditedProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A line or block in a file."""

    line: Annotated[
        str | None,
        PublishDigest,
        Meta(description="A line of the file."),
    ] = None
    block: Annotated[
        str | None,
        PublishDigest,
        Meta(description="Lines between the lines `begin` and `end`."),
    ] = None
    begin: Annotated[
        str,
        Meta(description="Line before the block. Default: `# BEGIN ccm`, with `: NAME` if `path` is given."),
    ] = ""
    end: Annotated[
        str, Meta(description="Line after the block. Default: `# END ccm`, with `: NAME` if `path` is given.")
    ] = ""
    match: Annotated[
        str,
        Meta(
            description="Pattern (RE2): `line` replaces the matching line; `ensure: absent` removes all matching lines."
        ),
    ] = ""
    multiple: Annotated[
        bool,
        Meta(description="Replace all lines that match `match`."),
    ] = False
    insert_after: Annotated[
        str,
        Meta(description="Pattern: insert after the last line that matches, or `EOF` (default)."),
    ] = ""
    insert_before: Annotated[
        str,
        Meta(description="Pattern: insert before the first line that matches, or `BOF`."),
    ] = ""
    edits: Annotated[
        list[Edit],
        PublishDigest,
        Meta(
            description="Several changes, written at once: a list of `ensure`, `line`, `block`, `begin`, `end`, `match`, "
            "`multiple`, `insert_after` and `insert_before`."
        ),
    ] = []

    @property
    def changes(self) -> list[Edit]:
        """Return the changes, with the default markers of blocks. Empty if there is no line, block or pattern."""
        edits = self.edits or [
            Edit(
                ensure=self.ensure or PRESENT,
                line=self.line,
                block=self.block,
                begin=self.begin,
                end=self.end,
                match=self.match,
                multiple=self.multiple,
                insert_after=self.insert_after,
                insert_before=self.insert_before,
            )
        ]
        label = f": {self.name}" if self.path else ""
        return [
            _with_markers(one, label)
            for one in edits
            if one.block is not None or one.line is not None or one.match
        ]


def _with_markers(edit: Edit, label: str) -> Edit:
    if edit.block is None:
        return edit
    begin, end = edit.begin or f"{BEGIN}{label}", edit.end or f"{END}{label}"
    return replace(edit, begin=begin, end=end)
