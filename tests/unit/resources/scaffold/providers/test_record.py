"""What a scaffold remembers, and that nothing of it depends on names being text."""

import pytest

from ccm_agent.resources.scaffold.providers.record import (
    KIND,
    FileResult,
    ScaffoldRecord,
    forget,
    keep,
    key_of,
    recall,
)
from ccm_agent.testing.records import FakeRecords


async def test_a_stored_record_is_recalled() -> None:
    records = FakeRecords()
    record = ScaffoldRecord(
        name="/out/grün/caf\udce9",
        made={
            "a": FileResult(files={"a": ""}),
            "é": FileResult(key="k", files={"é": "d", "é.gz": "d"}, failed=True),
            "caf\udce9": FileResult(files={"caf\udce9": ""}),
        },
    )

    await keep(records, record)

    assert await recall(records, record.name) == record


async def test_an_empty_record_differs_from_a_missing_one() -> None:
    records = FakeRecords()

    await keep(records, ScaffoldRecord(name="/out"))
    kept = await recall(records, "/out")
    await forget(records, "/out")

    assert (kept, await recall(records, "/out")) == (ScaffoldRecord(name="/out"), None)


async def test_an_unreadable_record_counts_as_missing() -> None:
    records = FakeRecords()

    for document in (b"", b"{", b"[]", b'{"made": 1}', b'{"name": "\xff"}', '{"name": "☺"}'.encode()):
        await records.keep(KIND, "/out", document)

        assert await recall(records, "/out") is None


def test_all_that_was_written_is_reported_once() -> None:
    made = {
        "b": FileResult(files={"b": "", "b.gz": ""}),
        "a": FileResult(files={"a": "", "b.gz": ""}),
        "c": FileResult(),
    }

    assert ScaffoldRecord(made=made).files == ["a", "b", "b.gz"]


def test_a_key_tells_content_and_commands_apart() -> None:
    keys = {
        key_of(b"x", [("a", "b")]),
        key_of(b"y", [("a", "b")]),
        key_of(b"x", [("a b",)]),
        key_of(b"x", [("a",), ("b",)]),
        key_of(b"x", []),
    }

    assert len(keys) == 5


@pytest.mark.parametrize("path", ["../etc/passwd", "a/../../etc/passwd", "/etc/passwd", "", "a\0b"])
async def test_a_record_with_outside_paths_is_ignored(path: str) -> None:
    """All that it names is removed one day."""
    records = FakeRecords()
    await keep(records, ScaffoldRecord(name="/out", made={"a": FileResult(files={path: ""})}))

    assert await recall(records, "/out") is None


@pytest.mark.parametrize(
    "document", [b"", b"{", b"[]", b'{"made": 1}', b"[" * 100_000, b'"\xff"', b'{"name": "\xff"}']
)
async def test_a_damaged_record_is_ignored(document: bytes) -> None:
    records = FakeRecords()
    await records.keep(KIND, "/out", document)

    assert await recall(records, "/out") is None
