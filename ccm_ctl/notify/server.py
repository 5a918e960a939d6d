"""
Delivery of notifications: scans the fleet, matches rules, and retries until each notification is delivered.

A notification is stored on disk before the cursor moves, and removed after delivery. If the process is killed, no notification
is lost. At worst, a notification is delivered twice with the same ID.
"""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import CcmError, ExpressionError, UsageError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.ids import new_id
from ccm_ctl.fleet.runs.open_runs import close_due
from ccm_ctl.fleet.whole_file import write_whole
from ccm_ctl.notify.channels import DeliveryError, Notification, deliver
from ccm_ctl.notify.happenings import Cursor, FleetObserver
from ccm_ctl.notify.messages import default_message, format_message, list_names
from ccm_ctl.notify.rules import compile_condition, read_rules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from ccm_agent.templates.expr.program import Program
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.notify.happenings import Happening, Observation
    from ccm_ctl.notify.rules import NotificationRule

LOOK_S = 10.0
"""The interval between two scans of the fleet, in seconds."""

NODES_EACH = 6
"""The number of scans after which every node is compared with its assignments. This reads a record of each node."""

CLOSES_EACH = 3
"""The number of scans after which open records of ended runs are closed. This is for runs that no command watches."""

HAPPENINGS_KEPT = 100
"""The maximum number of happenings in a notification. `count` is their total number."""

HAPPENINGS_BYTES = 32 * 1024
"""The maximum size of these happenings as JSON. Nodes write their texts, and a state file with a full queue must be readable."""

QUEUE_LIMIT = 1000
"""The maximum number of notifications that wait for delivery. If there are more, the oldest are dropped."""

RETRY_S = (5.0, 15.0, 60.0, 300.0, 900.0)
"""The waiting times before the next attempts, in seconds. The last value repeats."""

GIVE_UP_ATTEMPTS = 100
"""The number of attempts after which a notification is dropped. They take about a day."""

BLOCKING_ATTEMPTS = 10

STATE_LIMIT_BYTES = 64 << 20


class NotifyState(Struct, kw_only=True, omit_defaults=True):
    """
    The state that is stored on disk.

    Attributes:
        cursor: The position where the last scan ended.
        queue: Notifications to be delivered, oldest first.
        reported: For each rule, the stale nodes that were reported and are still behind.
    """

    cursor: Cursor
    queue: list[Notification] = []
    reported: dict[str, list[str]] = {}


class NotificationServer:
    """
    Matches the happenings in the fleet with rules, and delivers notifications.

    Args:
        fleet: The fleet.
        rules: Checked rules, by name.
        path: The state file. Only one server may use it.
        tell: Prints a line for the operator.
        send: Delivers a notification. Tests pass another function.
    """

    def __init__(
        self,
        fleet: Fleet,
        rules: Mapping[str, NotificationRule],
        path: Path,
        tell: Callable[[str], None],
        send: Callable[[NotificationRule, Notification], Awaitable[None]] = deliver,
    ) -> None:
        self._fleet = fleet
        self._rules: Mapping[str, NotificationRule] = {}
        self._conditions: dict[str, Program] = {}
        self._path = path
        self._tell = tell
        self._send = send
        self._state = NotifyState(cursor=Cursor())
        self._uses_stale = False
        self._refused: set[str] = set()
        self.set_rules(rules)
        self._lock_fd: int | None = None
        self._changing = asyncio.Lock()

    async def open(self) -> None:
        """
        Read the state of the previous server, and lock it so that other servers on this host cannot use it.

        Raises:
            UsageError: Another server uses the state file, or the file cannot be read or is not valid.
        """
        await asyncio.to_thread(self._lock)
        try:
            body = await asyncio.to_thread(self._read)
            self._state = msgspec.json.decode(body, type=NotifyState)
        except FileNotFoundError:
            return
        except OSError as err:
            raise UsageError(f"{self._path}: cannot be read: {err.strerror}") from err
        except (msgspec.MsgspecError, UnicodeDecodeError) as err:
            raise UsageError(f"{self._path}: not a state file: {err}; remove it to start from now") from err

    def set_rules(self, rules: Mapping[str, NotificationRule]) -> None:
        """Use these rules from the next scan on. They must already be checked."""
        self._conditions = {name: compile_condition(rule.on) for name, rule in rules.items()}
        self._rules = rules
        self._uses_stale = any("stale" in rule.on for rule in rules.values())
        self._refused.clear()

    async def serve(self, rules_path: Path) -> None:
        """Scan and deliver until cancelled. The rules are read again whenever their file changes."""
        problem = ""
        for turn in itertools.count():
            try:
                rules = await asyncio.to_thread(read_rules, rules_path)
                if rules != self._rules:
                    self.set_rules(rules)
                if turn % CLOSES_EACH == 0:
                    await close_due(self._fleet)
                if rules or self._state.cursor.started:
                    await self.look(reads_nodes=self._uses_stale and turn % NODES_EACH == 0)
                await self.deliver_due()
                problem = ""
            except CcmError as err:
                if str(err) != problem:
                    problem = str(err)
                    self._tell(f"notifications: {err}")
            await asyncio.sleep(LOOK_S)

    async def look(self, *, reads_nodes: bool = True) -> None:
        """
        Scan the fleet once, and queue a notification for each rule that matches.

        Raises:
            BusError: The broker is unavailable. The next scan reads the missed happenings.
            InputError: The state cannot be written. Nothing is lost, and the next scan tries again.
        """
        cursor = msgspec.json.decode(msgspec.json.encode(self._state.cursor), type=Cursor)
        observer = FleetObserver(self._fleet, cursor)
        found = await observer.look(reads_nodes=reads_nodes)
        async with self._changing:
            await self._take(found, cursor)
        if found.unproven:
            self._tell(
                f"notifications: left out events that are not signed by their node: {list_names(sorted(found.unproven))}; "
                "see `ccmctl events --verify`"
            )

    async def _take(self, found: Observation, cursor: Cursor) -> None:
        queue, reported = list(self._state.queue), {}
        for name, rule in self._rules.items():
            stale, reported[name] = self._stale(name, rule, found)
            matching = [one for one in [*found.happenings, *stale] if self._matches(name, one)]
            if matching:
                queue.append(self._notification(name, rule, matching))
        dropped = len(queue) - QUEUE_LIMIT
        if dropped > 0:
            self._tell(f"notifications: {dropped} dropped: more than {QUEUE_LIMIT} wait for delivery")
            queue = queue[dropped:]
        await self._write(NotifyState(cursor=cursor, queue=queue, reported=reported))

    async def deliver_due(self) -> None:
        """
        Try to deliver each due notification once.

        Later notifications of a rule wait for an earlier one, so that messages arrive in order. A notification that has failed
        BLOCKING_ATTEMPTS times no longer blocks later ones. Rules do not wait for each other.
        """
        queues: dict[str, list[Notification]] = {}
        for one in self._state.queue:
            queues.setdefault(one.rule, []).append(one)
        await asyncio.gather(*(self._deliver_rule(name, queue) for name, queue in queues.items()))

    async def _deliver_rule(self, name: str, queue: Sequence[Notification]) -> None:
        now, rule = self._fleet.clock.now().timestamp(), self._rules.get(name)
        for one in queue:
            if rule is None:
                self._tell(f"notification {one.id} dropped: the rule {name} was removed")
                await self._settle(one, None)
                continue
            is_delivered = False
            if one.not_before <= now:
                try:
                    await self._send(rule, one)
                except DeliveryError as err:
                    await self._postpone(one, str(err), now)
                else:
                    is_delivered = True
                    await self._settle(one, None)
            if not is_delivered and one.attempts < BLOCKING_ATTEMPTS:
                return

    def _matches(self, name: str, happening: Happening) -> bool:
        try:
            return self._conditions[name].run(happening.variables(), {}) is True
        except ExpressionError as err:
            if name not in self._refused:
                self._refused.add(name)
                self._tell(f"rule {name}: the condition fails: {err}")
            return False

    def _stale(
        self, name: str, rule: NotificationRule, found: Observation
    ) -> tuple[list[Happening], list[str]]:
        """Return the nodes that have newly become stale for a rule, and the keys of all stale nodes."""
        if found.behind is None:
            return [], self._state.reported.get(name, [])
        now, after = self._fleet.clock.now(), timedelta(seconds=rule.after_s)
        old = [one.happening for one in found.behind if now - one.since >= after]
        known = set(self._state.reported.get(name, ()))
        return [one for one in old if one.key not in known], [one.key for one in old]

    def _notification(self, name: str, rule: NotificationRule, found: Sequence[Happening]) -> Notification:
        try:
            message = format_message(rule.template, found)
        except UsageError as err:
            # the happenings must be reported even if the template fails
            message = f"{default_message(found)}\n({err})"
        return Notification(
            id=new_id(),
            rule=name,
            message=message,
            time=self._fleet.clock.now().isoformat(),
            count=len(found),
            happenings=_kept(found),
        )

    async def _postpone(self, one: Notification, reason: str, now: float) -> None:
        attempts = one.attempts + 1
        if attempts >= GIVE_UP_ATTEMPTS:
            self._tell(f"notification {one.id} dropped after {attempts} attempts: {reason}")
            await self._settle(one, None)
            return
        wait = RETRY_S[min(attempts, len(RETRY_S)) - 1]
        self._tell(
            f"notification {one.id} was not delivered; next attempt in {format_duration(wait)}: {reason}"
        )
        await self._settle(one, msgspec.structs.replace(one, attempts=attempts, not_before=now + wait))

    async def _settle(self, one: Notification, instead: Notification | None) -> None:
        async with self._changing:
            queue = [instead if other.id == one.id else other for other in self._state.queue]
            kept = [other for other in queue if other is not None]
            state = msgspec.structs.replace(self._state, queue=kept)
            try:
                await self._write(state)
            except CcmError:
                # keep the state even if the disk is full, to prevent repeated deliveries; the next write also stores it
                self._state = state
                raise

    def close(self) -> None:
        """Release the state file, so that another server can use it."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _read(self) -> bytes:
        with self._path.open("rb") as file:
            return file.read(STATE_LIMIT_BYTES)

    def _lock(self) -> None:
        """Lock the state file until `close` or the end of this process."""
        path = self._path.with_name(f".{self._path.name}.lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as err:
            raise UsageError(f"{path}: cannot be opened: {err.strerror}") from err
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise UsageError(f"{self._path}: another server delivers notifications from this file") from None
        self._lock_fd = fd

    async def _write(self, state: NotifyState) -> None:
        """Write the state to disk atomically. Only after that, use it as the current state."""
        await asyncio.to_thread(write_whole, self._path, msgspec.json.encode(state))
        self._state = state


def _kept(found: Sequence[Happening]) -> list[dict[str, Any]]:
    """Return the first happenings as JSON values, up to the limits of a notification."""
    kept: list[dict[str, Any]] = []
    size_bytes = 0
    for one in found[:HAPPENINGS_KEPT]:
        values = one.variables()
        size_bytes += len(msgspec.json.encode(values))
        if size_bytes > HAPPENINGS_BYTES and kept:
            break
        kept.append(values)
    return kept
