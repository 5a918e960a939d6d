"""Properties and state of a file resource."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ccm_agent.model.formats.field_rules import (
    Deferred,
    Extension,
    ExtensionValues,
    NeededByLookAhead,
    PublishDigest,
    Quoted,
    Url,
)
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.model.resource_diff import ShowLines

DIRECTORY = "directory"
KEEP = "*"
"""The value of `owner` or `group` if it is not managed. No system allows an account of this name."""
_NEW_FILE, _NEW_DIRECTORY = 0o644, 0o755
"""The digits that replace `x` in the mode of a new file or directory."""
MASK = lazy_pattern(r"[0-7x]{3}")
"""A mode with three characters. Digits that are `x` are not managed."""
SCHEMES = ("http://", "https://")
"""Prefixes of a source that is downloaded."""


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
            description='Permissions in octal, in quotes: `"0644"`. With three digits, `x`, as in `"7xx"`, leaves a digit alone. '
            "Directories get execute permission wherever they have read or write permission. Required unless `ensure` is "
            "`absent`."
        ),
    ] = ""
    force: Annotated[
        bool, Meta(description="With `ensure: absent`: remove a directory together with its contents.")
    ] = False
    diff: ShowLines = False

    @property
    def manages_content(self) -> bool:
        """Whether the content is managed. If not, only owner, group and mode are managed."""
        return self.content is not None or self.source != ""

    @property
    def replaces_content(self) -> bool:
        """Whether different content of an existing file is replaced."""
        return self.replace and "content" not in self.ignore and "source" not in self.ignore

    @property
    def is_url(self) -> bool:
        """Whether the source is a URL."""
        return self.source.startswith(SCHEMES)

    @property
    def keeps_something(self) -> bool:
        """Whether the owner, the group or a digit of the mode is not managed."""
        return KEEP in (self.owner, self.group) or "x" in self.mode

    @property
    def mode_bits(self) -> int:
        """The desired permissions. Users who may read or write a directory may also enter it."""
        bits = parse_mode(self.mode, _NEW_DIRECTORY if self.ensure == DIRECTORY else _NEW_FILE)
        if self.ensure == DIRECTORY:
            bits |= sum(0o1 << shift for shift in (0, 3, 6) if bits & 0o6 << shift)
        return bits


@lru_cache(maxsize=256)
def parse_mode(mode: str, kept: int = 0) -> int:
    """
    Return the bits of a mode: `0644`, `644`, `0o644`, or `6x4`.

    Args:
        mode: The mode.
        kept: The mode whose digits replace each `x`.

    Raises:
        ValueError: The text is neither an octal number of three or four digits nor three characters of digits and `x`.
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
    The current state at the path of a file or directory. For a symlink, this is the state of its target.

    Attributes:
        name: The path.
        owner, group: Names, or numbers if the system has no name for them; "" if the path does not exist.
        mode: Permissions as four octal digits, without setuid, setgid and sticky bits; "" if the path does not exist.
        checksum: SHA-256 of a file's content; "" if the size already shows that the content differs.
        provider: The provider that read the state.
        mtime, size: Modification time and size.
        extended: Further values of the provider. The providers of this project do not use this field.
        uid, gid: Numbers of owner and group. Choria CCM does not have this field and the following ones.
        link: The target of a symlink; "" if the path is not a symlink.
        error: The reason why the state cannot be read, although the path may exist.
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
    The file or URL of the desired content. Choria CCM does not have this type.

    Attributes:
        path: The path, or the URL without secrets.
        checksum: SHA-256 of the content; "" if it was not read because the size already differs.
        size: The size of the content; 0 for a URL.
        error: The reason why the source cannot be used.
    """

    path: str
    checksum: str = ""
    size: int = 0
    error: str = ""


class FileState(CommonState, kw_only=True):
    """
    The current state of a file or directory. `ensure` is "present", "absent" or "directory".

    A path whose state cannot be read is reported as present.
    """

    metadata: FileMetadata
    source: SourceFile | UnsetType = UNSET
