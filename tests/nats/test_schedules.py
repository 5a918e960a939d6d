"""Schedules on a real broker, with real agents, and no controller running."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import Fleet, a_file, manifest
from tests.support.nats_server import require_server
from tests.support.schedules import add_at

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """web1 with role=web, db1 with role=db."""
    require_server()
    directory = tmp_path_factory.mktemp("schedules")
    server = NatsServer(ServerSettings(directory=directory / "nats"))
    server.start()
    fleet = Fleet(directory, [server])
    try:
        assert fleet.ctl("init").code == 0
        fleet.add("web1", "db1")
        for name, role in (("web1", "web"), ("db1", "db")):
            assert fleet.ctl("facts", "set", name, f"role={role}").code == 0
        yield fleet
    finally:
        fleet.close()


def test_a_schedule_converges_its_nodes_and_no_others_until_it_is_removed(pair: Fleet) -> None:
    path = pair.write("often.yaml", manifest(a_file("often")))
    motd = pair.agents["web1"].files / "often"

    added = pair.ctl("schedule", "add", "often", path, "--every", "1s", "--targets", "role=web", "--yes")
    pair.wait_for(motd.exists, "the schedule to be due")
    motd.unlink()
    pair.wait_for(motd.exists, "the schedule to be due again")
    asked = pair.ctl("schedule", "rm", "often")
    [listed] = pair.ctl("schedule", "list", "--json").records
    removed = pair.ctl("schedule", "rm", "often", "--yes")

    assert (added.code, added.out) == (0, "often: stored, every 1s\n")
    shown = {key: listed[key] for key in ("name", "scope", "manifest", "targets", "when")}
    assert shown == {
        "name": "often",
        "scope": "fact.role.web",
        "manifest": "often",
        "targets": ["role=web"],
        "when": "@every 1s",
    }
    assert {"next", "last"} <= set(listed)
    assert not (pair.agents["db1"].files / "often").exists()
    assert asked.code == 1
    assert re.search(r"remove the schedule often \(every 1s\)\?.*use --yes", asked.err)
    assert (removed.code, removed.out) == (0, "often: removed\n")
    assert pair.ctl("schedule", "list").out == "no schedules yet; `ccmctl schedule add --help` shows how\n"
    assert pair.ctl("schedule", "rm", "often", "--yes").code == 1


def test_a_schedule_is_run_now_and_replaced(pair: Fleet) -> None:
    path = pair.write("nightly.yaml", manifest(a_file("nightly")))
    words = ["--cron", "0 0 2 * * *", "--tz", "Europe/Berlin", "--targets", "role=web", "--yes"]

    first = pair.ctl("schedule", "add", "nightly", path, *words)
    again = pair.ctl("schedule", "add", "nightly", path, *words)
    ran = pair.ctl("schedule", "run", "nightly", "--yes", "--json")
    [listed] = pair.ctl("schedule", "list", "--json").records

    due = listed["next"][:19].replace("T", " ")
    assert first.out == f"nightly: stored, 0 2 * * * Europe/Berlin, next {due}Z\n"
    assert again.out == f"nightly: replaced, 0 2 * * * Europe/Berlin, next {due}Z\n"
    assert (ran.code, ran.states) == (0, {"web1": "changed"})
    assert listed["next"][11:16] in ("00:00", "01:00")
    assert pair.ctl("schedule", "rm", "nightly", "--yes").code == 0


def test_schedules_for_one_scope_run_each_on_its_own_and_outlive_one_another(pair: Fleet) -> None:
    names = ("backup", "patch", "report")
    files = {name: pair.agents["web1"].files / name for name in names}
    words = ["--every", "1s", "--targets", "role=web", "--yes", "--json"]

    for name in names:
        added = pair.ctl("schedule", "add", name, pair.write(f"{name}.yaml", manifest(a_file(name))), *words)
        assert (added.code, added.err, added.records[0]["new"]) == (0, "", True)
    for name in names:
        pair.wait_for(files[name].exists, f"{name} to be due")
    listed = {one["name"]: one for one in pair.ctl("schedule", "list", "--json").records}
    again = pair.ctl("schedule", "add", "patch", pair.write("patch.yaml", manifest(a_file("patch"))), *words)
    # the one whose requests arrive where all requests do
    removed = pair.ctl("schedule", "rm", "backup", "--yes")
    for name in ("patch", "report"):
        files[name].unlink()
    for name in ("patch", "report"):
        pair.wait_for(files[name].exists, f"{name} to be due again")
    left = [one["name"] for one in pair.ctl("schedule", "list", "--json").records]
    # the place that became free is taken first
    files["backup"].unlink()
    back = pair.ctl(
        "schedule", "add", "backup", pair.write("backup.yaml", manifest(a_file("backup"))), *words
    )
    pair.wait_for(files["backup"].exists, "backup to be due")

    assert {name: "last" in one for name, one in listed.items()} == dict.fromkeys(names, True)
    assert (again.records[0]["new"], removed.code, left) == (False, 0, ["patch", "report"])
    assert back.records[0]["new"] is True
    assert not [name for name in names if (pair.agents["db1"].files / name).exists()]
    for name in names:
        assert pair.ctl("schedule", "rm", name, "--yes").code == 0
    assert pair.ctl("schedule", "list", "--json").out == ""


def test_a_second_schedule_of_a_name_for_other_nodes_is_refused(pair: Fleet) -> None:
    path = pair.write("nightly.yaml", manifest(a_file("nightly")))
    words = ["--cron", "@daily", "--yes"]

    first = pair.ctl("schedule", "add", "nightly", path, *words, "--targets", "role=web")
    second = pair.ctl("schedule", "add", "nightly", path, *words, "--targets", "role=db")

    assert (first.code, first.out[:34]) == (0, "nightly: stored, 0 0 * * *, next 2")
    assert (second.code, second.err) == (
        1,
        "ccmctl: nightly: there is already a schedule with that name for role=web; `ccmctl schedule rm nightly` removes it\n",
    )
    assert pair.ctl("schedule", "rm", "nightly", "--yes").code == 0


def test_a_due_request_stays_listed_for_catch_up_until_removed(pair: Fleet) -> None:
    path = pair.write("once.yaml", manifest(a_file("once")))

    added = add_at(pair, "once", path, "--targets", "role=db", "--catch-up")
    pair.wait_for((pair.agents["db1"].files / "once").exists, "the schedule to be due")
    [listed] = pair.ctl("schedule", "list", "--json").records
    shown = pair.ctl("schedule", "list").out
    ran = pair.ctl("schedule", "run", "once", "--yes", "--json")
    removed = pair.ctl("schedule", "rm", "once", "--yes")

    assert added.code == 0
    assert (listed["name"], listed["when"], listed["catch_up"]) == ("once", "", True)
    assert "once, in the past, catch up" in shown
    assert (ran.code, ran.states) == (0, {"db1": "stable"})
    assert removed.out == "once: removed\n"
    # nor is there anything left that a node which comes back could take
    assert pair.ctl("schedule", "list", "--json").out == ""


def test_a_missing_schedule_lists_the_existing_ones(pair: Fleet) -> None:
    assert pair.ctl("schedule", "run", "none").err == (
        "ccmctl: none: there is no such schedule; see `ccmctl schedule list`\n"
    )
