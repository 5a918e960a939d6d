"""`ccmctl plan --impact`: which services lose how many healthy instances."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controller import Desk, FakeNode, event
from tests.support.registrations import a_stored, an_entry

MANIFEST = "ccm:\n  resources:\n    - service: [{nginx: {ensure: running}}]\n"


@pytest.fixture
def nginx(tmp_path: Path) -> str:
    path = tmp_path / "nginx.yaml"
    path.write_text(MANIFEST)
    return str(path)


def a_web(number: int, *, does: str = "restart", is_present: bool = True) -> FakeNode:
    restart = event("nginx", 2, type="service", noop=True, refreshed=True)
    return FakeNode(
        f"web{number}",
        {"role": "web", "network.public": f"10.0.0.{number}"},
        {"restart": [restart], "nothing": []}.get(does, does),
        is_present=is_present,
    )


def a_desk(*nodes: FakeNode) -> Desk:
    desk = Desk(*nodes)
    desk.services = [a_stored(an_entry(number)) for number in range(1, len(nodes) + 1)]
    return desk


def test_each_wave_says_what_it_takes_from_a_service(nginx: str) -> None:
    desk = a_desk(*(a_web(number) for number in (1, 2, 3)), a_web(4, does="nothing"))
    desk.nodes.append(FakeNode("db1", {"role": "db"}, [event("nginx", 2, type="service", noop=True)]))

    said = desk.ccmctl("plan", nginx, "--all", "--impact", "--canary", "2", "--batch", "1")

    assert (said.code, said.out[said.out.index("SERVICE") :]) == (
        0,
        "SERVICE        INSTANCES  HEALTHY  WAVE    CHANGING  AT ONCE  LEFT\n"
        "prod/http/web          4        4  canary         1        1     3\n"
        "prod/http/web          4        4  wave 1         2        1     3\n"
        "\n"
        "4 of 5 nodes would change\n"
        "no registered service: db1\n"
        "may disturb: service#nginx (refresh) on 3 nodes, service#nginx on 1 node\n",
    )


def test_a_service_that_may_have_no_instance_left_is_a_warning(nginx: str) -> None:
    desk = a_desk(a_web(1), a_web(2))

    said = desk.ccmctl("plan", nginx, "--all", "--impact")

    assert said.out[said.out.index("SERVICE") :] == (
        "SERVICE        INSTANCES  HEALTHY  CHANGING  AT ONCE  LEFT\n"
        "prod/http/web          2        2         2        2     0\n"
        "\n"
        "2 of 2 nodes would change\n"
        "may disturb: service#nginx (refresh) on 2 nodes\n"
    )
    assert said.err.splitlines()[-1] == (
        "ccmctl: warning: prod/http/web: may have no healthy instance; change fewer nodes at a time, such as with --batch 1"
    )


def test_nodes_without_a_plan_count_as_changed_and_offline_ones_are_named(nginx: str) -> None:
    desk = a_desk(a_web(1, does="refused: not now"), a_web(2, does="nothing"), a_web(3, is_present=False))
    desk.services.append(a_stored(an_entry(99)))

    said = desk.ccmctl("plan", nginx, "--all", "--impact")

    assert said.out[said.out.index("SERVICE") :] == (
        "SERVICE        INSTANCES  HEALTHY  CHANGING  AT ONCE  LEFT\n"
        "prod/http/web          4        3         1        1     2\n"
        "\n"
        "1 of 2 nodes would change\n"
        "may disturb: service#nginx on 1 node\n"
        "treated as changed, because the plan is unknown (refused): web1\n"
        "offline, so not in a wave: web3\n"
        "instances treated as not lost, because no node reports their address: 10.0.0.99\n"
    )


def test_stored_asks_no_node_and_counts_all_that_are_present(nginx: str) -> None:
    desk = a_desk(a_web(1), a_web(2), a_web(3, is_present=False))

    said = desk.ccmctl(
        "plan", nginx, "-t", "role=web", "--impact", "--stored", "--batch", "1", "--max-failures", "1"
    )

    assert [node.heard for node in desk.nodes] == [[], [], []]
    assert (said.code, said.out) == (
        0,
        "SERVICE        INSTANCES  HEALTHY  WAVE    CHANGING  AT ONCE  FAILED  LEFT\n"
        "prod/http/web          3        2  wave 1         2        1       1     0\n"
        "\n"
        "no plan was run, so every present node is treated as changed: 2 nodes\n"
        "may disturb: service#nginx on 2 nodes\n"
        "offline, so not in a wave: web3\n",
    )
    assert said.err == (
        "ccmctl: warning: prod/http/web: may have no healthy instance in wave 1, if as many nodes fail as the limits allow\n"
    )


def test_programs_get_a_record_of_each_service_and_of_what_was_counted(nginx: str) -> None:
    desk = a_desk(a_web(1), a_web(2))
    desk.services[1] = a_stored(an_entry(2, priority=200))

    said = desk.ccmctl("plan", nginx, "--all", "--impact", "--batch", "1", "--json")

    impact, summary = said.records[-2:]
    assert impact == {
        "record": "impact",
        "cluster": "prod",
        "protocol": "http",
        "service": "web",
        "instances": 2,
        "healthy": 2,
        "preferred": 1,
        "nodes": ["web1", "web2"],
        "node_count": 2,
        "left": 1,
        "waves": [
            {
                "wave": 0,
                "name": "wave 1",
                "instances": 2,
                "at_once": 1,
                "failed": 0,
                "left": 1,
                "preferred_left": 0,
            }
        ],
    }
    assert summary == {
        "record": "impact_summary",
        "run": said.records[0]["run"],
        "services": 1,
        "without_healthy": 0,
        "changing": 2,
        "unchanged": 0,
        "waves": [{"name": "wave 1", "nodes": 2, "changing": 2, "at_once": 1, "may_have_failed": 0}],
        "assumed": {},
        "assumed_count": 0,
        "offline": [],
        "offline_count": 0,
        "unregistered": [],
        "unregistered_count": 0,
        "unplaced": [],
        "unplaced_count": 0,
        "resources": [{"resource": "service#nginx", "nodes": 2, "refresh": True, "slot": None}],
        "slots": [],
        "rollouts": [],
    }


def test_losing_all_preferred_instances_is_a_warning(nginx: str) -> None:
    desk = a_desk(a_web(1), a_web(2))
    desk.services[1] = a_stored(an_entry(2, priority=200))

    said = desk.ccmctl("plan", nginx, "--all", "--impact", "--batch", "1")

    assert said.err.splitlines()[-1] == (
        "ccmctl: warning: prod/http/web: may lose all healthy instances with the best priority (1) and keep only others"
    )


def test_any_number_of_services_of_one_node_is_a_few_rows_and_obeys_no_escape(nginx: str) -> None:
    evil = FakeNode(
        "web1",
        {"role": "web", "network.public": "10.0.0.1"},
        [event("\x1b[2Jnginx", 2, type="service", noop=True)],
    )
    desk = a_desk(evil, a_web(2, does="nothing"))
    for kind in range(20):
        many = [
            a_stored(an_entry(1, service=f"s{chr(97 + kind)}-{number}", port=1 + port))
            for number in range(20)
            for port in range(kind + 1)
        ]
        desk.services += many

    said = desk.ccmctl("plan", nginx, "--all", "--impact", "--batch", "1")

    assert said.out[said.out.index("SERVICE") :] == (
        "SERVICE                     INSTANCES  HEALTHY  WAVE    CHANGING  AT ONCE  LEFT\n"
        "prod/http/sa-0 and 19 more          1        1  wave 1         1        1     0\n"
        "prod/http/sb-0 and 19 more          2        2  wave 1         2        2     0\n"
        "prod/http/sc-0 and 19 more          3        3  wave 1         3        3     0\n"
        "prod/http/sd-0 and 19 more          4        4  wave 1         4        4     0\n"
        "prod/http/se-0 and 19 more          5        5  wave 1         5        5     0\n"
        "prod/http/web                       2        2  wave 1         1        1     1\n"
        "\n"
        "and 300 more services: --json has all of them\n"
        "1 of 2 nodes would change\n"
        "may disturb: service#\\x1b[2Jnginx on 1 node\n"
    )
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param(
            ["--batch", "1"],
            "a plan runs on all nodes at the same time; add --impact to see the effect of these rollout options on services",
            id="a batch without impact",
        ),
        pytest.param(["--stored"], "--stored requires --impact", id="stored alone"),
        pytest.param(
            ["--impact", "--stored", "--out", "web.plan"],
            "--stored does not run a plan, so there is nothing to save; omit --out",
            id="nothing to save",
        ),
        pytest.param(
            ["--impact", "--batch", "0"],
            "--batch 0: no node would ever run; the minimum is 1",
            id="an empty batch",
        ),
    ],
)
def test_options_that_make_no_sense_send_nothing(nginx: str, options: list[str], sentence: str) -> None:
    desk = a_desk(a_web(1))

    said = desk.ccmctl("plan", nginx, "--all", *options)

    assert (said.code, said.err) == (1, f"ccmctl: {sentence}\n")
    assert desk.nodes[0].heard == []
