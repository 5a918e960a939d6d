"""
`ccm agent` as a process whose clock a test turns, and which dies at a point that a test names.

    python -m tests.support.faulty_agent --config FILE

Everything else is the agent as it is: the same composition root, on real files and a real broker. What a test wants of it stands
in files of the folder FAULTS (an environment variable), written by `Faults`:

- `clock`: by how many seconds this process sees the wall clock and the steady clock ahead of the host's. With the steady one
  goes the event loop's own time, so that every pause and every limit of this process passes at once.
- `die`: a point among the writes to ledger and spool, such as `before summary` or `after taken RUN`. Everything that an apply
  does is between two of them. The process ends itself there with SIGKILL, and the file is renamed, so the next process lives.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ccm_agent.app_agent import run_agent
from ccm_agent.storage.journal import MAGIC
from ccm_agent.storage.spool_segment import Acked, Kind, Spooled, decoder
from ccm_agent.system.clock import SystemClock

LOOK_S = 0.02
"""How often the file of the clock is read."""

EVENTS = {Kind.START: "start", Kind.RESOURCE: "resource", Kind.SUMMARY: "summary", Kind.AGENT: "agent"}
REQUESTS = {"t": "taken", "b": "begun", "e": "ended", "l": "last", "d": "decided"}
_HEAD_BYTES = len(MAGIC) + 8


class Offsets(msgspec.Struct):
    """By how many seconds a process is ahead of its host."""

    wall_s: float = 0
    steady_s: float = 0


class TurnedClock(SystemClock):
    """The host's clock, and the offsets of a file on top of it."""

    def __init__(self, path: Path) -> None:
        self.offsets = Offsets()
        self._path = path

    def now(self) -> datetime:
        """See `Clock.now`."""
        return datetime.now(UTC) + timedelta(seconds=self.offsets.wall_s)

    def monotonic(self) -> float:
        """See `Clock.monotonic`."""
        return super().monotonic() + self.offsets.steady_s

    def look(self) -> None:
        """Read the file."""
        try:
            self.offsets = msgspec.json.decode(self._path.read_bytes(), type=Offsets)
        except FileNotFoundError:
            return

    async def keep_looking(self) -> None:
        """Read it now and then, for ever. A pause that is longer than the time left ends with the next turn of the loop."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)


class TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop on a turned clock."""

    def __init__(self, clock: TurnedClock) -> None:
        self._turned = clock
        super().__init__()

    def time(self) -> float:
        """See `AbstractEventLoop.time`."""
        return super().time() + self._turned.offsets.steady_s


class Death:
    """Ends the process at a point; stands in the way of `os.write`, by which ledger and spool are written."""

    def __init__(self, folder: Path, write: Callable[[int, Any], int] = os.write) -> None:
        self._folder = folder
        self._write = write
        self._summaries: dict[int, str] = {}

    def write(self, fd: int, data: Any) -> int:
        """As `os.write`, with death before or after it."""
        if bytes(data[: len(MAGIC)]) != MAGIC:
            return self._write(fd, data)
        words = self._words(fd, bytes(data[_HEAD_BYTES:]))
        self._perhaps("before", words)
        written = self._write(fd, data)
        self._perhaps("after", words)
        return written

    def _words(self, fd: int, payload: bytes) -> Sequence[str]:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path.parent.name == "runs":  # what undoes a run is not a point that tests name
            return ()
        if path.name == "ledger.log":
            kind, run, *_ = msgspec.msgpack.decode(payload)
            return (REQUESTS[kind], str(run))
        record = decoder.decode(payload)
        if isinstance(record, Spooled):
            if record.kind is Kind.SUMMARY:
                self._summaries[record.seq] = record.run
            return (EVENTS[record.kind], record.run)
        if isinstance(record, Acked) and record.seq in self._summaries:
            return ("sent", self._summaries[record.seq])
        return ()

    def _perhaps(self, when: str, words: Sequence[str]) -> None:
        try:
            wanted = (self._folder / "die").read_text().split()
        except FileNotFoundError:
            return
        if words and wanted == [when, *words][: len(wanted)]:
            (self._folder / "die").rename(self._folder / "died")
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Run the agent."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    path = Path(parser.parse_args().config)
    folder = Path(os.environ["FAULTS"])
    os.write = Death(folder).write
    clock = TurnedClock(folder / "clock")
    clock.look()

    async def on_a_turned_clock(agent: Coroutine[Any, Any, None]) -> None:
        looking = asyncio.create_task(clock.keep_looking(), name="clock")
        try:
            await agent
        finally:
            looking.cancel()

    def run(agent: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=partial(TurnedLoop, clock)) as runner:
            runner.run(on_a_turned_clock(agent))

    run_agent(str(path), clock=clock, run=run)


if __name__ == "__main__":
    main()
