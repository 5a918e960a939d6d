"""Which numbers a node demands of documents that it has never seen."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.agent.trust.revision_guard import SnapshotReader
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.snapshot import digest_of, piece_key, place_of, split
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, Timestamp
from ccm_agent.bus.signatures.trust import TRUST_BUCKET
from ccm_agent.model.errors import ProtocolError
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.signing import FULL, Keyring, authenticator, now_ms

NAMES = ["CCM_FACTS/web1", "CCM_ASSIGNMENTS/all.site"]


class Stage:
    """A node, the bucket that it reads, and an administrator."""

    def __init__(self, folder: Path, **others: object) -> None:
        self.keys = Keyring()
        self.ann: Signatory = self.keys.operator("ann", **FULL, timestamp=True)
        self.trust = self.keys.trust(**others)
        self.node: Authenticator = authenticator(folder, self.trust)
        self.bucket = MemoryBus(MemoryBroker(), "op").bucket(TRUST_BUCKET)
        self.reader = SnapshotReader(self.bucket, self.node)

    async def write(self, numbers: dict[str, int], issued_ms: int = 0) -> None:
        """What `ccmctl` of the administrator writes."""
        pieces = split(numbers)
        for place, piece in enumerate(pieces):
            await self.bucket.put(piece_key(place), piece)
        digests = tuple(map(digest_of, pieces))
        signed = self.keys.timestamp(self.ann, self.keys.number, issued_ms, pieces=digests)
        await self.bucket.put(TIMESTAMP_KEY, signed.body.encode())
        self.bucket._writes[-1].signature = signed.signature  # type: ignore[attr-defined]


async def test_lowest_number_is_that_of_the_snapshot(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    await stage.write({NAMES[0]: 7})

    assert await stage.reader.lowest(NAMES) == {NAMES[0]: 7, NAMES[1]: 0}
    await stage.write({NAMES[0]: 9}, now_ms() + 1)
    stage.node.freshness.notified()
    await stage.node.read_timestamp(stage.bucket)
    assert await stage.reader.lowest(NAMES[:1]) == {NAMES[0]: 9}


async def test_piece_that_was_renewed_a_moment_ago_is_read_with_its_timestamp(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    await stage.write({NAMES[0]: 7})
    await stage.node.read_timestamp(stage.bucket)

    await stage.write({NAMES[0]: 9}, now_ms() + 1)

    assert await stage.reader.lowest(NAMES[:1]) == {NAMES[0]: 9}


@pytest.mark.parametrize("piece", [b'{"CCM_FACTS/web1":1}', b""], ids=["lower numbers", "nothing"])
async def test_piece_that_the_timestamp_does_not_name_is_refused(tmp_path: Path, piece: bytes) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    await stage.write({NAMES[0]: 7})
    assert await stage.reader.lowest(NAMES[:1]) == {NAMES[0]: 7}
    await stage.bucket.put(piece_key(0), piece)

    with pytest.raises(ProtocolError, match="this part of the snapshot does not match"):
        await SnapshotReader(stage.bucket, stage.node).lowest(NAMES)


async def test_without_a_recent_timestamp_nothing_is_known(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    with pytest.raises(ProtocolError, match="no timestamp"):
        await stage.reader.lowest(NAMES)

    await stage.write({NAMES[0]: 7}, now_ms() - 3_700_000)
    with pytest.raises(ProtocolError, match="the limit is 1h"):
        await stage.reader.lowest(NAMES)

    await stage.write({NAMES[0]: 7})
    assert await stage.reader.lowest(NAMES[:1]) == {NAMES[0]: 7}


async def test_fleet_without_a_maximum_age_has_no_snapshot(tmp_path: Path) -> None:
    assert await Stage(tmp_path).reader.lowest(NAMES) == {}


async def test_timestamp_without_a_snapshot_names_no_numbers(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    signed = stage.keys.timestamp(stage.ann, stage.keys.number)
    await stage.bucket.put(TIMESTAMP_KEY, signed.body.encode())
    stage.bucket._writes[-1].signature = signed.signature  # type: ignore[attr-defined]

    assert await stage.reader.lowest(NAMES) == {}


def test_many_documents_are_split_into_small_pieces() -> None:
    numbers = {f"CCM_FACTS/node{i}": 1_795_000_000_000 + i for i in range(30_000)}

    pieces = split(numbers)

    assert len(pieces) == 256
    assert max(map(len, pieces)) < 8_000
    assert (
        msgspec.json.decode(pieces[place_of("CCM_FACTS/node7", 256)])["CCM_FACTS/node7"] == 1_795_000_000_007
    )
    body = Timestamp(issued=1, signers=1, pieces=tuple(map(digest_of, pieces)))
    assert len(msgspec.json.encode(body)) < 20_000
    changed = split(numbers | {"CCM_FACTS/node7": 1_796_000_000_000})
    assert sum(a != b for a, b in zip(pieces, changed, strict=True)) == 1


async def test_timestamp_without_a_snapshot_is_refused_after_one_with_a_snapshot(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_age_s=3600)
    await stage.write({NAMES[0]: 7})
    assert await stage.node.read_timestamp(stage.bucket)
    bare = stage.keys.timestamp(stage.ann, stage.keys.number, now_ms() + 1)
    await stage.bucket.put(TIMESTAMP_KEY, bare.body.encode())
    stage.bucket._writes[-1].signature = bare.signature  # type: ignore[attr-defined]

    restarted = await asyncio.to_thread(authenticator, tmp_path, stage.trust)
    for node in (stage.node, restarted):
        node.freshness.notified()
        with pytest.raises(ProtocolError, match="has no snapshot, but the previous one has"):
            await node.read_timestamp(stage.bucket)
    assert await stage.reader.lowest(NAMES[:1]) == {NAMES[0]: 7}

    await stage.write({NAMES[0]: 9}, now_ms() + 2)
    stage.node.freshness.notified()
    assert await stage.node.read_timestamp(stage.bucket)
