"""Properties and state of repository resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import PublishDigest, Quoted, UnsignedFlag, Url
from ccm_agent.model.resource import CommonProperties, CommonState

APT, DNF = "apt", "dnf"
MODE = 0o644
TEXT, URL, FILE = "text", "url", "file"
"""The forms of `key`."""
_ARMOR = "-----BEGIN PGP "


class RepositoryProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A package repository and its signing key."""

    name: Annotated[
        str,
        Meta(description="Name of the files, and id for dnf."),
    ]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    uris: Annotated[
        list[str],
        Url,
        Meta(description="`https://`, `http://` or `file:/` URLs; with dnf the base URLs."),
    ] = []
    suites: Annotated[
        list[str],
        Meta(description="apt: such as `bookworm` or `./`. Required."),
    ] = []
    components: Annotated[list[str], Meta(description="apt: such as `main`.")] = []
    architectures: Annotated[list[str], Meta(description="apt: such as `amd64`.")] = []
    types: Annotated[list[str], Meta(description="apt: `deb` (default), `deb-src`, or both.")] = []
    metalink: Annotated[str, Url, Meta(description="dnf: a URL, instead of `uris`.")] = ""
    mirrorlist: Annotated[str, Url, Meta(description="dnf: a URL, instead of `uris`.")] = ""
    description: Annotated[str, Meta(description="Display name. Default: the name.")] = ""
    enabled: Annotated[bool, Meta(description="Whether it is enabled. Default: `true`.")] = True
    priority: Annotated[
        int | None,
        Meta(
            description="dnf: 1 (highest) to 99.",
            extra_json_schema={"minimum": 1, "maximum": 99},
        ),
    ] = None
    key: Annotated[
        str,
        PublishDigest,
        Meta(description="Public OpenPGP key: its text, a file, or an `https://` URL."),
    ] = ""
    key_fingerprint: Annotated[
        str,
        Quoted,
        Meta(description="Its fingerprint, 40 or 64 hex digits. Required."),
    ] = ""
    signed_by: Annotated[
        str,
        Meta(description="Instead of `key`: path on the host."),
    ] = ""
    trusted: Annotated[
        bool,
        UnsignedFlag,
        Meta(description="Instead of `key`: accept packages without a signature."),
    ] = False
    repo_gpgcheck: Annotated[
        bool,
        Meta(description="dnf: require signed metadata, even if `dnf.conf` does not."),
    ] = False
    refresh: Annotated[
        bool,
        Meta(description="Whether to fetch the package lists before a change. Default: `true`."),
    ] = True

    @property
    def key_form(self) -> str:
        """The form of `key`: TEXT, URL or FILE; "" if there is no key."""
        if not self.key:
            return ""
        if _ARMOR in self.key or "\n" in self.key.strip():
            return TEXT
        return URL if "://" in self.key else FILE


class RepositoryContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    The fields of a repository's file; see `RepositoryProperties`. `signed_by` can also be the path of the repository's own key.
    """

    description: str
    uris: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    metalink: str = ""
    mirrorlist: str = ""
    enabled: bool = True
    priority: int | None = None
    signed_by: str = ""
    trusted: bool = False
    repo_gpgcheck: bool = False


class RepositoryFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One of the files of a repository.

    Attributes:
        path: The path.
        kind: "absent", "file", "symlink" or another kind of entry.
        link: The target of a symlink.
        checksum, size: SHA-256 in hex and size of a file; "" and 0 if the file does not exist.
        mode: Permissions as four octal digits; "" if the file does not exist.
        uid: The owner; -1 if the file does not exist.
    """

    path: str
    kind: str = "absent"
    link: str = ""
    checksum: str = ""
    size: int = 0
    mode: str = ""
    uid: int = -1

    @property
    def is_public(self) -> bool:
        """Whether the entry is a file with the right owner and mode."""
        return self.kind == "file" and self.uid == 0 and self.mode == f"{MODE:04o}"


class RepositoryState(CommonState, kw_only=True, dict=True):
    """
    The current state of a repository. `ensure` is "present" if the repository's file exists.

    Attributes:
        manager: "apt" or "dnf".
        file, key_file: The repository's file, and the file with its key.
        key_fingerprint: The fingerprint of the key in `key_file`; "" if the file does not contain exactly one key or was not
            read.
        uses_key: Whether the repository's file refers to `key_file`.
        desired_key_checksum: SHA-256 of the desired key as it would be written; "" if there is no key, or if it must be fetched.
        key_error: The reason why the desired key cannot be used.
        others: A description of other content in the repository's file, such as another section of dnf; "" if there is none.
        also_in: Another file that defines a repository of this name; "" if there is none.
    """

    manager: str
    file: RepositoryFile
    key_file: RepositoryFile
    key_fingerprint: str = ""
    uses_key: bool = False
    desired_key_checksum: str = ""
    key_error: str = ""
    others: str = ""
    also_in: str = ""

    @property
    def content(self) -> RepositoryContent | None:
        """
        The repository in the file; None if this type did not write the file. It is not a field, because it has not been checked
        for secrets.
        """
        found: RepositoryContent | None = self.__dict__.get("read")
        return found

    def keep_content(self, content: RepositoryContent | None) -> None:
        """Store the repository that was read."""
        self.__dict__["read"] = content

    @property
    def key(self) -> str:
        """
        The text of the key in `key_file`; "" if it does not have the form that this type writes. It is not a field, because it is
        long.
        """
        return str(self.__dict__.get("key", ""))

    def keep_key(self, text: str) -> None:
        """Store the text of the key that was read."""
        self.__dict__["key"] = text
