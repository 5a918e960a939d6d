"""The network that tests make up."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import HttpRequest, HttpResponse
from ccm_agent.testing.network import FakeNetwork


async def test_the_runner_gives_scripted_answers_and_records_commands() -> None:
    network = FakeNetwork()
    network.answers["http://a/"] = HttpResponse(status=204)
    network.listening.add("tcp://db:5432")
    network.names["a"] = ["10.0.0.2", "10.0.0.1"]

    assert await network.ask(HttpRequest(url="http://a/")) == HttpResponse(status=204)
    assert await network.reach("tcp", "db", 5432) == ""
    assert await network.resolve("a") == ["10.0.0.1", "10.0.0.2"]
    assert network.asked == [HttpRequest(url="http://a/")]


async def test_an_unscripted_program_is_missing() -> None:
    network = FakeNetwork()

    with pytest.raises(DownloadError) as caught:
        await network.ask(HttpRequest(url="http://b/"))

    assert str(caught.value) == "http://b/: connection refused"
    assert await network.reach("tcp", "db", 1) == "connection refused"
    assert await network.resolve("b") == []


async def test_a_server_can_stay_silent() -> None:
    network = FakeNetwork()
    network.answers["http://a/"] = None

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await network.ask(HttpRequest(url="http://a/"))
