"""What `apply` and `run` say of events that the holder of the broker changed, took away or made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.outcome import SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_ctl.fleet import run as run_module
from tests.support.authorship import Root, now_ms
from tests.support.controller import Desk, FakeNode, event

Delivered = Callable[[list[StoredEvent]], list[StoredEvent]]
CHANGES = [event("/a", 2), event("/b", 3), event("/c", 4)]


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    path = tmp_path / "motd.yaml"
    path.write_text("ccm:\n  resources: []\n")
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


def test_a_genuine_run_is_verified_and_nothing_is_said_of_it(manifest: str) -> None:
    one = desk()

    said = one.ccmctl("apply", manifest, "--all", "--yes")
    shown = one.ccmctl("run", "show", "last", "--json")

    assert (said.code, said.screen) == (
        0,
        "run RUN: apply motd on 2 nodes\n"
        "NODES  STATE    WHAT                        TIME\n"
        "web1   changed  file#/a, file#/b, file#/c  12 ms\n"
        "web2   changed  file#/a                    12 ms\n"
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


def test_an_event_that_was_made_up_is_left_out_and_told(manifest: str) -> None:
    said = desk(lambda events: [events[0], made_up(events), *events[1:]]).ccmctl(
        "apply", manifest, "--all", "--yes"
    )

    assert said.code == 0
    assert said.err.endswith(
        "web1: 1 message left out as not genuine: it is not among the events that the signed summary covers\n"
    )
    assert "web1   changed  file#/a, file#/b, file#/c" in said.out


def test_an_event_that_was_taken_away_is_told(manifest: str) -> None:
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


def test_nodes_that_do_not_sign_yet_are_named_while_that_is_allowed(manifest: str) -> None:
    one = desk(allow_unsigned_until=now_ms() + 60_000)
    one.nodes.append(FakeNode("old1", {}, [event("/a", 2)]))

    said = one.ccmctl("apply", manifest, "--all", "--yes")

    assert said.code == 0
    assert said.err.endswith("not signed: old1; `ccmctl signers list` says until when that is allowed\n")


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
