import asyncio
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.storage.spool import Spool
from ccm_agent.storage.spool_segment import Kind, Spooled, decoder

LIMIT = 1 << 20
SEGMENT = 64 << 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


async def opened(
    folder: Path, limit: int = LIMIT, segment: int = SEGMENT
) -> tuple[Spool, dict[str, list[int]]]:
    """A spool, and the numbers of the events of each run that was found without its end."""
    spool = Spool(folder, limit_bytes=limit, segment_bytes=segment)
    runs = await asyncio.to_thread(spool.open)
    return spool, {one.run: [event.number for event in one.events] for one in runs}


def put(
    spool: Spool, run: str, number: int, kind: Kind = Kind.RESOURCE, size: int = 20, **fields: Any
) -> None:
    spool.append(
        subject=f"subject.{run}",
        event_id=f"{run}-{number}",
        body=b"b" * size,
        run=run,
        number=number,
        kind=kind,
        **fields,
    )


def put_run(spool: Spool, run: str, *, size: int = 20, is_stable: bool = True) -> None:
    put(spool, run, 1, Kind.START, size)
    if not is_stable:
        put(spool, run, 2, Kind.RESOURCE, size)
    put(spool, run, 2 + (not is_stable), Kind.SUMMARY, size, is_stable=is_stable)


def modes(folder: Path) -> dict[str, int]:
    """What is in a folder, with permissions."""
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def drain(spool: Spool) -> list[str]:
    """Send everything, acknowledged."""
    sent = []
    while spool.backlog:
        event = await spool.first()
        sent.append(event.event_id)
        spool.acknowledge(event.seq)
        if spool.wants_tidying:
            await spool.tidy()
    return sent


async def test_events_leave_in_the_order_in_which_they_came(folder: Path) -> None:
    spool, _ = await opened(folder)

    put_run(spool, "r1", is_stable=False)
    put_run(spool, "r2")

    assert await drain(spool) == ["r1-1", "r1-2", "r1-3", "r2-1", "r2-2"]
    spool.close()


async def test_an_event_stays_first_until_it_is_acknowledged(folder: Path) -> None:
    spool, _ = await opened(folder)
    put_run(spool, "r1")

    first, again = await spool.first(), await spool.first()

    assert (first.event_id, again.event_id, spool.backlog) == ("r1-1", "r1-1", 2)
    spool.close()


async def test_first_waits_for_an_event(folder: Path) -> None:
    spool, _ = await opened(folder)
    waiting = asyncio.create_task(spool.first())
    await asyncio.sleep(0)

    put(spool, "r1", 1)

    async with asyncio.timeout(5):
        assert (await waiting).event_id == "r1-1"
    spool.close()


async def test_only_unacknowledged_events_remain_after_a_restart(folder: Path) -> None:
    spool, _ = await opened(folder)
    put_run(spool, "r1", is_stable=False)
    put_run(spool, "r2")
    for _ in range(2):
        spool.acknowledge((await spool.first()).seq)
    spool.close()

    spool, open_runs = await opened(folder)

    assert await drain(spool) == ["r1-3", "r2-1", "r2-2"]
    assert open_runs == {}
    spool.close()


async def test_a_run_without_its_end_is_found_with_all_its_events_even_the_acknowledged(folder: Path) -> None:
    spool, _ = await opened(folder)
    put_run(spool, "r1")
    put(spool, "r2", 1, Kind.START)
    put(spool, "r2", 2)
    put(spool, "r2", 3)
    for _ in range(4):
        spool.acknowledge((await spool.first()).seq)
    spool.close()

    spool, open_runs = await opened(folder)

    assert open_runs == {"r2": [1, 2, 3]}
    assert await drain(spool) == ["r2-3"]
    spool.close()


async def test_an_empty_spool_takes_little_room_whatever_went_through_it(folder: Path) -> None:
    spool, _ = await opened(folder)
    for number in range(300):
        put_run(spool, f"r{number}", size=2000)
        await drain(spool)

    assert spool.size_bytes <= 2 * SEGMENT
    assert len(modes(folder)) <= 2
    spool.close()


async def test_a_run_that_was_reported_as_it_went_leaves_nothing_behind_at_its_end(folder: Path) -> None:
    spool, _ = await opened(folder)
    for number in range(300):
        put(spool, f"r{number}", 1, Kind.START, size=2000)
        await drain(spool)
        put(spool, f"r{number}", 2, Kind.SUMMARY, size=2000)
        await drain(spool)

    assert spool.size_bytes <= 2 * SEGMENT
    assert len(modes(folder)) <= 2
    spool.close()


async def test_events_of_an_open_run_stay_on_disk_until_its_end(folder: Path) -> None:
    spool, _ = await opened(folder, segment=2000)
    for number in range(1, 31):
        put(spool, "r1", number, Kind.START if number == 1 else Kind.RESOURCE, size=300)
        await drain(spool)
    spool.close()

    spool, open_runs = await opened(folder, segment=2000)

    assert open_runs == {"r1": list(range(1, 31))}
    spool.close()


async def test_files_sent_before_a_restart_are_removed_afterwards(folder: Path) -> None:
    spool, _ = await opened(folder, segment=2000)
    for number in range(20):
        put_run(spool, f"r{number}", size=300)
    while spool.backlog:
        spool.acknowledge((await spool.first()).seq)
    spool.close()
    before = len(modes(folder))

    spool, _ = await opened(folder, segment=2000)
    await spool.tidy()

    assert (before > 5, len(modes(folder))) == (True, 1)
    spool.close()


async def test_a_large_file_is_emptied_when_all_of_it_is_reported_and_nothing_is_sent_again(
    folder: Path,
) -> None:
    spool, _ = await opened(folder, segment=1 << 20, limit=8 << 20)
    put(spool, "", 0, Kind.AGENT)
    spool.give_up((await spool.first()).seq)
    for number in range(100):
        put_run(spool, f"r{number}", size=1000)
    await drain(spool)
    size = spool.size_bytes
    spool.close()

    spool, open_runs = await opened(folder)

    assert size < 300
    assert (spool.backlog, spool.lost, open_runs) == (0, 1, {})
    spool.close()


async def test_discarded_events_do_not_come_back_and_their_count_survives_their_file(folder: Path) -> None:
    spool, _ = await opened(folder, segment=2000)
    put(spool, "r0", 1, size=300)
    spool.give_up((await spool.first()).seq)
    for number in range(1, 20):
        put_run(spool, f"r{number}", size=300)
    spool.close()
    spool, _ = await opened(folder, segment=2000)

    sent = await drain(spool)
    spool.close()
    spool, _ = await opened(folder, segment=2000)

    assert "r0-1" not in sent
    assert not (folder / "00000001.log").exists()
    assert (len(sent), spool.lost) == (38, 1)
    spool.close()


async def test_half_a_file_that_a_kill_left_is_removed(folder: Path) -> None:
    spool, _ = await opened(folder)
    put(spool, "r1", 1)
    spool.close()
    (folder / "00000001.log.new").write_bytes(b"half")

    spool, _ = await opened(folder)

    assert modes(folder) == {"00000001.log": 0o600}
    spool.close()


async def test_a_new_event_is_not_an_old_one_even_after_a_damaged_record(folder: Path) -> None:
    spool, _ = await opened(folder)
    put(spool, "r1", 1, Kind.SUMMARY, size=100)
    await drain(spool)
    spool.close()
    file = folder / "00000001.log"
    data = bytearray(file.read_bytes())
    data[50] ^= 0xFF
    file.write_bytes(bytes(data))

    spool, _ = await opened(folder)
    put(spool, "r2", 1)
    spool.close()
    spool, _ = await opened(folder)

    assert await drain(spool) == ["r2-1"]
    spool.close()


async def test_flushed_events_and_names_of_new_files_survive_a_power_cut(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    for name in ("fsync", "fdatasync"):
        really: Callable[[int], None] = getattr(os, name)

        def sync(fd: int, really: Callable[[int], None] = really) -> None:
            synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
            really(fd)

        monkeypatch.setattr(os, name, sync)
    spool, _ = await opened(folder, segment=2000)

    for number in range(1, 4):
        put(spool, "r1", number, size=700)
        await spool.settle(flush=number != 2)
    await spool.settle(flush=True)

    assert synced == ["spool", "00000001.log", "spool", "00000002.log"]
    spool.close()


async def test_a_kill_at_any_byte_loses_nothing_that_was_written_before_it(
    folder: Path, tmp_path: Path
) -> None:
    """Every prefix of the file is a state in which a kill can leave it; `said` is what had happened by then."""
    spool, _ = await opened(folder)
    file = folder / "00000001.log"
    said: list[tuple[int, list[str], list[str]]] = [(0, [], [])]

    def note(sent: list[str], waiting: list[str]) -> None:
        said.append((file.stat().st_size, sent, waiting))

    for number in (1, 2, 3):
        put(spool, "r1", number, Kind.START if number == 1 else Kind.RESOURCE)
        note([], [f"r1-{n}" for n in range(1, number + 1)])
    spool.acknowledge((await spool.first()).seq)
    note(["r1-1"], ["r1-2", "r1-3"])
    put(spool, "r1", 4, Kind.SUMMARY)
    note(["r1-1"], ["r1-2", "r1-3", "r1-4"])
    spool.close()
    data = file.read_bytes()

    for length in range(len(data) + 1):
        after = tmp_path / "after"
        shutil.rmtree(after, ignore_errors=True)
        after.mkdir()
        (after / "00000001.log").write_bytes(data[:length])
        _, sent, waiting = [one for one in said if one[0] <= length][-1]

        spool, open_runs = await opened(after)

        numbers = [int(one[-1]) for one in [*sent, *waiting]]
        assert open_runs == ({"r1": numbers} if numbers and numbers[-1] != 4 else {})
        put(spool, "r2", 1)
        assert await drain(spool) == [*waiting, "r2-1"]
        spool.close()


@pytest.mark.parametrize("seed", range(20))
async def test_in_any_order_of_failures_nothing_is_lost_or_sent_again(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    spool, _ = await opened(folder, segment=2000)
    wanted: list[str] = []
    run, number = 0, 0
    for _ in range(400):
        what = chance.choice(["put", "put", "put", "ack", "ack", "tidy", "restart"])
        if what == "put":
            kind = Kind.START if number == 0 else chance.choice([Kind.RESOURCE, Kind.RESOURCE, Kind.SUMMARY])
            number += 1
            put(spool, f"r{run}", number, kind, chance.randrange(10, 400))
            wanted.append(f"r{run}-{number}")
            if kind is Kind.SUMMARY:
                run, number = run + 1, 0
        elif what == "ack" and wanted:
            event = await spool.first()
            assert event.event_id == wanted.pop(0)
            spool.acknowledge(event.seq)
        elif what == "tidy" and spool.wants_tidying:
            await spool.tidy()
        elif what == "restart":
            spool.close()
            spool, open_runs = await opened(folder, segment=2000)
            assert open_runs == ({f"r{run}": list(range(1, number + 1))} if number else {})
    assert await drain(spool) == wanted
    spool.close()


async def test_a_full_spool_gives_up_stable_runs_first_and_counts_them(folder: Path) -> None:
    spool, _ = await opened(folder, limit=96_000, segment=10_000)
    for number in range(20):
        put_run(spool, f"stable{number}", size=1000)
        put_run(spool, f"changed{number}", size=1000, is_stable=False)
        await spool.settle(flush=False)

    lost = spool.lost
    sent = await drain(spool)

    assert [one for one in sent if one.startswith("changed")] == [
        f"changed{number}-{place}" for number in range(20) for place in (1, 2, 3)
    ]
    assert lost == 40 - sum(one.startswith("stable") for one in sent) > 0
    # the newest stable runs are kept, and always whole
    kept = [one for one in sent if one.startswith("stable")]
    assert kept == [
        f"stable{number}-{place}" for number in range(20 - len(kept) // 2, 20) for place in (1, 2)
    ]
    spool.close()


async def test_a_spool_full_of_changes_gives_up_the_oldest_and_stays_within_its_limit(folder: Path) -> None:
    spool, _ = await opened(folder, limit=80_000, segment=10_000)
    for number in range(1, 201):
        put(spool, "r1", number, size=1000)
        await spool.settle(flush=False)
        assert spool.size_bytes <= 80_000 + 2000
    spool.close()

    spool, _ = await opened(folder, limit=80_000, segment=10_000)
    lost = spool.lost
    sent = await drain(spool)

    assert sent == [f"r1-{number}" for number in range(201 - len(sent), 201)]
    assert lost == 200 - len(sent)
    spool.close()


async def test_the_count_of_lost_events_is_reported_once_over_restarts(folder: Path) -> None:
    spool, _ = await opened(folder, limit=80_000, segment=10_000)
    for number in range(1, 201):
        put(spool, "r1", number, size=1000)
        await spool.settle(flush=False)
    lost = spool.lost
    spool.reported(lost)
    spool.close()

    spool, _ = await opened(folder, limit=80_000, segment=10_000)

    assert (lost > 0, spool.lost) == (True, 0)
    spool.close()


class Disk:
    """A disk that is full when a test says so; a full one takes a few bytes more, as real ones do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_full = False
        self._really: Callable[[int, bytes], int] = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if not self.is_full:
            return self._really(fd, data)
        if len(data) > 7:
            return self._really(fd, data[:7])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_while_the_disk_is_full_events_wait_in_memory_and_are_sent(folder: Path, disk: Disk) -> None:
    spool, _ = await opened(folder)
    put(spool, "r1", 1, Kind.START)
    disk.is_full = True

    put(spool, "r1", 2)
    put(spool, "r1", 3, Kind.SUMMARY)

    assert await drain(spool) == ["r1-1", "r1-2", "r1-3"]
    spool.close()


async def test_events_in_memory_go_to_disk_when_there_is_room_again(folder: Path, disk: Disk) -> None:
    spool, _ = await opened(folder)
    disk.is_full = True
    put(spool, "r1", 1, Kind.START)
    put(spool, "r1", 2)
    disk.is_full = False
    put(spool, "r1", 3)
    spool.close()

    spool, open_runs = await opened(folder)

    assert open_runs == {"r1": [1, 2, 3]}
    assert await drain(spool) == ["r1-1", "r1-2", "r1-3"]
    spool.close()


async def test_memory_is_bounded_while_the_disk_is_full(
    folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.storage.spool.MEMORY_LIMIT_BYTES", 20_000)
    spool, _ = await opened(folder)
    disk.is_full = True

    for number in range(1, 101):
        put(spool, "r1", number, size=1000)

    lost = spool.lost
    sent = await drain(spool)
    assert len(sent) + lost == 100
    assert sent == [f"r1-{number}" for number in range(101 - len(sent), 101)]
    assert 10 <= len(sent) <= 20
    spool.close()


async def test_a_damaged_record_costs_that_event_alone(folder: Path) -> None:
    spool, _ = await opened(folder)
    for number in (1, 2, 3):
        put(spool, "r1", number, size=100)
    spool.close()
    file = folder / "00000001.log"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(bytes(data))

    spool, open_runs = await opened(folder)

    assert open_runs == {"r1": [1, 3]}
    assert await drain(spool) == ["r1-1", "r1-3"]
    spool.close()


async def test_the_folder_and_its_files_are_for_their_owner_alone(folder: Path) -> None:
    spool, _ = await opened(folder)
    put(spool, "r1", 1)

    assert modes(folder.parent) == {"spool": 0o700}
    assert modes(folder) == {"00000001.log": 0o600}
    spool.close()


async def test_an_event_of_an_older_agent_without_a_message_id_is_read(tmp_path: Path) -> None:
    """It is the last of the fields, so the records of either version are read by the other."""
    record = msgspec.msgpack.encode(["e", 1, "subject", "event-id", b"body", "run", 1, "s", False])
    decoded = decoder.decode(record)

    assert isinstance(decoded, Spooled)
    assert (decoded.event_id, decoded.message_id) == ("event-id", "")
