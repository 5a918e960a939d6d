"""A saved plan that cannot be applied as it was shown is refused before anything is sent: `ccmctl apply --plan`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from ccm_agent.model.ports import StoredEvent
from ccm_agent.testing.memory_bus import MemoryBus
from ccm_ctl.fleet.runs import run as run_module
from ccm_ctl.fleet.runs.plan_file import LIMIT_BYTES, PlanFile
from tests.support.authorship import Root
from tests.support.controller import Desk, FakeNode, Said, event

TOP = Path(__file__).parents[4]
Document = dict[str, Any]
EXPIRED = {"expires": "2026-11-21T11:59:59Z"}
NOT_A_PLAN = "this is not a plan of `ccmctl plan --out`"
NOT_ON_RECORD = "differs from the record of its run; plan again"


class Saved:
    """A plan that was saved, on two nodes of a fleet of three."""

    def __init__(self, folder: Path, **web1: Any) -> None:
        self.file = folder / "web.plan"
        self.manifest = folder / "motd.yaml"
        self.manifest.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
        web = [
            FakeNode(f"web{number}", {"role": "web"}, [event("/a", 2)], found="f" * 64) for number in (1, 2)
        ]
        self.desk = Desk(*web, FakeNode("db1", {"role": "db"}, [event("/a", 2)], found="f" * 64))
        self.planned = self.desk.ccmctl("plan", str(self.manifest), "-t", "role=web", "--out", str(self.file))
        for name, value in web1.items():
            setattr(web[0], name, value)
        self.asked = [len(node.heard) for node in self.desk.nodes]

    @property
    def document(self) -> Document:
        """The plan as JSON."""
        found: Document = json.loads(self.file.read_bytes())
        return found

    def edit(self, fields: Document, *, is_sealed: bool = True) -> None:
        """Change fields of the file; sealed as its owner could do it who knows how."""
        changed = self.document | fields
        if is_sealed:
            plan = msgspec.structs.replace(msgspec.convert(changed, PlanFile), seal="")
            seal = hashlib.sha256(msgspec.json.encode(plan, order="deterministic")).hexdigest()
            changed |= {"seal": seal}
        self.file.write_text(json.dumps(changed))

    def apply(self, desk: Desk | None = None) -> Said:
        """Apply it."""
        return (desk or self.desk).ccmctl("apply", "--plan", str(self.file), "--yes")

    def assert_refused(self, said: Said, why: str) -> None:
        """Nothing was sent, and the operator knows why."""
        assert (said.code, said.out) == (1, "")
        assert why in said.err
        assert [len(node.heard) for node in self.desk.nodes] == self.asked


@pytest.fixture
def saved(tmp_path: Path) -> Saved:
    one = Saved(tmp_path)
    assert one.planned.code == 0, one.planned.err
    return one


def test_the_nodes_of_the_plan_and_no_others_are_asked_for_exactly_that_plan(saved: Saved) -> None:
    said = saved.apply()

    assert said.code == 0, said.err
    web1, web2, db1 = saved.desk.nodes
    assert db1.heard == []
    for node in (web1, web2):
        plan, apply = node.heard[0], node.heard[-1]
        assert (plan["keep"], apply["plan"]) == (True, plan["run"])
        assert apply["bundle"] == plan["bundle"]


def test_a_plan_that_is_applied_twice_asks_the_nodes_twice(saved: Saved) -> None:
    plan = saved.document["run"]

    first, second = saved.apply(), saved.apply()

    # each node compares once more, and only it knows whether the first apply has changed it
    assert (first.code, second.code) == (0, 0)
    applies = {one["run"]: one["plan"] for one in saved.desk.nodes[0].heard if one.get("plan")}
    assert list(applies.values()) == [plan, plan]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param(EXPIRED, "the plan expired at 2026-11-21 11:59:59Z; plan again", id="expired"),
        pytest.param({"format": "io.choria.ccm.v2.plan"}, "or one of another version", id="another version"),
        pytest.param({"run": ">"}, NOT_A_PLAN, id="a run that would match all records"),
        pytest.param({"run": "2zpHrpdTbDOhSGCXGJpE8YbGvyx"}, "a plan of another fleet", id="another run"),
        pytest.param({"bundle": {"digest": "0" * 64, "size_bytes": 9}}, NOT_ON_RECORD, id="another bundle"),
        pytest.param({"name": "harmless"}, NOT_ON_RECORD, id="another name"),
        pytest.param({"data": ["kv://CCM_DATA/common"]}, NOT_ON_RECORD, id="other data"),
        pytest.param({"expires": "2027-11-22T12:00:00Z"}, NOT_ON_RECORD, id="a later end"),
        pytest.param(
            {"time": "2027-11-21T12:00:00Z", "expires": "2027-11-22T12:00:00Z"},
            NOT_ON_RECORD,
            id="a later time and end",
        ),
        pytest.param({"nodes": {"db1": {"found": "f" * 64}}}, NOT_ON_RECORD, id="another node"),
        pytest.param(
            {"targets": ["role=db"]}, "no longer match its targets: web1, web2;", id="other targets"
        ),
    ],
)
def test_a_plan_that_was_edited_and_sealed_again_is_refused(saved: Saved, fields: Document, why: str) -> None:
    saved.edit(fields)

    saved.assert_refused(saved.apply(), why)


def test_an_inner_path_other_than_the_one_on_record_is_refused(saved: Saved) -> None:
    saved.edit({"bundle": saved.document["bundle"] | {"manifest": "other.yaml"}})

    saved.assert_refused(saved.apply(), NOT_ON_RECORD)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(lambda _: b"", NOT_A_PLAN, id="empty"),
        pytest.param(lambda _: b"ccm: {}", NOT_A_PLAN, id="a manifest"),
        pytest.param(lambda _: b"\xff\xfe", NOT_A_PLAN, id="not text"),
        pytest.param(lambda _: b"[" * 200_000, NOT_A_PLAN, id="nested too deeply"),
        pytest.param(lambda _: b" " * (LIMIT_BYTES + 1), "is larger than 64 MiB", id="too large"),
        pytest.param(lambda body: body[:-40], NOT_A_PLAN, id="cut off"),
        pytest.param(
            lambda body: body.replace(b'"seal"', b'"x":' + b"[" * 5000 + b"]" * 5000 + b',"seal"'),
            NOT_A_PLAN,
            id="a deep field that is unknown",
        ),
        pytest.param(
            lambda body: body.replace(b'"seal"', b'"only":[],"seal"'),
            "unknown field `only`",
            id="unknown field",
        ),
        pytest.param(
            lambda body: body.replace(b'"found"', b'"x":1,"found"'),
            "unknown field `x`",
            id="unknown in a node",
        ),
        pytest.param(
            lambda body: body.replace(b'"expires": "2026', b'"expires": "2027'), "was edited", id="edited"
        ),
        pytest.param(
            lambda body: body.replace(b'12:00:00Z",\n "bundle"', b'12:00:00",\n "bundle"'),
            "timezone",
            id="a time without zone",
        ),
        pytest.param(
            lambda body: body.replace(b'"size_bytes": ', b'"size_bytes": 99999999999999999999999'),
            "was edited",
            id="a number of more than 64 bits",
        ),
    ],
)
def test_a_file_that_is_not_a_plan_is_refused(saved: Saved, body: Callable[[bytes], bytes], why: str) -> None:
    before = saved.file.read_bytes()
    saved.file.write_bytes(body(before))
    assert saved.file.read_bytes() != before

    saved.assert_refused(saved.apply(), why)


def test_escape_sequences_in_a_plan_file_are_shown_as_text(saved: Saved) -> None:
    saved.edit({"name": "\x1b[2Jmotd", "requester": "\x1b]0;x\x07"})

    said = saved.apply()

    assert "\x1b" not in said.err + said.out
    saved.assert_refused(said, NOT_ON_RECORD)


def test_a_plan_of_another_fleet_is_refused_by_that_name(saved: Saved) -> None:
    other = Desk(*(FakeNode(f"web{number}", {"role": "web"}, [event("/a", 2)]) for number in (1, 2)))

    said = saved.apply(other)

    saved.assert_refused(
        said, "is not on record here: it is a plan of another fleet, or its record has expired"
    )
    assert [node.heard for node in other.nodes] == [[], []]


def test_applying_another_operators_plan_uses_the_name_of_the_applying_operator(saved: Saved) -> None:
    saved.desk.operator = "bob"

    said = saved.apply()

    assert said.code == 0, said.err
    planned, applied = saved.desk.nodes[0].heard[0], saved.desk.nodes[0].heard[-1]
    assert (planned["requester"], applied["requester"]) == ("op", "bob")


@pytest.mark.parametrize(
    ("web1", "why"),
    [
        pytest.param({"is_present": False}, "are offline", id="offline"),
        pytest.param({"facts": {"role": "db"}}, "no longer match its targets", id="no match"),
        pytest.param({"facts": {"role": "web", "dc": "b"}}, "have different facts now", id="facts"),
    ],
)
def test_a_node_that_is_not_as_it_was_keeps_the_plan_from_all(
    tmp_path: Path, web1: Document, why: str
) -> None:
    saved = Saved(tmp_path, **web1)
    if "is_present" in web1:
        saved.desk.hooks.append(
            lambda broker: MemoryBus(broker, "web1").bucket("CCM_NODES").delete("presence.web1")
        )

    saved.assert_refused(saved.apply(), f"because these nodes {why}: web1; plan again")


def test_a_bundle_that_was_exchanged_on_the_broker_is_not_sent_or_signed(saved: Saved) -> None:
    objects, digest = saved.desk.broker.objects["CCM_MANIFESTS"], saved.document["bundle"]["digest"]
    objects[digest] = b"evil"

    said = saved.apply()

    saved.assert_refused(said, "was replaced on the broker")
    assert objects[digest] == b"evil"


def test_a_bundle_that_was_removed_keeps_the_plan_from_all(saved: Saved) -> None:
    del saved.desk.broker.objects["CCM_MANIFESTS"][saved.document["bundle"]["digest"]]

    saved.assert_refused(saved.apply(), "it was removed or never stored")


def test_a_node_that_cannot_keep_a_plan_is_named_and_not_asked(saved: Saved) -> None:
    saved.desk.nodes[1].found = ""

    planned = saved.desk.ccmctl("plan", str(saved.manifest), "-t", "role=web", "--out", str(saved.file))
    saved.apply()

    assert "not in the plan, because it cannot be applied there: web2\n" in planned.err
    assert [bool(node.heard[-1].get("plan")) for node in saved.desk.nodes[:2]] == [True, False]


def test_a_plan_that_no_node_can_apply_is_not_saved(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    saved.file.unlink()
    for node in saved.desk.nodes:
        node.found = ""

    planned = saved.desk.ccmctl("plan", str(saved.manifest), "-t", "role=web", "--out", str(saved.file))

    assert "so it is not saved" in planned.err
    assert not saved.file.exists()


def test_a_plan_is_not_saved_to_what_is_not_a_file(tmp_path: Path) -> None:
    saved = Saved(tmp_path)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    asked = [len(node.heard) for node in saved.desk.nodes]

    planned = saved.desk.ccmctl("plan", str(saved.manifest), "-t", "role=web", "--out", str(pipe))

    assert f"--out {pipe}: this is not a regular file; name a file" in planned.err
    assert (pipe.is_fifo(), [len(node.heard) for node in saved.desk.nodes]) == (True, asked)


def _without_second(events: list[StoredEvent]) -> list[StoredEvent]:
    return [events[0], *events[2:]]


def _with_made_up(events: list[StoredEvent]) -> list[StoredEvent]:
    body = events[1].body.replace(b'"failed":false', b'"failed":true')
    return [events[0], msgspec.structs.replace(events[1], body=body), *events[1:]]


@pytest.mark.parametrize(
    "delivered",
    [pytest.param(_without_second, id="taken away"), pytest.param(_with_made_up, id="made up")],
)
def test_nodes_whose_events_are_missing_or_not_genuine_are_not_in_the_plan(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    delivered: Callable[[list[StoredEvent]], list[StoredEvent]],
) -> None:
    monkeypatch.setattr(run_module, "READ_AGAIN_S", 0.01)
    root, file = Root(), tmp_path / "web.plan"
    changes = [event("/a", 2), event("/b", 3)]
    nodes = [
        FakeNode("web1", {}, changes, root=root, delivered=delivered, found="f" * 64),
        FakeNode("web2", {}, changes, root=root, found="f" * 64),
    ]
    manifest = tmp_path / "motd.yaml"
    manifest.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")

    said = Desk(*nodes, trust=root.trust()).ccmctl("plan", str(manifest), "--all", "--out", str(file))

    assert sorted(json.loads(file.read_bytes())["nodes"]) == ["web2"]
    assert "not in the plan, because events are missing or not genuine: web1\n" in said.err


def test_saved_plan_fits_its_schema(saved: Saved) -> None:
    schema = json.loads((TOP / "schemas/v1/plan_file.json").read_text())

    jsonschema.validate(saved.document, schema)
