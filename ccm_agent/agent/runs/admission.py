"""
Decide whether this node may start a run: an operator may have disabled the node, and its policy may forbid the run.

A disabled node applies nothing, but its health checks continue. The state is one small file in the state folder, so it can
be set while the agent is off. It expires by the wall clock. A file that cannot be read also disables the node: work that an
operator stopped must not start because of a bad disk.

The policy is read at startup and on SIGHUP, and only from a file that only root and the agent's user can write. If the
policy cannot be used, the node refuses all requests from the bus. The previous policy does not stay in force, because an
administrator who has just tightened it would expect the new one to apply.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.agent.state.presence import NodePresence
from ccm_agent.model.errors import CcmError, FileError, Refusal
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import Clock
from ccm_agent.model.records.maintenance import LOCKS_LIMIT, ResourceLock
from ccm_agent.model.records.policy import CHANGING_ACTIONS, LOOK_ACTIONS, Principal
from ccm_agent.model.wire import Disabled
from ccm_agent.policy.document import Policy, parse_policy
from ccm_agent.policy.ruling import Ruling, refuse_all, rule_on
from ccm_agent.storage.journal import replace_file, sync_folder

log = logging.getLogger(__name__)

FILE = "disabled.json"
"""The file that disables the node, in the state folder."""

CODE = "agent.disabled"
"""The error code of requests that are refused because the node is disabled."""

_BEFORE = datetime.fromtimestamp(0, UTC)

LOOK_S = 5.0
"""The file is read this often, in case the command that disables the node cannot notify the agent."""


class Maintenance:
    """
    Whether one agent is currently disabled.

    Attributes:
        enabled_by, enabled_why: The operator who enabled the node over the bus, and the reason. Set only while the hooks are
            called; "" otherwise.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        """
        Args:
            folder: The agent's state folder.
            clock: Returns the current time.
        """
        self._folder = folder
        self._clock = clock
        self.enabled_by = self.enabled_why = ""
        self._found: Disabled | None = None
        self._reported: Disabled | None = None
        self._hooks: list[Callable[[Disabled | None], None]] = []
        self._wake = asyncio.Event()

    @property
    def current(self) -> Disabled | None:
        """Return the end and the reason of the disabled state; None if the node is not disabled."""
        found = self._found
        is_over = found is not None and found.until is not None and found.until <= self._clock.now()
        return None if is_over else found

    def is_disabled(self) -> bool:
        """Whether the node is currently disabled and does not converge."""
        return self.current is not None

    def refusal(self, action: str) -> Refusal | None:
        """Return why a run of this action cannot start now; None if it can."""
        current = self.current
        return Refusal(CODE, current.sentence) if current and action in CHANGING_ACTIONS else None

    def on_change(self, hook: Callable[[Disabled | None], None]) -> None:
        """Register a function to call when the node is disabled or enabled, or when the reason changes."""
        self._hooks.append(hook)

    def open(self) -> None:
        """Read the file without calling hooks. Blocking."""
        self._found = read_disabled(self._folder)

    def request_read(self) -> None:
        """Request that the file is read again, because it may have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Read the file and call the hooks at each change, until cancelled."""
        self._report()
        while True:
            await self._wait()
            await self.read_now()

    async def read_now(self) -> None:
        """Read the file now, and call the hooks if it has changed. The new state is in effect on return."""
        self._found = await asyncio.to_thread(read_disabled, self._folder)
        self._report()

    async def disable(self, disabled: Disabled) -> None:
        """
        Disable the node. The new state is in effect on return.

        Raises:
            FileError: The file cannot be written.
        """
        await asyncio.to_thread(disable, self._folder, disabled)
        await self.read_now()

    async def enable(self, by: str, why: str) -> bool:
        """
        Enable the node on behalf of an operator, and return whether it was disabled.

        Raises:
            FileError: The file cannot be written.
        """
        is_end = await asyncio.to_thread(enable, self._folder)
        self.enabled_by, self.enabled_why = by, why
        try:
            await self.read_now()
        finally:
            self.enabled_by = self.enabled_why = ""
        return is_end

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

    def _report(self) -> None:
        now, self._reported, was = self.current, self.current, self._reported
        if now == was:
            return
        if now is not None:
            log.warning("the node is disabled", extra={"why": now.why, "by": now.by, "until": now.until})
        else:
            log.warning("the node is enabled again")
        for hook in self._hooks:
            hook(now)


def read_disabled(folder: Path) -> Disabled | None:
    """Return the content of the file, even if it has expired; None if there is no file. Blocking."""
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
    # Do not use the time of reading: an unchanged state must not look like a new reason each time.
    return Disabled(since=_BEFORE, why=f"{path} cannot be read: {why}; `ccm agent enable` removes it")


def disable(folder: Path, disabled: Disabled) -> None:
    """
    Disable the agent of a state folder, running or not. The caller must notify a running agent. Blocking.

    Raises:
        FileError: The folder is not writable, or the disk is full.
    """
    if not folder.is_dir():
        raise FileError(f"{folder}: the state folder does not exist; install and start the agent first")
    try:
        _replace(folder, msgspec.json.encode(disabled))
    except OSError as err:
        raise FileError(f"{folder / FILE}: cannot write: {err.strerror}; run this as root") from err


def enable(folder: Path) -> bool:
    """
    Enable the agent of a state folder, and return whether it was disabled. Blocking.

    Raises:
        FileError: The folder is not writable.
    """
    try:
        (folder / FILE).unlink()
    except FileNotFoundError:
        return False
    except OSError as err:
        raise FileError(f"{folder / FILE}: cannot remove: {err.strerror}; run this as root") from err
    return True


def _replace(folder: Path, content: bytes) -> None:
    """
    Replace the file atomically, as the owner of the folder.

    Root may run this for an agent of another user. That user must be able to read the file, but must not become the owner of
    any other file. So this always creates a new file, and changes its owner while it is open.
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


LOCKS_FILE = "locks.json"
"""The file of locks, in the state folder."""


class ResourceLocks:
    """
    The resources that operators have locked on one node.

    A file that cannot be read locks every resource: work that an operator stopped must not start because of a bad disk.

    Args:
        folder: The agent's state folder.
        presence: Publishes the locks.
        clock: Returns the current time; a lock ends by the node's clock.
    """

    def __init__(self, folder: Path, presence: NodePresence, clock: Clock) -> None:
        self._path = folder / LOCKS_FILE
        self._presence = presence
        self._clock = clock
        self._locks: list[ResourceLock] = []
        self._trouble = ""

    def open(self) -> None:
        """Read the file. Blocking."""
        self._presence.record.resource_locks = True
        try:
            self._locks = decode_foreign(self._path.read_bytes(), list[ResourceLock])
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as err:
            self._trouble = f"all resources are locked: {self._path} cannot be read: {err}; unlock the node"
            log.error("locks cannot be read, so all resources are locked", extra={"reason": str(err)})
            return
        self._presence.record.locks = self.current

    @property
    def current(self) -> list[ResourceLock]:
        """Return the locks that have not ended."""
        now = self._clock.now()
        return [one for one in self._locks if one.until > now]

    def why(self, references: Collection[str]) -> str:
        """Return why a resource is skipped; "" if it is not locked."""
        if self._trouble or not self._locks:
            return self._trouble
        return next((one.sentence for one in self.current if one.resource in references), "")

    async def lock(self, locks: Collection[ResourceLock]) -> None:
        """
        Lock resources; a new lock replaces an existing lock of the same resource.

        Raises:
            Refusal: The node has too many locks, or its file cannot be read: a new file would unlock all other resources.
            FileError: The file cannot be written.
        """
        if self._trouble:
            raise Refusal("lock.unreadable", self._trouble)
        kept = {one.resource: one for one in (*self.current, *locks)}
        if len(kept) > LOCKS_LIMIT:
            raise Refusal("lock.many", f"too many locks: {len(kept)} of at most {LOCKS_LIMIT}; unlock some")
        await self._save(list(kept.values()))
        self._presence.request_heartbeat()

    async def release(self, resources: Collection[str]) -> list[str]:
        """
        Unlock the given resources, or all if none are given. Returns the resources that were locked.

        Raises:
            FileError: The file cannot be written.
        """
        released = [one.resource for one in self.current if not resources or one.resource in resources]
        if released or (self._trouble and not resources):
            await self._save([one for one in self.current if one.resource not in released])
        self._presence.request_heartbeat()
        return released

    async def _save(self, locks: list[ResourceLock]) -> None:
        try:
            await asyncio.to_thread(replace_file, self._path, [msgspec.json.encode(locks)])
        except OSError as err:
            raise FileError(f"{self._path}: cannot write: {err.strerror}; check the free disk space") from err
        self._locks, self._trouble = locks, ""
        self._presence.record.locks = locks


LIMIT_BYTES = 1 << 20
"""The maximum size of a policy file. Real policies are far smaller."""


def read_policy(path: Path, types: Collection[str], *, is_required: bool) -> Policy | None:
    """
    Read the policy from a file. Blocking.

    Args:
        path: The file.
        types: The existing resource types.
        is_required: Whether the file must exist, because the configuration names it.

    Returns:
        None if the file does not exist and is not required.

    Raises:
        FileError: The file cannot be read, or other users can write to it or to its folder.
        DocumentError: The file is not a valid policy. The error has the file, the line and the nearest valid key.
    """
    try:
        return parse_policy(_content(path), str(path), types)
    except FileNotFoundError as err:
        if not is_required:
            return None
        raise FileError(
            f"{path}: the file does not exist; create the policy, or remove `policy_file`"
        ) from err
    except OSError as err:
        raise FileError(f"{path}: cannot read the policy: {err.strerror or err}") from err


def _content(path: Path) -> bytes:
    # A FIFO in place of the file must not block the agent.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"{path}: is not a regular file")
        _refuse_shared(path, found)
        # A user who can replace the file can also change its content.
        folder = path.resolve().parent
        _refuse_shared(folder, folder.stat())
        content = file.read(LIMIT_BYTES + 1)
    if len(content) > LIMIT_BYTES:
        raise FileError(f"{path}: is larger than {LIMIT_BYTES} bytes")
    return content


def _refuse_shared(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()):
        raise FileError(
            f"{path}: user {found.st_uid} owns it and could change the policy; run `chown root {path}`"
        )
    is_sticky_folder = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_sticky_folder:
        raise FileError(
            f"{path}: other users can write to it (mode {stat.S_IMODE(found.st_mode):04o}) and could change the policy; "
            f"run `chmod go-w {path}`"
        )


class NodePolicy:
    """
    The policy of one node, which defines the permissions of requesters.

    Attributes:
        trouble: Why the policy cannot be used; "" if it is usable, or if there is no policy.
    """

    def __init__(self, types: Callable[[], Collection[str]], clock: Clock) -> None:
        """
        Args:
            types: Returns the existing resource types.
            clock: Returns the current time.
        """
        self.trouble = ""
        self._types = types
        self._clock = clock
        self._path = ""
        self._policy: Policy | None = None

    def load(self, path: str, *, is_required: bool) -> None:
        """
        Read the policy; `trouble` describes any error in it. Blocking.

        Args:
            path: Path of the policy file; "" if there is none.
            is_required: Whether the file must exist, because the configuration names it.
        """
        before, had_trouble = self._policy, bool(self.trouble)
        self._path = path
        try:
            policy = read_policy(Path(path), self._types(), is_required=is_required) if path else None
        except CcmError as err:
            self._policy, self.trouble = None, str(err)
            log.error(
                "the policy is invalid: all requests from the bus are refused",
                extra={"reason": str(err)},
            )
            return
        self._policy, self.trouble = policy, ""
        if policy is not None:
            log.info("the policy was loaded", extra={"path": path, "digest": policy.digest})
        elif before is not None or had_trouble:
            log.warning("the policy file is gone: the node has no policy", extra={"path": path})

    def report(self, presence: NodePresence, refused: Callable[[str, str], None]) -> None:
        """
        Report in the node's record whether there is a policy, and warn about an invalid policy.

        Args:
            presence: Publishes the record.
            refused: Publishes the event.
        """
        presence.record.policy = self._policy is not None
        presence.set_warning(
            "policy",
            f"its policy is invalid, so it refuses all requests from the bus: {self.trouble}"
            if self.trouble
            else "",
        )
        if self.trouble:
            refused("policy", self.trouble)

    def ruling(self, principal: Principal, action: str, mode: str) -> Ruling:
        """
        Return the policy's current decision.

        Args:
            principal: The requester.
            action: One of the actions in `model.records.policy`.
            mode: The kind of run: "apply", "ensure", "exec", "plan" or "check"; "" if the request does not start a run.
        """
        is_own = principal.is_local and not principal.is_from_broker
        if self.trouble and not is_own and action not in LOOK_ACTIONS:
            return refuse_all(
                f"the node's policy is invalid, so the node refuses all requests from the bus: {self.trouble}"
            )
        return rule_on(self._policy, principal, action, mode, self._clock.now())

    def refusal(self, principal: Principal, action: str, mode: str = "") -> Refusal | None:
        """Return why an action is refused now; None if it is allowed."""
        ruling = self.ruling(principal, action, mode)
        return None if ruling.is_allowed else Refusal(ruling.code, ruling.reason)

    def status(self) -> dict[str, Any] | None:
        """Return the policy's part of the agent's status; None without a policy."""
        if self.trouble:
            return {"path": self._path, "trouble": self.trouble}
        if self._policy is None:
            return None
        return {"path": self._path, "digest": self._policy.digest, "rules": len(self._policy.rules)}


class Admission:
    """
    Decides whether one agent may start runs.

    Attributes:
        maintenance: Whether the node is disabled.
        policy: The node's policy.
        locks: The locked resources, which no run changes.
    """

    def __init__(
        self, maintenance: Maintenance, policy: NodePolicy, locks: ResourceLocks, presence: NodePresence
    ) -> None:
        self.maintenance = maintenance
        self.policy = policy
        self.locks = locks
        self._presence = presence

    def refusal(self, action: str) -> Refusal | None:
        """Return why this node cannot start a run of this action now for any operator; None if it can."""
        if self._presence.is_duplicate:
            return Refusal("identity.duplicate", "another agent uses this identity; remove one of them")
        return self.maintenance.refusal(action)
