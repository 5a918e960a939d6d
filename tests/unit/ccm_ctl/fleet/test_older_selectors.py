"""Selectors with patterns and lists, in fleets with agents that read them differently."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.model.errors import UsageError
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_agent.templates.fact_texts import fact_at
from ccm_agent.templates.selector import NODE, Selector, Term, parse_selector, parse_targets
from ccm_agent.templates.target_matcher import TargetMatcher
from ccm_ctl.commands.runs.targets import refuse_older_agents
from ccm_ctl.fleet.nodes.discovery import TargetSpec, select
from ccm_ctl.fleet.nodes.nodes import Inventory, Node, TargetSet
from ccm_ctl.fleet.runs.older_selectors import refuse_too_many


def a_node(name: str, facts: dict[str, Any], *, is_older: bool = False) -> Node:
    record = NodeRecord(node=name, selector_patterns=not is_older)
    return Node(name=name, record=record, presence=Presence(node=name), gathered=facts)


def chosen(targets: list[str], *nodes: Node, limit: int = 0) -> TargetSet:
    inventory = Inventory({node.name: node for node in nodes})
    return select(inventory, TargetSpec(targets=tuple(targets), limit=limit), parse_targets(targets))


WEB = a_node("web1", {"role": "web", "tags": ["a", "b"]})
DB = a_node("db1", {"role": "db", "tags": ["b"]})
OLDER = a_node("old1", {"role": "web", "tags": "a"}, is_older=True)
OLDER_LIST = a_node("old2", {"role": "web", "tags": ["b"]}, is_older=True)


@pytest.mark.parametrize(
    ("targets", "nodes", "sent"),
    [
        (["role=web"], ["web1"], ["role=web"]),
        (["role=w*"], ["web1"], ["role=glob(w*)"]),
        (["role!=w*"], ["db1"], ["role!=glob(w*)"]),
        (["tags=a"], ["web1"], ["tags=a"]),
        (["tags!=a", "role = web"], ["db1", "web1"], ["tags!=a", "role = web"]),
    ],
)
def test_without_older_agents_nodes_match_the_selector_themselves(
    targets: list[str], nodes: list[str], sent: list[str]
) -> None:
    found = chosen(targets, WEB, DB)

    assert (found.nodes, found.targets, found.older) == (nodes, sent, [])


@pytest.mark.parametrize(
    ("targets", "nodes", "sent", "older"),
    [
        (["role!=w*,tags"], ["db1"], ["tags,node in (db1)"], ["old1", "old2"]),
        (["role=w*"], ["old1", "old2", "web1"], ["node in (old1,old2,web1)"], ["old1", "old2"]),
        (["tags!=a"], ["db1", "old2"], ["node in (db1,old2)"], ["old2"]),
        (["tags in (a),role=web"], ["old1", "web1"], ["role=web,node in (old1,web1)"], ["old2"]),
        (["role=web"], ["old1", "old2", "web1"], ["role=web"], []),
        (["tags"], ["db1", "old1", "old2", "web1"], ["tags"], []),
    ],
)
def test_with_older_agents_nodes_are_named_where_those_would_read_the_selector_differently(
    targets: list[str], nodes: list[str], sent: list[str], older: list[str]
) -> None:
    found = chosen(targets, WEB, DB, OLDER, OLDER_LIST)

    assert (found.nodes, found.targets, found.older) == (nodes, sent, older)


def test_an_older_agent_whose_fact_is_not_a_list_changes_nothing() -> None:
    found = chosen(["tags=a"], WEB, DB, OLDER)

    assert (found.nodes, found.targets, found.older) == (["old1", "web1"], ["tags=a"], [])


def test_the_scope_of_a_request_stays_when_its_nodes_are_named() -> None:
    nodes = [
        Node(name=name, record=NodeRecord(node=name, facts={"role": "web"}), gathered={"tags": ["a"]})
        for name in ("web1", "web2")
    ]

    found = chosen(["role=web,tags=a"], *nodes)

    assert (found.scopes, found.targets) == (["fact.role.web"], ["role=web,node in (web1,web2)"])


def test_limit_narrows_the_named_nodes() -> None:
    found = chosen(["role=w*"], WEB, OLDER, limit=1)

    assert (found.nodes, found.targets) == (["old1"], ["node in (old1,web1),node in (old1)"])


def test_many_names_are_split_and_too_many_are_refused_in_a_request() -> None:
    nodes = [a_node(f"{number:04}-{'n' * 45}", {"role": "web"}) for number in range(1_500)]

    found = chosen(["role=w*"], OLDER, *nodes)
    assert len(found.targets) == 2
    assert [name for text in found.targets for name in parse_selector(text).nodes] == found.nodes

    nodes += [a_node(f"{number:04}-{'n' * 45}", {"role": "web"}) for number in range(1_500, 3_000)]
    too_many = chosen(["role=w*"], OLDER, *nodes)  # commands that only read have no use for the names
    assert len(too_many.nodes) == 3001
    with pytest.raises(UsageError, match="3001 nodes are too many to list by name, as old1"):
        refuse_too_many(too_many)


def test_patterns_in_standing_scopes_are_refused_with_older_agents() -> None:
    with pytest.raises(UsageError, match=r"^old\[1-2\]: the agent is too old for"):
        refuse_older_agents(chosen(["role!=w*"], WEB, DB, OLDER, OLDER_LIST), "an assignment")

    refuse_older_agents(chosen(["role!=w*"], WEB, DB), "an assignment")


SCALARS = st.sampled_from(["a", "b", "ab", "*", "a*", "", 1, 1.0, 0.5, True, None])
VALUES = SCALARS | st.lists(SCALARS | st.just({"a": "b"}) | st.just(["a"]), max_size=3)
FACTS = st.dictionaries(st.sampled_from(["f", "g"]), VALUES)
TEXTS = st.sampled_from(
    ["a", "b", "ab", "*", "a*", "?", "", "1", "true", "0.5", "'a*'", "'*'", "'a,b'", "glob(a*)"]
)
TERMS = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(["f", "g"]), st.sampled_from(["=", "!=", "=="]), TEXTS),
    st.builds(
        lambda key, operator, texts: f"{key} {operator} ({','.join(texts)})",
        st.sampled_from(["f", "g"]),
        st.sampled_from(["in", "notin"]),
        st.lists(TEXTS, min_size=1, max_size=3),
    ),
    st.sampled_from(["f", "!g", "node=n*", "node!=n1", "node in (n0,n1)"]),
)
TARGETS = st.lists(st.lists(TERMS, min_size=1, max_size=3).map(",".join), min_size=1, max_size=3)


def reads_as_older(selector: Selector, node: str, facts: dict[str, Any]) -> bool:
    """What an agent without patterns and lists makes of it; None of its terms is explicit."""
    assert not selector.patterns
    return all(_term_as_older(term, node, facts) for term in selector.terms)


def _term_as_older(term: Term, node: str, facts: dict[str, Any]) -> bool:
    is_list = term.key != NODE and isinstance(fact_at(facts, term.key), list)
    if is_list and term.compares:
        return term.operator in ("!=", "notin")
    return term.matches(node, facts)


@given(TARGETS, st.lists(st.tuples(FACTS, st.booleans()), min_size=1, max_size=5))
async def test_each_agent_of_each_version_agrees_with_the_controller(
    targets: list[str], fleet: list[tuple[dict[str, Any], bool]]
) -> None:
    nodes = [a_node(f"n{number}", facts, is_older=is_older) for number, (facts, is_older) in enumerate(fleet)]
    selectors = parse_targets(targets)
    meant = {node.name for node in nodes if any(one.matches(node.name, node.facts) for one in selectors)}
    found = [
        text
        for text, one in zip(targets, selectors, strict=True)
        if any(one.matches(node.name, node.facts) for node in nodes)
    ]
    if not found:
        return

    sent = chosen(found, *nodes)

    assert set(sent.nodes) == meant
    for node in nodes:
        assert node.record is not None
        if node.record.selector_patterns:
            takes = await TargetMatcher(at_once)(sent.targets, "", node.name, node.facts)
        else:
            takes = any(reads_as_older(parse_selector(text), node.name, node.facts) for text in sent.targets)
        assert takes is (node.name in meant)


async def at_once(function: Any, *values: Any) -> Any:
    """Run a function where it is asked for."""
    return function(*values)
