"""Requests that have come and wait to be looked at: one after the other, in order of arrival."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.limited_log import LimitedLog
from ccm_agent.model.ports import IncomingRequest

log = logging.getLogger(__name__)

INBOX_LIMIT = 1000
"""So many requests may wait to be looked at; the controller sends what was dropped again."""


class RequestQueue:
    """The requests of one agent that nobody has looked at; the oldest are dropped when there are too many."""

    def __init__(self) -> None:
        self._waiting: deque[IncomingRequest] = deque(maxlen=INBOX_LIMIT)
        self._has_mail = asyncio.Event()
        self._is_closed = False
        self._limited = LimitedLog(log)

    @property
    def is_empty(self) -> bool:
        """All that came is handled, or in hand."""
        return not self._waiting

    def put(self, incoming: IncomingRequest) -> None:
        """A request has come."""
        if self._is_closed:
            # it comes again in a second, when the next process may be up; a refusal would stand for good
            return
        self._waiting.append(incoming)
        self._has_mail.set()

    def close(self) -> None:
        """Take no more; what waits already is handled."""
        self._is_closed = True

    async def run(
        self,
        handle: Callable[[IncomingRequest], Awaitable[None]],
        on_refused: Callable[[str, str], None],
        on_handled: Callable[[IncomingRequest], None],
    ) -> None:
        """
        Look at what comes, for ever.

        Args:
            handle: Does with a request what is to be done; ProtocolError when it breaks the protocol's rules.
            on_refused: Told the subject of a request that broke them, and how.
            on_handled: Told of each request afterwards, whatever became of it.
        """
        while True:
            await self._has_mail.wait()
            self._has_mail.clear()
            while self._waiting:
                incoming = self._waiting.popleft()
                try:
                    await self._handle(incoming, handle, on_refused, on_handled)
                except Exception:  # noqa: BLE001 - one request must not end the agent
                    self._limited.exception(
                        "a request could not be handled", extra={"subject": incoming.subject}
                    )

    async def _handle(
        self,
        incoming: IncomingRequest,
        handle: Callable[[IncomingRequest], Awaitable[None]],
        on_refused: Callable[[str, str], None],
        on_handled: Callable[[IncomingRequest], None],
    ) -> None:
        try:
            await handle(incoming)
        except ProtocolError as err:
            self._limited.warning(
                "a request is refused", extra={"subject": incoming.subject, "error": str(err)}
            )
            on_refused(incoming.subject, str(err))
        finally:
            on_handled(incoming)
