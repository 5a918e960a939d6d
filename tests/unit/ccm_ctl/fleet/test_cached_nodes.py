"""What a command reads with the help of the cached entries equals a whole read, whatever happened to the stream meanwhile."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.bus.subjects import subject_matches
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.model.ports import BucketKeys, KeyValueEntry
from ccm_ctl.fleet.nodes.cached_nodes import CachedNodes
from ccm_ctl.fleet.nodes.entry_parts import AT_ONCE
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


async def read(nodes: CachedNodes) -> list[KeyValueEntry]:
    """All entries, as `matching` of a bucket returns them."""
    with await nodes.read() as stored:
        return sorted(await stored.read(stored.names), key=lambda one: one.key)


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

        found = await read(cached(stream, tmp_path))

        assert found == await stream.matching(PATTERNS)


async def test_only_what_changed_is_read(tmp_path: Path) -> None:
    stream = Stream()
    for number in range(50):
        stream.put(f"node.web{number}", b"record")
        stream.put(f"presence.web{number}", b"here")
    await read(cached(stream, tmp_path))
    stream.reads.clear()
    stream.put("presence.web7", b"here again")
    stream.entries.pop("presence.web8")

    found = await read(cached(stream, tmp_path))

    assert stream.reads == []
    assert {one.key: one.value for one in found}["presence.web7"] == b"here again"
    assert len(found) == 99


async def test_what_is_written_while_a_command_reads_is_read_by_the_next_one(tmp_path: Path) -> None:
    stream = Stream()
    for key in ("node.web1", "node.web2", "presence.web1"):
        stream.put(key, b"old")
    await read(cached(stream, tmp_path))
    list_keys = stream.list_keys

    async def write_before_the_keys_are_listed(pattern: str) -> BucketKeys:
        if pattern == "node.>":
            stream.put("node.web1", b"new")
            stream.put("node.web3", b"joined")
        return await list_keys(pattern)

    stream.list_keys = write_before_the_keys_are_listed  # type: ignore[method-assign]
    await read(cached(stream, tmp_path))
    stream.list_keys = list_keys  # type: ignore[method-assign]

    found = await read(cached(stream, tmp_path))

    assert found == await stream.matching(PATTERNS)


@pytest.mark.parametrize("problem", ["history", "denied"])
async def test_where_the_keys_do_not_tell_everything_all_is_read(problem: str, tmp_path: Path) -> None:
    stream = Stream()
    stream.put("node.web1", b"record")
    stream.put("presence.web1", b"here")
    await read(cached(stream, tmp_path))
    stream.history = 5 if problem == "history" else 1
    stream.denies_lists = problem == "denied"
    stream.reads.clear()

    found = await read(cached(stream, tmp_path))

    assert (found, stream.reads[:2]) == (await stream.matching(PATTERNS), PATTERNS)


async def test_few_entries_are_not_kept(tmp_path: Path) -> None:
    stream = Stream()
    stream.put("node.web1", b"record")

    await read(CachedNodes(stream, InventoryFile(tmp_path / "ccm", []), least=2))  # type: ignore[arg-type]

    assert not (tmp_path / "ccm").exists()


async def test_of_a_torn_part_the_entries_are_read_from_the_broker(tmp_path: Path) -> None:
    stream = Stream()
    for number in range(AT_ONCE):
        stream.put(f"node.web{number}", b"record")
        stream.put(f"presence.web{number}", b"here")
    await read(cached(stream, tmp_path))
    [path] = (tmp_path / "ccm").iterdir()
    body = path.read_bytes()
    path.write_bytes(body.replace(b"record", b"forged", 1))
    stream.reads.clear()

    found = await read(cached(stream, tmp_path))

    assert found == await stream.matching(PATTERNS)
    assert "node.web0" in stream.reads
    assert not path.exists()


async def test_nodes_are_in_natural_order_wherever_their_entries_come_from(tmp_path: Path) -> None:
    stream = Stream()
    for name in ("web10", "web9", "web1"):
        stream.put(f"node.{name}", b"record")
        stream.put(f"presence.{name}", b"here")
    await read(cached(stream, tmp_path))
    stream.put("node.web2", b"joined")
    stream.put("node.web9", b"")
    stream.put("presence.web9", b"")
    stream.put("node.Web3", b"no node has such a name")

    with await cached(stream, tmp_path).read() as stored:
        names = stored.names
        found = [entry.key async for name in _each(names) for entry in await stored.read([name])]

    assert names == ["web1", "web2", "web10"]
    assert found == ["node.web1", "presence.web1", "node.web2", "node.web10", "presence.web10"]


async def _each(names: Sequence[str]) -> AsyncIterator[str]:
    for name in names:
        yield name
