"""What a manifest would change on a node, and which slots it needs."""

from __future__ import annotations

import pytest

from ccm_agent.model.outcome import SESSION_SUMMARY, SessionSummary
from ccm_agent.model.wire import NodeState
from ccm_ctl.fleet.impact.changes import (
    ManifestResources,
    NodeChange,
    PlannedChange,
    assume_change,
    changes_of_run,
    read_resources,
)
from ccm_ctl.fleet.runs.node_run import NodeRun
from ccm_ctl.fleet.runs.run import Run
from ccm_ctl.fleet.runs.shared_values import SharedValues
from tests.support.controller import NOW, event

MANIFEST = """
ccm:
  resources:
    - file: {name: /etc/pg.conf, ensure: present}
    - exec:
        - defaults: {control: {slots: pg/1}}
        - restart: {command: a}
        - reload: {command: b, control: {slots: pg/3}}
        - other: {command: c, control: {slots: ""}}
    - service: {name: nginx, control: {if: "true"}}
"""
RESOURCES = read_resources(MANIFEST)


def a_run(*nodes: NodeRun) -> Run:
    run = Run("run", [], [], 0.0, asked=True)
    run.nodes = {node.node: node for node in nodes}
    return run


def a_node(name: str, state: NodeState, *events: tuple[str, str, bool], **fields: object) -> NodeRun:
    told = {
        number: event(resource, number, type=kind, refreshed=is_refresh, noop=True)
        for number, (kind, resource, is_refresh) in enumerate(events, 2)
    }
    last = len(told) + 2
    summary = SessionSummary(
        protocol=SESSION_SUMMARY, event_id="x", timestamp=NOW, number=last, node=name, run="run"
    )
    values: dict[str, object] = {
        "events": told,
        "kept_summary": SharedValues().keep(summary),
        "given": last,
        "known": last,
    }
    return NodeRun(node=name, state=state, **(values | fields))  # type: ignore[arg-type]


def test_slots_are_read_with_the_defaults_of_a_list() -> None:
    assert (
        ManifestResources(
            slots={
                "file#/etc/pg.conf": "",
                "exec#restart": "pg",
                "exec#reload": "pg",
                "exec#other": "",
                "service#nginx": "",
            },
            counts={"pg": 3},
            is_complete=True,
        )
        == RESOURCES
    )


@pytest.mark.parametrize(
    "manifest",
    [
        pytest.param("ccm: {resources: '{{ Data.list }}'}", id="the list is a template"),
        pytest.param("[", id="not YAML"),
        pytest.param("a: b", id="no list"),
    ],
)
def test_a_manifest_that_names_no_resources_may_change_anything_without_a_slot(manifest: str) -> None:
    change = assume_change("web1", read_resources(manifest), "offline")

    assert change == NodeChange(node="web1", is_known=False, reason="offline")
    assert change.slots == frozenset()


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        pytest.param(["file#a", "exec#restart"], {"pg"}, id="a file and what has a slot"),
        pytest.param(["exec#restart", "exec#other"], set(), id="one has no slot"),
        pytest.param(["file#a"], set(), id="only files"),
        pytest.param([], set(), id="nothing is known"),
    ],
)
def test_a_node_is_bound_to_slots_if_all_but_files_have_one(changes: list[str], slots: set[str]) -> None:
    planned = tuple(PlannedChange(one, slot=RESOURCES.slots.get(one, "")) for one in changes)

    assert NodeChange(node="db1", changes=planned).slots == slots


def test_a_plan_says_which_nodes_change_and_a_node_without_one_may_change_everything() -> None:
    everything = RESOURCES.any_change
    run = a_run(
        a_node("stable", NodeState.STABLE),
        a_node("offline", NodeState.OFFLINE),
        a_node("web1", NodeState.CHANGED, ("file", "/etc/pg.conf", False), ("exec", "restart", True)),
        a_node("failed", NodeState.FAILED, ("exec", "restart", False)),
        a_node("gap", NodeState.STABLE, known=9),
        a_node("silent", NodeState.UNREACHABLE, kept_summary=None),
    )

    assert changes_of_run(run, None, RESOURCES) == [
        NodeChange(
            node="web1",
            changes=(
                PlannedChange("file#/etc/pg.conf"),
                PlannedChange("exec#restart", is_refresh=True, slot="pg"),
            ),
        ),
        NodeChange(node="failed", is_known=False, changes=everything, reason="failed"),
        NodeChange(node="gap", is_known=False, changes=everything, reason="incomplete"),
        NodeChange(node="silent", is_known=False, changes=everything, reason="unreachable"),
    ]


def test_a_resource_of_a_child_manifest_does_not_have_the_slot_of_its_namesake() -> None:
    node = a_node("web1", NodeState.CHANGED)
    node.events = {2: event("restart", 2, type="exec", noop=True, parent="apply#child.yaml")}

    [change] = changes_of_run(a_run(node), None, RESOURCES)

    assert change.changes == (PlannedChange("exec#restart"),)
