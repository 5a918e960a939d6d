"""
The plugin of pytest that runs the tests once without a check after the other. It is copied into the tree that is tried.

All tests are imported once. A fork runs them all and notes which tests come to which check; then each check has a fork of its
own, which takes it out and runs the tests that come to it, until one fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ccm_check_probe as probe  # type: ignore[import-not-found]
import pytest

KILLED, SURVIVED, TIMED_OUT, UNTESTED = "killed", "survived", "timed out", "no test comes to it"
GRACE_S = 60
"""So long after its limit a fork is ended that does not end by itself."""


class Failures:
    """The tests that failed in this process."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure of any phase."""
        if report.failed:
            self.found.append((report.nodeid, str(report.longrepr)[-400:]))


class Trial:
    """All forks of one session of pytest."""

    def __init__(self, session: pytest.Session, plan: dict[str, Any]) -> None:
        self._items = list(session.items)
        self._plan = plan
        self._failures = Failures()
        session.config.pluginmanager.register(self._failures)
        self._folder = Path(tempfile.mkdtemp(prefix="ccm-mutants-"))

    def run(self) -> dict[str, Any]:
        """The result of each check that was chosen, by its number."""
        workers = self._plan["workers"]
        try:
            parts = _split(self._items, workers)
            looks = {number: lambda part=part: self._look(part) for number, part in enumerate(parts)}
            met, failed = self._merge(self._fork_all(looks, self._plan["look_limit_s"]))
            tries: dict[int, Callable[[], Any]] = {}
            results: dict[int, Any] = {}
            for number in self._plan["chosen"]:
                items = self._order(number, met)
                if items:
                    tries[number] = lambda number=number, items=items: self._try(number, items)
                else:
                    results[number] = {"result": UNTESTED, "tests": 0, "test": ""}
            results |= self._fork_all(tries, self._plan["limit_s"] + GRACE_S)
            return {"results": results, "failed_before": failed, "tests": len(self._items)}
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _look(self, items: list[pytest.Item]) -> dict[str, Any]:
        """Which checks each test comes to, also in processes that it started, and how long it takes."""
        seen = {}
        log = Path(os.environ["PYTEST_DEBUG_TEMPROOT"]) / "met"
        log.touch()
        os.environ["CCM_MUTANTS_MET"] = str(log)
        with log.open() as elsewhere:
            for item, following in _pairs(items):
                probe.met.clear()
                began = time.monotonic()
                _run(item, following)
                met = probe.met | {int(line) for line in elsewhere}
                seen[item.nodeid] = (sorted(met), time.monotonic() - began)
        return {"seen": seen, "failed": [node for node, _ in self._failures.found]}

    def _merge(self, looks: dict[int, Any]) -> tuple[dict[int, dict[str, float]], list[str]]:
        met: dict[int, dict[str, float]] = defaultdict(dict)
        failed = {node for look in looks.values() for node in look.get("failed", ())}
        for look in looks.values():
            for node, (numbers, seconds) in look.get("seen", {}).items():
                for number in numbers if node not in failed else ():
                    met[number][node] = seconds
        return met, sorted(failed)

    def _order(self, number: int, met: dict[int, dict[str, float]]) -> list[pytest.Item]:
        """The tests that come to a check: files with its module's name first, then those that take the least time."""
        seconds = met.get(number, {})
        stem = Path(self._plan["paths"][str(number)]).stem
        spent: dict[str, float] = defaultdict(float)
        for node, each in seconds.items():
            spent[node.partition("::")[0]] += each

        def rank(item: pytest.Item) -> tuple[bool, float, str]:
            file = item.nodeid.partition("::")[0]
            return stem not in file, spent[file], file

        return sorted((item for item in self._items if item.nodeid in seconds), key=rank)

    def _try(self, number: int, items: list[pytest.Item]) -> dict[str, Any]:
        """Run the tests that come to a check without it, until one fails."""
        probe.choose(number)
        until = time.monotonic() + self._plan["limit_s"]
        for count, (item, following) in enumerate(_pairs(items), 1):
            _run(item, following)
            if self._failures.found:
                with contextlib.suppress(BaseException):
                    item.session._setupstate.teardown_exact(None)
                node, text = self._failures.found[0]
                result = TIMED_OUT if "Timeout >" in text else KILLED
                return {"result": result, "tests": count, "test": node}
            if time.monotonic() > until:
                with contextlib.suppress(BaseException):
                    item.session._setupstate.teardown_exact(None)
                return {
                    "result": SURVIVED,
                    "tests": count,
                    "test": f"{len(items) - count} tests were not run",
                }
        return {"result": SURVIVED, "tests": len(items), "test": ""}

    def _fork_all(self, works: dict[int, Callable[[], Any]], limit_s: float) -> dict[int, Any]:
        """Do each work in a fork of its own, so many at once as there are workers."""
        waiting, results = list(works.items()), {}
        running: dict[int, tuple[int, float]] = {}
        while waiting or running:
            while waiting and len(running) < self._plan["workers"]:
                number, work = waiting.pop(0)
                running[self._fork(number, work)] = (number, time.monotonic() + limit_s)
            pid, _ = os.waitpid(-1, os.WNOHANG)
            for late in [one for one, (_, until) in running.items() if time.monotonic() > until]:
                os.killpg(late, signal.SIGKILL)
            if not pid:
                time.sleep(0.02)
                continue
            number, _ = running.pop(pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what its tests have left
            results[number] = self._result(number)
            self._tell(number, results[number], len(works))
        return results

    def _fork(self, number: int, work: Callable[[], Any]) -> int:
        pid = os.fork()
        if pid:
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
            return pid
        try:
            os.setpgid(0, 0)
            nothing = os.open(os.devnull, os.O_RDWR)
            for each in (0, 1, 2):
                os.dup2(nothing, each)
            own = self._folder / str(number)
            own.mkdir(exist_ok=True)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = str(own)
            done = work()
            (self._folder / f"{number}.json").write_text(json.dumps(done))
        finally:
            os._exit(0)

    def _result(self, number: int) -> Any:
        path = self._folder / f"{number}.json"
        shutil.rmtree(self._folder / str(number), ignore_errors=True)
        if not path.is_file():
            return {"result": TIMED_OUT, "tests": 0, "test": "its process did not end by itself"}
        done = json.loads(path.read_text())
        path.unlink()
        return done

    def _tell(self, number: int, done: Any, count: int) -> None:
        if "result" in done:
            with Path(self._plan["progress"]).open("a") as progress:
                progress.write(json.dumps({"number": number, "of": count, **done}) + "\n")


def _split(items: list[pytest.Item], count: int) -> list[list[pytest.Item]]:
    """Parts of about the same size; the tests of a file stay together."""
    parts: list[list[pytest.Item]] = [[] for _ in range(count)]
    by_file: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_file[item.nodeid.partition("::")[0]].append(item)
    for file in sorted(by_file.values(), key=len, reverse=True):
        min(parts, key=len).extend(file)
    return [part for part in parts if part]


def _pairs(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    following: Iterable[pytest.Item | None] = [*items[1:], None]
    return zip(items, following, strict=True)


def _run(item: pytest.Item, following: pytest.Item | None) -> None:
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the trial instead of the tests."""
    plan = json.loads(Path(os.environ["CCM_MUTANTS_PLAN"]).read_text())
    for module, path in plan["expected"].items():
        found = __import__(module).__file__
        assert found is not None
        assert Path(found).is_relative_to(path), f"{module} is not that of the copy: {found}"
    Path(plan["out"]).write_text(json.dumps(Trial(session, plan).run()))
    return True
