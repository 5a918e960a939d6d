"""Which events of a node are genuine, whatever the holder of the broker made of the stream."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccm_agent.bus.chain import ChainPosition, link_of, new_chain_id
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import StoredEvent
from ccm_agent.model.records.verdicts import BAD, MISSING_LIMIT, MissingEvents, NodeReport, Verdict
from ccm_agent.model.wire import AGENT_DRIFT, AGENT_KEY, AGENT_LOST_EVENTS, AGENT_STARTUP
from ccm_agent.storage.spool_segment import Kind
from ccm_ctl.fleet.trust import authenticity
from ccm_ctl.fleet.trust.authenticity import NodeEvents
from ccm_ctl.fleet.trust.authors import Authors
from tests.support.authorship import Root, Writer, new_seed, now_ms, sign_event

NODE = "web1"
KINDS = {Kind.START: SESSION_START, Kind.RESOURCE: TRANSACTION_EVENT, Kind.SUMMARY: SESSION_SUMMARY}
VERIFIED, PROVISIONAL, UNSIGNED, GAP, FORGED = Verdict


class Node:
    """A node that writes as an agent does; `stored` is what the stream holds."""

    def __init__(self, root: Root, name: str = NODE) -> None:
        self.name = name
        self.root = root
        self.key = SigningKey(new_seed())
        self.writer = Writer(self.key)
        self.stored: list[StoredEvent] = []

    def tell(self, protocol: str, **details: object) -> None:
        """An event about the agent."""
        body = {
            "protocol": protocol, "event_id": new_id(), "timestamp": "2026-11-22T12:00:00Z",
            "node": self.name, "details": details,
        }  # fmt: skip
        self.stored.append(
            self.writer.event(event_subject(protocol, self.name), json.dumps(body).encode(), kind=Kind.AGENT)
        )

    def start(self) -> None:
        certificate = self.root.certificate(self.name, self.key)
        self.tell(AGENT_STARTUP, key=self.key.public_key, certificate=certificate)

    def renew(self) -> None:
        """Another key, as after a renewal of the credentials."""
        self.key = self.writer.key = SigningKey(new_seed())
        certificate = self.root.certificate(self.name, self.key)
        self.tell(AGENT_KEY, key=self.key.public_key, certificate=certificate)

    def say(self, run: str, kind: Kind) -> None:
        subject = event_subject(KINDS[kind], self.name, run)
        self.stored.append(self.writer.event(subject, new_id().encode(), run=run, kind=kind))

    def run(self, changes: int = 1) -> None:
        run = new_id()
        for kind in (Kind.START, *[Kind.RESOURCE] * changes, Kind.SUMMARY):
            self.say(run, kind)

    def lose_power(self, events: int) -> None:
        """Forget the last events, which the stream has, and begin another chain."""
        remembered = self.writer.chain.last
        for _ in range(events):
            self.say(new_id(), Kind.START)
        self.writer.chain.begin(remembered, {})


def authors_of(root: Root, **trust: object) -> Authors:
    from ccm_agent.bus.signatures.trust import read_signers

    made = root.trust(**trust)  # type: ignore[arg-type]
    assert made.signers is not None
    signed = made.signers
    signers = read_signers(signed.body.encode(), signed.signature, made.root, now_ms=now_ms())
    return Authors(made.root, signers, now_ms())


def judge(
    events: Sequence[StoredEvent], authors: Authors, node: str = NODE
) -> tuple[list[Verdict | None], NodeReport]:
    """The verdict of each event (None for a copy) and the report."""
    verdicts: dict[int, Verdict] = {}

    def note(at: int, verdict: Verdict, reason: str) -> None:
        assert at not in verdicts, "an event is judged once"
        assert bool(reason) == (verdict in BAD)
        verdicts[at] = verdict

    reader = NodeEvents(node, authors, note)
    for event in events:
        reader.take(event)
    report = reader.finish()
    assert sum(report.counts.values()) + report.copies == len(events)
    return [verdicts.get(at) for at in range(len(events))], report


def changed(event: StoredEvent, **fields: object) -> StoredEvent:
    return msgspec.structs.replace(event, **fields)


@pytest.fixture
def root() -> Root:
    return Root()


@pytest.fixture
def node(root: Root) -> Node:
    """Places 1: startup, 2 to 5: a run with two changes, 6 to 8: a run with one, 9: drift."""
    one = Node(root)
    one.start()
    one.run(2)
    one.run()
    one.tell(AGENT_DRIFT)
    return one


def test_events_of_a_node_are_verified(root: Root, node: Node) -> None:
    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED] * 9
    assert (report.is_bad, report.verified_to, report.missing, report.reasons) == (False, 9, [], {})


def test_a_run_that_continues_is_provisional(root: Root, node: Node) -> None:
    run = new_id()
    node.say(run, Kind.START)
    node.say(run, Kind.RESOURCE)

    verdicts, report = judge(node.stored, authors_of(root))

    assert (verdicts[8:], report.is_bad) == ([VERIFIED, PROVISIONAL, PROVISIONAL], False)


def test_a_history_that_was_cut_off_at_its_beginning_is_verified(root: Root, node: Node) -> None:
    authors = authors_of(root)
    authors.learn(NODE, node.key.public_key, root.certificate(NODE, node.key))

    verdicts, report = judge(node.stored[3:], authors)

    assert (verdicts, report.is_bad) == ([VERIFIED] * 6, False)


def test_an_event_that_was_removed_leaves_a_gap(root: Root, node: Node) -> None:
    del node.stored[3]  # place 4, the second change of the first run

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED, GAP, GAP, *[VERIFIED] * 5]
    assert report.missing == [MissingEvents(chain=report.chain, first=4, last=4)]
    assert (report.missing_count, report.is_bad) == (1, True)


def test_a_whole_run_that_was_removed_leaves_a_gap(root: Root, node: Node) -> None:
    del node.stored[1:5]

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED] * 5
    assert report.missing == [MissingEvents(chain=report.chain, first=2, last=5)]


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_event_that_was_changed_is_found(root: Root, node: Node, at: int) -> None:
    node.stored[at] = changed(node.stored[at], body=b"{}")

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED, *[GAP] * at, *[VERIFIED] * (8 - at)]
    assert (report.changed, report.is_bad) == ([at + 1], True)


def test_a_signed_event_that_was_changed_is_forged(root: Root, node: Node) -> None:
    node.stored[4] = changed(node.stored[4], body=b"{}")

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED, GAP, GAP, GAP, FORGED, *[VERIFIED] * 4]
    assert report.reasons["the content was changed after signing"] == 1
    assert report.missing == [MissingEvents(chain=report.chain, first=5, last=5)]


def test_a_signature_that_was_removed_hurts_nothing_where_a_later_one_covers_the_event(
    root: Root, node: Node
) -> None:
    node.stored[4] = changed(node.stored[4], signature="")

    assert judge(node.stored, authors_of(root))[0] == [VERIFIED] * 9


@pytest.mark.parametrize("at", range(9))
def test_an_event_that_was_moved_to_another_subject_is_not_verified(root: Root, node: Node, at: int) -> None:
    node.stored[at] = changed(node.stored[at], subject=event_subject(TRANSACTION_EVENT, NODE, new_id()))

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts[at] in (GAP, FORGED)
    assert report.is_bad


def test_events_that_stand_in_another_order_are_found(root: Root, node: Node) -> None:
    node.stored[2], node.stored[5] = node.stored[5], node.stored[2]

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED] * 9
    assert (report.reordered > 0, report.is_bad) == (True, True)


def test_an_event_that_is_stored_twice_is_one_event(root: Root, node: Node) -> None:
    node.stored.insert(4, node.stored[3])
    node.stored.append(node.stored[4])

    verdicts, report = judge(node.stored, authors_of(root))

    assert (verdicts.count(None), verdicts.count(VERIFIED), report.copies) == (2, 9, 2)
    assert not report.is_bad


@pytest.mark.parametrize("is_first", [True, False])
def test_of_two_events_for_one_place_the_signed_path_counts(root: Root, node: Node, is_first: bool) -> None:
    made_up = changed(node.stored[2], body=b'{"changed": true}')
    node.stored.insert(2 if is_first else 3, made_up)

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts[2 if is_first else 3] is FORGED
    assert verdicts.count(VERIFIED) == 9
    assert report.reasons == {authenticity.TAKEN: 1}


def test_an_event_in_an_unknown_chain_is_forged(root: Root, node: Node) -> None:
    other = Writer(None)
    node.stored.append(
        other.event(event_subject(SESSION_START, NODE, new_id()), b"{}", run="r", kind=Kind.START)
    )

    assert judge(node.stored, authors_of(root))[0] == [*[VERIFIED] * 9, FORGED]


@pytest.mark.parametrize(
    "author", ["another node", "another root", "no certificate", "the same key as another node"]
)
def test_a_signature_of_another_key_is_forged(root: Root, node: Node, author: str) -> None:
    authors, key = authors_of(root), SigningKey(new_seed())
    if author == "another node":
        authors.learn("web2", key.public_key, root.certificate("web2", key))
    elif author == "another root":
        authors.learn(NODE, key.public_key, Root().certificate(NODE, key))
    elif author == "the same key as another node":
        authors.learn(NODE, key.public_key, root.certificate("web2", key))
    subject = event_subject(SESSION_SUMMARY, NODE, new_id())
    place = ChainPosition(
        chain=node.writer.chain.last.chain, number=10, previous=node.writer.chain.last.link
    ).header
    signature = sign_event(key, subject, b"{}", place)
    node.stored.append(StoredEvent(subject=subject, body=b"{}", chain=place, signature=signature))

    verdicts, report = judge(node.stored, authors)

    assert verdicts == [*[VERIFIED] * 9, FORGED]
    assert report.reasons == {
        f"signed with {key.public_key}, which the root has not certified for this node": 1
    }


def test_a_key_that_was_revoked_proves_nothing(root: Root, node: Node) -> None:
    verdicts, report = judge(node.stored, authors_of(root, revoked=[node.key.public_key]))

    assert VERIFIED not in verdicts
    assert f"signed with {node.key.public_key}, which was revoked" in report.reasons


def test_events_before_a_renewal_are_covered_by_the_key_after_it(root: Root, node: Node) -> None:
    old = node.key.public_key
    node.renew()
    node.run()

    assert set(judge(node.stored, authors_of(root))[0]) == {VERIFIED}
    assert set(judge(node.stored, authors_of(root, revoked=[old]))[0]) == {VERIFIED}


def test_an_expired_certificate_proves_earlier_signatures(root: Root) -> None:
    node, authors = Node(root), authors_of(root)
    authors.learn(NODE, node.key.public_key, root.certificate(NODE, node.key, expires_ms=now_ms() - 1000))
    subject, place = event_subject(AGENT_DRIFT, NODE), ChainPosition(chain=new_chain_id(), number=1).header
    early = sign_event(node.key, subject, b"{}", place, issued_ms=now_ms() - 5000)
    late = sign_event(node.key, subject, b"{}", place, issued_ms=now_ms())

    events = [StoredEvent(subject=subject, body=b"{}", chain=place, signature=one) for one in (early, late)]

    assert judge(events[:1], authors)[0] == [VERIFIED]
    assert judge(events[1:], authors)[0] == [FORGED]


def test_a_signature_for_another_place_is_forged(root: Root, node: Node) -> None:
    last = node.writer.chain.last
    signed = node.stored[8]
    place = ChainPosition(chain=last.chain, number=10, previous=last.link).header
    node.stored.append(changed(signed, chain=place))

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [*[VERIFIED] * 9, FORGED]
    assert report.reasons == {"the signature is for another place in the chain": 1}


def test_an_older_agent_is_unsigned(root: Root, node: Node) -> None:
    old = [changed(event, chain="", signature="") for event in node.stored]

    verdicts, report = judge(old, authors_of(root))

    assert (verdicts, report.is_bad) == ([UNSIGNED] * 9, False)


def test_an_agent_without_a_key_is_unsigned(root: Root) -> None:
    node = Node(root)
    node.writer.key = None
    node.tell(AGENT_STARTUP)
    node.run()

    verdicts, report = judge(node.stored, authors_of(root))

    assert (verdicts, report.is_bad) == ([UNSIGNED] * 4, False)


def test_a_key_that_was_never_certified_is_unsigned_while_that_is_allowed(root: Root) -> None:
    """As of an agent whose credentials are of the layout with one account."""
    node = Node(root)
    node.tell(AGENT_STARTUP, key=node.key.public_key)
    node.run()

    allowed, report = judge(node.stored, authors_of(root, allow_unsigned_until=now_ms() + 60_000))
    demanded, _ = judge(node.stored, authors_of(root))

    assert (set(allowed), report.is_bad) == ({UNSIGNED}, False)
    assert FORGED in demanded


def test_a_node_that_has_a_certificate_and_signs_nothing_is_forged(root: Root, node: Node) -> None:
    """Someone took the signatures away."""
    plain = [changed(event, signature="") for event in node.stored]

    verdicts, report = judge(plain, authors_of(root))

    assert [verdicts[at] for at in (0, 4, 7, 8)] == [FORGED] * 4
    assert set(verdicts) == {FORGED, PROVISIONAL}
    assert report.is_bad


def test_events_spooled_by_an_older_agent_are_unsigned_and_later_ones_forged(root: Root, node: Node) -> None:
    old = StoredEvent(subject=event_subject(SESSION_START, NODE, new_id()), body=b"{}")

    verdicts, _ = judge([old, *node.stored, old], authors_of(root))
    allowed, _ = judge([*node.stored, old], authors_of(root, allow_unsigned_until=now_ms() + 60_000))

    assert verdicts == [UNSIGNED, *[VERIFIED] * 9, FORGED]
    assert allowed == [*[VERIFIED] * 9, UNSIGNED]


def test_events_lost_in_a_power_cut_are_provisional(root: Root, node: Node) -> None:
    node.lose_power(2)
    node.run()

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [*[VERIFIED] * 9, PROVISIONAL, PROVISIONAL, VERIFIED, VERIFIED, VERIFIED]
    assert not report.is_bad


def test_events_that_are_missing_before_another_chain_are_found(root: Root, node: Node) -> None:
    old = node.writer.chain.last.chain
    node.lose_power(0)
    node.run()
    del node.stored[7:9]

    verdicts, report = judge(node.stored, authors_of(root))

    assert report.missing == [MissingEvents(chain=old, first=8, last=9)]
    assert verdicts == [*[VERIFIED] * 5, GAP, GAP, *[VERIFIED] * 3]


def test_a_chain_that_is_missing_between_two_others_is_found(root: Root, node: Node) -> None:
    node.lose_power(0)
    middle = node.writer.chain.last.chain
    node.run()
    node.lose_power(0)
    node.run()
    del node.stored[9:12]

    assert judge(node.stored, authors_of(root))[1].missing == [MissingEvents(chain=middle, first=1, last=3)]


def test_losses_that_the_node_reported_are_not_a_gap(root: Root, node: Node) -> None:
    chain = node.writer.chain.last.chain
    node.tell(AGENT_LOST_EVENTS, events=2, places={chain: "3-4"})
    del node.stored[2:4]

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [VERIFIED, PROVISIONAL, *[VERIFIED] * 6]
    assert (report.given_up, report.missing, report.is_bad) == (2, [], False)


@pytest.mark.parametrize(
    "details",
    [
        {"events": 1, "places": {"chain": "3-4"}},
        {"events": 2, "places": {"chain": "3"}},
        {"events": "2", "places": {"chain": "3-4"}},
        {"events": 2, "places": "3-4"},
        {"events": 2, "places": {"chain": 34}},
        {"events": 2, "places": {"chain": "4-3"}},
    ],
)
def test_places_that_the_node_does_not_admit_are_a_gap(
    root: Root, node: Node, details: dict[str, object]
) -> None:
    chain = node.writer.chain.last.chain
    places = details["places"]
    if isinstance(places, dict):
        details = details | {"places": {chain: places["chain"]}}
    node.tell(AGENT_LOST_EVENTS, **details)
    del node.stored[2:4]

    assert judge(node.stored, authors_of(root))[1].missing_count == 2


def test_an_admission_that_the_node_did_not_sign_excuses_nothing(root: Root, node: Node) -> None:
    chain = node.writer.chain.last.chain
    node.tell(AGENT_LOST_EVENTS, events=2, places={chain: "3-4"})
    node.stored[-1] = changed(node.stored[-1], signature="")
    node.tell(AGENT_DRIFT)
    del node.stored[2:4]

    assert judge(node.stored, authors_of(root))[1].given_up in (0, 2)


def test_two_signed_events_for_one_place_are_reported(root: Root, node: Node) -> None:
    before = node.writer.chain.last
    node.tell(AGENT_DRIFT)
    node.writer.chain.last = before
    node.tell(AGENT_DRIFT)
    node.tell(AGENT_DRIFT)

    verdicts, report = judge(node.stored, authors_of(root))

    assert verdicts == [*[VERIFIED] * 10, GAP, VERIFIED]
    assert (report.doubled, report.reasons, report.is_bad) == (1, {}, True)


@pytest.mark.parametrize("header", ["x", "x" * 100_000, f"{'A' * 16}.0.-.-"])
def test_a_malformed_place_is_forged(root: Root, node: Node, header: str) -> None:
    node.stored.append(changed(node.stored[3], chain=header))

    assert judge(node.stored, authors_of(root))[0] == [*[VERIFIED] * 9, FORGED]


# -- any mutation


def history(root: Root, acts: Sequence[int]) -> Node:
    node = Node(root)
    node.start()
    for act in acts:
        if act < 4:
            node.run(act)
        elif act == 4:
            node.tell(AGENT_DRIFT)
        elif act == 5:
            node.renew()
        elif act == 6:
            node.start()  # after a kill: the chain goes on
        else:
            node.lose_power(act - 7)
            node.start()
    node.tell(AGENT_DRIFT)
    return node


ACTS = st.lists(st.integers(0, 9), min_size=1, max_size=6)


@settings(max_examples=80, deadline=None)
@given(acts=ACTS, cut=st.integers(0, 100))
def test_a_genuine_stream_is_never_flagged(acts: list[int], cut: int) -> None:
    """Over kills, power cuts, renewals and another run that goes on; and with its oldest part expired."""
    root = Root()
    node = history(root, acts)
    node.say(new_id(), Kind.START)
    authors = authors_of(root)
    judge(node.stored, authors)  # learns the certificates, which may be in the part that is cut off

    for events in (node.stored, node.stored[cut % len(node.stored) :]):
        verdicts, report = judge(events, authors)

        assert set(verdicts) <= {VERIFIED, PROVISIONAL}
        assert not report.is_bad, (report, verdicts)


Mutation = Callable[[list[StoredEvent], int, int], None]


def _remove(events: list[StoredEvent], at: int, other: int) -> None:
    del events[at]


def _change_body(events: list[StoredEvent], at: int, other: int) -> None:
    events[at] = changed(events[at], body=events[at].body + b" ")


def _change_subject(events: list[StoredEvent], at: int, other: int) -> None:
    events[at] = changed(events[at], subject=event_subject(TRANSACTION_EVENT, NODE, new_id()))


def _change_place(events: list[StoredEvent], at: int, other: int) -> None:
    events[at] = changed(events[at], chain=events[other].chain if other != at else "")


def _insert(events: list[StoredEvent], at: int, other: int) -> None:
    subject = event_subject(TRANSACTION_EVENT, NODE, new_id())
    events.insert(at, changed(events[at], subject=subject, body=b"{}", signature=events[other].signature))


def _insert_signed_by_another(events: list[StoredEvent], at: int, other: int) -> None:
    body = events[at].body + b" "
    signature = sign_event(SigningKey(new_seed()), events[at].subject, body, events[at].chain)
    events.insert(at, changed(events[at], body=body, signature=signature))


def _swap_contents(events: list[StoredEvent], at: int, other: int) -> None:
    one, two = events[at], events[other]
    if at == other:
        one = changed(one, body=b"{}")
    events[at] = changed(one, body=two.body)
    events[other] = changed(two, body=one.body)


def _move(events: list[StoredEvent], at: int, other: int) -> None:
    event = events.pop(at)
    events.insert(at + 1 if other <= at else other, event)
    if events[at] is event:  # the last one stays where it is
        events.insert(0, events.pop())


MUTATIONS: list[Mutation] = [
    _remove, _change_body, _change_subject, _change_place, _insert, _insert_signed_by_another, _swap_contents, _move
]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    acts=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    mutation=st.sampled_from(MUTATIONS),
    at=st.integers(0, 10_000),
    other=st.integers(0, 10_000),
)
def test_any_mutation_is_flagged(acts: list[int], mutation: Mutation, at: int, other: int) -> None:
    """But for what follows the last signature and what is before the first one: the tests above say what of it shows."""
    root = Root()
    node = history(root, acts)
    authors = authors_of(root)
    assert set(judge(node.stored, authors)[0]) == {VERIFIED}
    genuine = {link_of(one.subject, one.chain, one.body) for one in node.stored}
    inner = len(node.stored) - 2
    mutated = list(node.stored)

    mutation(mutated, 1 + at % inner, 1 + other % inner)
    verdicts, report = judge(mutated, authors)

    assert report.is_bad
    for event, verdict in zip(mutated, verdicts, strict=True):
        assert verdict is not VERIFIED or link_of(event.subject, event.chain, event.body) in genuine


# -- bounds


def test_a_million_places_take_little_memory_and_spoil_one_node_only(
    root: Root, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticity, "WAITING_LIMIT", 500)
    monkeypatch.setattr(authenticity, "CHAINS_LIMIT", 100)
    authors = authors_of(root)
    reader, chain = NodeEvents(NODE, authors), node.writer.chain.last.chain
    subject, link = event_subject(SESSION_START, NODE, new_id()), node.writer.chain.last.link
    for event in node.stored:
        reader.take(event)

    tracemalloc.start()
    for number in range(20_000):
        own = chain if number % 2 else new_chain_id()
        place = ChainPosition(chain=own, number=10**14 + number, previous=link)
        reader.take(StoredEvent(subject=subject, body=b"{}", chain=place.header))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    report = reader.finish()

    assert peak < 1_500_000
    assert report.counts[VERIFIED] == 9
    assert sum(report.counts.values()) == report.events == 20_009
    assert len(report.missing) <= MISSING_LIMIT
    other = Node(root, "web2")
    other.start()
    other.run()
    assert set(judge(other.stored, authors, "web2")[0]) == {VERIFIED}


def test_many_chains_that_name_one_another_do_not_exhaust_the_stack(root: Root) -> None:
    """The holder of a node's key signs one event, from which anchors lead through many chains."""
    node = Node(root)
    for _ in range(900):
        node.say(new_id(), Kind.START)
        node.writer.chain.begin(node.writer.chain.last, {})
    node.start()

    verdicts, _ = judge(node.stored, authors_of(root))

    assert set(verdicts) == {VERIFIED}
