"""`ccmctl slots`: holders, queue, and taking a slot from a node."""

from __future__ import annotations

import asyncio

import msgspec

from ccm_agent.model.records.slots import SlotEntry
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.commands.rollouts.slots import release_command
from tests.support.controller import NOW, Desk


def a_desk(**entries: SlotEntry | bytes) -> Desk:
    """Entries of nodes for the slot pg, in the order in which they were written."""
    desk = Desk()

    async def write() -> None:
        for node, entry in entries.items():
            value = entry if isinstance(entry, bytes) else msgspec.json.encode(entry)
            await MemoryBus(desk.broker, node).bucket("CCM_SLOTS").put(f"pg.{node}", value)

    asyncio.run(write())
    return desk


def entry(*, is_held: bool = False, **more: object) -> SlotEntry:
    return SlotEntry(is_held=is_held, count=1, since=NOW, resource="exec#restart", **more)  # type: ignore[arg-type]


def test_holders_are_listed_before_waiting_nodes_in_queue_order() -> None:
    desk = a_desk(db3=entry(), db1=entry(is_held=True, has_failed=True), db2=entry(place=9))

    shown = desk.ccmctl("slots")
    records = desk.ccmctl("slots", "--json").records

    *rows, release = shown.out.splitlines()[1:]
    assert [line.split()[:2] for line in rows] == [
        ["pg/1", "db1"],
        ["pg/1", "db3"],
        ["pg/1", "db2"],
    ]
    assert release == "  release:  ccmctl slots release pg db1   (when db1 is healthy)"
    assert {one["node"]: (one["state"], one.get("position")) for one in records}["db1"] == ("failed", None)
    assert [(one["node"], one["position"]) for one in records[1:]] == [("db3", 1), ("db2", 2)]


def test_control_characters_of_a_node_are_escaped_on_the_terminal() -> None:
    desk = a_desk(db1=b"\x1b[2J", db2=entry(run="\x1b[2J"))

    shown = desk.ccmctl("slots")

    assert "\x1b" not in shown.out
    assert "db1" in shown.out


def test_slot_is_taken_from_a_holder_only() -> None:
    desk = a_desk(db1=entry(is_held=True), db2=entry())

    unasked = desk.ccmctl("slots", "release", "pg", "db1")
    waiting = desk.ccmctl("slots", "release", "pg", "db2", "--yes")
    released = desk.ccmctl("slots", "release", "pg", "db1", "--yes")

    assert (unasked.code, waiting.code, released.code) == (1, 1, 0)
    assert waiting.err == "ccmctl: db2 does not hold the slot pg; `ccmctl slots` lists the holders\n"
    assert [one["node"] for one in desk.ccmctl("slots", "--json").records] == ["db2"]


def test_a_name_that_a_node_made_up_is_no_command() -> None:
    assert release_command("pg", "db1;reboot") == "ccmctl slots release pg 'db1;reboot'"


def test_without_holders_that_is_said() -> None:
    assert Desk().ccmctl("slots").out == "no node holds a slot or waits for one\n"
