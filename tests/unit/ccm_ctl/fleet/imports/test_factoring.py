"""What several nodes have, factored into layers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from ccm_agent.model.records.host_import import FoundResource
from ccm_ctl.fleet.imports.factoring import FactLayer, FactoredImport, factor

WEB, DB = FactLayer("role", "web"), FactLayer("role", "db")
PROD = FactLayer("env", "prod")
FACTS = {
    "a1": {"role": "web", "env": "prod", "rack": "1"},
    "a2": {"role": "web", "env": "prod", "rack": "2"},
    "b1": {"role": "db", "env": "prod", "rack": "3"},
    "b2": {"role": "db", "env": "dev", "rack": "4"},
    "none": {},
}
ORDER = ["env", "rack", "role"]


def a_user(name: str = "x", **properties: Any) -> FoundResource:
    return FoundResource(type="user", name=name, properties=properties)


def factored(order: list[str] = ORDER, **hosts: FoundResource | None) -> FactoredImport:
    """One resource on some of the hosts."""
    return factor({host: [one] if one else [] for host, one in hosts.items()}, FACTS, order)


ONE, OTHER = a_user(uid=1), a_user(uid=2)


@pytest.mark.parametrize(
    ("hosts", "common", "by_fact", "by_node"),
    [
        pytest.param({"a1": ONE, "b1": ONE}, [ONE], {}, {}, id="equal on all"),
        pytest.param({"a1": ONE}, [ONE], {}, {}, id="one node"),
        pytest.param({"a1": ONE, "a2": ONE, "b1": None}, [], {WEB: [ONE]}, {}, id="explained by one fact"),
        pytest.param(
            {"a1": ONE, "a2": ONE, "b1": OTHER, "b2": OTHER},
            [],
            {DB: [OTHER], WEB: [ONE]},
            {},
            id="other properties for another value of one fact",
        ),
        pytest.param(
            {"a1": ONE, "a2": ONE, "b1": ONE, "b2": None},
            [],
            {PROD: [ONE]},
            {},
            id="fewest layers: env needs one, and role does not explain it",
        ),
        pytest.param(
            {"a1": ONE, "a2": None, "b1": None}, [], {}, {"a1": [ONE]}, id="some nodes with the fact lack it"
        ),
        pytest.param(
            {"a1": ONE, "a2": OTHER, "b1": None},
            [],
            {},
            {"a1": [ONE], "a2": [OTHER]},
            id="nodes with the same fact have it with other properties",
        ),
        pytest.param(
            {"b1": ONE, "a1": None, "a2": None}, [], {}, {"b1": [ONE]}, id="a layer of one node is the node's"
        ),
        pytest.param(
            {"a1": ONE, "a2": ONE, "none": ONE, "b1": None},
            [],
            {},
            {"a1": [ONE], "a2": [ONE], "none": [ONE]},
            id="a node without the fact has it",
        ),
        pytest.param(
            {"a1": ONE, "a2": ONE, "none": None}, [], {PROD: [ONE]}, {}, id="a node without the fact lacks it"
        ),
        pytest.param({"a1": None, "b1": None}, [], {}, {}, id="nothing"),
    ],
)
def test_layers_of_a_resource(
    hosts: dict[str, FoundResource | None], common: Any, by_fact: Any, by_node: Any
) -> None:
    assert factored(**hosts) == FactoredImport(common=common, by_fact=by_fact, by_node=by_node)


@pytest.mark.parametrize(("order", "layer"), [(["env", "role"], PROD), (["role", "env"], WEB)])
def test_of_facts_with_equally_few_layers_the_first_is_chosen(order: list[str], layer: FactLayer) -> None:
    found = factored(order, a1=ONE, a2=ONE, none=None)

    assert found.by_fact == {layer: [ONE]}


def test_fact_with_fewer_layers_is_chosen_wherever_it_is_in_the_order() -> None:
    hosts = {"a1": ONE, "a2": ONE, "b1": ONE, "b2": ONE, "none": None}
    facts = {host: values | {"site": "s"} for host, values in FACTS.items() if host != "none"} | {"none": {}}

    for order in itertools.permutations(["role", "env", "site"]):
        found = factor({host: [one] if one else [] for host, one in hosts.items()}, facts, order)

        assert found.by_fact == {FactLayer("site", "s"): [ONE]}


def test_order_of_properties_and_nodes_has_no_effect_and_the_order_of_resources_stays() -> None:
    first = [a_user("b", uid=1, gid=2), a_user("a")]
    second = [a_user("b", gid=2, uid=1), a_user("a")]

    assert factor({"a1": first, "a2": second}, FACTS, ORDER) == factor(
        {"a2": second, "a1": first}, FACTS, ORDER
    )
    assert [one.name for one in factor({"a1": first, "a2": second}, FACTS, ORDER).common] == ["b", "a"]


def test_layers_of_each_node_give_it_what_it_has() -> None:
    """All ways in which four nodes may have a resource in two variants."""
    nodes = ["a1", "a2", "b1", "b2"]
    for choice in itertools.product((None, ONE, OTHER), repeat=4):
        hosts = {node: [one] if one else [] for node, one in zip(nodes, choice, strict=True)}

        found = factor(hosts, FACTS, ORDER)

        assert {node: found.of(node, FACTS[node]) for node in nodes} == hosts


@pytest.mark.parametrize(
    ("claimed", "by_fact", "by_node"),
    [
        pytest.param(["rack"], {}, {"a1": [OTHER], "a2": [ONE], "b1": [ONE]}, id="a single node claims it"),
        pytest.param([], {FactLayer("rack", "x"): [ONE], FactLayer("rack", "y"): [OTHER]}, {}, id="assigned"),
    ],
)
def test_value_that_one_node_claims_names_no_layer(
    claimed: list[str], by_fact: dict[FactLayer, Any], by_node: dict[str, Any]
) -> None:
    facts = {"a1": {"rack": "y"}, "a2": {"rack": "x"}, "b1": {"rack": "x"}}

    found = factor({"a1": [OTHER], "a2": [ONE], "b1": [ONE]}, facts, ["rack"], claimed)

    assert (found.by_fact, found.by_node) == (by_fact, by_node)


def test_value_that_two_nodes_claim_names_a_layer() -> None:
    facts = {"a1": {"rack": "y"}, "a2": {"rack": "x"}, "b1": {"rack": "x"}}

    found = factor({"a1": [], "a2": [ONE], "b1": [ONE]}, facts, ["rack"], ["rack"])

    assert found.by_fact == {FactLayer("rack", "x"): [ONE]}
