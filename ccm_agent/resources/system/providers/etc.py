"""
Manages settings of the machine: files below /etc, and the host name of the kernel.

systemd's services are not needed, because hostnamed, timedated and localed read the same files.

Source: hostname(5), localtime(5), locale.conf(5); timezone and default/locale of Debian 12.
"""

from __future__ import annotations

from collections.abc import Sequence

from ccm_agent.model.ports import FileInfo, Files, Kernel, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.host_tools import run_tool
from ccm_agent.resources.shared_file import SharedFile
from ccm_agent.resources.system.lines import normal_locale, read_lang, read_value, with_lang, with_value
from ccm_agent.resources.system.model import (
    DEBIAN_LOCALE_FILE,
    HOSTNAME,
    HOSTNAME_FILE,
    KERNEL_HOSTNAME,
    LOCALE_FILE,
    TIMEZONE,
    ZONE_FILE,
    ZONE_LINK,
    ZONES,
    SystemProperties,
    SystemState,
)

DEBIAN = "/etc/debian_version"
MAGIC = b"TZif"
"""The first bytes of a time zone file. Other files in the directory do not have them; see tzfile(5)."""
ZONE_BYTES = 1 << 20
LIMIT_S = 30
_LINKS = (f"..{ZONES}/", f"{ZONES}/")
"""The prefixes of link targets, as created by systemd and Debian."""


class Etc:
    """
    The provider `etc`. All methods raise HostError if the operating system refuses an operation.

    Args:
        runner: Runs hostname and locale.
        files: Reads and writes files below /etc.
        kernel: Reads the host name of the kernel.
        locks: Provides the lock of the files.
    """

    def __init__(self, runner: Runner, files: Files, kernel: Kernel, locks: Locks) -> None:
        self._runner = runner
        self._files = files
        self._kernel = kernel
        self._shared = SharedFile(files, locks, "system")

    async def status(self, wanted: SystemProperties) -> SystemState:
        """Return the current state."""
        if wanted.name == HOSTNAME:
            return _state(wanted, await self._hostname())
        if wanted.name == TIMEZONE:
            return _state(wanted, await self._timezone(), is_available=await self._has_zone(wanted.value))
        return _state(wanted, await self._locale(), is_available=await self._has_locale(wanted.value))

    async def look_ahead(self, wanted: Sequence[SystemProperties]) -> list[SystemState]:
        """Return the result of `status` for each setting. A manifest has each of the three settings at most once."""
        return [await self.status(one) for one in wanted]

    async def set(self, place: str, value: str) -> None:
        """
        Set a value. Files are written atomically, and their other lines are kept.

        Args:
            place: A path in `SystemState.values`.
            value: The value; "" removes it.
        """
        if place == KERNEL_HOSTNAME:
            # do not use the kernel port, because /proc/sys is read-only even in containers that may set their host name
            await run_tool(
                self._runner, "the host name of the kernel cannot be set", "hostname", value, limit_s=LIMIT_S
            )
        elif place == ZONE_LINK:
            await self._link_zone(value)
        elif place in (LOCALE_FILE, DEBIAN_LOCALE_FILE):
            await self._shared.edit(place, lambda lines: with_lang(lines, value))
        else:
            await self._shared.edit(place, lambda lines: with_value(lines, value))

    async def _hostname(self) -> dict[str, str]:
        (live,) = await self._kernel.read([KERNEL_HOSTNAME])
        # The kernel is first, so that the file does not change in a container that may not set its host name.
        return {
            KERNEL_HOSTNAME: live.value,
            HOSTNAME_FILE: read_value(await self._shared.read(HOSTNAME_FILE)),
        }

    async def _timezone(self) -> dict[str, str]:
        link, file = await self._files.inspect([ZONE_LINK, ZONE_FILE], digest=False, follow=False)
        values = {ZONE_LINK: _zone(link)}
        if file.kind != "absent":
            values[ZONE_FILE] = read_value(await self._shared.read(ZONE_FILE))
        return values

    async def _locale(self) -> dict[str, str]:
        debian, file = await self._files.inspect([DEBIAN, DEBIAN_LOCALE_FILE], digest=False, follow=False)
        # since Debian 13, this file is a symlink to the other file
        is_debian = debian.kind == "file" and file.kind != "symlink"
        place = DEBIAN_LOCALE_FILE if is_debian else LOCALE_FILE
        return {place: read_lang(await self._shared.read(place))}

    async def _has_zone(self, zone: str) -> bool:
        if not zone:
            return True
        path = f"{ZONES}/{zone}"
        (look,) = await self._files.inspect([path], digest=False)
        return look.kind == "file" and (await self._files.read(path, ZONE_BYTES)).startswith(MAGIC)

    async def _has_locale(self, name: str) -> bool:
        if not name:
            return True
        known = await run_tool(
            self._runner, "the locales of this host cannot be listed", "locale", "-a", limit_s=LIMIT_S
        )
        return normal_locale(name) in map(normal_locale, known.split())

    async def _link_zone(self, zone: str) -> None:
        if not zone:
            await self._files.remove(ZONE_LINK)
            return
        (look,) = await self._files.inspect([ZONE_LINK], digest=False, follow=False)
        front = next((one for one in _LINKS if look.link.startswith(one)), _LINKS[0])
        await self._files.link(ZONE_LINK, f"{front}{zone}", force=True)


def _state(wanted: SystemProperties, values: dict[str, str], *, is_available: bool = True) -> SystemState:
    return SystemState(
        protocol="io.choria.ccm.v1.resource.system.state",
        type="system",
        name=wanted.name,
        ensure=PRESENT if any(values.values()) else ABSENT,
        values=values,
        is_available=is_available,
    )


def _zone(look: FileInfo) -> str:
    """
    Return the name of the zone to which a link points, or "" if there is no entry. For other entries, return a description, which
    is not a valid zone name.
    """
    if look.kind == "absent":
        return ""
    link = look.link.encode(errors="surrogateescape").decode(errors="replace")
    front = next((one for one in _LINKS if link.startswith(one)), "")
    if front:
        return link.removeprefix(front)
    return f"a link to {link}" if link else f"a {look.kind} without the name of its zone"
