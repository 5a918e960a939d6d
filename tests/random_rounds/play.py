"""Rounds on a real fleet: a broker with credentials, six agents, two operators, a rollout server and a dashboard."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.random_rounds.plan import NODES, WORK_S, Fault, Round
from tests.support.fleet import FILES, Controller, Done, Fleet, manifest
from tests.support.secured import Secured, secured_broker

SETTLE_S = 90.0
"""How long a round may take to end after its last fault."""

STOP_AFTER_S = 15.0
"""So long an operator waits for the nodes of a run that no process sends any more."""

LEASE_S = 30.0
"""Longer than the lease of a dead driver."""

_LOOK_S = 0.3


class RoundError(AssertionError):
    """A round did not end, or readers disagree about it."""


@dataclass
class Played:
    """
    A round that has ended.

    Attributes:
        run: Its run.
        marks: How often each node has done the work, by node; for `exec` only the sum is known, under "".
        kept: The nodes that have the file of the manifest: at the end of the run, and after its undo.
        undo: The run that undid it; "" for none.
    """

    round: Round
    run: str
    marks: dict[str, int]
    kept: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    undo: str = ""


class Ground(Secured):
    """A fleet on which rounds are played, one after the other."""

    def __init__(self, directory: Path, fleet: Fleet) -> None:
        super().__init__(directory, fleet)
        self.count = 0
        self.server: Controller | None = None
        self.dashboard: Controller | None = None
        self._cookie = ""

    def set_up(self) -> None:
        """Start everything that lasts."""
        fleet = self.fleet
        self.give("operator", "ann", "--apply", "all", "--exec", "all")
        fleet.environ["CCM_CREDS"] = str(self.keys / "tester.creds")
        (self.directory / "marks").mkdir()
        for name in NODES:
            creds = self.give("node", name)
            nats = {"url": fleet.environ["NATS_URL"], "creds": str(creds)}
            fleet.add(name, nats=nats, interval="1h", change_pause="0s")
        done = fleet.ctl("facts", "set", *NODES, "role=web")
        assert done.code == 0, done.err
        self.server = fleet.begin("rollout", "serve")
        self.dashboard = fleet.begin("dashboard", "--port", "0")

    def play(self, drawn: Round) -> Played:
        """
        Play a round to its end.

        Raises:
            RoundError: It does not end.
        """
        self.count += 1
        name = f"r{self.count}"
        controller = self._start(drawn, name)
        self.fleet.wait_for(
            lambda: controller.so_far.named("run") or controller.process.poll() is not None,
            f"round {drawn.seed} to be on record",
        )
        if not controller.so_far.named("run"):
            raise RoundError(f"it was not started: {controller.so_far.err}")
        run = controller.so_far.run
        began = time.monotonic()
        for fault in drawn.faults:
            time.sleep(max(0.0, fault.after_s - (time.monotonic() - began)))
            self._break(fault, controller, run, drawn)
        self._mend()
        self._settle(drawn, controller, run)
        before = self._find_kept(name)
        undo = self._undo(drawn, run) if drawn.after == "undo" else ""
        if drawn.kind == "assign":
            self._quietly("unassign", name, "--yes")
        kept = before, self._find_kept(name)
        return Played(round=drawn, run=run, marks=self._read_marks(drawn, name), kept=kept, undo=undo)

    def api(self, path: str) -> Any:
        """What the dashboard answers."""
        assert self.dashboard is not None
        printed = self.dashboard.so_far.out.splitlines()[-1]
        address, _, token = printed.partition("/#")
        if not self._cookie:
            body = json.dumps({"token": token.removeprefix("token=")}).encode()
            request = urllib.request.Request(f"{address}/api/session", body, {"Origin": address})
            with urllib.request.urlopen(request, timeout=20) as response:
                self._cookie = response.headers["Set-Cookie"].partition(";")[0]
        request = urllib.request.Request(f"{address}{path}", headers={"Cookie": self._cookie})
        with urllib.request.urlopen(request, timeout=20) as response:
            return json.load(response)

    def _start(self, drawn: Round, name: str) -> Controller:
        environ = {"CCM_CREDS": str(self._creds(drawn.operator))}
        target = ("-t", f"role=web,node in ({','.join(drawn.nodes)})", "--yes", "--json", *drawn.options)
        for node in drawn.failing:
            (self.fleet.agents[node].files / f"fail-{name}").touch()
        work = f"echo x >> {FILES}/log-{name}; sleep {WORK_S}; test ! -e {FILES}/fail-{name}"
        mark: dict[str, Any] = {"command": f'sh -c "{work}"', "timeout": "60s"}
        if drawn.kind == "assign":
            # its loop converges again later, and finds the work done
            mark["unless"] = f"test -s {FILES}/log-{name} -a ! -e {FILES}/fail-{name}"
        resources = [("exec", f"work-{name}", mark)]
        if drawn.after == "undo":
            resources.append(("file", f"{FILES}/kept-{name}", {"ensure": "present", "content": "x", **_OWN}))
        path = self.fleet.write(f"{name}.yaml", manifest(*resources))
        marks = self.directory / "marks"
        words = {
            "apply": ["apply", path, *target],
            "assign": ["assign", name, path, *target],
            "exec": ["exec", *target, "--", "sh", "-c", f"mktemp -q {marks}/{name}.XXXXXX; sleep {WORK_S}"],
            "detached": ["apply", path, *target, "--detach"],
        }
        return self.fleet.begin(*words[drawn.kind], environ=environ)

    def _break(self, fault: Fault, controller: Controller, run: str, drawn: Round) -> None:
        if fault.what == "agent":
            agent = self.fleet.agents[fault.who]
            agent.kill()
            time.sleep(fault.back_s)
            agent.start()
        elif fault.what == "broker":
            self.fleet.broker.kill()
            time.sleep(fault.back_s)
            self.fleet.broker.start()
        elif fault.what == "driver":
            driver = self.server if drawn.kind == "detached" else controller
            assert driver is not None
            driver.kill()
        else:
            self._quietly("run", fault.what, run, operator=fault.who)

    def _mend(self) -> None:
        if not self.fleet.broker.pid:
            self.fleet.broker.start()
        for agent in self.fleet.agents.values():
            if agent.process is None or agent.process.poll() is not None:
                agent.start()
        assert self.server is not None
        if self.server.process.poll() is not None:
            self.server = self.fleet.begin("rollout", "serve")
        self.fleet.wait_present(NODES)

    def _settle(self, drawn: Round, controller: Controller, run: str) -> None:
        """Bring it to its end, as an operator would."""
        began = time.monotonic()
        deadline = began + SETTLE_S + LEASE_S
        while True:
            phase = self._phase(run)
            is_driven = drawn.kind == "detached" or controller.process.poll() is None
            if not phase and not is_driven_still(drawn, controller):
                shown = self.shown(run)
                if shown.named("result") and all(one["state"] not in _OPEN for one in shown.named("result")):
                    return
                if time.monotonic() > began + STOP_AFTER_S:
                    # its controller died before it had sent the request to each node
                    self._quietly("run", "stop", run, "--yes", operator=drawn.operator)
            elif phase == "paused" or (phase and not is_driven):
                self._quietly("run", drawn.end, run, operator=drawn.operator)
                if drawn.end == "abort":
                    # a rollout of an assignment whose waves have all ended is completed, and not aborted
                    self._quietly("run", "resume", run, operator=drawn.operator)
                if drawn.end == "promote" and not is_driven:
                    # the order waits for a driver
                    self._quietly("run", "resume", run, operator=drawn.operator)
            if time.monotonic() > deadline:
                raise RoundError(f"run {run} does not end; phase {phase!r}: {self.shown(run).states}")
            time.sleep(_LOOK_S)

    def shown(self, run: str) -> Done:
        """What `run show --json` prints."""
        return self.fleet.ctl("run", "show", run, "--json")

    def _phase(self, run: str) -> str:
        """Where an open rollout is; "" if it is over."""
        listed = self.fleet.ctl("rollout", "list", "--json").named("rollout")
        return next((str(one["phase"]) for one in listed if one["run"] == run), "")

    def _undo(self, drawn: Round, run: str) -> str:
        """Undo a run, through the faults that were drawn for it."""
        environ = {"CCM_CREDS": str(self._creds(drawn.operator))}
        controller = self.fleet.begin("undo", run, "--yes", "--json", environ=environ)
        self.fleet.wait_for(
            lambda: controller.so_far.named("run") or controller.process.poll() is not None,
            f"the undo of round {drawn.seed} to be on record",
        )
        if not controller.so_far.named("run"):
            return ""  # nothing to undo, or a node that has not ended
        undo = controller.so_far.run
        for fault in drawn.undo_faults:
            time.sleep(fault.after_s)
            self._break(fault, controller, undo, drawn)
        self._mend()
        self._settle(drawn, controller, undo)
        return undo

    def _find_kept(self, name: str) -> frozenset[str]:
        return frozenset(node for node in NODES if (self.fleet.agents[node].files / f"kept-{name}").exists())

    def _quietly(self, *words: str, operator: str = "tester") -> None:
        """A command that may be refused: an order that comes too late, or to a broker that is away."""
        self.as_(operator, *words)

    def _creds(self, name: str) -> Path:
        return self.keys / "tester.creds" if name == "tester" else self.directory / f"{name}.creds"

    def _read_marks(self, drawn: Round, name: str) -> dict[str, int]:
        if drawn.kind == "exec":
            return {"": len(list((self.directory / "marks").glob(f"{name}.*")))}
        logs = {node: self.fleet.agents[node].files / f"log-{name}" for node in NODES}
        return {node: path.read_text().count("x") if path.exists() else 0 for node, path in logs.items()}


_OWN = {"owner": "root", "group": "root", "mode": "0644"}
_OPEN = ("planned", "expected", "accepted", "queued", "running")


def is_driven_still(drawn: Round, controller: Controller) -> bool:
    """The command that started it has not ended."""
    return drawn.kind != "detached" and controller.process.poll() is None


@contextlib.contextmanager
def ground(directory: Path) -> Iterator[Ground]:
    """A fleet for rounds. All ends with the block."""
    with secured_broker(directory, Ground) as one:
        one.set_up()
        yield one
