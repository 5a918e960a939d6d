"""What a command reads with the help of the cached entries equals a whole read, whatever happened to the stream meanwhile."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.model.ports import BucketKeys, KeyValueEntry
from ccm_ctl.fleet.nodes.cached_nodes import CachedNodes
from ccm_ctl.fleet.nodes.inventory_file import InventoryFile

PATTERNS = ["node.>", "presence.>"]
EVENTS = 12
"""What happens to the stream in a round, at most."""


class Stream:
    """A bucket as a broker stores it: one revision of each key; deletions leave a mark, purges and expiry leave nothing."""

    def __init__(self) -> None:
        self.created = "2026-01-01T00:00:00Z"
        self.history = 1
        self.entries: dict[str, KeyValueEntry] = {}
        self.last = 0
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        self.reads: list[str] = []
        self.denies_lists = False

    def put(self, key: str, value: bytes) -> None:
        self.last += 1
        self.time += timedelta(milliseconds=3)
        self.entries.pop(key, None)
        self.entries[key] = KeyValueEntry(key=key, value=value, revision=self.last, created=self.time)

    def make_again(self) -> None:
        self.entries, self.last, self.created = {}, 0, f"{self.created}+"

    async def matching(
        self, patterns: Sequence[str], *, obeyed: bool = False, at_least: int = 0, deletions: bool = False
    ) -> list[KeyValueEntry]:
        self.reads += patterns
        found = [entry for entry in self.entries.values() if deletions or entry.value]
        return sorted(
            (one for one in found if any(subject_matches(pattern, one.key) for pattern in patterns)),
            key=lambda one: one.key,
        )

    async def list_keys(self, pattern: str) -> BucketKeys:
        if self.denies_lists:
            raise BusDeniedError("not allowed")
        keys = {key for key in self.entries if subject_matches(pattern, key)}
        return BucketKeys(keys=keys, created=self.created, revision=self.last, history=self.history)

    async def changes(self, pattern: str, after: int, since: datetime) -> list[KeyValueEntry]:
        kept = [entry for key, entry in self.entries.items() if subject_matches(pattern, key)]
        return [one for one in kept if one.created >= since][:1] + [
            one for one in kept if one.revision > after
        ]

    async def newest(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        return self.entries.get(key)


def cached(stream: Stream, folder: Path) -> CachedNodes:
    return CachedNodes(stream, InventoryFile(folder / "ccm", ["nats://a", "op"]), least=1)  # type: ignore[arg-type]


def happen(stream: Stream, backups: list[Stream], drawn: random.Random) -> None:
    key = f"{drawn.choice(['node', 'presence', 'facts'])}.web{drawn.randrange(6)}"
    what = drawn.choices(
        ["put", "delete", "purge", "backup", "put back", "made again"], [12, 3, 4, 1, 1, 0.4]
    )
    match what:
        case ["put"]:
            stream.put(key, drawn.randbytes(4))
        case ["delete"]:
            stream.put(key, b"")
        case ["purge"]:
            stream.entries.pop(key, None)
        case ["backup"]:
            backups.append(copy.deepcopy(stream))
        case ["put back"] if backups:
            earlier = copy.deepcopy(drawn.choice(backups))
            stream.entries, stream.last, stream.created = earlier.entries, earlier.last, earlier.created
        case _:
            stream.make_again()


@pytest.mark.parametrize("seed", range(150))
async def test_a_cached_read_equals_a_whole_one(seed: int, tmp_path: Path) -> None:
    drawn, stream = random.Random(seed), Stream()
    backups: list[Stream] = []
    for _ in range(10):
        for _ in range(drawn.randint(0, EVENTS)):
            happen(stream, backups, drawn)

        found = await cached(stream, tmp_path).read()

        assert found == await stream.matching(PATTERNS)


async def test_only_what_changed_is_read(tmp_path: Path) -> None:
    stream = Stream()
    for number in range(50):
        stream.put(f"node.web{number}", b"record")
        stream.put(f"presence.web{number}", b"here")
    await cached(stream, tmp_path).read()
    stream.reads.clear()
    stream.put("presence.web7", b"here again")
    stream.entries.pop("presence.web8")

    found = await cached(stream, tmp_path).read()

    assert stream.reads == []
    assert {one.key: one.value for one in found}["presence.web7"] == b"here again"
    assert len(found) == 99


async def test_what_is_written_while_a_command_reads_is_read_by_the_next_one(tmp_path: Path) -> None:
    stream = Stream()
    for key in ("node.web1", "node.web2", "presence.web1"):
        stream.put(key, b"old")
    await cached(stream, tmp_path).read()
    list_keys = stream.list_keys

    async def write_before_the_keys_are_listed(pattern: str) -> BucketKeys:
        if pattern == "node.>":
            stream.put("node.web1", b"new")
            stream.put("node.web3", b"joined")
        return await list_keys(pattern)

    stream.list_keys = write_before_the_keys_are_listed  # type: ignore[method-assign]
    await cached(stream, tmp_path).read()
    stream.list_keys = list_keys  # type: ignore[method-assign]

    found = await cached(stream, tmp_path).read()

    assert found == await stream.matching(PATTERNS)


@pytest.mark.parametrize("problem", ["history", "denied"])
async def test_where_the_keys_do_not_tell_everything_all_is_read(problem: str, tmp_path: Path) -> None:
    stream = Stream()
    stream.put("node.web1", b"record")
    stream.put("presence.web1", b"here")
    await cached(stream, tmp_path).read()
    stream.history = 5 if problem == "history" else 1
    stream.denies_lists = problem == "denied"
    stream.reads.clear()

    found = await cached(stream, tmp_path).read()

    assert (found, stream.reads[:2]) == (await stream.matching(PATTERNS), PATTERNS)


async def test_few_entries_are_not_kept(tmp_path: Path) -> None:
    stream = Stream()
    stream.put("node.web1", b"record")

    await CachedNodes(stream, InventoryFile(tmp_path / "ccm", []), least=2).read()  # type: ignore[arg-type]

    assert not (tmp_path / "ccm").exists()
