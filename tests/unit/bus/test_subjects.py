"""Subjects and keys: what is built is parsed again, nothing widens, nothing collides."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccm_agent.bus import subjects
from ccm_agent.bus.subjects import EventAddress
from ccm_agent.model.errors import DataError, ProtocolError, UsageError
from ccm_agent.model.outcome import SESSION_START, TRANSACTION_EVENT
from ccm_agent.model.wire import AGENT_STARTUP, MANIFEST_APPLY, NODE_PING, SESSION_ANSWER

RUN = "2MNZkZJ2rVTqmM4x2UaUVAWsT8M"

texts = st.text(max_size=120) | st.text(alphabet="a.*> =é_-Z0", max_size=40)
nodes = st.from_regex(r"[a-z0-9_-]{1,20}(\.[a-z0-9_-]{1,20}){0,3}", fullmatch=True).filter(subjects.is_node)


@given(texts)
def test_every_text_becomes_one_token_of_bounded_length(text: str) -> None:
    token = subjects.encode_token(text)

    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-=")
    assert 1 <= len(token) <= subjects.TOKEN_LIMIT_BYTES


@given(texts)
def test_a_token_gives_its_text_back_unless_only_the_digest_fits(text: str) -> None:
    token = subjects.encode_token(text)

    assert subjects.decode_token(token) == (None if token.startswith("=h") else text)


@given(texts, texts)
def test_different_texts_give_different_tokens(one: str, other: str) -> None:
    assert (subjects.encode_token(one) == subjects.encode_token(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        pytest.param("web", "web", id="plain letters stay"),
        pytest.param("", "=", id="the empty text is an equals sign"),
        pytest.param("=", "=3D", id="an equals sign is encoded"),
        pytest.param("a b", "a=20b", id="a space is encoded"),
        pytest.param("a.b", "a=2Eb", id="a dot is encoded"),
        pytest.param("*", "=2A", id="a star is encoded"),
        pytest.param(">", "=3E", id="a greater-than sign is encoded"),
        pytest.param("é", "=C3=A9", id="é is encoded byte by byte"),
        pytest.param("x" * 100, "x" * 100, id="a hundred bytes stay"),
        pytest.param(
            "x" * 101,
            "=h",
            id="more than a hundred become a digest",
        ),
    ],
)
def test_tokens_can_be_computed_by_other_programs(text: str, token: str) -> None:
    if token.startswith("=h"):
        import hashlib

        token = f"=h{hashlib.sha256(text.encode()).hexdigest()}"

    assert subjects.encode_token(text) == token


@pytest.mark.parametrize("token", ["", "=4", "=61", "=zz", "a=", "=h12", "a b", "=e9", "=FF"])
def test_a_token_that_we_never_make_is_refused(token: str) -> None:
    with pytest.raises(ProtocolError):
        subjects.decode_token(token)


@pytest.mark.parametrize("identity", ["web1", "web1.example.com", "a_b-c.d", "0", "allx", "node", "facts.x"])
def test_an_identity_of_lower_case_labels_is_taken(identity: str) -> None:
    assert subjects.check_node(identity) == identity


@pytest.mark.parametrize(
    "identity",
    ["", ".", "a.", ".a", "a..b", "A", "wéb", "a b", "*", ">", "a*", "all", "node.a", "fact.a", "request.a",
     "a\n", "a" * 254],
)  # fmt: skip
def test_an_identity_that_would_break_a_subject_is_refused(identity: str) -> None:
    with pytest.raises(UsageError):
        subjects.check_node(identity)


@given(st.text(max_size=30), st.text(max_size=30), nodes)
def test_a_request_reaches_its_scope_and_no_other(key: str, value: str, node: str) -> None:
    scopes = ["all", subjects.node_scope(node), subjects.fact_scope(key, value)]

    for scope in scopes:
        subject = subjects.request_subject(MANIFEST_APPLY, scope)

        assert subjects.parse_request(subject) == (MANIFEST_APPLY, scope)
        assert [
            other for other in scopes if subjects.subject_matches(subjects.request_pattern(other), subject)
        ] == [scope]


@given(nodes)
def test_an_event_never_reaches_subscribers_of_requests(node: str) -> None:
    subject = subjects.event_subject(AGENT_STARTUP, node)

    assert not subjects.subject_matches(f"{subjects.REQUEST_PREFIX}.>", subject)
    assert subjects.parse_event(subject) == EventAddress(protocol=AGENT_STARTUP, node=node)


def test_the_event_of_a_run_names_node_and_run() -> None:
    subject = subjects.event_subject(TRANSACTION_EVENT, "web1.example.com", RUN)

    assert subject == f"io.choria.ccm.v1.transaction.event.{RUN}.web1.example.com"
    assert subjects.parse_event(subject) == EventAddress(
        protocol=TRANSACTION_EVENT, node="web1.example.com", run=RUN
    )


def test_the_stream_takes_events_but_no_answers_and_no_requests() -> None:
    offered = [
        subjects.event_subject(SESSION_START, "web1.example.com", RUN),
        subjects.event_subject(TRANSACTION_EVENT, "web1", RUN),
        subjects.event_subject(AGENT_STARTUP, "web1.example.com"),
        subjects.event_subject(SESSION_ANSWER, "web1", RUN),
        subjects.request_subject(NODE_PING, "node.web1"),
    ]

    taken = [
        subject
        for subject in offered
        if any(subjects.subject_matches(pattern, subject) for pattern in subjects.stored_patterns())
    ]

    assert taken == offered[:3]


@pytest.mark.parametrize(
    "subject",
    [
        "io.choria.ccm.v1.manifest.apply.request",
        "io.choria.ccm.v1.manifest.apply.request.everybody",
        "io.choria.ccm.v1.manifest.apply.request.node.",
        "io.choria.ccm.v1.manifest.apply.request.node.A",
        "io.choria.ccm.v1.manifest.apply.request.fact.role",
        "io.choria.ccm.v1.manifest.apply.request.fact.role.web.extra",
        "io.choria.ccm.v1.manifest.apply.request.fact.*.web",
        "io.choria.ccm.v1.manifest.*.request.all",
        "io.choria.ccm.v1.manifest.apply.all",
        "io.choria.ccm.v2.manifest.apply.request.all",
        "choria.ccm.due.manifest.apply.request.all",
    ],
)
def test_an_invalid_subject_is_not_parsed_as_a_request(subject: str) -> None:
    with pytest.raises(ProtocolError):
        subjects.parse_request(subject)


@pytest.mark.parametrize(
    "subject",
    [
        f"io.choria.ccm.v1.transaction.event.{RUN}",
        "io.choria.ccm.v1.transaction.event.run.web1",
        f"io.choria.ccm.v1.transaction.event.{RUN}.WEB1",
        f"io.choria.ccm.v1.transaction.event.{RUN}.request.all",
        "io.choria.ccm.v1.agent.startup",
        "io.choria.ccm.v1.agent.startup.all",
        "io.choria.ccm.v1.manifest.apply.request.all",
        f"other.v1.transaction.event.{RUN}.web1",
    ],
)
def test_an_invalid_subject_is_not_parsed_as_an_event(subject: str) -> None:
    with pytest.raises(ProtocolError):
        subjects.parse_event(subject)


def test_the_protocol_decides_whether_an_event_belongs_to_a_run() -> None:
    with pytest.raises(ProtocolError):
        subjects.event_subject(AGENT_STARTUP, "web1", RUN)
    with pytest.raises(ProtocolError):
        subjects.event_subject(SESSION_START, "web1")
    with pytest.raises(ProtocolError):
        subjects.event_subject(SESSION_START, "web1", "../../etc")


def test_a_node_listens_to_all_itself_and_each_routed_fact() -> None:
    facts = {"role": "web", "size": 3, "spare": False, "load": 0.5, "disks": ["a"], "none": None, "note": ""}

    assert subjects.scopes_of("web1", facts) == [
        "all",
        "node.web1",
        "fact.note.=",
        "fact.role.web",
        "fact.size.3",
        "fact.spare.false",
    ]


def test_a_due_request_comes_back_on_the_subject_it_was_made_for() -> None:
    subject = subjects.request_subject(MANIFEST_APPLY, "fact.role.web")

    assert subjects.due_subject(subject) == "choria.ccm.due.manifest.apply.request.fact.role.web"


def test_a_schedule_can_have_its_own_subject_within_the_nodes_permissions() -> None:
    schedule = subjects.schedule_subject(MANIFEST_APPLY, "fact.role.web", "nightly")

    subject = subjects.own_subject(schedule)

    assert subject == "io.choria.ccm.v1.manifest.apply-nightly.request.fact.role.web"
    assert subjects.subject_matches(subjects.request_pattern("fact.role.web"), subject)
    assert subjects.parse_scheduled(subject) == (MANIFEST_APPLY, "fact.role.web", "nightly")
    assert subjects.due_subject(subject) == "choria.ccm.due.manifest.apply-nightly.request.fact.role.web"
    with pytest.raises(ProtocolError):
        subjects.parse_request(subject)


@given(st.text(min_size=1, max_size=8), nodes)
def test_subjects_of_schedules_come_back_as_they_were_made(name: str, node: str) -> None:
    scope = subjects.node_scope(node)

    subject = subjects.own_subject(subjects.schedule_subject(MANIFEST_APPLY, scope, name))

    assert subjects.parse_scheduled(subject) == (MANIFEST_APPLY, scope, subjects.encode_token(name))


@pytest.mark.parametrize(
    "subject",
    [
        "io.choria.ccm.v1.manifest.apply-.request.all",
        "io.choria.ccm.v1.manifest.apply-=zz.request.all",
        "io.choria.ccm.v1.manifest.-nightly.request.all",
        "io.choria.ccm.v1.manifest-nightly.apply.request.all",
        "io.choria.ccm.v1.manifest.apply-nightly.request.everybody",
        "io.choria.ccm.v1",
    ],
)
def test_an_invalid_subject_is_not_parsed_as_a_schedule(subject: str) -> None:
    with pytest.raises(ProtocolError):
        subjects.parse_scheduled(subject)


@given(st.text(min_size=1, max_size=8), nodes)
def test_schedules_and_assignments_carry_scope_and_name(name: str, node: str) -> None:
    scope = subjects.node_scope(node)
    schedule = subjects.schedule_subject(MANIFEST_APPLY, scope, name)
    assignment = subjects.assignment_key(scope, name)

    assert subjects.parse_schedule(schedule) == (MANIFEST_APPLY, scope, name)
    assert subjects.parse_assignment_key(assignment) == (scope, name)
    assert subjects.check_key(assignment) == assignment


def test_registrations_have_the_reference_s_subjects() -> None:
    subject = subjects.registration_subject("prod", "http", "web", "10.1.2.3", "abc")

    assert subject == "choria.ccm.registration.v1.prod.http.web.10_1_2_3.abc"
    assert subjects.parse_registration(subject) == ("prod", "http", "web", "10.1.2.3")
    assert subjects.registration_pattern("prod", service="web") == "choria.ccm.registration.v1.prod.*.web.*.*"


@pytest.mark.parametrize("part", ["", "a b", "a*", ">", "a.b", "é"])
def test_a_registration_cannot_widen_its_subject(part: str) -> None:
    with pytest.raises(DataError):
        subjects.registration_subject(part, "http", "web", "10.1.2.3", "abc")


@pytest.mark.parametrize("key", ["", ".a", "a.", "a..b", "a b", "*", "a.>", "é"])
def test_a_key_that_no_bucket_takes_is_refused(key: str) -> None:
    with pytest.raises(DataError):
        subjects.check_key(key)


def test_precedence_is_node_then_fact_then_all_then_newest() -> None:
    ranks = [
        subjects.assignment_rank(scope, sequence)
        for scope, sequence in [("all", 9), ("fact.role.web", 3), ("fact.env.prod", 4), ("node.web1.x", 1)]
    ]

    assert ranks == sorted(ranks)


def test_an_inbox_is_one_token_so_that_no_name_reaches_into_another() -> None:
    assert subjects.inbox_prefix("b.x") == "_INBOX_b=2Ex"
    assert not subjects.subject_matches(
        f"{subjects.inbox_prefix('b')}.>", f"{subjects.inbox_prefix('b.x')}.1"
    )


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        pytest.param("a.b", "a.b", True, id="the same"),
        pytest.param("a.*", "a.b", True, id="a star is one token"),
        pytest.param("a.*", "a.b.c", False, id="a star is not two tokens"),
        pytest.param("a.>", "a.b.c", True, id="the rest is any number of tokens"),
        pytest.param("a.>", "a", False, id="the rest is at least one token"),
        pytest.param("a.b.c", "a.b", False, id="a pattern may be longer"),
    ],
)
def test_patterns_match_as_the_broker_matches(pattern: str, subject: str, *, matches: bool) -> None:
    assert subjects.subject_matches(pattern, subject) is matches


def test_naming_a_subject_does_not_load_the_client() -> None:
    code = "import sys, ccm_agent.bus.subjects; sys.exit('nats' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
