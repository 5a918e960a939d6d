"""The documents that an assignment follows: a changed one starts a run, and a replayed poke starts none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ccm_agent.agent.desired.watcher import DocumentWatcher
from ccm_agent.model.ports import KeyValueEntry

URL = "kv://CCM_DATA/common"


class Bucket:
    """One key, how often it was read, and whom to poke."""

    def __init__(self) -> None:
        self.revision = 5
        self.reads = 0
        self.poke: Callable[[str, int], None] = lambda key, revision: None

    async def get(self, key: str) -> KeyValueEntry:
        self.reads += 1
        return KeyValueEntry(
            key=key, value=b"x", revision=self.revision, created=datetime(2026, 1, 1, tzinfo=UTC)
        )

    async def watch_changes(
        self, _key: str, on_poke: Callable[[str, int], None]
    ) -> Callable[[], Awaitable[None]]:
        self.poke = on_poke
        return self._stop

    async def _stop(self) -> None:
        return None


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
async def following(bucket: Bucket) -> DocumentWatcher:
    """It has read revision 5."""
    made: Any = DocumentWatcher(lambda _name: bucket, lambda: None)  # type: ignore[arg-type,return-value]
    made.record_revisions({URL: 5})
    await made.follow([URL])
    bucket.reads = 0
    return made


async def test_a_newer_revision_is_news_without_a_read(bucket: Bucket, following: DocumentWatcher) -> None:
    bucket.poke("common", 6)

    assert await following.is_behind()
    assert bucket.reads == 0


async def test_replayed_notice_costs_one_read_and_changes_nothing(
    bucket: Bucket, following: DocumentWatcher
) -> None:
    for revision in (1, 2, 3, 4, 5):
        bucket.poke("common", revision)

    assert not await following.is_behind()
    assert bucket.reads == 1


async def test_a_lower_revision_of_a_bucket_that_was_made_again_is_news(
    bucket: Bucket, following: DocumentWatcher
) -> None:
    bucket.revision = 1
    bucket.poke("common", 1)

    assert await following.is_behind()
