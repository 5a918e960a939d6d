"""
Jobs in /etc/cron.d.

Source: cron(8) of Debian and of cronie: files must belong to root and must not be writable by others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime, tzinfo
from io import BytesIO
from typing import TYPE_CHECKING

from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Clock, FileInfo, Files
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.cron.crontab import REBOOT, Crontab, parse
from ccm_agent.resources.cron.model import DIRECTORY, CronProperties, CronState
from ccm_agent.resources.cron.resource import content, job_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from ccm_agent.resources.changes import FileChange

LIMIT_BYTES = 1 << 20
NEXT_RUNS = 3
ZONE_FILE = "/etc/localtime"
ZONE_BYTES = 64 << 10


class Crond:
    """
    The provider `crond`: reads and writes the files of jobs. All methods raise HostError if the operating system refuses an
    operation.

    Args:
        files: Reads and writes the files.
        clock: Returns the time from which the next runs are computed.
    """

    def __init__(self, files: Files, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._zone: ZoneInfo | None = None

    async def status(self, wanted: CronProperties) -> CronState:
        """See `CronProvider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[CronProperties]) -> list[CronState]:
        """Return the result of `status` for each resource. Only files that differ are read."""
        looks = await self._files.inspect([DIRECTORY, *(one.path for one in wanted)], follow=False)
        has_directory = looks[0].kind != "absent"
        return [
            await self._state(one, look, has_directory) for one, look in zip(wanted, looks[1:], strict=True)
        ]

    async def compare(self, wanted: CronProperties) -> list[FileChange]:
        """Return the content of the file before and after the change, for a diff."""
        from ccm_agent.resources.changes import compare_file

        after = content(wanted) if wanted.ensure == PRESENT else None
        return [await compare_file(self._files, wanted.path, wanted.mode_bits, after)]

    async def write(self, wanted: CronProperties) -> None:
        """Write the job's file atomically. Raises FileError if the job's user does not exist."""
        await self._files.ids(wanted.user, "")
        await self._files.write(
            wanted.path, content(wanted), owner="root", group="root", mode=wanted.mode_bits
        )

    async def remove(self, wanted: CronProperties) -> None:
        """Remove the job's file."""
        await self._files.remove(wanted.path)

    async def _state(self, wanted: CronProperties, look: FileInfo, has_directory: bool) -> CronState:
        state = CronState(
            protocol="io.choria.ccm.v1.resource.cron.state",
            type="cron",
            name=wanted.name,
            ensure=ABSENT if look.kind == "absent" else PRESENT,
            path=wanted.path,
            kind=look.kind,
            checksum=look.sha256,
            mode=f"{look.mode:04o}" if look.kind == "file" else "",
            uid=look.uid,
            has_directory=has_directory,
        )
        if wanted.schedule and look.sha256 == hashlib.sha256(content(wanted)).hexdigest():
            state.keep(job_of(wanted))
        else:
            await self._read_job(state, look)
            state.next_runs = await self._next_runs(wanted)
        return state

    async def _read_job(self, state: CronState, look: FileInfo) -> None:
        if look.kind != "file":
            return
        data = await self._files.read(look.path, LIMIT_BYTES)
        state.checksum = hashlib.sha256(data).hexdigest()
        if job := parse(data.decode(errors="replace")):
            state.keep(job)

    async def _next_runs(self, wanted: CronProperties) -> list[str]:
        if wanted.ensure != PRESENT or wanted.schedule in ("", REBOOT):
            return []
        schedule, zone, moment = Crontab(wanted.schedule), await self._local_zone(), self._clock.now()
        runs: list[str] = []
        while len(runs) < NEXT_RUNS and (after := schedule.next_after(moment, zone)):
            runs.append(_shown(after, zone))
            moment = after
        return runs

    async def _local_zone(self) -> ZoneInfo:
        """Return the time zone that cron uses."""
        if self._zone is None:
            from zoneinfo import ZoneInfo

            try:
                data = await self._files.read(ZONE_FILE, ZONE_BYTES)
                self._zone = ZoneInfo.from_file(BytesIO(data), key="localtime")
            except (FileError, ValueError):
                self._zone = ZoneInfo("UTC")
        return self._zone


def _shown(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z").rstrip()
