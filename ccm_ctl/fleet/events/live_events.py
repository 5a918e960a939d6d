"""
Read the growing stream of events once for any number of listeners.

The stream is the record, and core delivery is only a hint (docs/contributing/delivery.md). A received message only triggers a
read that continues after the last sequence. Therefore no event is missed or repeated, even if the connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ccm_agent.bus.subjects import stored_patterns
from ccm_agent.model.errors import BusError, ProtocolError
from ccm_agent.model.wire import PROTOCOL
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.trust.authors import read_authors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ccm_agent.model.ports import StoredEvent
    from ccm_agent.model.records.verdicts import Verdict
    from ccm_ctl.fleet.events.messages import AgentMessage
    from ccm_ctl.fleet.ports import Fleet
    from ccm_ctl.fleet.trust.authors import Authors

log = logging.getLogger(__name__)

EVERYTHING = f"{PROTOCOL}.>"

BACKLOG = timedelta(hours=1)
"""Events stored earlier than this are not read when a reader starts."""

GATHER_S = 0.05
"""Seconds after the first hint during which further hints are collected before the stream is read."""

LOOK_AGAIN_S = 1.0
"""The maximum interval between reads of the stream. Hints may be lost, and a hanging broker does not send any."""

SILENT_S = 1.5
"""
A broker that has not answered for this time is considered unavailable. Reading continues. Together with LOOK_AGAIN_S, the state
is reported within 3 seconds.
"""

RETRY_S = 0.5


class LiveEvent(Struct, frozen=True, kw_only=True):
    """
    An event of the stream, decoded.

    Attributes:
        sequence: Its position in the stream.
        heard: Its node, run and content.
        verdict: The result of checking its own signature. None: these credentials cannot verify it.
    """

    sequence: int
    heard: AgentMessage
    verdict: Verdict | None = None


class LiveEvents:
    """
    Reads the stream, starting with the events of the last hour.

    Attributes:
        last: The newest sequence that was read. 0: no event was read yet.
        is_current: Whether the stream's recent content has been read. False while the broker is unavailable.
    """

    def __init__(
        self,
        fleet: Fleet,
        *,
        on_events: Callable[[list[LiveEvent]], None],
        on_restart: Callable[[], None],
        on_state: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """
        Store the parameters. Reading begins with `run`.

        Args:
            fleet: The bus.
            on_events: Called with events, in the order of the stream.
            on_restart: Called when the stream was created again. Earlier events no longer exist.
            on_state: Called with False when the broker becomes unavailable, and with True when the stream has been read again.
        """
        self.last = 0
        self.is_current = False
        self._fleet = fleet
        self._on_events = on_events
        self._on_restart = on_restart
        self._on_state = on_state
        self._since = fleet.clock.now() - BACKLOG
        self._authors: Authors | None = None
        self._woken = asyncio.Event()
        self._anchor: StoredEvent | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        stops: list[Callable[[], Awaitable[None]]] = []
        try:
            for pattern in stored_patterns():
                stops.append(await self._fleet.events.follow(pattern, self._hear))
            while True:
                await self._turn()
        finally:
            for stop in stops:
                await stop()

    def _hear(self, _message: StoredEvent) -> None:
        self._woken.set()

    async def _turn(self) -> None:
        self._woken.clear()
        silence = asyncio.get_running_loop().call_later(SILENT_S, lambda: self._say(is_current=False))
        try:
            if self._authors is None:
                self._authors = await read_authors(self._fleet)
            await self._read()
        except BusError as err:
            log.info("the stream of events cannot be read", extra={"reason": str(err)})
            self._say(is_current=False)
            await asyncio.sleep(RETRY_S)
            return
        finally:
            silence.cancel()
        self._say(is_current=self._fleet.link.connected)
        await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(LOOK_AGAIN_S if self.is_current else RETRY_S):
                await self._woken.wait()
        except TimeoutError:
            return
        await asyncio.sleep(GATHER_S)

    def _say(self, *, is_current: bool) -> None:
        if is_current is not self.is_current:
            self.is_current = is_current
            self._on_state(is_current)

    async def _read(self) -> None:
        """
        Continue reading from the last event, which is read again.

        If the stream no longer contains that event, it was recreated or its end was removed. Then everything is read again.
        """
        if self._anchor is not None:
            found = await self._fleet.events.read(EVERYTHING, self.last)
            if found[:1] == [self._anchor]:
                self._give(found[1:])
                return
            self.last, self._anchor = 0, None
            self._on_restart()
        self._give([one async for one in self._fleet.events.scan(EVERYTHING, self._since)])

    def _give(self, messages: list[StoredEvent]) -> None:
        if messages:
            self._anchor = messages[-1]
            self._on_events(self._decoded(messages))

    def _decoded(self, messages: list[StoredEvent]) -> list[LiveEvent]:
        """Return the messages that are events. Others are skipped, and not read again."""
        found = []
        for message in messages:
            self.last = max(self.last, message.sequence)
            try:
                heard = decode_agent_message(message)
            except ProtocolError:
                continue
            verdict = self._authors.judge(heard.node, message) if self._authors is not None else None
            found.append(LiveEvent(sequence=message.sequence, heard=heard, verdict=verdict))
        return found
