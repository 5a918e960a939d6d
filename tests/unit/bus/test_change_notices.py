"""Pokes: genuine ones arrive at once, and repeated ones cost a read now and then."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.bus import change_notices
from ccm_agent.bus.change_notices import PAUSE_S, NoticeLimit, notice_revision


class Reader:
    """What is passed on, in the order in which it came."""

    def __init__(self) -> None:
        self.read: list[tuple[str, int]] = []
        self.limit = NoticeLimit(lambda key, revision: self.read.append((key, revision)))


def test_a_notice_names_the_message_that_its_stream_has_stored() -> None:
    headers = {"Nats-Stream": "KV_B", "Nats-Subject": "$KV.B.key", "Nats-Sequence": "7"}

    assert notice_revision(headers, "KV_B", "$KV.B.key") == 7
    assert notice_revision(headers, "KV_C", "$KV.B.key") == 0
    assert notice_revision(headers, "KV_B", "$KV.B.other") == 0
    assert notice_revision(headers | {"Nats-Sequence": "9" * 5000}, "KV_B", "$KV.B.key") == 0


async def test_each_new_revision_of_each_key_is_passed_on_at_once() -> None:
    reader = Reader()

    for revision in (1, 2, 7):
        reader.limit.receive("a", revision)
        reader.limit.receive("b", revision)

    assert reader.read == [(key, revision) for revision in (1, 2, 7) for key in "ab"]


async def test_a_flood_of_old_revisions_is_passed_on_once_in_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notices, "PAUSE_S", 0.05)
    reader = Reader()
    reader.limit.receive("a", 7)

    for number in range(1000):
        reader.limit.receive("a", number % 8)
    assert reader.read == [("a", 7)]

    async with asyncio.timeout(5):
        while len(reader.read) < 2:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)
    assert reader.read == [("a", 7), ("a", 0)]


async def test_a_new_revision_skips_the_pause_and_replaces_the_waiting_notice() -> None:
    reader = Reader()
    reader.limit.receive("a", 7)
    reader.limit.receive("a", 3)

    reader.limit.receive("a", 8)

    assert reader.read == [("a", 7), ("a", 8)]
    assert [one.waiting for one in reader.limit._keys.values()] == [None]


async def test_recreated_bucket_is_noticed_immediately_after_a_quiet_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Reader()
    reader.limit.receive("a", 7)
    loop = asyncio.get_running_loop()
    now_s = loop.time()
    monkeypatch.setattr(loop, "time", lambda: now_s + PAUSE_S + 1)

    reader.limit.receive("a", 1)

    assert reader.read == [("a", 7), ("a", 1)]


async def test_keys_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notices, "KEYS_LIMIT", 3)
    reader = Reader()

    for number in range(10):
        reader.limit.receive(str(number), 1)

    assert len(reader.limit._keys) == 3
    assert len(reader.read) == 10


async def test_nothing_is_passed_on_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_notices, "PAUSE_S", 0.01)
    reader = Reader()
    reader.limit.receive("a", 7)
    reader.limit.receive("a", 7)

    reader.limit.close()
    await asyncio.sleep(0.05)

    assert reader.read == [("a", 7)]
