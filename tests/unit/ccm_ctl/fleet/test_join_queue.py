"""Which requests the join service answers first when more arrive than it can answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import Message
from ccm_ctl.fleet.keys import join_service
from ccm_ctl.fleet.keys.join_service import JoinService, serve_joins


class Broker:
    """A connection on which requests have arrived before the service is ready."""

    def __init__(self) -> None:
        self.answered: list[str] = []

    async def subscribe(self, subjects: list[str], take: Callable[[Message], None]) -> list[int]:
        del subjects
        for name in ("first", "second", "third"):
            take(Message(subject="request", body=name.encode(), reply=name))
        return []

    async def publish(self, subject: str, body: bytes, headers: Mapping[str, str]) -> None:
        del body, headers
        self.answered.append(subject)

    async def unsubscribe(self, subscriptions: list[int]) -> None:
        del subscriptions


class Answering:
    async def answer(
        self, subject: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[bytes, dict[str, str]]:
        del subject, headers
        return body, {}


async def answered() -> list[str]:
    """The requests that were answered when all have been taken from the queue."""
    broker = Broker()
    serving = serve_joins(cast(Connection, broker), cast(JoinService, Answering()), lambda: None)
    task = asyncio.create_task(serving)
    for _ in range(100):  # each request needs a few turns of the loop
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return broker.answered


async def test_newest_request_is_answered_first() -> None:
    assert await answered() == ["third", "second", "first"]


async def test_request_whose_node_has_asked_again_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_service, "ANSWER_S", -1.0)

    assert await answered() == []
