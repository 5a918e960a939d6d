"""What a file resource may say, and what is found of it."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.field_rules import (
    Deferred,
    Extension,
    ExtensionValues,
    NeededByLookAhead,
    PublishDigest,
    Quoted,
    Url,
)
from ccm_agent.model.resource import CommonProperties, CommonState

DIRECTORY = "directory"
KEEP = "*"
"""An owner or group that is left as it is; no system allows such a name."""
_NEW_FILE, _NEW_DIRECTORY = 0o644, 0o755
"""What the digits of a mode that do not matter are when something is made."""
MASK = re.compile(r"[0-7x]{3}")
"""A mode whose `x` digits do not matter."""
SCHEMES = ("http://", "https://")
"""What a source begins with that is fetched."""


class FileProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file or directory."""

    name: Annotated[str, Meta(description="Absolute path of the file or directory.")]
    ensure: Annotated[str, Meta(description="`present` (a regular file), `absent` or `directory`.")] = ""
    content: Annotated[
        str | None,
        Deferred,
        PublishDigest,
        Meta(
            description="Complete content of the file. Empty text empties the file. Without `content` and `source`, only owner, "
            "group and mode are managed."
        ),
    ] = None
    source: Annotated[
        str,
        Deferred,
        NeededByLookAhead,
        Url,
        Meta(
            description="Local file to copy the content from, absolute or relative to the manifest, or an `https://` or `http://`"
            " URL. The file is not rendered as a template."
        ),
    ] = ""
    checksum: Annotated[
        str,
        Extension,
        Meta(
            description="SHA-256 of the content of `source` in hexadecimal. A URL is then downloaded only if the file differs, "
            "and other content is refused."
        ),
    ] = ""
    replace: Annotated[
        bool,
        Extension,
        Meta(
            description="Whether to replace different content (the default). With `false`, content is written only when the "
            "file is created."
        ),
    ] = True
    owner: Annotated[
        str,
        ExtensionValues(KEEP),
        Meta(
            description="User that owns it, by name or number; `*` leaves it unmanaged. Required unless `ensure` is `absent`."
        ),
    ] = ""
    group: Annotated[
        str,
        ExtensionValues(KEEP),
        Meta(
            description="Group that owns it, by name or number; `*` leaves it unmanaged. Required unless `ensure` is `absent`."
        ),
    ] = ""
    mode: Annotated[
        str,
        Quoted,
        Meta(
            description='Permissions in octal, in quotes: `"0644"`. Of three digits each may be `x`, as in `"7xx"`, which leaves '
            "it alone. Directories get the right to be entered wherever they may be read or written. Needed unless `ensure` is "
            "`absent`."
        ),
    ] = ""
    force: Annotated[
        bool, Meta(description="With `ensure: absent`: remove a directory together with its contents.")
    ] = False

    @property
    def manages_content(self) -> bool:
        """Whether it says what is in the file; otherwise only owner, group and mode count."""
        return self.content is not None or self.source != ""

    @property
    def is_url(self) -> bool:
        """Whether the content is to be fetched."""
        return self.source.startswith(SCHEMES)

    @property
    def keeps_something(self) -> bool:
        """Whether part of owner, group and mode is left as it is."""
        return KEEP in (self.owner, self.group) or "x" in self.mode

    @property
    def mode_bits(self) -> int:
        """The permissions that are wanted. A directory that may be read or written by somebody may be entered too."""
        bits = parse_mode(self.mode, _NEW_DIRECTORY if self.ensure == DIRECTORY else _NEW_FILE)
        if self.ensure == DIRECTORY:
            bits |= sum(0o1 << shift for shift in (0, 3, 6) if bits & 0o6 << shift)
        return bits


@lru_cache(maxsize=256)
def parse_mode(mode: str, kept: int = 0) -> int:
    """
    The bits of a mode: `0644`, `644`, `0o644`, or `6x4`.

    Args:
        mode: The mode.
        kept: Whose digits stand where `x` does.

    Raises:
        ValueError: It is not an octal number of three or four digits, nor three digits and `x`.
    """
    if "x" in mode and MASK.fullmatch(mode):
        shifted = zip(mode, (6, 3, 0), strict=True)
        return sum((kept & 7 << at) if digit == "x" else int(digit) << at for digit, at in shifted)
    digits = mode[2:] if mode[:2] in ("0o", "0O") else mode
    if not (3 <= len(digits) <= 4 and digits.isascii() and digits.isdigit()):
        raise ValueError(mode)
    return int(digits, 8)


class FileMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    What stands at the path; of a symlink what it leads to.

    Attributes:
        name: The path.
        owner, group: Names, or numbers where the system knows no name; "" when there is nothing.
        mode: Permissions as four octal digits, without setuid, setgid and sticky bits; "" when there is nothing.
        checksum: SHA-256 of a file's content; "" when it is so large that it cannot be the wanted one.
        provider: The provider that looked.
        mtime, size: Of what is there.
        uid, gid: The same owner in numbers. Ours, as what follows.
        link: Where the path points when it is a symlink.
        error: Why it cannot be looked at, although something may be there.
    """

    name: str
    owner: str
    group: str
    mode: str
    checksum: str = ""
    provider: str = ""
    mtime: datetime | None = None
    size: int = 0
    extended: dict[str, Any] = {}
    uid: int = -1
    gid: int = -1
    link: str = ""
    error: str = ""


class SourceFile(Struct, kw_only=True, omit_defaults=True):
    """
    The file or URL that content is to be copied from. Ours.

    Attributes:
        path: Where it is; of a URL nothing secret.
        checksum: SHA-256 of its content; "" when it was not read because the size alone differs.
        size: Of its content; 0 of a URL.
        error: Why it cannot be used.
    """

    path: str
    checksum: str = ""
    size: int = 0
    error: str = ""


class FileState(CommonState, kw_only=True):
    """A file as found; `ensure` is "present", "absent" or "directory". What cannot be looked at counts as present."""

    metadata: FileMetadata
    source: SourceFile | UnsetType = UNSET
