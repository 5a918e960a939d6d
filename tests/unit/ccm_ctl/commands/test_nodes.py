"""`ccmctl node list` and `ccmctl node`: who is there, who is expected, and what is wrong with whom."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.model.wire import AGENT_DUPLICATE, AgentEvent, Disabled, NodeRecord, Presence
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.controller import NOW, Desk, FakeNode


def a_fleet() -> Desk:
    desk = Desk(
        FakeNode("web1", {"role": "web", "rack": 7}),
        FakeNode("web2", {"role": "web"}, is_present=False),
        FakeNode("db1", {"role": "db"}),
    )
    desk.hooks.append(troubled)
    return desk


async def troubled(broker: MemoryBroker) -> None:
    """db1 is disputed, disabled and busy."""
    bus = MemoryBus(broker, "db1")
    record = NodeRecord(
        node="db1",
        version="1.2.3",
        facts={"role": "db"},
        last_run="2zFX",
        last_state="failed",
        last_time=NOW.replace(hour=11),
        disabled=Disabled(since=NOW, why="restoring"),
        conflict="another agent uses this identity",
    )
    presence = Presence(node="db1", time=NOW, run="2zFY")
    await bus.bucket("CCM_NODES").put("node.db1", msgspec.json.encode(record))
    await bus.bucket("CCM_NODES").put("presence.db1", msgspec.json.encode(presence))
    for number, machine in enumerate(("m-old", "m-a", "m-b")):
        told = AgentEvent(
            protocol=AGENT_DUPLICATE, event_id=f"twin{number}", timestamp=NOW, node="db1",
            details={"machine": machine, "started": "2026-11-21T11:00:00Z", "duplicate": True},
        )  # fmt: skip
        await bus.events.publish(f"{AGENT_DUPLICATE}.db1", told.event_id, msgspec.json.encode(told))


def test_nodes_are_listed_with_their_state() -> None:
    said = a_fleet().ccmctl("node", "list")

    assert (said.code, said.out) == (
        0,
        "NODE  STATE       AGENT             FACTS             LAST RUN       VERSION  NOTE\n"
        "db1   duplicate   present just now  role=db           failed 1h ago  1.2.3    another agent uses this identity; "
        "machine m-a started 2026-11-21T11:00:00Z; machine m-b started 2026-11-21T11:00:00Z; "
        "disabled: restoring; in run 2zFY\n"
        "web1  unassigned  present just now  rack=7, role=web                 1.2.3\n"
        "web2  offline     offline just now  role=web                         1.2.3\n"
        "3 nodes, 1 not present, all accept unsigned requests\n",
    )


def test_nodes_are_listed_by_selector_and_for_programs() -> None:
    said = a_fleet().ccmctl("node", "list", "--targets", "role=web", "--json")

    assert said.records == [
        {
            "record": "node", "node": "web1", "state": "present", "condition": "unassigned", "heard": "2026-11-21T12:00:00Z",
            "facts": {"role": "web", "rack": 7}, "version": "1.2.3", "machine": "m-web1",
            "signatures": False,
        },
        {
            "record": "node", "node": "web2", "state": "offline", "condition": "offline", "heard": "2026-11-21T12:00:00Z",
            "facts": {"role": "web"}, "version": "1.2.3", "machine": "m-web2",
            "signatures": False,
        },
    ]  # fmt: skip


def test_a_node_that_has_never_come_is_expected() -> None:
    desk = Desk(FakeNode("web1"))
    desk.ccmctl("facts", "set", "web9", "role=web", "--new")

    assert desk.ccmctl("node", "list", "-t", "role=web").out == (
        "NODE  STATE       AGENT     FACTS\nweb9  never seen  expected  role=web\n1 node, 1 not present\n"
    )


def test_one_node_is_shown_whole() -> None:
    desk = a_fleet()
    desk.ccmctl("facts", "set", "web2", "env=prod")

    assert desk.ccmctl("node", "show", "web2").out == (
        "node: web2\n"
        "state: offline\n"
        "agent: offline, last heard just now\n"
        "version: 1.2.3\n"
        "machine: m-web2\n"
        "assigned facts:\n"
        "  env: prod\n"
        "routed facts:\n"
        "  role: web\n"
    )


def test_facts_are_listed_as_targets_name_them_and_nodes_in_the_order_of_their_numbers() -> None:
    desk = Desk(FakeNode("web10", {}), FakeNode("web2", {"site.dc": "ams"}))
    desk.ccmctl("facts", "set", "web2", "site.dc=ams", "is_new=true", "tags:=[1]")

    assert desk.ccmctl("node", "list").out == (
        "NODE   STATE       AGENT             FACTS                               VERSION\n"
        "web2   unassigned  present just now  is_new=true, site.dc=ams, tags=[1]  1.2.3\n"
        "web10  unassigned  present just now                                      1.2.3\n"
        "2 nodes, all accept unsigned requests\n"
    )


def test_an_unknown_node_names_the_nearest() -> None:
    desk = a_fleet()

    said = [desk.ccmctl("node", "show", "wbe1"), desk.ccmctl("node", "rm", "zzz")]

    assert [(one.code, one.err) for one in said] == [
        (1, "ccmctl: wbe1: there is no such node, did you mean web1?\n"),
        (1, "ccmctl: zzz: there is no such node; see `ccmctl node list`\n"),
    ]


DEEP = b"[" * 2000 + b"]" * 2000
NONSENSE = {
    "nested deeper than anybody reads": b'{"node":"evil1","facts":{"a":' + DEEP + b"}}",
    "a time of no time zone": b'{"node":"evil1","last_run":"x","last_state":"failed","last_time":"2026-01-01T00:00:00"}',
    "a moment before all calendars": b'{"node":"evil1","last_time":"0001-01-01T00:00:00+23:00"}',
}


@pytest.mark.parametrize("said", NONSENSE)
@pytest.mark.parametrize(
    "command", [["node", "list"], ["node", "web1"], ["why", "web1"], ["why", "evil1"], ["assignment", "list"]]
)
def test_one_nodes_invalid_record_does_not_hide_the_others(command: list[str], said: str) -> None:
    async def evil(broker: MemoryBroker) -> None:
        await MemoryBus(broker, "evil1").bucket("CCM_NODES").put("node.evil1", NONSENSE[said])

    desk = Desk(FakeNode("web1", {"role": "web"}))
    desk.hooks.append(evil)

    told = desk.ccmctl(*command)

    assert "internal error" not in told.err


def test_an_empty_fleet_explains_how_to_add_a_node() -> None:
    text, records = Desk().ccmctl("node", "list"), Desk().ccmctl("node", "list", "--json")

    assert (text.code, text.out, records.code, records.out) == (
        0,
        "no nodes yet; an agent appears here a few seconds after `ccm agent --config FILE` has connected to this broker\n",
        0,
        "",
    )
