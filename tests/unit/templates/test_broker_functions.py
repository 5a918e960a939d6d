"""What templates ask the broker, and from where."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.model.errors import BusUnavailableError, ExpressionError
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.templates.broker_functions import BrokerFunctions


class Broker:
    """Knows one key, and no registrations."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    async def registrations(self, *_query: str) -> list[RegistrationEntry]:
        if self.error is not None:
            raise self.error
        return []

    async def kv_get(self, _bucket: str, key: str) -> bytes | None:
        return b"one \xff" if key == "there" else None


async def test_a_thread_is_answered_from_the_loop() -> None:
    asking = BrokerFunctions(asyncio.get_running_loop(), Broker)

    assert await asyncio.to_thread(asking.registrations, "*", "*", "*", "*") == []
    assert await asyncio.to_thread(asking.kv_get, "B", "there") == "one \udcff"


async def test_the_broker_client_is_created_once_and_on_demand() -> None:
    made: list[Broker] = []

    def make() -> Broker:
        made.append(Broker())
        return made[-1]

    asking = BrokerFunctions(asyncio.get_running_loop(), make)
    before = len(made)
    for _ in range(2):
        await asyncio.to_thread(asking.kv_get, "B", "there")

    assert (before, len(made)) == (0, 1)


async def test_on_the_loop_itself_it_is_refused_for_it_would_wait_forever() -> None:
    asking = BrokerFunctions(asyncio.get_running_loop(), Broker)

    with pytest.raises(ExpressionError, match="cannot be used here"):
        asking.registrations("*", "*", "*", "*")


async def test_without_a_loop_it_is_refused() -> None:
    with pytest.raises(ExpressionError, match="cannot be used here"):
        await asyncio.to_thread(BrokerFunctions(None, Broker).kv_get, "B", "there")


async def test_a_key_that_is_missing_is_an_error() -> None:
    asking = BrokerFunctions(asyncio.get_running_loop(), Broker)

    with pytest.raises(ExpressionError, match="no key gone in the bucket B"):
        await asyncio.to_thread(asking.kv_get, "B", "gone")


async def test_an_error_of_the_broker_is_behind_that_of_the_expression() -> None:
    reason = BusUnavailableError("no broker answers")
    asking = BrokerFunctions(asyncio.get_running_loop(), lambda: Broker(reason))

    with pytest.raises(ExpressionError, match=r"registrations\(\): no broker answers") as caught:
        await asyncio.to_thread(asking.registrations, "*", "*", "*", "*")

    assert caught.value.__cause__ is reason
