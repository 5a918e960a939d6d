"""Properties and state of directory resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.formats.durations import parse_duration
from ccm_agent.model.formats.field_rules import Quoted
from ccm_agent.model.formats.sizes import parse_size
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.model.resource_diff import PropertyChange, ShowLines


class DirectoryProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A directory and its content."""

    name: Annotated[str, Meta(description="Absolute path of the directory.")]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    source: Annotated[
        str,
        Meta(description="Directory whose content is copied, absolute or relative to the manifest."),
    ] = ""
    purge: Annotated[
        bool,
        Meta(description="Remove entries that are not in `source`."),
    ] = False
    recurse: Annotated[
        bool,
        Meta(description="Apply owner, group and modes to everything in the directory."),
    ] = False
    owner: Annotated[
        str,
        Meta(description="User. Default: not managed."),
    ] = ""
    group: Annotated[
        str,
        Meta(description="Group. Default: not managed."),
    ] = ""
    file_mode: Annotated[
        str,
        Quoted,
        Meta(description="Permissions of files. Default: not managed; new files get 0644, programs 0755."),
    ] = ""
    directory_mode: Annotated[
        str,
        Quoted,
        Meta(description="Permissions of directories. Default: not managed; new ones get 0755."),
    ] = ""
    max_age: Annotated[
        str,
        Meta(description="Remove files not modified for this long, such as `30d`."),
    ] = ""
    max_size: Annotated[
        str,
        Meta(description="Remove the oldest files until the total size is at most this, such as `2GiB`."),
    ] = ""
    matches: Annotated[
        list[str],
        Meta(description="Globs that select the files for the limits. A glob with a slash matches paths."),
    ] = []
    force: Annotated[
        bool,
        Meta(description="With `ensure: absent`: remove the content, too."),
    ] = False
    diff: ShowLines = False

    @property
    def has_limits(self) -> bool:
        """Whether files are removed because of their age or size."""
        return bool(self.max_age or self.max_size)

    @property
    def has_attributes(self) -> bool:
        """Whether owner, group or modes are managed."""
        return bool(self.owner or self.group or self.file_mode or self.directory_mode)

    @property
    def max_age_s(self) -> float:
        """The age limit in seconds; -1 if there is none."""
        return parse_duration(self.max_age) if self.max_age else -1.0

    @property
    def max_size_bytes(self) -> int:
        """The size limit in bytes; -1 if there is none."""
        return parse_size(self.max_size) if self.max_size else -1


class EntryList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A summary of some entries of a directory.

    Attributes:
        count: The number of entries.
        first: The first paths, relative to the directory; "." is the directory itself.
    """

    count: int = 0
    first: list[str] = []


NO_ENTRIES = EntryList()


class DirectoryMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    The differences between a directory and its desired state.

    Attributes:
        name: The path of the directory.
        provider: The provider that read the state.
        owner, group: Names, or numbers if the system has no name for them; "" if the directory does not exist.
        mode: Four octal digits; "" if the directory does not exist.
        entries: The number of entries that were compared.
        added: Missing files and directories that will be created.
        changed: Files whose content differs.
        attributes: Entries whose owner, group or mode differs.
        removed: Entries that will be removed.
        expired: The number of entries in `removed` that exceed a limit of age or size.
        kept: Mount points, FIFOs, sockets and devices, which `purge` does not remove.
        lost: Entries whose earlier state an undo will not restore.
        lost_because: The reason for the first of these entries.
        details: Changes other than contents. In a large directory, the list is incomplete.
        error: The reason why the state cannot be read or the desired state cannot be reached.
    """

    name: str
    provider: str = ""
    owner: str = ""
    group: str = ""
    mode: str = ""
    entries: int = 0
    added: EntryList = NO_ENTRIES
    changed: EntryList = NO_ENTRIES
    attributes: EntryList = NO_ENTRIES
    removed: EntryList = NO_ENTRIES
    expired: int = 0
    kept: EntryList = NO_ENTRIES
    lost: EntryList = NO_ENTRIES
    lost_because: str = ""
    details: list[PropertyChange] = []
    error: str = ""


class DirectoryState(CommonState, kw_only=True):
    """The current state of a directory. `ensure` is "present", "absent", or "unknown" if the state cannot be read."""

    metadata: DirectoryMetadata
