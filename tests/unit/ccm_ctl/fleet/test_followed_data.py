"""Which data nodes have applied, and which nodes a change of a document concerns."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ccm_agent.model.bundle import Bundle
from ccm_agent.model.wire import Assignment, AssignmentState, NodeRecord, Presence
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.assignments.assignments import Assignments, Standing
from ccm_ctl.fleet.assignments.convergence import judge
from ccm_ctl.fleet.assignments.followed_data import FollowedData, followers, format_older_data, older_data
from ccm_ctl.fleet.nodes.nodes import Node
from tests.support.controller import fleet_on

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
COMMON = "kv://CCM_DATA/common"


def standing(*data: str, data_revision: int = 0, name: str = "web") -> Standing:
    """An assignment to all nodes."""
    bundle = Bundle(digest="d1", size_bytes=1)
    assignment = Assignment(
        name=name, scope="all", bundle=bundle, data=list(data), data_revision=data_revision
    )
    return Standing(key=f"all.{name}", revision=1, number=1, written=1, assignment=assignment)


def node(name: str = "web1", state: str = "stable", **revisions: int) -> Node:
    """A node that is present, and has read documents of CCM_DATA at these revisions."""
    told = AssignmentState(
        key="all.web",
        revision=1,
        digest="d1",
        state=state,
        data_revisions={f"kv://CCM_DATA/{key}": revision for key, revision in revisions.items()},
    )
    record = NodeRecord(node=name, assignments={"web": told})
    return Node(name=name, record=record, presence=Presence(node=name, time=NOW))


@pytest.mark.parametrize(
    ("state", "newest", "is_on_its_way"),
    [
        pytest.param("stable", 7, False, id="it has converged"),
        pytest.param("stable", 8, True, id="it has older data"),
        pytest.param("failed", 7, False, id="it failed with the newest data"),
        pytest.param("failed", 8, True, id="it failed with older data, and tries the newest"),
        pytest.param("refused", 8, False, id="an operator must act"),
    ],
)
def test_node_is_waited_for_while_newer_data_are_on_their_way(
    state: str, newest: int, is_on_its_way: bool
) -> None:
    found = judge(node(state=state, common=7), standing(COMMON), NOW, None, {"common": newest})

    assert found.is_on_its_way is is_on_its_way


def test_data_are_older_by_the_document_whatever_order_the_numbers_are_in() -> None:
    told = node(common=7, site=9, gone=3).record
    assert told is not None

    older = older_data(standing(COMMON), told.assignments["web"], {"common": 8, "site": 2})

    assert older == {"common": (7, 8), "site": (9, 2)}
    assert format_older_data(older) == ["has revision 7 of common, not 8, revision 9 of site, not 2"]


def test_pinned_data_are_never_older() -> None:
    told = node(common=7).record
    assert told is not None

    assert older_data(standing(COMMON, data_revision=5), told.assignments["web"], {"common": 8}) == {}


def test_followers_are_nodes_that_have_read_the_document_and_those_that_have_not_said() -> None:
    read, other, new = node("web1", common=7), node("web2", site=2), Node(name="web3")
    templated = standing("kv://CCM_DATA/{{ Facts.role }}")
    pinned = standing(COMMON, data_revision=5, name="pinned")

    found = followers([read, other, new], Assignments([templated, pinned]), "common")

    assert {name: [one.name for one in nodes] for name, nodes in found.items()} == {"web": ["web1", "web3"]}


async def test_newest_revisions_are_read_again_only_when_the_bucket_has_changed() -> None:
    bus = MemoryBus(MemoryBroker(), "op")
    fleet = fleet_on(bus)
    bucket = bus.bucket("CCM_DATA")
    data = FollowedData(fleet.data)
    await bucket.put("common", b"data: {}")
    await bucket.put("site", b"data: {}")
    await bucket.delete("site")

    first = await data.newest(["common", "site", "absent"])
    second = await data.newest(["common"])
    third = await data.newest(["common"])
    number = await bucket.put("common", b"data: {a: 1}")
    fourth = await data.newest(["common"])

    assert (dict(first), dict(second), third is second) == ({"common": 1}, {"common": 1}, True)
    assert fourth == {"common": number}
