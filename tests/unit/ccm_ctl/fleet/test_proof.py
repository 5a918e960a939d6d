"""What counts in a run: no message that the node did not sign makes it look successful, or failed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import nacl.signing
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.bus.chain import LINK_LENGTH
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import (
    SESSION_START,
    SESSION_SUMMARY,
    SessionStart,
    SessionSummary,
    TransactionEvent,
)
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.verdicts import Verdict
from ccm_agent.model.wire import SESSION_ANSWER, Answer, NodeState, Progress
from ccm_agent.storage.spool_segment import Kind
from ccm_ctl.fleet.events.messages import decode_agent_message
from ccm_ctl.fleet.runs import proof as proof_module
from ccm_ctl.fleet.runs.node_run import READS
from ccm_ctl.fleet.runs.proof import NOT_COVERED, CountedMessage, RunProof
from ccm_ctl.fleet.runs.run import READ_AGAIN_S, Run
from ccm_ctl.fleet.trust.authors import Authors, SignatureCheck
from tests.support.authorship import Root, Writer, new_seed, now_ms, sign_event
from tests.support.controller import NOW, event

RUN = new_id()
NODE = "web1"


class Scene:
    """A run of one node, seen by an operator who can verify, and a broker that delivers what a test says."""

    def __init__(self, *, allow_unsigned: bool = False, certified: bool = True) -> None:
        from ccm_agent.bus.signatures.trust import read_signers

        self.root = Root()
        trust = self.root.trust(allow_unsigned_until=now_ms() + 60_000 if allow_unsigned else 0)
        assert trust.signers is not None
        signers = read_signers(
            trust.signers.body.encode(), trust.signers.signature, trust.root, now_ms=now_ms()
        )
        self.authors = Authors(trust.root, signers, now_ms())
        self.key = SigningKey(new_seed())
        self.writer = Writer(self.key)
        if certified:
            self.certify()
        self.proof = RunProof(self.authors)
        self.run = Run(RUN, [NODE], [], 0.0, asked=True)
        self.now = 1.0

    def certify(self) -> None:
        self.authors.learn(NODE, self.key.public_key, self.root.certificate(NODE, self.key))

    def write(self, said: SessionStart | TransactionEvent | SessionSummary) -> StoredEvent:
        """An event as the node writes it."""
        kind = Kind.SUMMARY if isinstance(said, SessionSummary) else Kind.RESOURCE
        subject = event_subject(said.protocol, NODE, RUN)
        return self.writer.event(subject, msgspec.json.encode(said), run=RUN, kind=kind)

    def genuine(self, changes: int = 2, state: str = "changed") -> list[StoredEvent]:
        """A run: its start, some changes, its summary."""
        said = [start(), *(event(f"/f{number}", number) for number in range(2, changes + 2))]
        return [self.write(one) for one in (*said, summary(changes + 2, state))]

    def answer(self, key: SigningKey | None, **fields: object) -> StoredEvent:
        subject = event_subject(SESSION_ANSWER, NODE, RUN)
        body = msgspec.json.encode(Answer(protocol=SESSION_ANSWER, **fields))  # type: ignore[arg-type]
        signature = sign_event(key, subject, body, "") if key is not None else ""
        return StoredEvent(subject=subject, body=body, signature=signature)

    def deliver(self, *messages: StoredEvent) -> None:
        for message in messages:
            self._count(self.proof.take(message, decode_agent_message(message)))

    def retry(self) -> None:
        """After the certificates were looked for."""
        self._count(self.proof.retry())

    def _count(self, counts: Sequence[CountedMessage]) -> None:
        for one in counts:
            said = one.said
            if isinstance(said, Answer):
                self.run.answered(one.node, said, self.now)
            elif isinstance(said, SessionSummary) and one.proves:
                self.run.proven(one.node, said, self.now)
            elif not isinstance(said, Progress):
                self.run.happened(one.node, said, self.now)  # type: ignore[arg-type]

    def end(self) -> None:
        """Read the stream until what is missing is given up."""
        for number in range(READS + 1):
            self.now += READ_AGAIN_S
            if self.run.tick(self.now + number).read:
                self.run.read_done([NODE], self.now)

    @property
    def state(self) -> NodeState:
        return self.run.nodes[NODE].state

    @property
    def names(self) -> list[str]:
        """The changes that count."""
        events = self.run.nodes[NODE].events
        return [events[number].name for number in sorted(events)]

    @property
    def verdict(self) -> tuple[Verdict, int, int, dict[str, int]]:
        report = self.proof.report(NODE, len(self.run.nodes[NODE].lacking))
        return report.verdict, report.missing, report.unproven, report.reasons


def start() -> SessionStart:
    return SessionStart(protocol=SESSION_START, event_id=new_id(), timestamp=NOW, number=1)


def summary(number: int, state: str) -> SessionSummary:
    return SessionSummary(
        protocol=SESSION_SUMMARY, event_id=new_id(), timestamp=NOW, number=number, events_sent=number, state=state
    )  # fmt: skip


def changed(message: StoredEvent, **fields: object) -> StoredEvent:
    return msgspec.structs.replace(message, **fields)


class CountedAuthors(Authors):
    """Counts the signatures that are verified."""

    count = 0

    def check(self, node: str, event: StoredEvent) -> SignatureCheck:
        """See `Authors.check`."""
        self.count += 1
        return super().check(node, event)


def test_the_summary_of_a_node_is_verified_once_however_often_it_comes() -> None:
    scene = Scene()
    key = scene.key.public_key
    authors = CountedAuthors(scene.root.key.public_key, None, now_ms(), {NODE: (key, 0)})
    scene.proof = RunProof(authors)
    messages = scene.genuine()

    answer = scene.answer(scene.key, state="done")
    scene.deliver(*messages, *messages, *reversed(messages), answer, answer)

    assert (scene.state, scene.verdict) == (NodeState.CHANGED, (Verdict.VERIFIED, 0, 0, {}))
    assert authors.count == 2  # the summary and the answer


def test_a_given_key_proves_only_what_it_signed() -> None:
    scene = Scene(certified=False)
    scene.proof = RunProof(Authors(scene.root.key.public_key, None, now_ms(), {NODE: (new_key(), 0)}))

    scene.deliver(*scene.genuine())

    assert scene.state is NodeState.RUNNING
    assert scene.proof.wanted_keys == {(NODE, scene.key.public_key)}
    assert not scene.proof.authors.knows(NODE, "")


@pytest.mark.parametrize("is_renewed", [True, False])
def test_a_summary_after_the_certificate_expired_waits_for_a_renewed_one(is_renewed: bool) -> None:
    scene = Scene(certified=False)
    key = scene.key.public_key
    scene.proof.authors = Authors(scene.root.key.public_key, None, now_ms(), {NODE: (key, now_ms() - 1000)})

    scene.deliver(*scene.genuine())
    wanted = scene.proof.wanted_keys
    if is_renewed:
        certificate = scene.root.certificate(NODE, scene.key, expires_ms=now_ms() + 60_000)
        scene.proof.authors.learn(NODE, key, certificate)
    scene.retry()

    assert wanted == {(NODE, key)}
    assert scene.verdict[0] is (Verdict.VERIFIED if is_renewed else Verdict.FORGED)


def new_key() -> str:
    return SigningKey(new_seed()).public_key


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (3, 0, 1, 2), (0, 0, 3, 3, 1, 2, 2)])
def test_a_signed_run_counts_in_whatever_order_it_comes(order: tuple[int, ...]) -> None:
    scene = Scene()
    messages = scene.genuine()

    scene.deliver(*(messages[at] for at in order))

    assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f2", "/f3"])
    assert scene.verdict == (Verdict.VERIFIED, 0, 0, {})
    assert scene.run.is_done


def test_events_are_provisional_until_the_summary_comes() -> None:
    scene = Scene()
    *events, end = scene.genuine()

    scene.deliver(*events)
    before = scene.state, scene.proof.of_events(NODE), scene.verdict[0]
    scene.deliver(end)

    assert before == (NodeState.RUNNING, Verdict.PROVISIONAL, Verdict.PROVISIONAL)
    assert scene.proof.of_events(NODE) is Verdict.VERIFIED


def test_the_signature_of_a_node_and_its_certificate_are_verified_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene, checks = Scene(certified=False), list[int]()
    verify = nacl.signing.VerifyKey.verify

    def counted(self: nacl.signing.VerifyKey, *given: bytes, **rest: object) -> bytes:
        checks.append(1)
        return verify(self, *given, **rest)  # type: ignore[arg-type]

    monkeypatch.setattr(nacl.signing.VerifyKey, "verify", counted)
    messages = scene.genuine()

    scene.certify()
    of_certificate = len(checks)
    scene.certify()  # its record is read again
    scene.deliver(*messages, *messages)  # live, and from the stream

    assert (of_certificate, len(checks)) == (1, 2)
    assert scene.verdict == (Verdict.VERIFIED, 0, 0, {})


def test_each_event_is_given_on_once() -> None:
    scene = Scene()
    scene.deliver(*scene.genuine())

    assert [news.event.number for news in scene.run.updates() if hasattr(news, "event")] == [1, 2, 3, 4]


@pytest.mark.parametrize("key", ["none", "another", "another node's"])
def test_a_summary_that_the_node_did_not_sign_ends_nothing(key: str) -> None:
    scene = Scene()
    messages = scene.genuine()
    other = SigningKey(new_seed())
    if key == "another node's":
        scene.authors.learn("web2", other.public_key, scene.root.certificate("web2", other))
    body = msgspec.json.encode(summary(2, "stable"))
    signature = "" if key == "none" else sign_event(other, messages[3].subject, body, messages[3].chain)
    forged = changed(messages[3], body=body, signature=signature)

    scene.deliver(messages[0], forged)
    scene.retry()
    before = scene.state, scene.verdict[0]
    scene.deliver(*messages)

    assert before == (NodeState.RUNNING, Verdict.FORGED)
    assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f2", "/f3"])
    assert (scene.verdict[0], sum(scene.verdict[3].values())) == (Verdict.VERIFIED, 1)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_event_that_was_made_up_does_not_count(is_first: bool) -> None:
    scene = Scene()
    messages = scene.genuine()
    made_up = changed(messages[1], body=messages[1].body.replace(b'"failed":false', b'"failed":true'))
    assert made_up != messages[1]

    scene.deliver(*([made_up, *messages] if is_first else [*messages, made_up]))

    assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f2", "/f3"])
    assert not any(one.failed for one in scene.run.nodes[NODE].events.values())
    assert scene.verdict == (Verdict.VERIFIED, 0, 0, {NOT_COVERED: 1})


def test_an_event_that_is_missing_is_reported_and_changes_no_end() -> None:
    scene = Scene()
    messages = scene.genuine(4)
    del messages[3]

    scene.deliver(*messages)
    scene.end()

    assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f5"])
    assert scene.verdict == (Verdict.GAP, 4, 3, {})


def test_an_event_of_another_run_or_node_does_not_count() -> None:
    scene = Scene()
    messages = scene.genuine()
    moved = changed(messages[1], subject=event_subject(SESSION_START, NODE, RUN))

    with pytest.raises(Exception, match="has the protocol"):
        scene.deliver(moved)


@pytest.mark.parametrize("state", ["refused", "superseded", "expired"])
def test_a_final_answer_counts_when_it_is_signed(state: str) -> None:
    scene = Scene()

    scene.deliver(scene.answer(None, state=state), scene.answer(SigningKey(new_seed()), state=state))
    scene.retry()
    before = scene.state, scene.verdict[0]
    scene.deliver(scene.answer(scene.key, state=state))

    assert before == (NodeState.EXPECTED, Verdict.FORGED)
    assert scene.state == NodeState(state)
    assert scene.verdict[0] is Verdict.VERIFIED


def test_an_answer_that_a_run_had_ended_well_counts_when_it_is_signed() -> None:
    scene = Scene()

    scene.deliver(scene.answer(None, state="done", outcome="stable"))
    before = scene.state
    scene.deliver(scene.answer(scene.key, state="done", outcome="stable"))

    assert (before, scene.state) == (NodeState.EXPECTED, NodeState.STABLE)


def test_an_answer_that_a_run_was_accepted_needs_no_signature() -> None:
    scene = Scene()

    scene.deliver(scene.answer(None, state="accepted"))

    assert (scene.state, scene.verdict) == (NodeState.ACCEPTED, (Verdict.PROVISIONAL, 0, 0, {}))


def test_an_answer_is_not_taken_for_a_summary() -> None:
    """The signature is for one subject: what the node said elsewhere proves nothing here."""
    scene = Scene()
    body = msgspec.json.encode(summary(1, "stable"))
    signature = sign_event(scene.key, event_subject(SESSION_ANSWER, NODE, RUN), body, "")
    subject = event_subject(SESSION_SUMMARY, NODE, RUN)

    scene.deliver(StoredEvent(subject=subject, body=body, signature=signature))

    assert scene.state is NodeState.EXPECTED


def test_a_signature_for_another_purpose_proves_nothing() -> None:
    scene = Scene()
    message = scene.genuine()[3]
    signature = scene.key.sign(
        SignatureKind.REQUEST, message.subject, message.body, issued_ms=now_ms(), details={"c": message.chain}
    )

    scene.deliver(changed(message, signature=signature))

    assert scene.state is NodeState.EXPECTED


def test_a_summary_waits_for_the_certificate_of_its_key() -> None:
    scene = Scene(certified=False)
    scene.deliver(*scene.genuine())
    wanted, before = scene.proof.wanted_keys, scene.state

    scene.certify()
    scene.retry()

    assert (wanted, before) == ({(NODE, scene.key.public_key)}, NodeState.RUNNING)
    assert (scene.state, scene.verdict[0]) == (NodeState.CHANGED, Verdict.VERIFIED)
    assert scene.proof.wanted_keys == set()


@pytest.mark.parametrize("has_certificate", [True, False])
def test_unsigned_events_are_accepted_while_allowed_unless_the_node_signs(has_certificate: bool) -> None:
    scene = Scene(allow_unsigned=True, certified=has_certificate)
    messages = [changed(message, chain="", signature="") for message in scene.genuine()]

    scene.deliver(*messages)
    before = scene.state
    scene.retry()

    assert before is NodeState.RUNNING
    if has_certificate:
        assert (scene.state, scene.verdict[0]) == (NodeState.RUNNING, Verdict.FORGED)
    else:
        assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f2", "/f3"])
        assert scene.verdict == (Verdict.UNSIGNED, 0, 0, {})


@pytest.mark.parametrize("has_other_certificate", [True, False])
def test_key_that_was_never_certified_counts_as_unsigned(has_other_certificate: bool) -> None:
    scene = Scene(allow_unsigned=True, certified=False)
    if has_other_certificate:
        other = SigningKey(new_seed())
        scene.authors.learn(NODE, other.public_key, scene.root.certificate(NODE, other))

    scene.deliver(*scene.genuine())
    before = scene.state
    scene.retry()

    assert before is NodeState.RUNNING
    if has_other_certificate:
        assert (scene.state, scene.verdict[0]) == (NodeState.RUNNING, Verdict.FORGED)
    else:
        assert (scene.state, scene.names) == (NodeState.CHANGED, ["/f2", "/f3"])
        assert scene.verdict == (Verdict.UNSIGNED, 0, 0, {})


def test_an_older_agent_ends_nothing_once_signatures_are_demanded() -> None:
    scene = Scene(certified=False)

    scene.deliver(*(changed(message, chain="", signature="") for message in scene.genuine()))

    assert (scene.state, scene.verdict) == (
        NodeState.RUNNING,
        (Verdict.FORGED, 0, 0, {"summary: it is not signed": 1}),
    )


def test_a_flood_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_module, "CANDIDATES_LIMIT", 50)
    monkeypatch.setattr(proof_module, "ENDS_LIMIT", 50)
    scene = Scene()
    messages = scene.genuine()
    scene.deliver(messages[0])
    for number in range(500):
        scene.deliver(changed(messages[1], body=messages[1].body + b" " * number))
        scene.deliver(scene.answer(None, state="refused"))

    part = scene.proof._parts[NODE]

    assert (len(part.candidates), len(part.waiting), len(part.forged) < 10) == (50, 0, True)


@pytest.mark.parametrize("is_reversed", [True, False])
def test_the_links_of_many_events_are_not_searched_one_after_the_other(is_reversed: bool) -> None:
    """Otherwise, a node with many events would occupy the controller for a time that grows with the square of their number."""
    scene = Scene()
    messages = scene.genuine(200)
    scene.deliver(*(reversed(messages) if is_reversed else messages))

    scene.deliver(*messages)
    part = scene.proof._parts[NODE]

    assert len(part.covered) == proof_module.ROW_BYTES
    assert len(part.covered_more) == len(messages) - proof_module.ROW_BYTES // LINK_LENGTH
    assert {scene.proof.of_message(one, decode_agent_message(one)) for one in messages} == {Verdict.VERIFIED}
    assert (len(scene.names), scene.verdict) == (200, (Verdict.VERIFIED, 0, 0, {}))


def test_a_node_that_showed_nothing_before_its_summary_keeps_no_hashes() -> None:
    scene = Scene()
    messages = scene.genuine()

    scene.deliver(messages[-1])

    assert not scene.run.nodes[NODE].shown


@pytest.mark.parametrize("place", ["garbage", "-", f"{'a' * 16}.1.{'b' * 32}.-"])
def test_a_signed_summary_with_a_malformed_place_proves_nothing(place: str) -> None:
    """A stolen node key can sign any place. The controller of a run over thousands of nodes must not end because of it."""
    scene = Scene()
    genuine = scene.genuine()
    forged = changed(
        genuine[-1],
        chain=place,
        signature=sign_event(scene.key, genuine[-1].subject, genuine[-1].body, place),
    )

    scene.deliver(forged)
    is_proven = scene.proof._parts[NODE].is_proven
    scene.deliver(*genuine)

    assert not is_proven
    assert scene.verdict == (Verdict.VERIFIED, 0, 0, {"its place in the chain is malformed": 1})
    assert scene.state is NodeState.CHANGED


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_mutation_makes_another_end_or_another_event_count(data: st.DataObject) -> None:
    """The broker drops, copies, changes and reorders messages. What counts is a part of what the node said, or nothing."""
    scene = Scene()
    messages = scene.genuine(data.draw(st.integers(0, 4)), state="failed")
    genuine = {message.body for message in messages}
    delivered: list[StoredEvent] = []
    for at in data.draw(st.lists(st.integers(0, len(messages) - 1), max_size=12)):
        message = messages[at]
        change = data.draw(st.sampled_from(["none", "state", "chain", "signature", "strip"]))
        other = messages[data.draw(st.integers(0, len(messages) - 1))]
        if change == "state":
            message = changed(
                message, body=message.body.replace(b'"state":"failed"', b'"state":"stable"') + b" "
            )
        elif change in ("chain", "signature"):
            message = changed(message, **{change: getattr(other, change)})
        elif change == "strip":
            message = changed(message, signature="", chain="")
        delivered.append(message)

    scene.deliver(*delivered)
    scene.retry()

    node = scene.run.nodes[NODE]
    assert scene.state in (NodeState.EXPECTED, NodeState.RUNNING, NodeState.FAILED)
    if scene.state is NodeState.FAILED:
        said = [
            *node.events.values(),
            *([node.summary] if node.summary else []),
        ]
        assert {msgspec.json.encode(one) for one in said} <= genuine
        starts = [
            msgspec.json.decode(one, type=SessionStart) for one in genuine if SESSION_START.encode() in one
        ]
        if node.started:
            assert node.started in {hash(msgspec.json.encode(one)) for one in starts}
