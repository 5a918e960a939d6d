"""Runs and rollouts of an operator who has lost a right, or never had it; and what a rollout server needs to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET
from ccm_agent.bus.subjects import request_subject
from ccm_agent.model.wire import MANIFEST_APPLY
from tests.support.controller import FakeNode, Said, event
from tests.support.fleet import a_file, manifest
from tests.support.signed_desk import NOW_MS, Crew, RecordingSignatory, SignedDesk, copy_broker


class Stage:
    """Anna's failed run, changed run and paused rollout, on nodes with role=web."""

    def __init__(self, folder: Path) -> None:
        self.crew = Crew()
        site = folder / "site"
        site.mkdir()
        (site / "manifest.yaml").write_text(manifest(a_file("a")))
        words = ["apply", str(site), "-t", "role=web", "--yes", "--json"]
        can = {"undo": True}
        self.node = FakeNode(
            "web1", {"role": "web"}, (event("/etc/motd", 2),), record=can, root=self.crew.root
        )
        away = FakeNode("web1", {"role": "web"}, is_present=False, record=can)
        failed = SignedDesk(self.crew, away)
        changed = SignedDesk(self.crew, self.node)
        self.broker = changed.broker = failed.broker
        detached = [*words, "--batch", "1", "--detach"]
        said = {
            "retry": failed.ccmctl(*words),
            "undo": changed.ccmctl(*words),
            "resume": failed.ccmctl(*detached),
        }
        self.runs = {name: one.named("run")[0]["run"] for name, one in said.items()}
        paused = failed.ccmctl("run", "pause", self.runs["resume"])
        assert paused.code == 0, paused.err

    def say(self, who: str, command: str) -> tuple[Said, list[bytes], list[object]]:
        """What an operator is told; what was signed, and what the node got."""
        self.node.heard.clear()
        desk = SignedDesk(self.crew, self.node)
        desk.broker = copy_broker(self.broker)
        if who == "an operator without the right":
            desk.operator = "lou"
            key = self.crew.of("a signer without the right")._key
            desk.signatory = RecordingSignatory(key, self.crew.keys.at_ms)
            for scope in ("fact.role.web", "node.web1"):  # which lou's credentials do not allow
                desk.broker.deny("lou", request_subject(MANIFEST_APPLY, scope))
        if who == "the author, who has lost it":
            [anna, *others] = self.crew.keys.signers
            self.crew.keys.signers = [replace(anna, apply=(), exec=()), *others]
            desk.trust = self.crew.keys.trust(max_age_s=3600)
        words = {
            "retry": ["run", "retry", self.runs["retry"], "--yes", "--only", "offline"],
            "undo": ["undo", self.runs["undo"], "--yes"],
            "resume": ["run", "resume", self.runs["resume"], "--detach"],
        }
        said = desk.ccmctl(*words[command])
        return said, [body for _, body in desk.signatory.signed], list(self.node.heard)


@pytest.mark.parametrize("command", ["retry", "undo", "resume"])
def test_the_author_who_has_lost_the_right_signs_and_sends_nothing_again(
    tmp_path: Path, command: str
) -> None:
    stage = Stage(tmp_path)

    control, signed, heard = stage.say("the author", command)
    refused, attacked, reached = stage.say("the author, who has lost it", command)

    assert control.code == 0, control.err
    assert signed
    assert bool(heard) is (command != "resume")  # a rollout server sends what is resumed
    assert (refused.code, attacked, reached) == (1, [], []), refused.err
    assert "may not apply on fact.role.web" in refused.err


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("retry", "the broker does not allow lou to use it"),
        ("undo", "the broker does not allow lou to use it"),
        ("resume", "lou may not apply on fact.role.web, so lou cannot resume this rollout"),
    ],
)
def test_an_operator_without_the_right_reaches_no_node(tmp_path: Path, command: str, why: str) -> None:
    refused, _, reached = Stage(tmp_path).say("an operator without the right", command)

    assert (refused.code, reached) == (1, []), refused.err
    assert why in refused.err


class Serving:
    """A rollout that waits for a server, and a desk that serves."""

    def __init__(self, folder: Path) -> None:
        self.crew = Crew()
        self.node = FakeNode("web1", {"role": "web"}, (), root=self.crew.root)
        self.desk = SignedDesk(self.crew, self.node)
        path = folder / "site.yaml"
        path.write_text(manifest(a_file("a")))
        self.handed = self.desk.ccmctl(
            "apply", str(path), "-t", "role=web", "--batch", "1", "--detach", "--yes"
        )
        assert self.handed.code == 0, self.handed.err
        self.desk.signatory.signed.clear()

    def serve(self) -> tuple[Said, int]:
        """What the server says, and how many requests the node got."""
        said = self.desk.ccmctl("rollout", "serve", "--once")
        return said, len(self.node.heard)


def test_a_server_that_can_verify_drives_what_was_handed_over(tmp_path: Path) -> None:
    said, heard = Serving(tmp_path).serve()

    assert (said.code, heard > 0) == (0, True), said.err


def test_a_server_that_signs_and_cannot_verify_refuses_to_start(tmp_path: Path) -> None:
    one = Serving(tmp_path)
    assert one.desk.trust is not None
    listed = one.desk.trust.signers
    assert listed is not None
    one.desk._store(TRUST_BUCKET, SIGNERS_KEY, listed.body.encode(), listed.signature)
    one.desk.trust = None

    said, heard = one.serve()

    assert (said.code, heard, one.desk.signatory.signed) == (1, 0, [])
    assert "anna: these credentials have no trust block" in said.err
    assert "`ccmctl operator add`" in said.err


def test_a_server_with_a_list_that_nobody_has_confirmed_drives_nothing_and_says_so(tmp_path: Path) -> None:
    one = Serving(tmp_path)
    one.crew.keys.at_ms = lambda: NOW_MS - 7_200_000
    one.desk.trust = one.crew.keys.trust(max_age_s=3600)

    said, heard = one.serve()

    assert (said.code, heard, one.desk.signatory.signed) == (0, 0, [])
    assert (
        "this server does not drive rollouts until the signers list is confirmed: the signers list is 2h old"
        in said.err
    )
