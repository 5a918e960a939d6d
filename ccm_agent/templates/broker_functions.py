"""
Broker lookups for expressions and templates, called from the rendering thread.

Evaluation is synchronous, but the broker client runs on an event loop. The call is scheduled on the loop, and
the thread waits for the result. A call from the loop's own thread would deadlock, so it is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from ccm_agent.model.errors import BusError, ExpressionError
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.templates.services import Services

Answer = TypeVar("Answer")


class BrokerClient(Protocol):
    """The part of the broker client that the functions use."""

    async def registrations(
        self, cluster: str, protocol: str, service: str, address: str
    ) -> list[RegistrationEntry]:
        """Return the matching entries. Raises BusError or DataError."""
        ...

    async def kv_get(self, bucket: str, key: str) -> bytes | None:
        """Return the value of a key, or None. Raises BusError or DataError."""
        ...


class BrokerFunctions:
    """
    The functions `registrations` and `kvGet` of one process.

    Args:
        loop: The event loop of the broker client; None without a loop.
        make_asked: Creates the broker client for the first lookup.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None, make_asked: Callable[[], BrokerClient]
    ) -> None:
        self._loop = loop
        self._make_asked = make_asked
        self._asked: BrokerClient | None = None

    def registrations(self, cluster: str, protocol: str, service: str, address: str) -> Services:
        """
        Return the registered services that match.

        Raises:
            ExpressionError: The services cannot be read; chained from the BusError or DataError, if there is one.
        """
        fits = (cluster, protocol, service, address)
        return Services(self._ask("registrations()", lambda asked: asked.registrations(*fits)))

    def kv_get(self, bucket: str, key: str) -> str:
        """
        Return the value of a key in a bucket; bytes that are not UTF-8 become surrogate escapes.

        Raises:
            ExpressionError: The key does not exist or cannot be read; chained from the BusError or DataError, if there is one.
        """
        value = self._ask("kvGet()", lambda asked: asked.kv_get(bucket, key))
        if value is None:
            raise ExpressionError(f"kvGet(): there is no key {key} in the bucket {bucket}")
        return value.decode("utf-8", "surrogateescape")

    def _ask(self, what: str, question: Callable[[BrokerClient], Coroutine[Any, Any, Answer]]) -> Answer:
        if self._loop is None or _is_here(self._loop):
            raise ExpressionError(
                f"{what} cannot be used here; use it in a property or template of a resource"
            )
        try:
            return asyncio.run_coroutine_threadsafe(self._answer(question), self._loop).result()
        except BusError as err:
            raise ExpressionError(f"{what}: {err.message}") from err

    async def _answer(self, question: Callable[[BrokerClient], Coroutine[Any, Any, Answer]]) -> Answer:
        if self._asked is None:
            self._asked = self._make_asked()
        return await question(self._asked)


def _is_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
