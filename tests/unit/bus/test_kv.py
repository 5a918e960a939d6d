"""A bucket whose keys do not fit into one answer of the broker."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ccm_agent.bus import kv
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import Message
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.model.errors import BusUnavailableError

AT_ONCE = 5


class Broker:
    """Lists AT_ONCE subjects at once, in their order; the first `removed` ones are gone after the first answer."""

    def __init__(self, keys: list[str], removed: int) -> None:
        self.keys = keys
        self._removed = removed

    async def request(self, subject: str, body: bytes, **_options: Any) -> Message:
        offset = json.loads(body)["offset"]
        listed = self.keys[offset : offset + AT_ONCE]
        answer = {
            "created": "2026-01-01T00:00:00Z",
            "config": {"max_msgs_per_subject": 1},
            "state": {"last_seq": 20, "subjects": {f"$KV.CCM_NODES.{key}": 1 for key in listed}},
            "total": len(self.keys),
        }
        self.keys, self._removed = self.keys[self._removed :], 0
        return Message(subject=subject, body=json.dumps(answer).encode(), headers={}, reply="")


@pytest.fixture(autouse=True)
def listed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv, "LISTED_TWICE", 2)


@pytest.mark.parametrize("removed", [0, 1])
@pytest.mark.parametrize("count", [1, 5, 6, 9, 17])
async def test_all_keys_are_listed_though_earlier_ones_are_removed_meanwhile(
    count: int, removed: int
) -> None:
    broker = Broker([f"node.web{number:02}" for number in range(count)], removed)

    found = await NatsKeyValue(cast("Connection", broker), "CCM_NODES").list_keys("node.>")

    assert set(broker.keys) <= found.keys


async def test_where_keys_may_have_been_passed_over_there_is_no_list() -> None:
    broker = Broker([f"node.web{number:02}" for number in range(17)], removed=3)

    with pytest.raises(BusUnavailableError):
        await NatsKeyValue(cast("Connection", broker), "CCM_NODES").list_keys("node.>")
