"""The node's chain of events, as the spool keeps it: over kills, power cuts, full disks and upgrades."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccm_agent.bus.chain import NONE, ChainPosition, anchor_of, link_of, parse_place
from ccm_agent.storage import spool_chain, spool_files
from ccm_agent.storage.journal import encode_record, read_records
from ccm_agent.storage.spool import Spool
from ccm_agent.storage.spool_segment import Kind, Spooled, decoder, encoder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What says which start of the host this is."""
    path = tmp_path / "boot_id"
    path.write_text("boot-1")
    monkeypatch.setattr(spool_chain, "BOOT_ID", path)
    return path


async def opened(folder: Path, *, limit: int = 1 << 20, segment: int = 64 << 10) -> Spool:
    one = Spool(folder, limit_bytes=limit, segment_bytes=segment)
    await asyncio.to_thread(one.open)
    return one


def put(one: Spool, run: str, number: int, kind: Kind = Kind.RESOURCE, size: int = 20) -> None:
    one.append(
        subject=f"subject.{run}",
        event_id=f"{run}-{number}",
        body=f"{run}-{number}".ljust(size).encode(),
        run=run,
        number=number,
        kind=kind,
    )


def put_run(one: Spool, run: str, *, size: int = 20) -> None:
    for number, kind in enumerate((Kind.START, Kind.RESOURCE, Kind.SUMMARY), 1):
        put(one, run, number, kind, size)


async def sent(one: Spool) -> list[Spooled]:
    """Send everything, acknowledged."""
    events = []
    while one.backlog:
        events.append(await one.first())
        one.acknowledge(events[-1].seq)
        if one.wants_tidying:
            await one.tidy()
    return events


def link(event: Spooled) -> str:
    return link_of(event.subject, event.chain, event.body)


def places(events: list[Spooled]) -> list[ChainPosition]:
    return [parse_place(event.chain) for event in events]


def files(folder: Path) -> dict[str, bytes]:
    """The spool's files, oldest first."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.log"))}


def lay(folder: Path, contents: dict[str, bytes]) -> None:
    """Make a spool's folder of these files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def restart_host(boot: Path) -> None:
    boot.write_text("boot-2")


def kill(one: Spool) -> None:
    """The process is gone; what it wrote is in the page cache."""
    for segment in one._files._segments:
        segment.journal.close()


def assert_linked(events: list[Spooled]) -> None:
    """One chain without a gap, each event naming the one before it, in the chain and in its run."""
    tails: dict[str, str] = {}
    previous = NONE
    for number, (event, place) in enumerate(zip(events, places(events), strict=True), 1):
        assert (place.number, place.previous) == (number, previous)
        assert place.before == tails.get(event.run, NONE)
        previous = link(event)
        if event.run:
            tails[event.run] = previous
    assert len({place.chain for place in places(events)}) == 1


async def test_each_event_names_the_one_before_it_and_the_one_before_it_in_its_run(folder: Path) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    put(one, "", 0, Kind.AGENT)
    put(one, "r2", 1, Kind.START)
    put(one, "", 0, Kind.AGENT)
    put(one, "r2", 2, Kind.SUMMARY)

    events = await sent(one)

    assert_linked(events)
    assert [place.before == NONE for place in places(events)] == [
        True, False, False, True, True, True, False,
    ]  # fmt: skip
    one.close()


async def test_another_attempt_to_send_an_event_has_the_same_position(folder: Path) -> None:
    one = await opened(folder)
    put(one, "r1", 1)

    first = (await one.first()).chain
    kill(one)
    one = await opened(folder)

    assert (await one.first()).chain == first
    one.close()


@pytest.mark.parametrize("ends", ["stopped", "killed"])
@pytest.mark.parametrize("is_told", [True, False])
async def test_the_chain_continues_after_a_restart(folder: Path, ends: str, is_told: bool) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    put(one, "r2", 1, Kind.START)
    events = await sent(one) if is_told else []
    one.close() if ends == "stopped" else kill(one)

    one = await opened(folder)
    put(one, "r2", 2, Kind.SUMMARY)
    put(one, "", 0, Kind.AGENT)
    events += await sent(one)

    assert_linked(events)
    assert len(events) == 6
    one.close()


async def test_the_chain_continues_though_the_files_of_all_its_events_were_removed(folder: Path) -> None:
    events = []
    one = await opened(folder, segment=2000)
    for number in range(200):
        put_run(one, f"r{number}", size=600)
        events += await sent(one)
    assert len(files(folder)) == 1
    kill(one)

    one = await opened(folder, segment=2000)
    put_run(one, "last")
    events += await sent(one)

    assert_linked(events)
    one.close()


async def test_a_node_without_its_state_begins_a_chain_without_anchor(folder: Path) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    (first, *_) = places(await sent(one))
    one.close()
    shutil.rmtree(folder)

    one = await opened(folder)
    put(one, "r2", 1)
    (again,) = places(await sent(one))

    assert first.chain != again.chain
    assert (again.number, again.previous) == (1, NONE)
    one.close()


async def test_a_spool_of_an_older_version_is_sent_and_the_chain_begins_behind_it(folder: Path) -> None:
    old = [
        ["e", 1, "subject.r1", "id1", b"one", "r1", 1, "s", False],
        ["e", 2, "subject.r1", "id2", b"two", "r1", 2, "r", False],
        ["a", 1],
        ["l", 3],
    ]
    content = b"".join(encode_record(msgspec.msgpack.encode(record)) for record in old)
    lay(folder, {"00000001.log": content})

    one = await opened(folder)
    put(one, "r1", 3, Kind.SUMMARY)
    lost = one.lost, one.lost_places
    events = await sent(one)

    assert [event.event_id for event in events] == ["id2", "r1-3"]
    assert events[0].chain == ""
    place = parse_place(events[1].chain)
    assert (place.number, place.previous, place.before) == (1, NONE, NONE)
    assert lost == (3, {})
    one.close()


async def test_after_a_power_cut_another_chain_begins_that_names_the_last_known_place(
    folder: Path, boot: Path
) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    events = await sent(one)
    kill(one)
    restart_host(boot)

    one = await opened(folder)
    put(one, "", 0, Kind.AGENT)
    (event,) = await sent(one)

    place = parse_place(event.chain)
    anchor = anchor_of(place)
    assert anchor is not None
    assert place.number == 1
    assert (anchor.chain, anchor.number, anchor.link) == (places(events)[-1].chain, 3, link(events[-1]))
    one.close()


async def test_the_chain_continues_after_the_host_was_shut_down_in_good_order(
    folder: Path, boot: Path
) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    events = await sent(one)
    one.close()
    restart_host(boot)

    one = await opened(folder)
    put(one, "", 0, Kind.AGENT)
    events += await sent(one)

    assert_linked(events)
    one.close()


async def test_an_agent_that_was_killed_after_a_good_stop_does_not_pass_for_stopped(
    folder: Path, boot: Path
) -> None:
    one = await opened(folder)
    one.close()
    one = await opened(folder)
    put(one, "", 0, Kind.AGENT)
    (event,) = await sent(one)
    kill(one)
    restart_host(boot)

    one = await opened(folder)
    put(one, "", 0, Kind.AGENT)
    (again,) = await sent(one)

    assert parse_place(event.chain).chain != parse_place(again.chain).chain
    one.close()


async def test_behind_a_damaged_stretch_another_chain_begins_once(folder: Path) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    (first, *_) = places(await sent(one))
    kill(one)
    data = bytearray(files(folder)["00000001.log"])
    offset, _ = read_records(bytes(data)).records[2]
    data[offset + 20] ^= 0xFF
    lay(folder, {"00000001.log": bytes(data)})

    ids = []
    for number in range(3):
        one = await opened(folder)
        put(one, f"after{number}", 1)
        ids += [place.chain for place in places(await sent(one))]
        kill(one)

    assert first.chain not in ids
    assert len(set(ids)) == 1


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, after_writes: int = 0) -> Iterator[None]:
    left = [after_writes]

    def refuse(fd: int, data: bytes) -> int:
        if left[0]:
            left[0] -= 1
            return really_write(fd, data)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        yield


async def test_events_that_a_kill_may_forget_take_no_place_that_is_given_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened(folder)
    put_run(one, "r1")
    stored = await sent(one)
    with full_disk(monkeypatch):
        put(one, "", 0, Kind.AGENT)
        put(one, "", 1, Kind.AGENT)
        in_memory = await sent(one)
    kill(one)

    one = await opened(folder)
    put(one, "r2", 1)
    after = await sent(one)

    assert_linked(stored + after)
    assert len({place.chain for place in places(stored + in_memory)}) == 2
    anchor = anchor_of(places(in_memory)[0])
    assert anchor is not None
    assert (anchor.number, anchor.link) == (3, link(stored[-1]))
    one.close()


async def test_a_kill_while_half_of_the_memory_is_on_disk_gives_no_place_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened(folder)
    with full_disk(monkeypatch):
        put(one, "r1", 1)
        put(one, "r1", 2)
        received = [await one.first()]
        one.acknowledge(received[0].seq)
        put(one, "r1", 3)
    with full_disk(monkeypatch, after_writes=1):
        put(one, "r1", 4)
        received += await sent(one)
    kill(one)

    one = await opened(folder)
    put(one, "r1", 5)
    received += await sent(one)

    assert {event.event_id for event in received} == {f"r1-{number}" for number in range(1, 6)}
    by_place(received)
    one.close()


async def test_the_chain_of_events_in_memory_continues_when_the_disk_has_room_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened(folder)
    put(one, "r1", 1, Kind.START)
    with full_disk(monkeypatch):
        put(one, "r1", 2)
    put(one, "r1", 3)
    kill(one)

    one = await opened(folder)
    put(one, "r1", 4, Kind.SUMMARY)
    first, *rest = await sent(one)

    assert [place.number for place in places(rest)] == [1, 2, 3]
    assert [place.before for place in places(rest)] == [link(event) for event in [first, *rest[:-1]]]
    assert places(rest)[1].previous == link(rest[0])
    one.close()


async def test_discarded_events_leave_a_named_gap(folder: Path) -> None:
    one = await opened(folder, limit=80_000, segment=10_000)
    for number in range(1, 201):
        put(one, "r1", number, size=1000)
        await one.settle(flush=False)
    kill(one)

    one = await opened(folder, limit=80_000, segment=10_000)
    lost, named = one.lost, one.lost_places
    events = await sent(one)

    kept = [place.number for place in places(events)]
    (chain_id,) = {place.chain for place in places(events)}
    assert kept == list(range(lost + 1, 201))
    assert named == {chain_id: f"1-{lost}"}
    one.reported(lost)
    assert (one.lost, one.lost_places) == (0, {})
    one.close()


async def test_events_that_were_never_on_disk_are_lost_with_the_process_and_named_afterwards(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await opened(folder)
    with full_disk(monkeypatch):
        put(one, "", 0, Kind.AGENT)
        put(one, "", 1, Kind.AGENT)
    one.close()

    one = await opened(folder)
    put(one, "", 2, Kind.AGENT)
    (event,) = await sent(one)

    place = parse_place(event.chain)
    assert place.number == 3
    assert (one.lost, one.lost_places) == (2, {place.chain: "1-2"})
    one.close()


async def test_a_kill_at_any_byte_leaves_a_chain_without_a_gap(folder: Path, tmp_path: Path) -> None:
    one = await opened(folder, segment=1500)
    for number in range(2):
        put_run(one, f"r{number}", size=200)
        await sent(one)
    put(one, "r9", 1, Kind.START)
    kill(one)
    *whole, last = files(folder).items()

    for length in range(len(last[1]) + 1):
        after = tmp_path / "after"
        lay(after, {**dict(whole), last[0]: last[1][:length]})
        written = [
            record
            for content in files(after).values()
            for _, payload in read_records(content).records
            if isinstance(record := decoder.decode(payload), Spooled)
        ]

        one = await opened(after, segment=1500)
        put(one, "new", 1)
        newest = (await sent(one))[-1]
        kill(one)

        if written:
            assert parse_place(newest.chain).previous == link(written[-1])
            assert parse_place(newest.chain).number == parse_place(written[-1].chain).number + 1


class Killed(BaseException):
    """The process is gone in the middle of a system call."""


class Host:
    """A node whose process, disk and power fail at the worst moments, and a broker that keeps what it was sent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spool: Spool | None = None
        self.boots = 0
        self.is_full = False
        self.room = 0
        self.dies_in: int | None = None
        self.received: list[Spooled] = []
        self.lost: dict[str, set[int]] = {}
        self.number = 0
        self._flushed: dict[str, int] = {}

    def write(self, fd: int, data: bytes) -> int:
        if self.dies_in is not None:
            some, self.dies_in = data[: self.dies_in], None
            really_write(fd, some)
            raise Killed
        if self.is_full:
            if len(data) > self.room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self.room -= len(data)
        return really_write(fd, data)

    def flush(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        self._flushed[path.name] = path.stat().st_size

    async def step(self, what: str, amount: int) -> None:
        if self.spool is None:
            await self._start()
        assert self.spool is not None
        try:
            await self._step(what, amount)
        except Killed:
            self._killed()

    async def _step(self, what: str, amount: int) -> None:
        assert self.spool is not None
        if what in ("put", "put and die"):
            self.number += 1
            self.dies_in = amount if what == "put and die" else None
            put(self.spool, "", self.number, Kind.AGENT, 40 + amount)
        elif what in ("send", "send and die") and self.spool.backlog:
            event = await self.spool.first()
            self.received.append(event)
            self.dies_in = amount if what == "send and die" else None
            self.spool.acknowledge(event.seq)
        elif what == "tidy":
            await self.spool.tidy()
        elif what == "flush":
            await self.spool.settle(flush=True)
        elif what in ("disk full", "disk free"):
            self.is_full, self.room = what == "disk full", 3 * amount
        elif what == "give up" and self.spool.backlog:
            self.spool.give_up((await self.spool.first()).seq)
            self._note_lost()
        elif what == "stop":
            self.spool.close()
            self.spool = None
        elif what == "kill":
            self._killed()
        elif what == "power cut":
            self._killed()
            self.boots += 1
            for file in self.folder.glob("*.log"):
                size = file.stat().st_size
                os.truncate(file, max(min(self._flushed.get(file.name, 0), size), size - amount))
        self.dies_in = None

    def _killed(self) -> None:
        assert self.spool is not None
        kill(self.spool)
        self.spool = None

    async def _start(self) -> None:
        boot = self.folder.parent / "boot_id"
        boot.write_text(f"boot-{self.boots}")
        self.spool = await opened(self.folder, segment=1500)
        self._note_lost()

    def _note_lost(self) -> None:
        assert self.spool is not None
        for chain_id, words in self.spool.lost_places.items():
            for word in words.split(","):
                first, _, last = word.partition("-")
                self.lost.setdefault(chain_id, set()).update(range(int(first), int(last or first) + 1))


really_write: Callable[[int, bytes], int] = os.write
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["put"] * 6
            + ["send"] * 6
            + ["put and die", "send and die", "kill", "stop", "tidy", "flush", "give up"]
            + ["disk full", "disk free", "power cut"]
        ),
        st.integers(0, 400),
    ),
    max_size=80,
)


def live(steps: list[tuple[str, int]]) -> Host:
    """What is left when all of this happened to a node, and it could say in the end all that it still had to."""

    async def all_steps(host: Host) -> None:
        for what, amount in [*steps, ("disk free", 0), ("put", 0), ("put", 0)]:
            await host.step(what, amount)
        if host.spool is None:
            await host.step("put", 0)
        assert host.spool is not None
        while host.spool.backlog:
            await host.step("send", 0)
        host.spool.close()

    with tempfile.TemporaryDirectory() as name:
        host = Host(Path(name) / "spool")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", host.write)
            patch.setattr(os, "fdatasync", host.flush)
            patch.setattr(spool_chain, "BOOT_ID", Path(name) / "boot_id")
            patch.setattr(spool_files, "CLEAR_BYTES", 1000)
            asyncio.run(all_steps(host))
    return host


def by_place(events: list[Spooled]) -> dict[str, dict[int, Spooled]]:
    found: dict[str, dict[int, Spooled]] = {}
    for event in events:
        place = parse_place(event.chain)
        earlier = found.setdefault(place.chain, {}).setdefault(place.number, event)
        assert link(earlier) == link(event), "two events have one place"
    return found


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_no_position_is_used_twice_whatever_fails(
    steps: list[tuple[str, int]],
) -> None:
    chains = by_place(live(steps).received)

    for events in chains.values():
        for number, event in events.items():
            place = parse_place(event.chain)
            if number > 1 and number - 1 in events:
                assert place.previous == link(events[number - 1])
            anchor = anchor_of(place)
            if anchor is not None and anchor.number in chains.get(anchor.chain, {}):
                assert anchor.link == link(chains[anchor.chain][anchor.number])


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS)
def test_while_the_disk_has_room_and_power_the_chain_is_one_and_its_gaps_are_named(
    steps: list[tuple[str, int]],
) -> None:
    host = live([step for step in steps if step[0] not in ("disk full", "power cut")])

    (chain_id,) = {parse_place(event.chain).chain for event in host.received}
    numbers = {parse_place(event.chain).number for event in host.received}
    # an event can be lost to the agent, which was killed before the acknowledgement, and be in the stream all the same
    assert set(range(1, max(numbers) + 1)) - numbers == host.lost.get(chain_id, set()) - numbers


def test_the_fields_of_a_stored_event_only_grow() -> None:
    record: list[Any] = msgspec.msgpack.decode(
        encoder.encode(Spooled(seq=1, subject="s", event_id="i", body=b"b"))
    )

    assert record[:9] == ["e", 1, "s", "i", b"b", "", 0, "a", False]
