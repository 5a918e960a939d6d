"""Properties and state of cron resources."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from ccm_agent.model.formats.field_rules import PublishNames, RunsCommand
from ccm_agent.model.resource import CommonProperties, CommonState

DIRECTORY = "/etc/cron.d"
MODE = 0o644
SECRET_MODE = 0o600


class CronProperties(CommonProperties, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A cron job."""

    name: Annotated[
        str,
        Meta(
            description="Name of the job and its file in `/etc/cron.d`: letters, digits, `_` and `-`. Cron ignores other names."
        ),
    ]
    ensure: Annotated[str, Meta(description="`present` (default) or `absent`.")] = ""
    schedule: Annotated[
        str,
        Meta(
            description="Schedule: the five fields of crontab(5), in the host's time zone, or a nickname such as `@daily` or "
            "`@reboot`."
        ),
    ] = ""
    user: Annotated[str, Meta(description="User that runs it. Default: `root`.")] = "root"
    command: Annotated[
        str,
        RunsCommand,
        Meta(description="The command, as cron passes it to a shell. A percent sign is written as `\\%`."),
    ] = ""
    environment: Annotated[
        list[str],
        PublishNames,
        Meta(description="Variables of the job as `NAME=value`, such as `MAILTO=ops@example.com`."),
    ] = []

    @property
    def path(self) -> str:
        """The path of the job's file."""
        return f"{DIRECTORY}/{self.name}"

    @property
    def mode_bits(self) -> int:
        """The permissions of the file. Cron reads the file as root, so other users need no access to secrets in it."""
        return SECRET_MODE if self.sensitive else MODE


class CronJob(Struct, frozen=True, kw_only=True):
    """A job as written in its file; see `CronProperties`."""

    schedule: str
    user: str
    command: str
    environment: tuple[str, ...] = ()


class CronState(CommonState, kw_only=True, dict=True):
    """
    The current state of a cron job. `ensure` is "present" if anything exists at the path of the job's file.

    Attributes:
        path: The path of the job's file.
        kind: "absent", "file", "symlink" or another kind of entry.
        checksum: SHA-256 of the file; "" if the file does not exist or cannot be read.
        mode: Permissions as four octal digits; "" if the file does not exist.
        uid: The owner; -1 if the file does not exist.
        schedule, user: The values of the job in the file; "" if the file does not contain exactly one job.
        has_directory: Whether /etc/cron.d exists.
        next_runs: The next times of the desired job. Empty if the file already contains this job.
    """

    path: str
    kind: str = "absent"
    checksum: str = ""
    mode: str = ""
    uid: int = -1
    schedule: str = ""
    user: str = ""
    has_directory: bool = True
    next_runs: list[str] = []

    @property
    def job(self) -> CronJob | None:
        """
        The job in the file. It is not a field, because states are published, and commands and variables may contain secrets.
        """
        found: CronJob | None = self.__dict__.get("read")
        return found

    def keep(self, job: CronJob) -> None:
        """Store the job that was read."""
        self.__dict__["read"] = job
        self.schedule, self.user = job.schedule, job.user
