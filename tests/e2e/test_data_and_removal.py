"""Data that is tried on nodes before it is stored, and nodes that are removed, with agents that run."""

from __future__ import annotations

import pytest

from tests.support.fleet import Fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

COMMON = """\
hierarchy:
  order:
    - role:${ lookup('facts.role') }
    - name:${ lookup('facts.name') }
  merge: deep
data:
  # @validate isInt(value)
  port: 80
overrides:
  role:web:
    port: https
  name:db1:
    port: 5432
"""


def test_a_rule_that_breaks_on_some_nodes_keeps_the_document_out_and_a_value_is_explained(
    trio: Fleet,
) -> None:
    path = trio.write("common.yaml", COMMON)

    refused = trio.ctl("data", "put", "common", path)
    missing = trio.ctl("data", "get", "common")
    good = trio.write("good.yaml", COMMON.replace("https", "443"))
    stored = trio.ctl("data", "put", "common", good)
    [web, db] = (
        trio.ctl("hiera", "explain", "port", "-n", node, "--json").named("explained")[0]
        for node in ("web1", "db1")
    )

    assert (refused.code, missing.code, stored.code) == (1, 1, 0)
    assert (
        f"{path}:7: the value of `port` does not satisfy `isInt(value)`; on web[1-2] (role:web)"
        in refused.err
    )
    assert [web["value"], db["value"]] == [443, 5432]
    assert [(one["layer"], one["effect"]) for one in db["layers"]] == [
        ("data", "overridden"),
        ("role:db", "no such override"),
        ("name:db1", "wins"),
    ]


def test_removed_node_that_still_runs_returns_without_assignments(trio: Fleet) -> None:
    removed = trio.ctl("node", "rm", "web2", "--yes", "--force")
    trio.wait_for(lambda: is_back(trio, "web2"), "web2 to have written its record, and to be present")

    [node] = [one for one in trio.ctl("nodes", "--json").named("node") if one["node"] == "web2"]
    assert (
        removed.out
        == "web2: removed; its agent is running, and writes the record again with the next heartbeat\n"
    )
    assert (node["state"], "role" in node["facts"], node.get("conflict")) == ("present", False, None)


def is_back(trio: Fleet, name: str) -> bool:
    nodes = {one["node"]: one for one in trio.ctl("nodes", "--json").named("node")}
    if name not in nodes or nodes[name]["state"] != "present":
        # a sign of life that it gave while it was being removed went with the rest; the next one follows
        return False
    return bool(nodes[name].get("version")) and "role" not in nodes[name]["facts"]
