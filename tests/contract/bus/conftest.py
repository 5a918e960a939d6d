"""Brokers for the contract of the bus ports: the fake, and a server with the project's streams."""

from __future__ import annotations

import pytest

from tests.support.nats_server import FakeBroker, real_broker


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.nats)])
async def broker(request, tmp_path):
    """A broker with everything on it that `ccmctl init` makes."""
    if request.param == "memory":
        yield FakeBroker()
        return
    async with real_broker(tmp_path) as broker:
        yield broker
