"""The subjects of a stream, which the broker lists in pages."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from ccm_agent.bus import site_streams


async def test_the_list_of_subjects_ends_if_one_is_added_between_two_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subjects = ["b", "c", "d"]

    async def answer(_connection: object, _subject: str, question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        page = subjects[question["offset"] :][:2]
        found = {"state": {"subjects": dict.fromkeys(page, 1)}, "total": len(subjects)}
        if "a" not in subjects:
            subjects.insert(0, "a")
        return found

    monkeypatch.setattr(site_streams, "call", answer)

    async with asyncio.timeout(5):
        assert set(await site_streams._counts(Mock(), "KV_CCM_DATA")) == {"b", "c", "d"}
