"""
Manages units in /etc/systemd/system.

Source: systemd.unit(5), systemctl(1); systemd 252 (Debian 12).
"""

from __future__ import annotations

import errno
import hashlib
import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Command, Completed, FileInfo, Files, Locks, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.registry import SEARCH_PATH
from ccm_agent.resources.systemd_unit.model import LIMIT_BYTES, SystemdUnitProperties, SystemdUnitState
from ccm_agent.resources.systemd_unit.providers.loaded import PROPERTIES, Unit, by_name, must_reload, pattern
from ccm_agent.resources.systemd_unit.providers.verify import NewUnitFile, UnitVerifier, refuse_complaint

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange

RUNNING = "/run/systemd/system"
"""This path exists if systemd manages the host; see sd_booted(3)."""
LOOK_LIMIT_S = 60
RELOAD_LIMIT_S = 5 * 60
OUTPUT_BYTES = 64 << 20
SAID_BYTES = 1000


class SystemdUnits:
    """
    The provider `systemd`.

    Args:
        runner: Runs systemctl and systemd-analyze.
        files: Reads and writes the files.
        locks: Provides the lock of services.
        directory: The base directory for relative sources.
        asks_systemd: Whether systemctl may run. In a restricted plan it may not run, and only files are compared.
    """

    def __init__(
        self, runner: Runner, files: Files, locks: Locks, directory: str, *, asks_systemd: bool = True
    ) -> None:
        self._runner = runner
        self._files = files
        self._locks = locks
        self._directory = directory
        self._asks_systemd = asks_systemd
        self._verifier = UnitVerifier(runner, files, locks)
        self._differing: dict[str, NewUnitFile] = {}
        """Files that differ, by path. They are verified together when the first one is written."""
        self._verified: set[tuple[str, str]] = set()
        """The path and digest of each content that was verified successfully."""
        self._changed: dict[str, SystemdUnitProperties] = {}
        """Units that systemd may have to read again, by path."""
        self._fault = ""
        """The reason why systemd could not read the units."""

    async def status(self, wanted: SystemdUnitProperties) -> SystemdUnitState:
        """Return the state of one unit."""
        return (await self._look([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[SystemdUnitProperties]) -> Sequence[SystemdUnitState | None]:
        """Return the result of `status` for each unit, with one call of systemctl."""
        try:
            return await self._look(wanted)
        except CommandError:
            return [None] * len(wanted)

    async def compare(self, wanted: SystemdUnitProperties) -> list[FileChange]:
        """Return the content of the file before and after, for a diff."""
        from ccm_agent.resources.changes import compare_file

        after = await self._content(wanted) if wanted.ensure == PRESENT else None
        return [await compare_file(self._files, wanted.path, wanted.mode_bits, after)]

    async def store(self, wanted: SystemdUnitProperties) -> None:
        """
        Write the file atomically.

        Raises:
            FileError: systemd would ignore or refuse a part of the content. The file was not changed.
        """
        path, content = wanted.path, await self._content(wanted)
        await self._verify(NewUnitFile(wanted=wanted, content=content))
        if wanted.drop_in:
            await self._files.set_attributes(
                posixpath.dirname(path), owner="root", group="root", mode=0o755, directory=True
            )
        await self._files.write(path, content, owner="root", group="root", mode=wanted.mode_bits)
        await self._has_changed(wanted)

    async def remove(self, wanted: SystemdUnitProperties) -> None:
        """Remove the file. If its drop-in directory is then empty, remove the directory."""
        if not self._asks_systemd:
            raise FileError(
                f"{wanted.path} is not removed: systemd must then be reloaded, but the node's policy forbids commands"
            )
        await self._files.remove(wanted.path)
        if wanted.drop_in:
            try:
                await self._files.remove(posixpath.dirname(wanted.path))
            except FileError as err:
                if err.errno != errno.ENOTEMPTY:
                    raise
        await self._has_changed(wanted)

    async def reload(self, wanted: SystemdUnitProperties) -> None:
        """Make systemd read the unit again. Like after a change, this is deferred to `finish`."""
        await self._has_changed(wanted)

    async def finish(self) -> None:
        """Reload systemd once for all changed units, if one of them requires it."""
        if not self._changed or not self._asks_systemd:
            return
        if self._fault:  # later resources also need the reload
            raise CommandError(self._fault)
        try:
            await self._reload_if_needed(list(self._changed.values()))
        except CommandError as err:
            self._fault = str(err)
            raise
        self._changed.clear()

    async def _reload_if_needed(self, changed: Sequence[SystemdUnitProperties]) -> None:
        looks = await self._files.inspect(
            [RUNNING, *(one.path for one in changed)], digest=False, follow=False
        )
        if looks[0].kind == "absent":
            return
        units = await self._loaded(changed)
        if any(
            must_reload(one, look.kind == "file", units.get(one.unit_name, ()))
            for one, look in zip(changed, looks[1:], strict=True)
        ):
            async with self._locks.hold("service"):
                done = await self._systemctl("daemon-reload", "--system", limit_s=RELOAD_LIMIT_S)
            _refuse_failure(done, "systemd cannot load the changed units")

    # ---- internal ----

    async def _look(self, wanted: Sequence[SystemdUnitProperties]) -> list[SystemdUnitState]:
        looks = await self._files.inspect([RUNNING, *(one.path for one in wanted)], follow=False)
        states = [await self._state(one, look) for one, look in zip(wanted, looks[1:], strict=True)]
        if self._asks_systemd and looks[0].kind != "absent":
            await self._find_outdated(wanted, states)
        return states

    async def _find_outdated(
        self, wanted: Sequence[SystemdUnitProperties], states: Sequence[SystemdUnitState]
    ) -> None:
        """Set `needs_reload` for units whose file has the desired content. Other units are reloaded after their change anyway."""
        reloaded = {one.unit_name for one in self._changed.values()}
        asked = [
            (one, state)
            for one, state in zip(wanted, states, strict=True)
            if one.unit_name not in reloaded and _is_as_desired(one, state)
        ]
        if asked:
            units = await self._loaded([one for one, _ in asked])
            for one, state in asked:
                state.needs_reload = must_reload(one, state.kind == "file", units.get(one.unit_name, ()))

    async def _loaded(self, wanted: Sequence[SystemdUnitProperties]) -> dict[str, list[Unit]]:
        """Return the units that systemd has loaded, by name."""
        patterns = dict.fromkeys(pattern(one) for one in wanted)
        done = await self._systemctl("show", "--system", f"--property={PROPERTIES}", "--", *patterns)
        _refuse_failure(done, "cannot read the units of systemd")
        return by_name(done.stdout.decode(errors="replace"))

    async def _state(self, wanted: SystemdUnitProperties, look: FileInfo) -> SystemdUnitState:
        is_file = look.kind == "file"
        state = SystemdUnitState(
            protocol="io.choria.ccm.v1.resource.systemd_unit.state",
            type="systemd_unit",
            name=wanted.name,
            ensure=ABSENT if look.kind == "absent" else PRESENT,
            path=wanted.path,
            kind=look.kind,
            link=look.link,
            checksum=look.sha256,
            mode=f"{look.mode:04o}" if is_file else "",
            uid=look.uid if is_file else -1,
            gid=look.gid if is_file else -1,
            error=look.error or look.undigested,
        )
        if wanted.ensure == PRESENT and (wanted.content is not None or wanted.source):
            try:
                content = await self._content(wanted)
            except FileError as err:
                state.error = state.error or f"source {err.message}"
                return state
            state.desired_checksum, state.desired_size = _digest(content), len(content)
            if state.checksum != state.desired_checksum:
                self._differing[wanted.path] = NewUnitFile(wanted=wanted, content=content)
        return state

    async def _content(self, wanted: SystemdUnitProperties) -> bytes:
        if wanted.content is not None:
            return wanted.content.encode()
        path = posixpath.normpath(posixpath.join(self._directory, wanted.source))
        return await self._files.read(path, LIMIT_BYTES)

    async def _verify(self, new: NewUnitFile) -> None:
        """Verify the content of a file. The first call verifies it together with all other files that differ."""
        own = (new.wanted.path, _digest(new.content))
        if own not in self._verified:
            others = [one for path, one in self._differing.items() if path != own[0] and one.content]
            self._differing.clear()
            if others:
                await self._verify_together([new, *others])
        if own not in self._verified:
            # verify this file separately, because another new file may cause the error
            (complaint,) = await self._verifier.complaints([new])
            refuse_complaint(new.wanted, complaint)
            self._verified.add(own)

    async def _verify_together(self, new: Sequence[NewUnitFile]) -> None:
        try:
            complaints = await self._verifier.complaints(new)
        except CommandError:
            return  # each file is verified separately later
        self._verified |= {
            (one.wanted.path, _digest(one.content))
            for one, complaint in zip(new, complaints, strict=True)
            if not complaint
        }

    async def _has_changed(self, wanted: SystemdUnitProperties) -> None:
        self._changed[wanted.path] = wanted
        if wanted.health_checks:
            await self.finish()  # health checks run before the next resource, so the reload cannot wait

    async def _systemctl(self, *argv: str, limit_s: float = LOOK_LIMIT_S) -> Completed:
        return await self._runner.run(
            Command(
                argv=("systemctl", *argv),
                search_path=SEARCH_PATH,
                time_limit_s=limit_s,
                output_limit_bytes=OUTPUT_BYTES,
            )
        )


def _is_as_desired(wanted: SystemdUnitProperties, state: SystemdUnitState) -> bool:
    if wanted.ensure == ABSENT:
        return state.kind == "absent"
    return state.kind == "file" and bool(state.checksum) and state.checksum == state.desired_checksum


def _refuse_failure(done: Completed, what: str) -> None:
    said = done.stderr.decode(errors="replace").strip()[-SAID_BYTES:]
    if done.timed_out:
        raise CommandError(f"{what}: systemctl did not end in time and was killed", output=said)
    if done.code:
        raise CommandError(f"{what}: {said or f'exit status {done.code}'}", output=said)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
