"""From nothing to a fleet in which everybody has credentials: keys, a broker, nodes and operators as people make them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        yield one


def test_an_operator_applies_on_a_node_and_each_may_just_that(secured: Secured) -> None:
    path = secured.fleet.write("site.yaml", manifest(a_file("motd", "hello")))

    planned = secured.as_("bob", "apply", path, "--targets", "role=web", "--noop", "--json")
    done = secured.as_("bob", "apply", path, "--targets", "role=web", "--yes", "--json")

    assert (planned.code, planned.states) == (0, {"web1": "changed"})
    assert (done.code, done.states) == (0, {"web1": "changed"})
    assert (secured.fleet.agents["web1"].files / "motd").read_text() == "hello"
    assert "violation" not in secured.fleet.broker.log.read_text().lower()


def test_a_bundle_and_data_reach_a_node_with_credentials(secured: Secured) -> None:
    data = secured.fleet.write("common.yaml", "data:\n  greeting: salve\n")
    name, text, properties = a_file("greeting", "{{ lookup('data.greeting') }}")
    document = '{"data": {}, ' + manifest((name, text, properties))[1:]
    secured.fleet.write("site/manifest.yaml", document)
    secured.fleet.write("site/big.bin", "x" * 200_000)

    assert secured.as_("bob", "data", "put", "common", data).code == 0
    site = str(secured.directory / "site")
    done = secured.as_(
        "bob", "apply", site, "--targets", "role=web", "--yes", "--data", "kv://CCM_DATA/common", "--json"
    )

    assert (done.code, done.states) == (0, {"web1": "changed"})
    assert (secured.fleet.agents["web1"].files / "greeting").read_text() == "salve"


def test_data_is_put_listed_and_rolled_back_by_an_operator(secured: Secured) -> None:
    for text in ("data: {a: 1}\n", "data: {a: 2}\n"):
        assert secured.as_("bob", "data", "put", "role/web", secured.fleet.write("d.yaml", text)).code == 0

    rolled = secured.as_("bob", "data", "rollback", "role/web", "--json")
    kept = secured.as_("bob", "data", "history", "role/web", "--json").records

    assert rolled.code == 0
    assert secured.as_("bob", "data", "get", "role/web").out == "data: {a: 1}\n"
    numbers = [one["number"] for one in kept]
    assert [one["written_by"] for one in kept] == ["bob"] * 3
    assert numbers == sorted(set(numbers), reverse=True)


def test_an_operator_assigns_to_a_role_and_the_node_takes_it_with_its_credentials(secured: Secured) -> None:
    data = secured.fleet.write("assigned.yaml", "data: {word: one}\n")
    path = secured.fleet.write(
        "assigned/manifest.yaml", manifest(a_file("assigned", "{{ lookup('data.word') }}"))
    )
    site, pinned = str(Path(path).parent), ("--data", "kv://CCM_DATA/assigned")
    assert secured.as_("bob", "data", "put", "assigned", data).code == 0

    assigned = secured.as_("bob", "assign", "web", site, "--targets", "role=web", *pinned, "--yes")
    status = secured.as_("bob", "assignment", "status", "web", "--wait", "60s", "--json")
    log = secured.fleet.broker.log.read_text()
    denied = secured.as_("bob", "assign", "own", site, "--targets", "node=web1", "--yes")
    ended = secured.as_("bob", "unassign", "web")

    assert (assigned.code, status.code, ended.code) == (0, 0, 0), status.out
    assert [record["state"] for record in status.named("standing")] == ["converged"]
    assert (secured.fleet.agents["web1"].files / "assigned").read_text() == "one"
    assert (denied.code, denied.err.splitlines(keepends=True)[-1]) == (
        1,
        "ccmctl: own: bob may not change assignments for node=web1; the first `fact=value` of --targets determines "
        "this scope, and `ccmctl operator add --apply` grants it\n",
    )
    assert "violation" not in log.lower()


def test_beyond_the_role_the_broker_refuses(secured: Secured) -> None:
    path = secured.fleet.write("site.yaml", manifest(a_file("never")))
    assert secured.as_("bob", "facts", "set", "db1", "role=db", "--new").code == 0

    done = secured.as_("bob", "apply", path, "--targets", "node=db1", "--yes")
    made = secured.as_("bob", "init", "--history", "30")

    assert (done.code, made.code) == (1, 1)
    assert (
        "the broker does not allow bob to publish there; it lacks the right `--apply node=db1`; see `ccmctl operator add --help`"
        in done.err
    )
    assert (
        "the broker does not allow bob to create or change it; grant it with `ccmctl operator add --admin`"
        in made.err
    )
    assert not (secured.fleet.agents["web1"].files / "never").exists()


def test_clients_without_operator_credentials_are_refused(secured: Secured) -> None:
    stranger = secured.fleet.ctl("nodes", environ={"CCM_CREDS": ""})
    node = secured.as_("web1", "nodes")

    assert (stranger.code, node.code) == (1, 1)
    assert "refused our credentials" in stranger.err
    assert "bucket CCM_NODES: the broker does not allow web1 to read it" in node.err


def test_revoked_credentials_are_void_at_once_on_running_servers(secured: Secured) -> None:
    secured.give("operator", "eve")
    before = secured.as_("eve", "ping", "-t", "node=web1")

    revoked = secured.fleet.ctl("operator", "revoke", "eve", "--json")
    after = secured.as_("eve", "ping", "-t", "node=web1")

    assert (before.code, revoked.code, after.code) == (0, 0, 1), before.out + before.err
    assert revoked.named("made")[0]["servers"] == [secured.fleet.broker.settings.name]
    assert "refused our credentials" in after.err
    assert secured.as_("bob", "ping", "-t", "node=web1").code == 0


def test_revoked_node_loses_its_connection_at_once_and_others_keep_theirs(secured: Secured) -> None:
    creds = secured.give("node", "lost1")
    secured.fleet.add("lost1", nats={"url": secured.fleet.environ["NATS_URL"], "creds": str(creds)})
    before = secured.as_("tester", "ping", "-t", "node=lost1")
    others = secured.fleet.agents["web1"].log.count("connected to the broker")

    revoked = secured.fleet.ctl("node", "revoke", "lost1")
    secured.fleet.wait_for(
        lambda: "refused our credentials" in secured.fleet.agents["lost1"].log, "the node to be refused"
    )

    assert (before.code, revoked.code) == (0, 0)
    assert "In effect on nats." in revoked.out
    assert secured.as_("tester", "ping", "-t", "node=web1").code == 0
    assert secured.fleet.agents["web1"].log.count("connected to the broker") == others


def test_revocation_without_a_reachable_server_says_how_to_apply_it(secured: Secured) -> None:
    secured.give("operator", "sam")

    revoked = secured.fleet.ctl("operator", "revoke", "sam", environ={"NATS_URL": "nats://127.0.0.1:1"})
    before = secured.as_("sam", "ping", "-t", "node=web1")
    secured.fleet.broker.reload((secured.keys / "nats-security.conf").read_text())
    after = secured.as_("sam", "ping", "-t", "node=web1")

    assert "No server was reached. To apply this, copy " in revoked.out
    assert (revoked.code, before.code, after.code) == (0, 0, 1)


def test_node_refuses_a_revoked_operator_whom_the_broker_still_lets_in(secured: Secured) -> None:
    secured.give("operator", "mal", "--apply", "role=web")
    before = secured.fleet.write("before.yaml", manifest(a_file("before")))
    after = secured.fleet.write("after.yaml", manifest(a_file("after")))
    secured.fleet.wait_for(
        lambda: secured.as_("mal", "apply", before, "-t", "role=web", "--yes").code == 0,
        "the node to know mal",
    )

    admits_mal = (secured.keys / "nats-security.conf").read_text()
    assert secured.fleet.ctl("operator", "revoke", "mal").code == 0
    secured.fleet.broker.reload(admits_mal)
    secured.fleet.wait_for(
        lambda: (
            "the signers list has changed" in secured.fleet.agents["web1"].log.rpartition("mal")[2]
            or secured.as_("mal", "ping", "-t", "role=web").code != 0
        ),
        "the node to read the list",
    )
    done = secured.as_("mal", "apply", after, "-t", "role=web", "--yes")

    assert done.code == 3, done.out
    assert not (secured.fleet.agents["web1"].files / "after").exists()
    assert "not in signers list" in secured.fleet.agents["web1"].log


def test_signers_are_listed_and_published_once(secured: Secured) -> None:
    listed = secured.fleet.ctl("signers", "list", "--json")
    again = secured.fleet.ctl("signers", "publish")

    roles = {one["name"]: one for one in listed.named("signer")}
    assert roles["bob"]["apply"] == ["fact.role.web"]
    assert roles["tester"]["admin"] is True
    assert (again.code, "already published" in again.out) == (0, True)


def test_node_and_operator_in_one_fleet_are_reported_to_demand_signatures(secured: Secured) -> None:
    nodes = secured.as_("bob", "nodes", "--json").named("node")

    assert [one["signatures"] for one in nodes if one["node"] == "web1"] == [True]
    assert "unsigned requests are accepted" not in secured.fleet.agents["web1"].log


def test_credentials_expire_at_the_given_time(secured: Secured) -> None:
    import time

    secured.give("operator", "short", "--expires", "1s")
    end = time.monotonic() + 20
    done = secured.as_("short", "nodes")
    while (
        "refused our credentials" not in done.err and time.monotonic() < end
    ):  # it may end within a connection
        done = secured.as_("short", "nodes")

    assert done.code == 1
    assert "refused our credentials" in done.err


def test_seeds_are_readable_only_by_their_owner_and_never_printed(secured: Secured) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secured.keys.iterdir()}
    seeds = [path.read_text().strip() for path in secured.keys.glob("*.seed")]
    logs = secured.fleet.broker.log.read_text() + secured.fleet.agents["web1"].log
    public = (secured.keys / "nats-security.conf").read_text() + (secured.keys / "users.jsonl").read_text()

    assert stat.S_IMODE(os.stat(secured.keys).st_mode) == 0o700
    names = ("account", "audit", "join", "node_signer", "nodes", "operator", "ops", "root", "system")
    private = (*(f"{name}.seed" for name in names), "tester.creds", "users.jsonl")
    assert {name: modes[name] for name in private} == dict.fromkeys(private, 0o600)
    assert len(seeds) == len(names)
    assert [seed for seed in seeds if seed in logs + public] == []


def test_operator_with_schedules_adds_and_removes_them(secured: Secured) -> None:
    secured.give("operator", "tim", "--schedules")
    path = secured.fleet.write("yearly.yaml", manifest(a_file("yearly")))
    words = ["schedule", "add", "yearly", path, "--cron", "0 0 0 1 1 *", "--targets", "role=web", "--yes"]

    refused = secured.as_("bob", *words)
    added = secured.as_("tim", *words)
    removed = secured.as_("tim", "schedule", "rm", "yearly", "--yes")

    assert refused.code == 1
    assert "grant it with `ccmctl operator add --schedules`" in refused.err
    assert (added.code, added.err, removed.code) == (0, "", 0)
