"""`ccmctl facts`: shown, assigned, taken back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBroker
from ccm_ctl.commands.data.facts import fact_value
from ccm_ctl.fleet.data import fact_edits
from tests.support.controller import BEFORE, NOW, Desk, FakeNode


def documents(broker: MemoryBroker) -> dict[str, list[Stamped]]:
    """Everything that was written to CCM_FACTS, by key."""
    found: dict[str, list[Stamped]] = {}
    for write in broker.buckets.get("CCM_FACTS", []):
        found.setdefault(write.subject, []).append(msgspec.json.decode(write.body, type=Stamped))
    return found


def test_assigned_facts_are_stamped_with_their_key_and_a_growing_number() -> None:
    desk = Desk(FakeNode("web1", is_present=False))

    said = [
        desk.ccmctl("facts", "set", "web1", "role=web", "rack=7"),
        desk.ccmctl("facts", "set", "web1", "role=db", "site.dc=ams"),
        desk.ccmctl("facts", "set", "web1", "role=db"),
        desk.ccmctl("facts", "unset", "web1", "rack", "site.dc"),
    ]

    note = " (offline: applied when it returns)\n"
    assert [one.out for one in said] == [
        f"web1: rack=7, role=web{note}",
        f'web1: rack=7, role=db, site={{"dc":"ams"}}{note}',
        f'web1: rack=7, role=db, site={{"dc":"ams"}}{note}',
        f"web1: role=db{note}",
    ]
    written = {"bucket": "CCM_FACTS", "key": "web1", "written_by": "op", "time": NOW}
    assert documents(desk.broker)["web1"] == [
        Stamped(number=BEFORE + 1, count=1, body={"role": "web", "rack": 7}, **written),
        Stamped(number=BEFORE + 2, count=2, body={"role": "db", "rack": 7, "site": {"dc": "ams"}}, **written),
        Stamped(number=BEFORE + 3, count=3, body={"role": "db"}, **written),
    ]


def test_a_number_continues_after_the_node_was_removed() -> None:
    desk = Desk(FakeNode("web1", is_present=False))
    desk.ccmctl("facts", "set", "web1", "role=web")
    desk.ccmctl("node", "rm", "web1", "--yes")

    desk.ccmctl("facts", "set", "web1", "role=db")

    newest = desk.broker.buckets["CCM_FACTS"][-1]
    document = msgspec.json.decode(newest.body, type=Stamped)
    assert (document.number, document.count) == (BEFORE + 2, 2)


def test_a_node_that_exists_has_taken_its_facts_or_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fact_edits, "TAKEN_WITHIN_S", 0.01)
    desk = Desk(FakeNode("web1", {"role": "web"}), FakeNode("web2"))

    said = desk.ccmctl("facts", "set", "web1", "web2", "role=web", "--json")

    assert said.records == [
        {"record": "facts", "node": "web1", "assigned": {"role": "web"}, "state": "taken"},
        {"record": "facts", "node": "web2", "assigned": {"role": "web"}, "state": "late"},
    ]
    assert desk.ccmctl("facts", "set", "web2", "role=web").out == (
        "web2: role=web (not applied yet: its agent is slow to respond)\n"
    )


def test_facts_of_many_nodes_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text("web1: {role: web}\nweb2:\n  role: web\n  tags: [a]\n")
    desk = Desk(FakeNode("web1", is_present=False), FakeNode("web2", is_present=False))

    said = desk.ccmctl("facts", "set", "--from", str(path))

    assert said.out == (
        "web1: role=web (offline: applied when it returns)\n"
        'web2: role=web, tags=["a"] (offline: applied when it returns)\n'
    )


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("set wbe1 role=web", "wbe1: there is no such node, did you mean web1?"),
        ("set web1 web11 role=web", "web11: there is no such node, did you mean web1?"),
        ("set web1", "name the nodes and the facts to assign, such as `ccmctl facts set web1 role=web`"),
        ("set role=web", "name the nodes and the facts to assign, such as `ccmctl facts set web1 role=web`"),
        ("set", "give NODE KEY=VALUE, or --from FILE; `ccmctl facts set --help` shows examples"),
        ("set web1 x:={", "x:={: the value after := is not JSON: Input data was truncated"),
        ("set web1 a..b=x", "'a..b': not the name of a fact; write it like role or site.rack"),
        ("set --new Web1 role=x", "'Web1': not a valid node name"),
        ("set --from /nonexistent", "/nonexistent: cannot be read: No such file or directory"),
        ("unset web1 role", "role: not assigned; see `ccmctl facts show NODE --assigned`"),
        ("show web1 nope", "web1: has no fact nope; `ccmctl facts show web1` shows its facts"),
    ],
)
def test_an_impossible_command_reports_why_and_writes_nothing(argv: str, said: str) -> None:
    desk = Desk(FakeNode("web1", is_present=False))

    done = desk.ccmctl("facts", *argv.split())

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"ccmctl: {said}")
    assert documents(desk.broker) == {}


def test_a_file_with_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "facts.yaml"
    path.write_text("web1: role\n")

    done = Desk(FakeNode("web1")).ccmctl("facts", "set", "--from", str(path))

    assert (
        done.err
        == f"ccmctl: {path}: not a mapping of nodes to facts: write a line for each node, such as `web1: {{role: web}}`\n"
    )


def test_facts_are_shown_with_the_assigned_ones_over_the_others() -> None:
    desk = Desk(FakeNode("web1", {"role": "web", "host": {"info": {"os": "linux"}}}, is_present=False))
    desk.ccmctl("facts", "set", "web1", "role=db")

    shown = [
        desk.ccmctl("facts", "show", "web1").out,
        desk.ccmctl("facts", "show", "web1", "host.info.os").out,
        desk.ccmctl("facts", "show", "web1", "--assigned").out,
        desk.ccmctl("facts", "show", "web1", "host.info", "--json").out,
    ]

    assert shown == [
        "host:\n  info:\n    os: linux\nrole: db\n",
        "linux\n",
        "role: db\n",
        '{"record":"facts","node":"web1","path":"host.info","facts":{"os":"linux"}}\n',
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("web", "web"), ("", ""), ("true", True), ("false", False), ("True", "True"), ("7", 7), ("0", 0), ("-7", -7),
        ("007", "007"), ("-0", "-0"), ("1.5", "1.5"), ("1e3", "1e3"), ("٣", "٣"), ("9" * 30, "9" * 30), ("null", "null"),
    ],
)  # fmt: skip
def test_the_type_of_a_fact_is_guessed_from_its_text(text: str, value: object) -> None:
    found = fact_value(text)

    assert (found, type(found)) == (value, type(value))
