"""A host on which a run can be killed at each step: notes, commands and services that are fakes, and a log that is real."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.engine.request import ManifestSource, StopFlag
from ccm_agent.model.errors import HostError
from ccm_agent.model.outcome import SessionSummary, TransactionEvent
from ccm_agent.resources.contract import AnyType, ProviderSpec
from ccm_agent.resources.exec import TYPE as EXEC
from ccm_agent.resources.exec.model import ExecProperties, ExecState, Execution
from ccm_agent.resources.service import TYPE as SERVICE
from ccm_agent.resources.service.model import ServiceMetadata, ServiceProperties, ServiceState
from ccm_agent.sessions.refresh_log import RefreshLog, TriggerChange
from ccm_agent.sessions.refresh_store import RefreshStore
from tests.support.engine import Bench, Board, NoteProperties, bench


class Killed(BaseException):
    """The process does not exist any more."""


class Fate:
    """
    Ends a process at a step.

    Attributes:
        step: Steps so far.
        kill_at, stop_at: At which one the process is killed, or the run is asked to stop; 0: never.
        stop: The run's flag.
    """

    def __init__(self, kill_at: int = 0, stop_at: int = 0) -> None:
        self.step = 0
        self.kill_at = kill_at
        self.stop_at = stop_at
        self.stop = StopFlag()
        self._is_dead = False

    def pass_step(self) -> None:
        """A step is reached; nothing happens after the one at which the process is killed."""
        self.step += 1
        if self.step == self.stop_at:
            self.stop.set()
        if self._is_dead or self.step == self.kill_at:
            self._is_dead = True
            raise Killed


class Act(Struct, frozen=True):
    """Something that happened on the host: a process "began"; a resource "tried", "changed", or was "told" of."""

    what: str
    resource: str


class Host:
    """
    What outlives a process.

    Attributes:
        acts: What happened, in order.
        failing: Names of resources that fail now.
        running: Services that run.
        folder: Where pending refreshes are kept.
        files: Manifests by name.
        events, notes: What was told of the last apply, in order.
        prepare: Called before each apply with what it works on.
    """

    def __init__(self, folder: Path) -> None:
        self.acts: list[Act] = []
        self.failing: dict[str, str] = {}
        self.running: set[str] = set()
        self.board = Board()
        self.folder = folder
        self.files: dict[str, str] = {}
        self.events: list[TransactionEvent] = []
        self.notes: list[tuple[str, str, dict[str, object]]] = []
        self.prepare: Callable[[Bench], object] = lambda _on: None
        self.fate = Fate()

    async def apply(self, fate: Fate | None = None, **options: Any) -> SessionSummary | None:
        """One process applies the manifest; None: it was killed."""
        self.fate, self.events = fate or Fate(), []
        self.did("began", "")
        board = _MortalBoard(self)
        on = bench(*self._kinds(), board=board, refreshes=_MortalStore(self))
        for name, text in self.files.items():
            on.files.put(f"/work/{name}", text)
        self.prepare(on)
        self.notes = on.notes
        try:
            asked = replace(on.options(stop=self.fate.stop, **options), on_event=self._told)
            return await on.engine.apply(ManifestSource(path="/work/m.yaml"), asked)
        except Killed:
            return None

    @property
    def warnings(self) -> list[str]:
        """What the last apply warned of."""
        return [message for level, message, _ in self.notes if level == "warning"]

    def did(self, what: str, resource: str) -> None:
        """Something happens."""
        self.acts.append(Act(what, resource))

    def _told(self, event: TransactionEvent) -> None:
        self.events.append(event)
        self.did("told", f"{event.type}#{event.name}")

    def _kinds(self) -> Sequence[AnyType]:
        return (
            replace(EXEC, providers=(ProviderSpec(name="fake", make=lambda _: _Commands(self)),)),
            replace(SERVICE, providers=(ProviderSpec(name="fake", make=lambda _: _Services(self)),)),
        )


@contextmanager
def fresh_host() -> Iterator[Host]:
    """A host with a state folder of its own."""
    with tempfile.TemporaryDirectory(prefix="ccm-refresh-") as folder:
        yield Host(Path(folder, "refresh"))


class _MortalBoard(Board):
    def __init__(self, host: Host) -> None:
        super().__init__()
        self._host = host
        self.notes = host.board.notes
        self.broken = host.failing

    async def write(self, wanted: NoteProperties) -> None:
        host, reference = self._host, f"note#{wanted.name}"
        host.fate.pass_step()
        host.did("tried", reference)
        before = dict(self.notes)
        await super().write(wanted)
        if self.notes != before or wanted.subscribe:
            host.did("changed", reference)
        host.fate.pass_step()
        if self.broken.get(wanted.name) == "late":
            raise HostError("the ink is not dry")


class _Commands:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def status(self, wanted: ExecProperties) -> ExecState:
        self._host.fate.pass_step()
        return ExecState(protocol="p", type="exec", name=wanted.name, ensure="present")

    async def execute(self, wanted: ExecProperties) -> Execution:
        host, reference = self._host, f"exec#{wanted.name}"
        host.fate.pass_step()
        host.did("tried", reference)
        if wanted.name in host.failing:
            return Execution(exitcode=1)
        host.did("changed", reference)
        host.fate.pass_step()
        return Execution(exitcode=0)


class _Services:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def status(self, wanted: ServiceProperties) -> ServiceState:
        is_running = wanted.name in self._host.running
        found = ServiceMetadata(name=wanted.name, provider="fake", enabled=True, running=is_running)
        ensure = "running" if is_running else "stopped"
        return ServiceState(protocol="p", type="service", name=wanted.name, ensure=ensure, metadata=found)

    async def start(self, name: str) -> None:
        self._begin(name)

    async def restart(self, name: str) -> None:
        self._begin(name)

    def _begin(self, name: str) -> None:
        host, reference = self._host, f"service#{name}"
        host.fate.pass_step()
        host.did("tried", reference)
        if name in host.failing:
            host.running.discard(name)
            return
        host.running.add(name)
        host.did("changed", reference)
        host.fate.pass_step()


class _MortalStore(RefreshStore):
    def __init__(self, host: Host) -> None:
        super().__init__(host.folder)
        self._host = host

    def log(self, scope: str) -> RefreshLog:
        return _MortalLog(super().log(scope).path, scope, self._host)


class _MortalLog(RefreshLog):
    def __init__(self, path: Path, scope: str, host: Host) -> None:
        super().__init__(path, scope)
        self._host = host

    def add(self, change: TriggerChange) -> None:
        self._around(lambda: super(_MortalLog, self).add(change))

    def refreshed(self, keys: Sequence[str], changes: Sequence[str]) -> None:
        self._around(lambda: super(_MortalLog, self).refreshed(keys, changes))

    def drop(self, changes: Sequence[str]) -> None:
        self._around(lambda: super(_MortalLog, self).drop(changes))

    def settle(self, own: Mapping[str, TriggerChange]) -> None:
        self._around(lambda: super(_MortalLog, self).settle(own))

    def _around(self, write: Callable[[], None]) -> None:
        self._host.fate.pass_step()
        write()
        self._host.fate.pass_step()
