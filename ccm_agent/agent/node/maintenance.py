"""
A node that an operator disabled: until when, by whom, and why. It converges on nothing; its health checks go on.

It stands in one small file of the state folder, so it can be said while the agent is off, and outlives it. It ends by itself, by
the wall clock. A file that cannot be read disables too: what somebody wanted stopped must not begin because of a bad disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ccm_agent.agent.events.journal import sync_folder
from ccm_agent.agent.requests.request_handler import Refusal
from ccm_agent.model.errors import FileError
from ccm_agent.model.ports import Clock
from ccm_agent.model.untrusted_json import decode_foreign
from ccm_agent.model.wire import Disabled

log = logging.getLogger(__name__)

FILE = "disabled.json"
"""In the state folder."""

CODE = "agent.disabled"
"""Code of what is refused because of it."""

CHANGING = ("apply", "ensure")
"""Actions that a disabled node does not begin; to plan and to check changes nothing."""

_BEFORE = datetime.fromtimestamp(0, UTC)

LOOK_S = 5.0
"""Whoever disables a node tells its agent; where that fails, the file is looked at this often."""


class Maintenance:
    """Whether one agent is disabled, as of now."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        """
        Nothing is read yet.

        Args:
            folder: The agent's state folder.
            clock: What time it is.
        """
        self._folder = folder
        self._clock = clock
        self._found: Disabled | None = None
        self._told: Disabled | None = None
        self._hooks: list[Callable[[Disabled | None], None]] = []
        self._wake = asyncio.Event()

    @property
    def current(self) -> Disabled | None:
        """Until when and why; None when the node is not disabled, or not any more."""
        found = self._found
        is_over = found is not None and found.until is not None and found.until <= self._clock.now()
        return None if is_over else found

    def is_disabled(self) -> bool:
        """The node converges on nothing now."""
        return self.current is not None

    def refusal(self, action: str) -> Refusal | None:
        """Why an action is not begun now; None when it may be."""
        current = self.current
        return Refusal(CODE, current.sentence) if current and action in CHANGING else None

    def on_change(self, hook: Callable[[Disabled | None], None]) -> None:
        """Call a function whenever the node was disabled, enabled, or disabled for another reason; it only queues."""
        self._hooks.append(hook)

    def open(self) -> None:
        """Read the file. Blocking; nobody is told."""
        self._found = read_disabled(self._folder)

    def look(self) -> None:
        """The file may be another one now."""
        self._wake.set()

    async def run(self) -> None:
        """Know of each change, for ever."""
        self._tell()
        while True:
            await self._wait()
            await self.look_now()

    async def look_now(self) -> None:
        """Read the file, and tell whoever wants to know; it is known when this returns."""
        self._found = await asyncio.to_thread(read_disabled, self._folder)
        self._tell()

    async def _wait(self) -> None:
        current = self.current
        rest_s = LOOK_S
        if current is not None and current.until is not None:
            rest_s = min(rest_s, max((current.until - self._clock.now()).total_seconds(), 0.0))
        try:
            async with asyncio.timeout(rest_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _tell(self) -> None:
        now, self._told, was = self.current, self.current, self._told
        if now == was:
            return
        if now is not None:
            log.warning("the node is disabled", extra={"why": now.why, "by": now.by, "until": now.until})
        else:
            log.warning("the node is enabled again")
        for hook in self._hooks:
            hook(now)


def read_disabled(folder: Path) -> Disabled | None:
    """What stands on disk, be it over or not; None when nothing does. Blocking."""
    path = folder / FILE
    try:
        found = decode_foreign(path.read_bytes(), Disabled)
        if found.until is None or found.until.tzinfo is not None:
            return found
        why = "`until` has no time zone"
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as err:
        why = str(err)
    # no moment of reading: what stays as it is must not look like another reason each time
    return Disabled(since=_BEFORE, why=f"{path} cannot be read: {why}; `ccm agent enable` removes it")


def disable(folder: Path, disabled: Disabled) -> None:
    """
    Disable the agent of a state folder, whether it runs or not; a running one has to be told. Blocking.

    Raises:
        FileError: We may not write there, or the disk is full.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: there is no such state folder; has the agent been installed and started?")
    try:
        _replace(folder, msgspec.json.encode(disabled))
    except OSError as err:
        raise FileError(f"{folder / FILE}: cannot write: {err.strerror}; are you root?") from err


def enable(folder: Path) -> bool:
    """
    Enable it again; whether there was anything to end. Blocking.

    Raises:
        FileError: We may not write there.
    """
    try:
        (folder / FILE).unlink()
    except FileNotFoundError:
        return False
    except OSError as err:
        raise FileError(f"{folder / FILE}: cannot remove: {err.strerror}; are you root?") from err
    return True


def _replace(folder: Path, content: bytes) -> None:
    """
    Put the file there, whole or not at all, for the owner of the folder.

    Root may say it where the agent is another user, who must be able to read it, and who must not be given anything else: so it
    is a new file, whatever stood in its way, and changes hands while it is open.
    """
    owner, fresh = folder.stat(), folder / f"{FILE}.new"
    fresh.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
        if owner.st_uid != os.geteuid():
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
        file.write(content)
        file.flush()
        os.fdatasync(file.fileno())
    fresh.replace(folder / FILE)
    sync_folder(folder)
