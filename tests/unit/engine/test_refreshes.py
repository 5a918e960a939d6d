"""Refreshes that are pending: what is remembered of them, when they are run, and what clears them."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.engine.request import ManifestSource, StopFlag
from ccm_agent.sessions.directory import new_session_directory
from tests.support.engine import bench
from tests.support.refreshes import Fate, Host, fresh_host

TWO = """
ccm:
  resources:
    - note: {name: conf, text: "TEXT"}
    - exec: {name: reload, refreshonly: true, subscribe: [note#conf]}
"""


@pytest.fixture
def host() -> Iterator[Host]:
    with fresh_host() as made:
        made.files["m.yaml"] = TWO
        yield made


def ran(host: Host, reference: str) -> int:
    """How many times a resource was run, or written."""
    return sum(act.what == "tried" and act.resource == reference for act in host.acts)


def outcomes(host: Host) -> list[tuple[str, str, list[str]]]:
    """Name, outcome and pending triggers of each event of the last apply."""
    return [(one.name, one.outcome.value, one.refresh_pending) for one in host.events]


def kept(host: Host) -> str:
    """What is on disk."""
    return "".join(path.read_text() for path in host.folder.glob("*.log"))


async def failed_once(host: Host) -> None:
    """The trigger has changed, and its subscriber has failed."""
    host.failing = {"reload": "unable"}
    await host.apply()
    host.failing = {}


async def test_subscriber_that_failed_runs_at_the_next_apply_and_not_again(host: Host) -> None:
    host.failing = {"reload": "unable"}

    first = await host.apply()
    told = outcomes(host)
    host.failing = {}
    second = await host.apply()

    assert told == [("conf", "changed", []), ("reload", "failed", ["note#conf"])]
    assert first is not None
    assert first.refresh_pending == ["exec#reload"]
    assert outcomes(host) == [("conf", "stable", []), ("reload", "refreshed", [])]
    assert host.events[-1].triggered_by == "note#conf"
    assert second is not None
    assert (second.state, second.refresh_pending, kept(host)) == ("changed", [], "")
    await host.apply()
    assert ran(host, "exec#reload") == 2


async def test_stopped_run_leaves_the_refresh_to_the_next_one(host: Host) -> None:
    summary = await host.apply(Fate(stop_at=3))
    told = outcomes(host)
    await host.apply()

    assert summary is not None
    assert (summary.reason, summary.refresh_pending) == ("stopped", ["exec#reload"])
    assert told == [("conf", "changed", []), ("reload", "skipped", ["note#conf"])]
    assert outcomes(host) == [("conf", "stable", []), ("reload", "refreshed", [])]


async def test_plan_shows_pending_refreshes_and_writes_nothing(host: Host) -> None:
    await failed_once(host)
    before = {path: path.read_bytes() for path in host.folder.iterdir()}

    summary = await host.apply(noop=True)

    event = host.events[-1]
    assert (event.outcome.value, event.noop_message) == ("refreshed", "Would have executed via subscribe")
    assert event.refresh_pending == ["note#conf"]
    assert summary is not None
    assert summary.refresh_pending == ["exec#reload"]
    assert {path: path.read_bytes() for path in host.folder.iterdir()} == before


async def test_plan_on_a_fresh_host_makes_no_folder(host: Host) -> None:
    await host.apply(noop=True)

    assert not host.folder.exists()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "ccm: {resources: [note: {name: conf, text: TEXT}]}", id="the subscriber is not declared"
        ),
        pytest.param(
            TWO.replace("subscribe: [note#conf]", "subscribe: []"), id="the subscription is not declared"
        ),
        pytest.param(TWO.replace("name: reload", "name: reload2"), id="the subscriber has another name"),
        pytest.param(
            TWO.replace("refreshonly", 'control: {if: "false"}, refreshonly'),
            id="its control says that it is not meant for this node",
        ),
    ],
)
async def test_refresh_is_cleared_when(host: Host, text: str) -> None:
    await failed_once(host)
    host.files["m.yaml"] = text

    summary = await host.apply()

    assert summary is not None
    assert (summary.state, summary.refresh_pending, kept(host)) == ("stable", [], "")
    host.files["m.yaml"] = TWO
    await host.apply()
    assert ran(host, "exec#reload") == 1


async def test_trigger_that_was_renamed_is_found_by_its_alias(host: Host) -> None:
    host.files["m.yaml"] = TWO.replace("name: conf", "name: old, alias: conf")
    await failed_once(host)
    host.files["m.yaml"] = TWO.replace("name: conf", "name: new, alias: conf")
    host.board.notes["new"] = "TEXT"

    await host.apply()

    assert [one[:2] for one in outcomes(host)] == [("new", "stable"), ("reload", "refreshed")]


async def test_unmet_requirement_leaves_the_refresh_pending(host: Host) -> None:
    await failed_once(host)
    host.files["m.yaml"] = """
ccm:
  resources:
    - note: {name: conf, text: "TEXT"}
    - note: {name: other, text: x}
    - exec: {name: reload, refreshonly: true, subscribe: [note#conf], require: [note#other]}
"""
    host.failing = {"other": "unable"}
    await host.apply()
    told = outcomes(host)[-1]
    host.failing = {}

    await host.apply()

    assert told == ("reload", "skipped due to unmet requirement", ["note#conf"])
    assert outcomes(host)[-1] == ("reload", "refreshed", [])


async def test_subscriber_waits_while_its_trigger_fails(host: Host) -> None:
    await failed_once(host)
    host.files["m.yaml"] = TWO.replace("TEXT", "other")
    host.failing = {"conf": "unable"}

    await host.apply()
    told = outcomes(host)
    host.failing = {}
    await host.apply()

    assert told == [("conf", "failed", []), ("reload", "stable", ["note#conf"])]
    assert [one[:2] for one in outcomes(host)] == [("conf", "changed"), ("reload", "refreshed")]
    assert kept(host) == ""


async def test_change_in_a_failed_state_is_remembered(host: Host) -> None:
    host.failing = {"conf": "late"}
    await host.apply()
    host.failing = {}

    await host.apply()

    assert [one[:2] for one in outcomes(host)] == [("conf", "stable"), ("reload", "refreshed")]


async def test_same_names_in_two_manifests_are_not_mixed_up(host: Host) -> None:
    await failed_once(host)

    await host.apply(scope="assignment:other")
    assert outcomes(host)[-1] == ("reload", "stable", [])
    await host.apply()

    assert outcomes(host)[-1] == ("reload", "refreshed", [])


async def test_same_names_in_two_child_manifests_are_two(host: Host) -> None:
    child = "ccm: {resources: [exec: {name: reload, refreshonly: true, subscribe: [note#conf]}]}"
    host.files = {
        "m.yaml": "ccm: {resources: [{note: {name: conf, text: x}}, {apply: {name: a.yaml}}, {apply: {name: b.yaml}}]}",
        "a.yaml": child,
        "b.yaml": child,
    }
    # the steps of the note, of the first command, and of what is recorded of both
    for step in range(1, 12):
        await host.apply(Fate(kill_at=step))

    await host.apply()
    done = [event.parent for event in host.events if event.refreshed]
    assert done == [] or done[-1] == "apply#b.yaml"
    assert ran(host, "exec#reload") >= 2
    assert kept(host) == ""


async def test_command_with_a_secret_is_not_on_disk(host: Host) -> None:
    host.files["m.yaml"] = TWO.replace("name: reload", 'name: "mysql -p hunter22 reload"')
    host.failing = {"mysql -p hunter22 reload": "unable"}

    await host.apply()

    assert "hunter22" not in kept(host)
    assert "exec#mysql …" in kept(host)
    (path,) = host.folder.glob("*.log")
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(host.folder.stat().st_mode)) == (0o600, 0o700)


async def test_trigger_is_not_changed_when_that_cannot_be_recorded(host: Host) -> None:
    host.folder.parent.joinpath("refresh").write_text("a file where the folder should be")

    await host.apply()

    assert outcomes(host) == [("conf", "failed", []), ("reload", "stable", [])]
    assert host.events[0].error[0].startswith("nothing was changed: cannot record that subscribers must be")
    assert (host.events[0].code, host.board.notes) == ("host.file", {})


async def test_resource_without_subscribers_is_changed_on_a_full_disk(host: Host) -> None:
    host.files["m.yaml"] = "ccm: {resources: [note: {name: conf, text: x}]}"
    host.folder.parent.joinpath("refresh").write_text("a file where the folder should be")

    summary = await host.apply()

    assert summary is not None
    assert summary.state == "changed"


async def test_damaged_file_is_reported_and_readable_lines_count(host: Host) -> None:
    await failed_once(host)
    (path,) = host.folder.glob("*.log")
    path.write_bytes(path.read_bytes() + b'{"change":{"id":\xff}}\n')

    await host.apply()

    assert outcomes(host)[-1] == ("reload", "refreshed", [])
    assert host.warnings == ["Pending refreshes cannot be read: a subscriber may miss a refresh"]
    assert path.with_suffix(".damaged").exists()
    assert not path.exists()


async def test_file_full_of_rubbish_is_reported_and_the_run_continues(host: Host) -> None:
    await failed_once(host)
    (path,) = host.folder.glob("*.log")
    path.write_bytes(bytes(range(256)) * 10)

    summary = await host.apply()

    assert summary is not None
    assert (summary.state, len(host.warnings)) == ("stable", 1)


async def test_one_record_speaks_for_all_once_there_are_too_many(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccm_agent.engine.refreshes.CHANGES_LIMIT", 2)
    notes = "".join(f"    - note: {{name: n{one}, text: x}}\n" for one in range(9))
    subscribed = ", ".join(f"note#n{one}" for one in range(9))
    command = f"    - exec: {{name: reload, refreshonly: true, subscribe: [{subscribed}]}}\n"
    host.files["m.yaml"] = f"ccm:\n  resources:\n{notes}{command}"

    await failed_once(host)

    assert len(kept(host).splitlines()) == 1 + 3
    await host.apply()
    assert (host.events[-1].outcome.value, kept(host)) == ("refreshed", "")


async def test_failed_health_check_does_not_refresh_again(host: Host) -> None:
    check = "health_checks: [{command: /bin/false, format: nagios}], refreshonly"
    host.files["m.yaml"] = TWO.replace("refreshonly", check)
    host.prepare = lambda on: on.runner.when("/bin/false", code=2)

    await host.apply()
    await host.apply()

    assert host.events[-1].failed
    assert ran(host, "exec#reload") == 1


async def test_session_remembers_between_processes(tmp_path: Path) -> None:
    directory = await asyncio.to_thread(new_session_directory, str(tmp_path / "session"))
    conf = {"name": "conf", "text": "x"}
    hears = {"name": "hears", "subscribe": ["note#conf"]}
    on = bench()
    options = on.options(session=directory)
    on.board.notes["hears"] = ""

    on.board.broken["hears"] = "unable"
    await on.engine.ensure("note", conf, options)
    await on.engine.ensure("note", hears, options)
    on.board.broken.clear()
    await on.engine.ensure("note", conf, options)
    await on.engine.ensure("note", hears, options)
    await on.engine.ensure("note", conf, options)
    await on.engine.ensure("note", hears, options)

    assert on.outcomes == [
        ("conf", "changed"),
        ("hears", "failed"),
        ("conf", "stable"),
        ("hears", "refreshed"),
        ("conf", "stable"),
        ("hears", "stable"),
    ]
    assert [event.refresh_pending for event in on.events][:2] == [[], ["note#conf"]]
    assert json.loads((tmp_path / "session" / "refreshes.log").read_text().splitlines()[0])["version"] == 1


async def test_engine_without_a_store_forgets_as_before() -> None:
    on = bench()
    text = b"ccm: {resources: [{note: {name: a, text: x}}, {note: {name: b, subscribe: [note#a]}}]}"
    on.board.notes["b"] = ""
    on.board.broken["b"] = "unable"
    source = ManifestSource(text=text, name="m.yaml", directory="/work")

    await on.engine.apply(source, on.options())
    on.board.broken.clear()
    await on.engine.apply(source, on.options(stop=StopFlag()))

    assert on.outcomes == [("a", "changed"), ("b", "failed"), ("a", "stable"), ("b", "stable")]
