"""What `apply` and `run` say of events that the holder of the broker changed, took away or made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.outcome import SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_ctl.fleet.runs import run as run_module
from tests.support.authorship import Root, now_ms
from tests.support.controller import Desk, FakeNode, event

Delivered = Callable[[list[StoredEvent]], list[StoredEvent]]
CHANGES = [event("/a", 2), event("/b", 3), event("/c", 4)]


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources:\n    - exec: [{'true': {}}]\n")
    return str(path)


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_module, "READ_AGAIN_S", 0.01)
    monkeypatch.setattr(run_module, "LOST_AFTER_S", 1.0)


def desk(delivered: Delivered = list, *, allow_unsigned_until: int = 0) -> Desk:
    root = Root()
    web1 = FakeNode("web1", {}, CHANGES, root=root, delivered=delivered)
    web2 = FakeNode("web2", {}, [event("/a", 2)], root=root)
    return Desk(web1, web2, trust=root.trust(allow_unsigned_until=allow_unsigned_until))


def made_up(events: list[StoredEvent]) -> StoredEvent:
    """A failure in the node's name, at the place of a genuine event."""
    body = events[1].body.replace(b'"failed":false', b'"failed":true')
    return msgspec.structs.replace(events[1], body=body)


def test_genuine_run_is_verified_without_a_note(manifest: str) -> None:
    one = desk()

    said = one.ccmctl("apply", manifest, "--all", "--yes")
    shown = one.ccmctl("run", "show", "last", "--json")

    assert (said.code, said.screen) == (
        0,
        "run RUN: apply motd on 2 nodes\n"
        "NODES  STATE    WHAT                       TIME\n"
        "web1   changed  file#/a, file#/b, file#/c  12ms\n"
        "web2   changed  file#/a                    12ms\n"
        "\n"
        "apply motd: 2 nodes: 2 changed in T (run RUN)\n",
    )
    assert {
        (record["node"], record["verdict"]) for record in shown.records if record["record"] == "result"
    } == {
        ("web1", "verified"),
        ("web2", "verified"),
    }
    assert {record["verdict"] for record in shown.records if record["record"] == "event"} == {"verified"}


def test_an_event_that_was_made_up_is_left_out_and_reported(manifest: str) -> None:
    said = desk(lambda events: [events[0], made_up(events), *events[1:]]).ccmctl(
        "apply", manifest, "--all", "--yes"
    )

    assert said.code == 0
    assert said.err.endswith(
        "web1: 1 message left out as not genuine: it is not among the events that the signed summary covers\n"
    )
    assert "web1   changed  file#/a, file#/b, file#/c" in said.out


def test_an_event_that_was_taken_away_is_reported(manifest: str) -> None:
    one = desk(lambda events: [events[0], events[1], *events[3:]])

    said = one.ccmctl("apply", manifest, "--all", "--yes")
    records = one.ccmctl("run", "watch", "last", "--json").records

    assert said.code == 0
    assert said.err.endswith(
        "web1: 1 event of the run is missing or changed; 2 before that cannot be verified\n"
    )
    (result,) = [one for one in records if one["record"] == "result" and one["node"] == "web1"]
    assert (result["verdict"], result["unproven"], result["missing"]) == ("gap", 2, [1, 2, 3])


def test_the_first_event_that_was_taken_away_is_named(manifest: str) -> None:
    said = desk(lambda events: events[1:]).ccmctl("apply", manifest, "--all", "--yes")

    assert said.err.endswith("web1: 1 event of the run is missing or changed (number 1)\n")


@pytest.mark.parametrize("is_signed", [True, False])
def test_a_node_whose_summary_was_replaced_is_lost_not_successful(manifest: str, is_signed: bool) -> None:
    def forge(events: list[StoredEvent]) -> list[StoredEvent]:
        body = events[-1].body.replace(b'"state":"changed"', b'"state":"stable"')
        signature = events[-1].signature if is_signed else ""
        return [*events[:-1], msgspec.structs.replace(events[-1], body=body, signature=signature)]

    said = desk(forge).ccmctl("apply", manifest, "--all", "--yes")

    assert said.code == 3
    reason = "the content was changed after signing" if is_signed else "it is not signed"
    assert said.err.endswith(f"web1: 1 message left out as not genuine: summary: {reason}\n")
    assert "1 changed, 1 lost" in said.out


def test_a_failure_that_was_made_up_does_not_fail_the_run(manifest: str) -> None:
    def forge(events: list[StoredEvent]) -> list[StoredEvent]:
        run = events[0].subject.split(".")[-2]
        body = events[-1].body.replace(b'"state":"changed"', b'"state":"failed"')
        failed = StoredEvent(subject=event_subject(SESSION_SUMMARY, "web1", run), body=body)
        return [failed, *events]

    said = desk(forge).ccmctl("apply", manifest, "--all", "--yes")

    assert said.code == 0
    assert said.err.endswith("web1: 1 message left out as not genuine: summary: it is not signed\n")


def test_a_node_whose_key_the_root_did_not_certify_is_lost(manifest: str) -> None:
    one = desk()
    one.nodes[0].record = {}

    said = one.ccmctl("apply", manifest, "--all", "--yes")

    key = one.nodes[0].key
    assert key is not None
    assert said.code == 3
    assert said.err.endswith(
        f"summary: signed with {key.public_key}, which the root has not certified for this node\n"
    )


def test_nodes_that_do_not_sign_yet_are_named_while_that_is_allowed(manifest: str) -> None:
    one = desk(allow_unsigned_until=now_ms() + 60_000)
    one.nodes.append(FakeNode("old1", {}, [event("/a", 2)]))

    said = one.ccmctl("apply", manifest, "--all", "--yes")

    assert said.code == 0
    assert said.err.endswith("not signed: old1; `ccmctl signers list` shows how long this is allowed\n")


def test_without_a_root_key_nothing_is_called_verified(manifest: str) -> None:
    one = desk()
    one.trust = None

    records = one.ccmctl("apply", manifest, "--all", "--yes", "--json").records

    assert {record["record"] for record in records} == {"run", "event", "result", "end"}
    assert not any("verdict" in record for record in records)


def test_text_in_a_forged_message_cannot_draw_on_the_screen(manifest: str) -> None:
    def forge(events: list[StoredEvent]) -> list[StoredEvent]:
        run = events[0].subject.split(".")[-2]
        other = StoredEvent(
            subject=event_subject(TRANSACTION_EVENT, "web1", run), body=events[1].body, chain="\x1b[2J"
        )
        return [other, *events]

    said = desk(forge).ccmctl("apply", manifest, "--all", "--yes")

    assert "\x1b" not in said.err + said.out
    assert "its place in the chain is malformed" in said.err


# -- ccmctl events


def flagged(lines: str) -> list[str]:
    return [line.split()[2] for line in lines.splitlines() if "[" in line]


def test_stored_events_that_are_not_genuine_are_flagged(manifest: str) -> None:
    one = desk(lambda events: [events[0], made_up(events), *events[1:]])
    one.ccmctl("apply", manifest, "--all", "--yes")

    of_run = one.ccmctl("events", "--run", "last", "--no-follow")
    of_node = one.ccmctl("events", "--node", "web1", "--no-follow", "--json")
    of_other = one.ccmctl("events", "--node", "web2", "--no-follow")

    assert (len(of_run.out.splitlines()), flagged(of_run.out)) == (9, ["[forged]"])
    assert "web1  [forged] file#/a failed" in of_run.out
    assert [record["verdict"] for record in of_node.records] == ["verified", "forged", *["verified"] * 4]
    assert (len(of_other.out.splitlines()), flagged(of_other.out)) == (3, [])


def test_a_subject_that_no_node_has_does_not_end_the_listing(manifest: str) -> None:
    one = desk()
    one.ccmctl("apply", manifest, "--all", "--yes")
    for subject in ("io.choria.ccm.v1.agent.startup.Web1", "io.choria.ccm.v1.session.start.x.web1"):
        one.broker.store("CCM_EVENTS", one.broker.events, subject, b"{}", headers={"Nats-Msg-Id": "x"})

    said = one.ccmctl("events", "--node", "web1", "--no-follow")

    assert (said.code, len(said.out.splitlines())) == (0, 5)
    assert one.ccmctl("events", "--verify").code == 0


def test_stored_events_before_a_gap_are_flagged(manifest: str) -> None:
    one = desk(lambda events: [events[0], events[1], *events[3:]])
    one.ccmctl("apply", manifest, "--all", "--yes")

    said = one.ccmctl("events", "--run", "last", "--node", "web1", "--no-follow")

    assert flagged(said.out) == ["[gap]", "[gap]"]


def test_the_events_of_nodes_are_verified(manifest: str) -> None:
    one = desk()
    one.ccmctl("apply", manifest, "--all", "--yes")
    one.ccmctl("apply", manifest, "--all", "--yes")

    said = one.ccmctl("events", "--verify")
    only = one.ccmctl("events", "--verify", "-t", "node=web2", "--json")

    assert (said.code, said.err, said.out) == (
        0,
        "",
        "NODE  VERDICT   EVENTS  VERIFIED  UP TO PLACE\n"
        "web1  verified      10        10           10\n"
        "web2  verified       6         6            6\n"
        "\n"
        "16 events of 2 nodes: genuine, and none is missing\n",
    )
    (record,) = only.records
    assert record["chain"] == one.nodes[1].writer.chain.last.chain
    assert {key: record[key] for key in ("record", "node", "verdict", "events", "counts", "verified_to")} == {
        "record": "verification",
        "node": "web2",
        "verdict": "verified",
        "events": 6,
        "counts": {"verified": 6},
        "verified_to": 6,
    }


def test_missing_and_forged_events_are_reported_node_by_node(manifest: str) -> None:
    one = desk(lambda events: [events[0], made_up(events), events[1], *events[3:]])
    one.ccmctl("apply", manifest, "--all", "--yes")

    said = one.ccmctl("events", "--verify")

    assert said.code == 2
    assert said.err == "web1: 1 event is missing from its chain (place 3), 3 events cannot be verified\n"
    assert said.out.endswith("\n\n8 events of 2 nodes: those of 1 are incomplete or not genuine\n")


def test_many_nodes_are_verified_in_one_reading(manifest: str) -> None:
    root = Root()
    nodes = [FakeNode(f"web{number}", {}, [event("/a", 2)], root=root) for number in range(12)]
    nodes[3].delivered = lambda events: events[1:]
    one = Desk(*nodes, trust=root.trust())
    one.ccmctl("apply", manifest, "--all", "--yes")

    records = one.ccmctl("events", "--verify", "--json").records

    assert {record["node"]: (record["verdict"], record["events"]) for record in records} == {
        node.name: ("verified", 2 if node.name == "web3" else 3) for node in nodes
    }


def test_nodes_that_do_not_sign_are_not_called_genuine(manifest: str) -> None:
    one = desk()
    one.nodes = [FakeNode("old1", {}, [event("/a", 2)])]
    one.ccmctl("apply", manifest, "--all", "--yes", "--timeout", "1s")

    said = one.ccmctl("events", "--verify")

    assert said.code == 0
    assert said.out.endswith("\n3 events of 1 node: 1 node does not sign its events\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--verify --run last",
            "--verify can be combined only with --node, --targets and --since; "
            "`ccmctl run show` verifies one run",
        ),
        ("--verify --node web1 -t node=web1", "--node and --targets both select the nodes; use one of them"),
        ("--follow --until 1h", "--follow and --until are mutually exclusive"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: str, sentence: str) -> None:
    said = desk().ccmctl("events", *words.split())

    assert (said.code, said.err) == (1, f"ccmctl: {sentence}\n")


def test_without_a_root_key_nothing_can_be_verified() -> None:
    one = desk()
    one.trust = None

    said = one.ccmctl("events", "--verify")

    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ccmctl: these credentials contain no root key, so nothing can be verified")
