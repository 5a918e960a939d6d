"""`ccmctl node rm` and `node reset`: what goes, what stays, and what is asked before."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ccm_agent.bus.subjects import assignment_key
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import DUPLICATE_IDENTITY, Assignment, NodeRecord, Presence
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.controller import NOW, Desk, FakeNode


async def assigned(broker: MemoryBroker) -> None:
    """An assignment of web2's own, and one for all web nodes."""
    for scope in ("node.web2", "fact.role.web"):
        key = assignment_key(scope, "motd")
        body = Assignment(name="motd", scope=scope, bundle=Bundle(digest="0" * 64, size_bytes=1))
        stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=1, body=body)
        await MemoryBus(broker, "other").bucket("CCM_ASSIGNMENTS").put(key, msgspec.json.encode(stamped))


def a_fleet() -> Desk:
    """web1 is present; web2 is off, with facts and an assignment of its own. What they wrote stands there."""
    desk = Desk(FakeNode("web1", {"role": "web"}), FakeNode("web2", {"role": "web"}, is_present=False))
    desk.hooks.append(assigned)
    desk.ccmctl("facts", "set", "web2", "env=prod")
    desk.nodes, desk.hooks = [], []
    return desk


def keys_of(desk: Desk, node: str) -> list[str]:
    """The keys that are left of a node, in all buckets."""
    left: dict[str, bool] = {}
    for bucket, writes in desk.broker.buckets.items():
        for write in writes:
            if node in write.subject.split("."):
                left[f"{bucket}/{write.subject}"] = bool(write.body)
    return sorted(key for key, is_there in left.items() if is_there)


def test_a_node_that_is_gone_is_removed_whole() -> None:
    desk = a_fleet()

    done = desk.ccmctl("node", "rm", "web2", "--yes")

    assert (done.code, done.err, done.out) == (0, "", "web2: removed\n")
    assert keys_of(desk, "web2") == []
    assert len(keys_of(desk, "web1")) == 3
    assert [record["scope"] for record in desk.ccmctl("assignment", "list", "--json").records] == [
        "fact.role.web"
    ]


def test_removals_are_listed_before_the_prompt() -> None:
    desk = a_fleet()

    done = desk.ccmctl("node", "rm", "web2")

    assert (done.code, done.err) == (
        1,
        "web2: offline; 1 assigned fact (env=prod); 1 assignment of its own (motd)\n"
        'ccmctl: cannot ask "Remove web2?" without a terminal; use --yes\n',
    )
    assert len(keys_of(desk, "web2")) == 4


def test_one_that_is_present_is_removed_by_force_only_and_comes_back() -> None:
    desk = a_fleet()

    refused = desk.ccmctl("node", "rm", "web2", "web1", "--yes")
    forced = desk.ccmctl("node", "rm", "web1", "--yes", "--force", "--json")
    shown = a_fleet().ccmctl("node", "rm", "web1", "--yes", "--force")

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: web1: its agent is running, so the node would return after it is removed; "
        "stop its agent first, or pass --force\n",
    )
    assert forced.records == [{"record": "node", "node": "web1", "state": "removed"}]
    assert (
        shown.out
        == "web1: removed; its agent is running, and writes the record again with the next heartbeat\n"
    )


def test_one_of_two_agents_cannot_be_removed_from_here() -> None:
    desk = Desk()

    async def disputed(broker: MemoryBroker) -> None:
        nodes = MemoryBus(broker, "web1").bucket("CCM_NODES")
        await nodes.put(
            "node.web1", msgspec.json.encode(NodeRecord(node="web1", conflict=DUPLICATE_IDENTITY))
        )
        await nodes.put("presence.web1", msgspec.json.encode(Presence(node="web1", time=NOW)))

    desk.hooks.append(disputed)

    assert desk.ccmctl("node", "rm", "web1", "--yes").err == (
        "ccmctl: web1: its agent is running, so the node would return after it is removed; "
        "stop the wrong agent; the other one then continues\n"
    )


def test_a_reset_forgets_the_machine_and_keeps_assignments_of_the_name() -> None:
    desk = a_fleet()

    done = desk.ccmctl("node", "reset", "web2", "--yes")

    assert (done.code, done.out) == (0, "web2: reset\n")
    assert keys_of(desk, "web2") == ["CCM_ASSIGNMENTS/node.web2.motd", "CCM_FACTS/web2"]
    [record] = desk.ccmctl("why", "web2", "--json").records
    assert record["state"] == "never seen"


def test_credentials_outlive_their_node_and_that_is_said(tmp_path: Path) -> None:
    desk = a_fleet()
    Keys(tmp_path / "keys").make()
    assert desk.ccmctl("node", "add", "web2", "--keys", str(tmp_path / "keys")).code == 0

    done = desk.ccmctl("node", "rm", "web2", "--yes", "--keys", str(tmp_path / "keys"))

    assert done.err == "web2: its credentials remain valid; revoke them with `ccmctl node revoke web2`\n"


def test_without_permission_to_unassign_the_node_is_kept() -> None:
    desk = a_fleet()
    desk.broker.deny("op", "$KV.CCM_ASSIGNMENTS.>")

    done = desk.ccmctl("node", "rm", "web2", "--yes")

    assert done.code == 1
    assert len(keys_of(desk, "web2")) == 4
