"""A subscription of a connection, which is restored after each reconnect."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any

from ccm_agent.bus.connection.client import BusClient
from ccm_agent.bus.connection.messages import Message
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.model.limited_log import LimitedLog

log = logging.getLogger(__name__)


class Subscription:
    """A subscription to a subject, which is restored after each reconnect until it is stopped."""

    def __init__(self, subject: str, on_message: Callable[[Message], None]) -> None:
        self.subject = subject
        self.denied: BusDeniedError | None = None
        self._on_message = on_message
        self._client: BusClient | None = None
        self._theirs: Any = None
        self._limited = LimitedLog(log)

    def is_attached(self, client: BusClient) -> bool:
        """Whether this connection has subscribed to the subject."""
        return self._client is client

    async def attach(self, client: BusClient) -> None:
        """Subscribe on a connection, unless this has already been done."""
        if self._client is client:
            return
        self._client = client
        self.denied = None
        self._theirs = await client.listen(self.subject, self._deliver)

    async def detach(self) -> None:
        """Unsubscribe at the broker, if connected."""
        theirs, self._theirs = self._theirs, None
        if theirs is not None and self._client is not None and not self._client.ended.is_set():
            with contextlib.suppress(Exception):
                await theirs.unsubscribe()

    def _deliver(self, message: Message) -> None:
        try:
            self._on_message(message)
        except Exception:  # noqa: BLE001 - a callback's fault must not end the subscription
            self._limited.exception("a message could not be handled", extra={"subject": message.subject})
