"""Properties and state of an archive resource."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import Extension, Sensitive, Url
from ccm_agent.model.resource import CommonProperties, CommonState

KINDS = {".tar.gz": "tar.gz", ".tgz": "tar.gz", ".tar": "tar", ".zip": "zip"}
"""Kinds of archives by file extension."""
NEW_MODE = 0o600
RIGHT_MODE = 0o644
"""The maximum permissions of an archive, because a user who can write to it controls the unpacked files."""


class ArchiveProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An archive that is downloaded, and unpacked if `extract_parent` is set."""

    name: Annotated[
        str,
        Meta(
            description="Absolute path of the archive file. Must have the same extension as the URL's file."
        ),
    ]
    ensure: Annotated[str, Meta(description="`present` or `absent`.")] = ""
    url: Annotated[str, Url, Meta(description="URL to download from, http or https.")] = ""
    headers: Annotated[dict[str, str], Sensitive, Meta(description="Additional headers of the request.")] = {}
    username: Annotated[str, Meta(description="User name for basic authentication.")] = ""
    password: Annotated[str, Sensitive, Meta(description="Password for basic authentication.")] = ""
    checksum: Annotated[
        str,
        Meta(
            description="SHA-256 of the archive in hexadecimal. An archive with a different checksum is downloaded again."
        ),
    ] = ""
    extract_parent: Annotated[str, Meta(description="Absolute path of the directory to unpack into.")] = ""
    cleanup: Annotated[
        bool,
        Meta(description="Remove the archive after it is unpacked. Requires `extract_parent` and `creates`."),
    ] = False
    creates: Annotated[
        str, Meta(description="A file that the archive creates. If it exists, the archive is not unpacked.")
    ] = ""
    owner: Annotated[str, Meta(description="User that owns the archive file, by name or number.")] = ""
    group: Annotated[str, Meta(description="Group that owns the archive file, by name or number.")] = ""
    drop_special_bits: Annotated[
        bool,
        Extension,
        Meta(
            description="Ignore the setuid, setgid and sticky bits of a tar's entries. By default they are kept, as `tar` "
            "does."
        ),
    ] = False
    timeout: Annotated[
        str,
        Extension,
        Meta(
            description="Time limit for the download and the unpacking together, such as `10m`. Default: none."
        ),
    ] = ""

    @property
    def kind(self) -> str:
        """The kind of archive, based on the name."""
        return kind_of(self.name)


class ArchiveMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    The current state of the archive file.

    Attributes:
        name: The path of the archive file.
        checksum: The SHA-256 of the archive file; "" if the file does not exist.
        archive_exists, creates_exists: Whether the archive file and the path of `creates` exist.
        owner, group: The names of the file's owner and group; "" if the file does not exist.
        uid, gid: The numbers of owner and group. Choria CCM does not have this field and the following ones.
        mode: The file's permissions as four octal digits; "" if the file does not exist.
        mtime: Modification time.
        size: Size in bytes.
        provider: The provider that read the state.
    """

    name: str
    checksum: str = ""
    archive_exists: bool = False
    creates_exists: bool = False
    owner: str
    group: str
    uid: int = -1
    gid: int = -1
    mode: str = ""
    mtime: datetime | None = None
    size: int = 0
    provider: str


class ArchiveState(CommonState, kw_only=True):
    """The current state of an archive. `ensure` shows whether the archive file exists."""

    metadata: ArchiveMetadata


def kind_of(name: str) -> str:
    """Return the kind of archive for a file name; "" if it is not the name of an archive."""
    return next((kind for end, kind in KINDS.items() if name.lower().endswith(end)), "")
