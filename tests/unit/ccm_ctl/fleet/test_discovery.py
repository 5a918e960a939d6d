"""Which nodes a wish means, and how a request reaches them."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import NoTargetError
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.templates.selector import parse_selector
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes.discovery import TargetSpec, resolve, select
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.nodes import Inventory, Node, TargetSet
from tests.support.controller import FakeNode, fleet_on


def a_node(
    name: str,
    routed: dict[str, Any],
    *,
    assigned: dict[str, Any] | None = None,
    gathered: dict[str, Any] | None = None,
    present: bool = True,
) -> Node:
    return Node(
        name=name,
        record=NodeRecord(node=name, facts=routed),
        presence=Presence(node=name) if present else None,
        assigned=assigned or {},
        gathered=gathered or {},
    )


NODES = [
    a_node("db1", {"role": "db"}),
    a_node("web1", {"role": "web", "site.dc": "ams"}),
    a_node("web2", {"role": "web", "site.dc": "fra"}, present=False),
]


def chosen(wish: TargetSpec, nodes: list[Node] = NODES) -> TargetSet:
    inventory = Inventory({node.name: node for node in nodes})
    return select(inventory, wish, [parse_selector(text) for text in wish.targets])


@pytest.mark.parametrize(
    ("targets", "nodes", "scopes"),
    [
        (["role=web"], ["web1", "web2"], ["fact.role.web"]),
        (["role=web,site.dc=ams"], ["web1"], ["fact.role.web"]),
        (["site.dc=ams,role=web"], ["web1"], ["fact.site=2Edc.ams"]),
        (["role!=web"], ["db1"], ["all"]),
        (["role in (web)"], ["web1", "web2"], ["all"]),
        (["node=web1"], ["web1"], ["node.web1"]),
        (["node in (web1,db1)"], ["db1", "web1"], ["node.web1", "node.db1"]),
        (["node=web*"], ["web1", "web2"], ["all"]),
        (["role=web", "role=db"], ["db1", "web1", "web2"], ["fact.role.web", "fact.role.db"]),
        (["role=web", "node=web*"], ["web1", "web2"], ["all"]),
        (["role=web", "role=web"], ["web1", "web2"], ["fact.role.web"]),
    ],
)
def test_a_requests_subject_follows_from_the_selector(
    targets: list[str], nodes: list[str], scopes: list[str]
) -> None:
    found = chosen(TargetSpec(targets=tuple(targets)))

    assert (found.nodes, found.scopes, found.targets) == (nodes, scopes, targets)


def test_a_fact_that_one_node_does_not_route_is_requested_from_all() -> None:
    local = a_node("web3", {}, gathered={"role": "web"})

    found = chosen(TargetSpec(targets=("role=web",)), [*NODES, local])

    assert (found.nodes, found.scopes) == (["web1", "web2", "web3"], ["all"])


def test_an_assigned_fact_counts_before_the_node_has_taken_it() -> None:
    moved = a_node("db1", {"role": "db"}, assigned={"role": "web"}, present=False)

    found = chosen(TargetSpec(targets=("role=web",)), [moved])

    assert (found.nodes, found.offline, found.scopes) == (["db1"], ["db1"], ["fact.role.web"])


def test_offline_nodes_are_distinguished() -> None:
    assert chosen(TargetSpec(everybody=True)) == TargetSet(
        nodes=["db1", "web1", "web2"], offline=["web2"], scopes=["all"], targets=[]
    )


def test_a_limit_takes_present_nodes_first() -> None:
    found = chosen(TargetSpec(targets=("role=web",), limit=1), list(reversed(NODES)))

    assert found == TargetSet(
        nodes=["web1"], offline=[], scopes=["fact.role.web"], targets=["role=web,node in (web1)"]
    )
    assert chosen(TargetSpec(everybody=True, limit=2)).targets == ["node in (db1,web1)"]


def test_an_expression_narrows_the_targets() -> None:
    found = chosen(TargetSpec(targets=("role=web",), where='Facts.site.dc == "ams"'))

    assert (found.nodes, found.scopes, found.where) == (["web1"], ["fact.role.web"], 'Facts.site.dc == "ams"')


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        ("role=wbe", "no node matches role=wbe, did you mean role=web?"),
        ("role=zzz", "no node matches role=zzz; role is db, web"),
        ("rolle=web", "no node matches rolle=web: no node has a fact rolle, did you mean role?"),
        ("zzz", "no node matches zzz: no node has a fact zzz"),
        ("web1", "no node matches web1; there is a node with that name: node=web1"),
        ("node=wbe1", "no node matches node=wbe1, did you mean node=web1?"),
        ("node=zzz", "no node matches node=zzz; see `ccmctl node list`"),
        ("role=web,site.dc=osl", "role=web,site.dc=osl: no node matches site.dc=osl; site.dc is ams, fra"),
        ("role=db,site.dc=ams", "role=db,site.dc=ams: no node matches all terms (role=db matches 1, site.dc=ams matches 1)"),
    ],
)  # fmt: skip
def test_a_target_without_matches_names_the_term_and_similar_values(targets: str, said: str) -> None:
    with pytest.raises(NoTargetError) as caught:
        chosen(TargetSpec(targets=("role=db", targets)))

    assert str(caught.value) == said


async def test_all_facts_are_read_of_those_only_that_do_not_say_them_in_short() -> None:
    broker = MemoryBroker()
    for node in (FakeNode("web1", {"role": "web"}), FakeNode("x", {})):
        await node.begin(broker)
    bucket = MemoryBus(broker, "x").bucket("CCM_NODES")
    await bucket.put("facts.x", b'{"node":"x","facts":{"role":"web"}}')
    await bucket.put("facts.web1", b"broken, and never read")

    inventory, found = await resolve(fleet_on(MemoryBus(broker, "op")), TargetSpec(targets=("role=web",)))

    assert (found.nodes, found.scopes) == (["web1", "x"], ["all"])
    assert inventory.nodes["web1"].gathered == {}


async def test_one_broken_record_does_not_hide_the_others() -> None:
    broker = MemoryBroker()
    await FakeNode("web1", {"role": "web"}).begin(broker)
    bucket = MemoryBus(broker, "x").bucket("CCM_NODES")
    for key in ("node.web2", "presence.web2", "node.Not-A-Node", "node.web1x"):
        await bucket.put(key, b"[")
    await MemoryBus(broker, "x").bucket("CCM_FACTS").put("web1", b"\xff")

    nodes = (await read_inventory(fleet_on(MemoryBus(broker, "op")))).nodes

    assert {name: (node.record is not None, node.is_present) for name, node in nodes.items()} == {
        "web1": (True, True),
        "web1x": (False, False),
        "web2": (False, False),
    }
