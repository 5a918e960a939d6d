"""Properties and state of a user resource."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import Sensitive
from ccm_agent.model.ports import FileInfo, KeyFile
from ccm_agent.model.resource import CommonProperties, CommonState
from ccm_agent.resources.account_names import AccountId


class UserProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A user in /etc/passwd. Properties that are not given are not managed."""

    name: Annotated[str, Meta(description="Name of the user.")]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    uid: Annotated[AccountId | None, Meta(description="User ID.")] = None
    group: Annotated[
        str,
        Meta(description="Primary group, by name or number. Default: a group with the user's name."),
    ] = ""
    gid: Annotated[
        AccountId | None,
        Meta(description="Number of the primary group, which is created with a new user if it is missing."),
    ] = None
    groups: Annotated[
        list[str] | None,
        Meta(description="Other groups of the user."),
    ] = None
    groups_exclusive: Annotated[
        bool, Meta(description="Remove the user from groups that are not in `groups`.")
    ] = False
    home: Annotated[str, Meta(description="Home directory. Its content is not moved.")] = ""
    create_home: Annotated[
        bool | None,
        Meta(
            description="Create the home directory. Default: only for a new user that is not a system user."
        ),
    ] = None
    purge_home: Annotated[bool, Meta(description="With `absent`: remove the home directory, too.")] = False
    shell: Annotated[str, Meta(description="Login shell, an absolute path.")] = ""
    comment: Annotated[str | None, Meta(description="Full name or description (GECOS).")] = None
    system: Annotated[bool, Meta(description="Give a new user a number from the system range.")] = False
    locked: Annotated[
        bool | None,
        Meta(description="Whether the password and the account are locked."),
    ] = None
    expires: Annotated[
        str, Meta(description="Day from which the account is disabled, `YYYY-MM-DD`, or `never`.")
    ] = ""
    password_hash: Annotated[
        str | None,
        Sensitive,
        Meta(description="Hash from `openssl passwd -6`; `*` disables password login."),
    ] = None
    authorized_keys: Annotated[
        list[str] | None,
        Meta(description="Lines of `~/.ssh/authorized_keys`."),
    ] = None
    authorized_keys_exclusive: Annotated[bool, Meta(description="Remove all other keys.")] = False

    @property
    def creates_home(self) -> bool:
        """Whether a new user gets a home directory."""
        return not self.system if self.create_home is None else self.create_home


class UserMetadata(Struct, kw_only=True, omit_defaults=True):
    """
    A user in /etc/passwd.

    Attributes:
        name: The user's name.
        provider: The provider that read the state.
        uid, gid: The IDs of the user and of the primary group; -1 if the user does not exist.
        group: The name of the primary group; "" if no local group has its ID.
        groups: Other local groups that list the user as a member, sorted.
        home, shell, comment: The values in /etc/passwd.
        locked: Whether the account is locked by a locked password or an expiry date in 1970.
        expires: The date from which the account is disabled, or "never"; "" if /etc/shadow cannot be read.
        has_password: Whether the user has a password hash; None if /etc/shadow cannot be read.
        authorized_keys: The number of SSH keys; None if they were not read.
    """

    name: str
    provider: str
    uid: int = -1
    gid: int = -1
    group: str = ""
    groups: list[str] = []
    home: str = ""
    shell: str = ""
    comment: str = ""
    locked: bool = False
    expires: str = ""
    has_password: bool | None = None
    authorized_keys: int | None = None


class UserSecrets(Struct, frozen=True, kw_only=True):
    """
    Values of a user that a provider reads and that must not be in events.

    Attributes:
        password: The password field in /etc/shadow; None if the file cannot be read or has no entry.
        keys: The user's authorized_keys; None if it was not read.
        home: The state of the home directory; None if it was not read.
        home_users: Other users whose home directory is this directory or below it. Only read for a removal with `purge_home`.
    """

    password: str | None = None
    keys: KeyFile | None = None
    home: FileInfo | None = None
    home_users: tuple[str, ...] = ()


class UserState(CommonState, kw_only=True, dict=True):
    """
    The current state of a user. `ensure` is "present" or "absent".

    `secrets` is not a field, so no event, output or schema contains it.
    """

    metadata: UserMetadata

    @property
    def secrets(self) -> UserSecrets:
        """The values that must not be in events."""
        secrets: UserSecrets = self.__dict__.get("secrets") or UserSecrets()
        return secrets


class UserChange(Struct, frozen=True, kw_only=True):
    """New values for an existing user. None keeps a value. `expires` is a date, or "" for never."""

    uid: int | None = None
    group: str | None = None
    home: str | None = None
    shell: str | None = None
    comment: str | None = None
    expires: str | None = None
