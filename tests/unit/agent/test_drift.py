import asyncio
import json
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.agent.desired.drift import Drift, forget_others
from ccm_agent.model.outcome import SESSION_START, SessionStart
from ccm_agent.storage import state_file
from tests.support.agent import resource_event

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def start(digest: str = "d1", **revisions: int) -> SessionStart:
    return SessionStart(
        protocol=SESSION_START, event_id="1", timestamp=NOON, digest=digest, data_revisions=revisions
    )


def run(drift: Drift, begin: SessionStart, **events: dict[str, Any]) -> list[bool | None]:
    """What is said of each event of a run."""
    drift.start(begin)
    return [drift.judge(resource_event(name, **fields)) for name, fields in events.items()]


CHANGED = {"changed": True}
FAILED = {"failed": True}
SKIPPED = {"skipped": True}
STABLE: dict[str, Any] = {}


@pytest.fixture
def drift(tmp_path: Path) -> Drift:
    return Drift("/etc/site.yaml", tmp_path / "converged", lambda: "facts", unreported)


def unreported(*corrections: object) -> None:
    """For runs whose corrections are not reported."""
    pytest.fail(str(corrections))


def test_the_first_change_is_intended_and_one_under_the_same_manifest_is_corrective(drift: Drift) -> None:
    said = [run(drift, start(), a=CHANGED, b=STABLE), run(drift, start(), a=CHANGED, b=CHANGED)]

    assert said == [[False, None], [True, True]]
    assert (drift.corrections, drift.corrected) == (2, ["file#a", "file#b"])


@pytest.mark.parametrize("other", [start("d2"), start(common=2)], ids=["new manifest", "new data"])
def test_a_change_under_something_new_is_intended(drift: Drift, other: SessionStart) -> None:
    run(drift, start(common=1), a=STABLE)

    assert run(drift, other, a=CHANGED) == [False]


def test_a_change_under_other_assigned_facts_is_intended(tmp_path: Path) -> None:
    facts = {"role": "web"}
    drift = Drift("/etc/site.yaml", tmp_path, lambda: facts, unreported)
    run(drift, start(), a=STABLE)
    facts["role"] = "db"

    assert run(drift, start(), a=CHANGED) == [False]


def test_resource_that_never_succeeded_does_not_count_as_drift(drift: Drift) -> None:
    run(drift, start(), a=FAILED, b=SKIPPED)

    assert run(drift, start(), a=CHANGED, b=CHANGED, c=CHANGED) == [False, False, False]


def test_drift_that_could_be_corrected_only_later_was_drift(drift: Drift) -> None:
    run(drift, start(), a=STABLE)
    run(drift, start(), a=FAILED)

    assert run(drift, start(), a=CHANGED) == [True]


def test_an_exec_cannot_say_whether_there_was_drift(drift: Drift) -> None:
    said = [run(drift, start(), a={"type": "exec", "changed": True}) for _ in range(2)]

    assert said == [[None], [None]]


async def test_known_state_survives_a_restart(drift: Drift, tmp_path: Path) -> None:
    run(drift, start(), a=STABLE)
    await drift.save()

    after = Drift("/etc/site.yaml", tmp_path / "converged", lambda: "facts", unreported)
    await after.open()

    assert run(after, start(), a=CHANGED) == [True]


async def test_two_sources_know_nothing_of_each_other(drift: Drift, tmp_path: Path) -> None:
    run(drift, start(), a=STABLE)
    await drift.save()

    other = Drift("/etc/other.yaml", tmp_path / "converged", lambda: "facts", unreported)
    await other.open()

    assert run(other, start(), a=CHANGED) == [False]


async def test_corrections_are_reported_before_it_is_written_down_that_they_are_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, ...]] = []

    def report(name: str, of: str, count: int, resources: Sequence[str]) -> None:
        done.append((name, of, str(count), *resources))

    def write(_file: object, _value: object) -> None:
        done.append(("written",))

    monkeypatch.setattr(state_file.StateFile, "write", write)
    drift = Drift("/etc/site.yaml", tmp_path, lambda: None, report)
    run(drift, start(), a=STABLE)
    run(drift, start(), a=CHANGED)

    await drift.finish("site", "run1")

    assert done == [("site", "run1", "1", "file#a"), ("written",)]


async def test_a_run_that_corrected_nothing_tells_nothing(drift: Drift) -> None:
    run(drift, start(), a=CHANGED)

    await drift.finish("site", "run1")


async def test_stored_state_of_other_items_is_removed(tmp_path: Path) -> None:
    names = ("assignment web", "assignment db", "/etc/site.yaml#0")
    for name in names:
        drift = Drift(name, tmp_path, lambda: None, unreported)
        run(drift, start(), a=STABLE)
        await drift.save()
    spoilt = tmp_path / "spoilt.json"
    await asyncio.to_thread(spoilt.write_text, "{half")

    await asyncio.to_thread(forget_others, tmp_path, "assignment ", {"web"})

    kept = {path: await known(path) for path in await asyncio.to_thread(lambda: sorted(tmp_path.iterdir()))}
    assert sorted(kept.values()) == ["", "/etc/site.yaml#0", "assignment web"]


async def known(path: Path) -> str:
    """The source of a file; "" where none can be read."""
    text = await asyncio.to_thread(path.read_text)
    return str(json.loads(text)["source"]) if text.endswith("}") else ""


async def test_dropped_assignment_is_neither_known_nor_stored(tmp_path: Path) -> None:
    drift = Drift("assignment web", tmp_path, lambda: None, unreported)
    run(drift, start(), a=STABLE)
    await drift.save()

    await drift.forget()
    await drift.forget()

    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []
    assert run(drift, start(), a=CHANGED) == [False]


async def test_state_written_while_its_worker_ends_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    really = state_file.replace_file

    def slow(path: Path, parts: list[bytes]) -> None:
        begun.set()
        go_on.wait(10)
        really(path, parts)

    monkeypatch.setattr(state_file, "replace_file", slow)
    drift = Drift("assignment web", tmp_path, lambda: None, unreported)
    run(drift, start(), a=STABLE)

    async with asyncio.TaskGroup() as group:
        keeps = group.create_task(drift.save())
        await asyncio.to_thread(begun.wait, 10)
        keeps.cancel()
        await asyncio.wait({keeps})
        forgets = group.create_task(drift.forget())
        await asyncio.sleep(0)
        go_on.set()
        await forgets

    assert await asyncio.to_thread(lambda: list(tmp_path.iterdir())) == []
