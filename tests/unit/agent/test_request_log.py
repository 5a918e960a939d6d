import asyncio
import shutil
from pathlib import Path

import pytest

from ccm_agent.agent.requests.request_log import RequestLog, RequestLogEntry
from ccm_agent.model.wire import MANIFEST_APPLY
from tests.support.agent import FakeClock

DAY_S = 86_400.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def opened(path: Path, clock: FakeClock) -> tuple[RequestLog, list[str]]:
    ledger = RequestLog(path, keep_s=DAY_S, clock=clock)
    left = await asyncio.to_thread(ledger.open)
    return ledger, [entry.run for entry in left]


def take(ledger: RequestLog, run: str, body: bytes = b"{}") -> None:
    ledger.take(run, protocol=MANIFEST_APPLY, subject="subject", body=body)


async def test_a_run_is_known_from_the_moment_it_is_taken_on(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)

    take(ledger, "r1", b"the request")

    assert ledger.find("r1") == RequestLogEntry(
        run="r1",
        at=clock.now().timestamp(),
        protocol=MANIFEST_APPLY,
        subject="subject",
        body=b"the request",
    )
    assert ledger.find("r2") is None
    ledger.close()


async def test_its_end_is_remembered_without_the_request(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    take(ledger, "r1")
    ledger.begin("r1")
    clock.pass_s(5)

    ledger.end("r1", "failed", "stopped", "run.stopped")
    ledger.close()

    ledger, left = await opened(tmp_path / "ledger", clock)
    assert left == []
    assert ledger.find("r1") == RequestLogEntry(
        run="r1",
        at=clock.now().timestamp(),
        has_begun=True,
        outcome="failed",
        reason="stopped",
        code="run.stopped",
    )
    ledger.close()


async def test_what_has_not_ended_is_left_in_the_order_in_which_it_came(
    tmp_path: Path, clock: FakeClock
) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    for run in ("r1", "r2", "r3", "r4"):
        take(ledger, run)
    ledger.begin("r2")
    ledger.end("r1", "stable")
    ledger.end("r3", "superseded")
    ledger.close()

    ledger, left = await opened(tmp_path / "ledger", clock)

    assert left == ["r2", "r4"]
    assert [entry.has_begun for run in left if (entry := ledger.find(run))] == [True, False]
    ledger.close()


async def test_a_request_that_comes_again_changes_nothing(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    take(ledger, "r1", b"first")
    take(ledger, "r1", b"second")

    entry = ledger.find("r1")

    assert entry is not None
    assert entry.body == b"first"
    ledger.close()


async def test_ids_are_forgotten_after_a_day_and_not_before(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    take(ledger, "r1")
    ledger.end("r1", "stable")
    clock.pass_s(DAY_S - 1)
    take(ledger, "r2")
    ledger.end("r2", "stable")
    assert ledger.find("r1") is not None

    clock.pass_s(2)
    take(ledger, "r3")
    ledger.end("r3", "stable")

    assert ledger.find("r1") is None
    assert ledger.find("r2") is not None
    ledger.close()


@pytest.mark.parametrize("jump_s", [400 * DAY_S, -400 * DAY_S], ids=["forward", "back"])
async def test_a_wall_clock_that_is_set_changes_nothing_about_it(
    tmp_path: Path, clock: FakeClock, jump_s: float
) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    take(ledger, "r1")
    ledger.end("r1", "changed")

    clock.jump(jump_s)
    take(ledger, "r2")
    ledger.end("r2", "changed")
    kept = [ledger.find(run) is not None for run in ("r1", "r2")]
    clock.pass_s(DAY_S + 1)
    take(ledger, "r3")
    ledger.end("r3", "changed")

    assert kept == [True, True]
    assert [ledger.find(run) is not None for run in ("r1", "r2", "r3")] == [False, False, True]
    ledger.close()


async def test_a_run_of_the_future_is_kept_for_a_day(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    clock.jump(400 * DAY_S)
    take(ledger, "r1")
    ledger.end("r1", "changed")
    ledger.close()
    clock.jump(-400 * DAY_S)

    ledger, _ = await opened(tmp_path / "ledger", clock)
    was_known = ledger.find("r1") is not None
    clock.pass_s(DAY_S + 1)
    take(ledger, "r2")
    ledger.end("r2", "changed")

    assert was_known
    assert ledger.find("r1") is None
    ledger.close()


async def test_a_kill_at_any_byte_leaves_what_was_said_before_it(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "ledger"
    ledger, _ = await opened(path, clock)
    sizes = {0: (None, False, "")}
    take(ledger, "r1")
    sizes[path.stat().st_size] = ("r1", False, "")
    ledger.begin("r1")
    sizes[path.stat().st_size] = ("r1", True, "")
    ledger.end("r1", "changed")
    sizes[path.stat().st_size] = ("r1", True, "changed")
    ledger.close()
    data = path.read_bytes()

    for length in range(len(data) + 1):
        copy = tmp_path / "copy"
        copy.write_bytes(data[:length])
        wanted = sizes[max(size for size in sizes if size <= length)]

        ledger, _ = await opened(copy, clock)

        entry = ledger.find("r1")
        assert ((entry.run, entry.has_begun, entry.outcome) if entry else (None, False, "")) == wanted
        ledger.close()


async def test_compaction_keeps_what_counts_and_what_happens_meanwhile(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.agent.requests.request_log.COMPACT_BYTES", 10_000)
    path = tmp_path / "ledger"
    ledger, _ = await opened(path, clock)
    for number in range(50):
        take(ledger, f"r{number}", b"x" * 1000)
        ledger.end(f"r{number}", "stable")
    take(ledger, "goes on", b"a request")
    ledger.begin("goes on")
    take(ledger, "waits", b"a request")
    assert ledger.wants_compaction
    before = path.stat().st_size

    compaction = asyncio.create_task(ledger.compact())
    await asyncio.sleep(0)
    take(ledger, "meanwhile", b"another")
    await compaction
    take(ledger, "after")
    ledger.close()

    assert path.stat().st_size < before / 5
    assert path.stat().st_mode & 0o777 == 0o600
    ledger, left = await opened(path, clock)
    assert left == ["goes on", "waits", "meanwhile", "after"]
    known = [ledger.find(run) for run in left]
    # what had begun is told as interrupted, and not begun once more
    assert [one.has_begun for one in known if one] == [True, False, False, False]
    assert all(ledger.find(f"r{number}") for number in range(50))
    assert not ledger.wants_compaction
    ledger.close()


async def test_a_reason_that_is_no_utf_8_is_kept_as_it_can_be_told(tmp_path: Path, clock: FakeClock) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)
    take(ledger, "r1")

    ledger.end("r1", "failed", "caf\udce9: no such file")
    ledger.close()

    ledger, _ = await opened(tmp_path / "ledger", clock)
    known = ledger.find("r1")
    assert known is not None
    assert (known.outcome, known.reason) == ("failed", "caf?: no such file")
    ledger.close()


async def test_a_full_disk_does_not_stop_the_work(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ledger, _ = await opened(tmp_path / "ledger", clock)

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    take(ledger, "r1")

    assert ledger.find("r1") is not None
    assert [record.getMessage() for record in caplog.records] == ["the ledger is kept in memory only"]
    shutil.rmtree(tmp_path, ignore_errors=True)
    ledger.close()
