import asyncio
import shutil
from pathlib import Path

import pytest

from ccm_agent.agent.state.request_log import RequestLog, RequestLogEntry
from ccm_agent.model.wire import MANIFEST_APPLY
from tests.support.agent import FakeClock

DAY_S = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def opened(path: Path, clock: FakeClock) -> tuple[RequestLog, list[str]]:
    request_log = RequestLog(path, keep_s=DAY_S, clock=clock)
    left = await asyncio.to_thread(request_log.open)
    return request_log, [entry.run for entry in left]


def take(request_log: RequestLog, run: str, body: bytes = b"{}") -> None:
    request_log.take(run, protocol=MANIFEST_APPLY, subject="subject", body=body)


async def test_a_run_is_known_from_the_moment_it_is_taken_on(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)

    take(request_log, "r1", b"the request")

    assert request_log.find("r1") == RequestLogEntry(
        run="r1",
        at=clock.now().timestamp(),
        protocol=MANIFEST_APPLY,
        subject="subject",
        body=b"the request",
    )
    assert request_log.find("r2") is None
    request_log.close()


async def test_its_end_is_remembered_without_the_request(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    take(request_log, "r1")
    request_log.begin("r1")
    clock.pass_s(5)

    request_log.end("r1", "failed", "stopped", "run.stopped")
    request_log.close()

    request_log, left = await opened(tmp_path / "ledger", clock)
    assert left == []
    assert request_log.find("r1") == RequestLogEntry(
        run="r1",
        at=clock.now().timestamp(),
        has_begun=True,
        outcome="failed",
        reason="stopped",
        code="run.stopped",
    )
    request_log.close()


async def test_open_runs_keep_their_order(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    for run in ("r1", "r2", "r3", "r4"):
        take(request_log, run)
    request_log.begin("r2")
    request_log.end("r1", "stable")
    request_log.end("r3", "superseded")
    request_log.close()

    request_log, left = await opened(tmp_path / "ledger", clock)

    assert left == ["r2", "r4"]
    assert [entry.has_begun for run in left if (entry := request_log.find(run))] == [True, False]
    request_log.close()


async def test_a_request_that_comes_again_changes_nothing(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    take(request_log, "r1", b"first")
    take(request_log, "r1", b"second")

    entry = request_log.find("r1")

    assert entry is not None
    assert entry.body == b"first"
    request_log.close()


async def test_ids_are_forgotten_after_a_day_and_not_before(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    take(request_log, "r1")
    request_log.end("r1", "stable")
    clock.pass_s(DAY_S - 1)
    take(request_log, "r2")
    request_log.end("r2", "stable")
    assert request_log.find("r1") is not None

    clock.pass_s(2)
    take(request_log, "r3")
    request_log.end("r3", "stable")

    assert request_log.find("r1") is None
    assert request_log.find("r2") is not None
    request_log.close()


@pytest.mark.parametrize("jump_s", [400 * DAY_S, -400 * DAY_S], ids=["forward", "back"])
async def test_a_wall_clock_that_is_set_changes_nothing_about_it(
    tmp_path: Path, clock: FakeClock, jump_s: float
) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    take(request_log, "r1")
    request_log.end("r1", "changed")

    clock.jump(jump_s)
    take(request_log, "r2")
    request_log.end("r2", "changed")
    kept = [request_log.find(run) is not None for run in ("r1", "r2")]
    clock.pass_s(DAY_S + 1)
    take(request_log, "r3")
    request_log.end("r3", "changed")

    assert kept == [True, True]
    assert [request_log.find(run) is not None for run in ("r1", "r2", "r3")] == [False, False, True]
    request_log.close()


async def test_a_run_of_the_future_is_kept_for_a_day(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    clock.jump(400 * DAY_S)
    take(request_log, "r1")
    request_log.end("r1", "changed")
    request_log.close()
    clock.jump(-400 * DAY_S)

    request_log, _ = await opened(tmp_path / "ledger", clock)
    was_known = request_log.find("r1") is not None
    clock.pass_s(DAY_S + 1)
    take(request_log, "r2")
    request_log.end("r2", "changed")

    assert was_known
    assert request_log.find("r1") is None
    request_log.close()


async def test_a_kill_at_any_byte_keeps_earlier_answers(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger"
    request_log, _ = await opened(path, clock)
    sizes = {0: (None, False, "")}
    take(request_log, "r1")
    sizes[path.stat().st_size] = ("r1", False, "")
    request_log.begin("r1")
    sizes[path.stat().st_size] = ("r1", True, "")
    request_log.end("r1", "changed")
    sizes[path.stat().st_size] = ("r1", True, "changed")
    request_log.close()
    data = path.read_bytes()

    for length in range(len(data) + 1):
        copy = tmp_path / "copy"
        copy.write_bytes(data[:length])
        wanted = sizes[max(size for size in sizes if size <= length)]

        request_log, _ = await opened(copy, clock)

        entry = request_log.find("r1")
        assert ((entry.run, entry.has_begun, entry.outcome) if entry else (None, False, "")) == wanted
        request_log.close()


async def test_compaction_keeps_valid_records_and_concurrent_ones(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.agent.state.request_log.COMPACT_BYTES", 10_000)
    path = tmp_path / "ledger"
    request_log, _ = await opened(path, clock)
    for number in range(50):
        take(request_log, f"r{number}", b"x" * 1000)
        request_log.end(f"r{number}", "stable")
    take(request_log, "goes on", b"a request")
    request_log.begin("goes on")
    take(request_log, "waits", b"a request")
    request_log.note_last("r49", "stable")
    assert request_log.wants_compaction
    before = path.stat().st_size

    compaction = asyncio.create_task(request_log.compact())
    await asyncio.sleep(0)
    take(request_log, "meanwhile", b"another")
    await compaction
    take(request_log, "after")
    request_log.close()

    assert path.stat().st_size < before / 5
    assert path.stat().st_mode & 0o777 == 0o600
    request_log, left = await opened(path, clock)
    assert left == ["goes on", "waits", "meanwhile", "after"]
    known = [request_log.find(run) for run in left]
    # what had begun is told as interrupted, and not begun once more
    assert [one.has_begun for one in known if one] == [True, False, False, False]
    assert all(request_log.find(f"r{number}") for number in range(50))
    assert request_log.last_run is not None
    assert (request_log.last_run.run, request_log.last_run.state) == ("r49", "stable")
    assert not request_log.wants_compaction
    request_log.close()


async def test_a_reason_that_is_not_utf_8_is_kept_readable(tmp_path: Path, clock: FakeClock) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)
    take(request_log, "r1")

    request_log.end("r1", "failed", "caf\udce9: no such file")
    request_log.close()

    request_log, _ = await opened(tmp_path / "ledger", clock)
    known = request_log.find("r1")
    assert known is not None
    assert (known.outcome, known.reason) == ("failed", "caf?: no such file")
    request_log.close()


async def test_a_full_disk_does_not_stop_the_work(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    request_log, _ = await opened(tmp_path / "ledger", clock)

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    take(request_log, "r1")

    assert request_log.find("r1") is not None
    assert [record.getMessage() for record in caplog.records] == ["the ledger is only in memory"]
    shutil.rmtree(tmp_path, ignore_errors=True)
    request_log.close()
