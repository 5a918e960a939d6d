"""Properties and state of systemd units."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ccm_agent.model.formats.field_rules import (
    Deferred,
    NeededByLookAhead,
    PublishDigest,
    RunsCommand,
    Url,
)
from ccm_agent.model.resource import CommonProperties, CommonState

DIRECTORY = "/etc/systemd/system"
MODE = 0o644
SECRET_MODE = 0o600
LIMIT_BYTES = 1 << 20
"""The maximum size of a unit file."""


class SystemdUnitProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A unit file, or a drop-in of a unit."""

    name: Annotated[
        str, Meta(description="Unit with its suffix, such as `backup.timer`, or any name if `unit` is given.")
    ]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    unit: Annotated[str, Meta(description="Unit with its suffix. Default: the name.")] = ""
    drop_in: Annotated[
        str,
        Meta(
            description="File name of a drop-in of the unit, such as `limits.conf`. Only this file in `UNIT.d` is then managed."
        ),
    ] = ""
    content: Annotated[
        str | None, Deferred, PublishDigest, RunsCommand, Meta(description="Complete content of the file.")
    ] = None
    source: Annotated[
        str,
        Deferred,
        NeededByLookAhead,
        Url,
        RunsCommand,
        Meta(
            description="Local file to copy the content from, absolute or relative to the manifest. It is not rendered as a "
            "template."
        ),
    ] = ""

    @property
    def unit_name(self) -> str:
        """The name of the unit."""
        return self.unit or self.name

    @property
    def path(self) -> str:
        """The path of the file, which is the unit's own file or a drop-in."""
        if self.drop_in:
            return f"{DIRECTORY}/{self.unit_name}.d/{self.drop_in}"
        return f"{DIRECTORY}/{self.unit_name}"

    @property
    def mode_bits(self) -> int:
        """The permissions of the file."""
        return SECRET_MODE if self.sensitive else MODE


class SystemdUnitState(CommonState, kw_only=True):
    """
    The current state of a unit or drop-in. `ensure` is "present" if any entry exists at the path of the file.

    Attributes:
        path: The path of the file.
        kind: "absent", "file", "symlink" or another kind of entry.
        link: The target of a symlink; "" if the entry is not a symlink.
        checksum: SHA-256 of the file; "" if it does not exist or cannot be read.
        mode: Permissions as four octal digits; "" if the file does not exist.
        uid, gid: The IDs of owner and group; -1 if the file does not exist.
        desired_checksum, desired_size: SHA-256 and size of the desired content; "" and 0 if there is no desired content.
        error: The reason why the desired content or the file cannot be read; "" if both can be read.
        needs_reload: Whether systemd uses an earlier version of the unit.
    """

    path: str
    kind: str = "absent"
    link: str = ""
    checksum: str = ""
    mode: str = ""
    uid: int = -1
    gid: int = -1
    desired_checksum: str = ""
    desired_size: int = 0
    error: str = ""
    needs_reload: bool = False
