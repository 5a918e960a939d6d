"""
Verifies new files with `systemd-analyze verify` before they replace existing files.

The files are copied to a private folder, in which systemd-analyze searches for units first. Programs and units that do not exist
are accepted, because a later resource may install them.

Source: systemd-analyze(1), systemd.unit(5); systemd 252 (Debian 12).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from msgspec import Struct

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Command, Files, Locks, Runner
from ccm_agent.resources.host_tools import trial_folder
from ccm_agent.resources.registry import SEARCH_PATH
from ccm_agent.resources.systemd_unit.model import DIRECTORY, LIMIT_BYTES, SystemdUnitProperties

FOLDER = "/run/ccm-verify"
"""The private folder for copies."""
LOCK = "verify"
LIMIT_S = 120
SAID_BYTES = 2000
FOLDERS = (
    DIRECTORY,
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
)
"""The folders that may contain a unit's own file, in the order of precedence."""
_REFUSED = re.compile(
    r"[iI]gnoring|Refusing|absolute path|Invalid section header|fatal error|bad unit file setting|failed to load"
)
"""Matches systemd's messages about parts of a unit that it ignores."""
_UNVERIFIED = "the unit cannot be verified, so nothing was written"
_STUB = "[Service]\nExecStart=/bin/true\n"


class NewUnitFile(Struct, frozen=True, kw_only=True):
    """The desired content of a resource's file."""

    wanted: SystemdUnitProperties
    content: bytes


class _Placed(Struct, frozen=True, kw_only=True):
    """
    A new file in the private folder.

    Attributes:
        path: The path of the file.
        unit: The unit that is verified.
        is_stub: Whether a placeholder is used, because the unit of this drop-in does not exist.
    """

    path: str
    unit: str
    is_stub: bool = False


class UnitVerifier:
    """
    Verifies files of units.

    Args:
        runner: Runs systemd-analyze.
        files: Writes the copies.
        locks: Provides the lock of the folder for copies.
    """

    def __init__(self, runner: Runner, files: Files, locks: Locks) -> None:
        self._locks = locks
        self._runner = runner
        self._files = files

    async def complaints(self, new: Sequence[NewUnitFile]) -> list[str]:
        """
        Return systemd's complaints about each file: the parts that it refuses or ignores; "" if it accepts the whole file.

        Raises:
            CommandError: systemd-analyze cannot be run or hangs.
        """
        async with trial_folder(self._files, self._locks, FOLDER, lock=LOCK, why=_UNVERIFIED):
            placed = [await self._place(FOLDER, one) for one in new]
            units = sorted({f"{FOLDER}/{one.unit}" for one in placed})
            lines = await self._verify(units)
        return [_complaint(one, own.wanted, lines) for one, own in zip(placed, new, strict=True)]

    async def _place(self, folder: str, new: NewUnitFile) -> _Placed:
        wanted = new.wanted
        unit = _instance(wanted.unit_name)
        if not wanted.drop_in:
            path = f"{folder}/{unit}"
            await self._files.write(path, new.content, mode=0o600)
            return _Placed(path=path, unit=unit)
        path = f"{folder}/{unit}.d/{wanted.drop_in}"
        await self._files.set_attributes(posixpath.dirname(path), mode=0o700, directory=True)
        await self._files.write(path, new.content, mode=0o600)
        return _Placed(path=path, unit=unit, is_stub=not await self._copy_unit(folder, wanted.unit_name))

    async def _copy_unit(self, folder: str, unit: str) -> bool:
        """Copy the unit file of a drop-in's unit, or write a placeholder. Return whether the unit exists."""
        copy = f"{folder}/{_instance(unit)}"
        stem, suffix = posixpath.splitext(unit)
        template = f"{stem.partition('@')[0]}@{suffix}" if "@" in stem else unit
        candidates = [f"{parent}/{name}" for name in dict.fromkeys((unit, template)) for parent in FOLDERS]
        looks = await self._files.inspect([copy, *candidates], digest=False)
        if looks[0].kind == "file":
            return True  # the unit itself also changes
        found = next((look.path for look in looks[1:] if look.kind == "file"), "")
        content = await self._files.read(found, LIMIT_BYTES) if found else _STUB.encode()
        await self._files.write(copy, content, mode=0o600)
        return bool(found)

    async def _verify(self, units: Sequence[str]) -> list[str]:
        argv = ("systemd-analyze", "verify", "--man=no", "--", *units)
        try:
            done = await self._runner.run(
                Command(argv=argv, search_path=SEARCH_PATH, merge_stderr=True, time_limit_s=LIMIT_S)
            )
        except CommandError as err:
            raise CommandError(f"{_UNVERIFIED}: {err.message}") from err
        output = done.stdout.decode(errors="replace")
        if done.timed_out:
            raise CommandError(
                f"`systemd-analyze verify` ran for {LIMIT_S} s and was killed; nothing was written",
                output=output,
            )
        if done.code < 0:
            raise CommandError(
                f"`systemd-analyze verify` was killed by signal {-done.code}; nothing was written",
                output=output,
            )
        return output.splitlines()


def refuse_complaint(wanted: SystemdUnitProperties, complaint: str) -> None:
    """Raise an error for a file that systemd would refuse or partly ignore."""
    if complaint:
        raise FileError(f"{wanted.path} is not valid, so nothing was written: {complaint[:SAID_BYTES]}")


def _complaint(placed: _Placed, wanted: SystemdUnitProperties, lines: Sequence[str]) -> str:
    own = [f"{placed.path}:"]
    if not placed.is_stub:
        own += [f"{placed.unit}:", f"Unit {placed.unit} "]
    refused = [line for line in lines if line.startswith(tuple(own)) and _REFUSED.search(line)]
    shown = posixpath.basename(wanted.path)
    return "; ".join(
        line.replace(placed.path, shown).replace(placed.unit, wanted.unit_name) for line in refused
    )


def _instance(unit: str) -> str:
    """Return a name that systemd can load: an instance of a template, or of a prefix such as `app-.service`."""
    stem, suffix = posixpath.splitext(unit)
    return f"{stem}i{suffix}" if stem.endswith(("@", "-")) else unit
