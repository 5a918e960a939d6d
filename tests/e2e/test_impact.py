"""`ccmctl plan --impact` with agents that register their services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import FILES, Fleet, a_file, fleet, manifest
from tests.support.secured import secured_fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

WEB = ("web1", "web2", "web3")


def a_service(**entry: Any) -> tuple[str, str, dict[str, Any]]:
    """A file resource that registers a service at its node's own address."""
    kind, name, properties = a_file("service", "up")
    registered = {
        "cluster": "prod",
        "protocol": "http",
        "service": "web",
        "address": "{{ Facts.network.public }}",
        "port": 8080,
        "priority": 10,
        "ttl": "10m",
    }
    checks = [{"name": "alive", "command": f"test -e {FILES}/service"}]
    return (
        kind,
        name,
        properties | {"health_checks": checks, "register_when_stable": [registered | entry]},
    )


def an_exec(name: str, **properties: Any) -> tuple[str, str, dict[str, Any]]:
    return "exec", name, {"command": "true", "refresh_only": True, "subscribe": [CONF], **properties}


CONF = f"file#{FILES}/conf"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("impact")) as built:
        built.add(*WEB, "db1", registration="jetstream", interval="1h")
        for number, name in enumerate(WEB, 1):
            done = built.ctl("facts", "set", name, "role=web", f"network.public=10.0.0.{number}")
            assert done.code == 0, done.err
        applied = built.ctl(
            "apply", built.write("service.yaml", manifest(a_service())), "-t", "role=web", "--yes"
        )
        assert applied.code == 0, applied.err + applied.out
        yield built


def test_the_services_of_nodes_that_would_change_lose_what_the_batch_allows(site: Fleet) -> None:
    path = site.write("conf.yaml", manifest(a_file("conf", "new\n"), an_exec("restart")))
    done = site.ctl("apply", path, "-t", "node=web3", "--yes")
    assert done.code == 0, done.err

    planned = site.ctl("plan", path, "--all", "--impact", "--canary", "1", "--batch", "1", "--json")

    [impact], [summary] = planned.named("impact"), planned.named("impact_summary")
    assert planned.states == {"db1": "changed", "web1": "changed", "web2": "changed", "web3": "stable"}
    assert impact == {
        "record": "impact",
        "cluster": "prod",
        "protocol": "http",
        "service": "web",
        "instances": 3,
        "healthy": 3,
        "preferred": 3,
        "nodes": ["web1", "web2"],
        "node_count": 2,
        "left": 2,
        "waves": [
            {
                "wave": 1,
                "name": "wave 1",
                "instances": 2,
                "at_once": 1,
                "failed": 0,
                "left": 2,
                "preferred_left": 2,
            }
        ],
    }
    assert (summary["changing"], summary["unchanged"], summary["unregistered"]) == (3, 1, ["db1"])
    restart = {"resource": "exec#restart", "nodes": 3, "refresh": True, "slot": None}
    assert restart in summary["resources"]
    assert not (site.agents["web1"].files / "conf").exists()


def test_a_slot_of_the_manifest_limits_a_run_on_all_nodes(site: Fleet) -> None:
    guarded = an_exec("restart", control={"slots": "web-restart/2"})
    path = site.write("slots.yaml", manifest(a_file("conf", "slots\n"), guarded))

    planned = site.ctl("plan", path, "-t", "role=web", "--impact")

    assert planned.code == 0, planned.err
    assert planned.out[planned.out.index("SERVICE") :] == (
        "SERVICE        INSTANCES  HEALTHY  CHANGING  AT ONCE  LEFT\n"
        "prod/http/web          3        3         3        2     1\n"
        "\n"
        "3 of 3 nodes would change\n"
        "may disturb: exec#restart (refresh) on 3 nodes\n"
        "slot web-restart: at most 2 of 3 nodes at a time\n"
    )
    assert "warning" not in planned.err


def test_a_node_that_is_offline_is_in_no_wave_and_its_instance_is_not_healthy(site: Fleet) -> None:
    path = site.write("offline.yaml", manifest(a_file("conf", "offline\n"), an_exec("restart")))
    site.agents["web3"].stop()
    try:
        stored = site.ctl("plan", path, "-t", "role=web", "--impact", "--stored", "--batch", "1")
    finally:
        site.agents["web3"].start()
        site.wait_present(["web3"])

    assert (stored.code, stored.out, stored.err) == (
        0,
        "SERVICE        INSTANCES  HEALTHY  WAVE    CHANGING  AT ONCE  LEFT\n"
        "prod/http/web          3        2  wave 1         2        1     1\n"
        "\n"
        "no plan was run, so every present node is treated as changed: 2 nodes\n"
        "may disturb: exec#restart on 2 nodes\n"
        "offline, so not in a wave: web3\n",
        "",
    )


def test_an_operator_who_may_only_look_works_it_out_from_what_is_stored(tmp_path: Path) -> None:
    with secured_fleet(tmp_path / "fleet") as one:
        one.give("operator", "looker")
        creds = one.give("node", "web2", "--address", "10.0.0.2")
        nats = {"url": one.fleet.environ["NATS_URL"], "creds": str(creds)}
        one.fleet.add("web2", nats=nats, registration="jetstream", interval="1h")
        service = one.fleet.write("service.yaml", manifest(a_service()))
        path = one.fleet.write("conf.yaml", manifest(a_file("conf")))
        for words in (
            ("facts", "set", "web2", "network.public=10.0.0.2"),
            ("apply", service, "-t", "node=web2", "--yes"),
        ):
            done = one.as_("tester", *words)
            assert done.code == 0, done.err + done.out

        looked = one.as_("looker", "plan", path, "--all", "--impact", "--stored", "--batch", "1")
        asked = one.as_("looker", "plan", path, "--all", "--impact")

        assert (looked.code, looked.out) == (
            0,
            "SERVICE        INSTANCES  HEALTHY  WAVE    CHANGING  AT ONCE  LEFT\n"
            "prod/http/web          1        1  wave 1         1        1     0\n"
            "\n"
            "no plan was run, so every present node is treated as changed: 2 nodes\n"
            "no registered service: web1\n"
            "only files change: web[1-2]\n",
        ), looked.err
        assert (asked.code, asked.out) == (1, "")
        assert "--plan" in asked.err
