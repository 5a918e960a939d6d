"""The table of what accounts take from each other."""

from __future__ import annotations

from itertools import permutations

import pytest

from ccm_agent.bus.access.accounts import (
    REQUESTS,
    STREAMS,
    Account,
    AccountExport,
    ExportKind,
    as_configuration,
    exports,
    exports_and_imports,
    grants,
    imports,
)
from ccm_agent.bus.access.audit import audited_patterns
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.layout import NOTIFYING, LayoutOptions, plan
from ccm_agent.bus.subjects import stored_patterns, subject_matches
from ccm_agent.model import wire

EVERYTHING = Role(apply=(">",), data=True, facts=True, schedules=True, join=True)
KEYS = {account: f"A{account.value}" for account in Account}
MOVING = [pytest.param(False, id="for good"), pytest.param(True, id="while a fleet moves")]


def overlaps(one: str, other: str) -> bool:
    """Some subject fits both patterns."""
    for left, right in zip(one.split("."), other.split("."), strict=False):
        if ">" in (left, right):
            return True
        if "*" not in (left, right) and left != right:
            return False
    return one.count(".") == other.count(".")


def test_every_stream_of_the_layout_is_named() -> None:
    names = {wanted.config["name"] for wanted in plan(LayoutOptions(), with_schedules=True)}

    assert set(STREAMS) == names


def test_every_kind_of_request_is_exported() -> None:
    requests = {
        value for name, value in vars(wire).items() if str(value).endswith(".request") and name.isupper()
    }

    assert len(requests) > 7
    assert {
        protocol
        for protocol in requests
        if any(subject_matches(each, f"{protocol}.all") for each in REQUESTS)
    } == requests


def test_services_that_change_something_have_a_wildcard() -> None:
    """An answer of the broker's goes on into a service without one, and so would be taken for a question of its receiver's."""
    plain = [
        one.subject for one in grants() if one.kind == ExportKind.SERVICE and not set(one.subject) & set("*>")
    ]

    assert {subject.rpartition(".")[0] for subject in plain} == {
        "$JS.API",
        "$JS.API.STREAM.INFO",
        "$JS.API.DIRECT.GET",
    }


def test_operators_offer_no_stream() -> None:
    """In a cluster an answer that is sent onto it would go on to the nodes."""
    assert {one.kind for one in exports(Account.OPS, grants())} == {ExportKind.SERVICE}


def test_operators_answer_nodes_that_join_and_nothing_else() -> None:
    assert [(one.subject, one.to) for one in exports(Account.OPS, grants())] == [
        ("io.choria.ccm.v1.join.request.*", (Account.JOIN,)),
        ("io.choria.ccm.v1.join.renewal.>", (Account.NODES,)),
    ]


def test_the_holder_of_a_token_reaches_the_join_service_alone() -> None:
    taken = [one.subject for one in imports(Account.JOIN, grants())]

    # The server itself needs the first one: see `accounts._questions`.
    assert taken == ["$JS.API.INFO", "io.choria.ccm.v1.join.request.*"]


def test_nodes_offer_requests_alone_as_a_service() -> None:
    assert [
        one.subject for one in exports(Account.NODES, grants()) if one.kind == ExportKind.SERVICE
    ] == list(REQUESTS)


def test_operators_hear_events_as_a_stream() -> None:
    """As a service they would see where its acknowledgement goes, and could have it forged."""
    assert {one.kind for one in grants() if Account.OPS in one.to and one.owner == Account.NODES} == {
        ExportKind.STREAM
    }
    assert {one.kind for one in grants() if one.owner == Account.OPS} == {ExportKind.SERVICE}


@pytest.mark.parametrize("moving", MOVING)
@pytest.mark.parametrize("account", Account)
def test_services_that_an_account_takes_do_not_overlap(account: Account, moving: bool) -> None:
    """
    The broker would hand a question to both, and answer twice.

    The stream of nodes' decisions does not answer (tests/nats/test_audit_stream.py), so it takes what CCM_EVENTS takes.
    """
    services = [
        one.subject
        for one in imports(account, grants(moving=moving))
        if one.kind == ExportKind.SERVICE
        and not (one.owner == Account.AUDIT and one.subject in audited_patterns())
    ]

    assert [pair for pair in permutations(services, 2) if overlaps(*pair)] == []


@pytest.mark.parametrize("moving", MOVING)
def test_a_stream_does_not_come_back_to_where_it_came_from(moving: bool) -> None:
    streams = [grant for grant in grants(moving=moving) if grant.kind == ExportKind.STREAM]

    assert [
        (one, other)
        for one, other in permutations(streams, 2)
        if one.owner in other.to and other.owner in one.to and overlaps(one.subject, other.subject)
    ] == []


def test_of_subjects_that_overlap_the_widest_is_offered_once() -> None:
    def grant(subject: str, to: Account) -> AccountExport:
        return AccountExport(owner=Account.CTL, kind=ExportKind.SERVICE, subject=subject, to=(to,))

    table = [
        grant("a.b.*", Account.NODES),
        grant("a.>", Account.OPS),
        grant("a.*.>", Account.NODES),
        grant("a", Account.OPS),
    ]

    assert [(one.subject, one.to) for one in exports(Account.CTL, table)] == [
        ("a.>", (Account.NODES, Account.OPS)),
        ("a", (Account.OPS,)),
    ]


@pytest.mark.parametrize(
    ("account", "publish"),
    [
        (Account.NODES, node_permissions("web1", ["10.0.0.1"], reads_registrations=True).publish),
        (Account.OPS, operator_permissions("op", EVERYTHING).publish),
    ],
)
def test_each_question_that_a_user_may_ask_leads_somewhere(
    account: Account, publish: tuple[str, ...]
) -> None:
    """A line of the permissions that no account answers would be a request without an answer, for five seconds."""
    taken = [one.subject for one in imports(account, grants()) if one.kind == ExportKind.SERVICE]
    spoken = [one.subject for one in grants() if one.kind == ExportKind.STREAM and one.owner == account]

    assert [
        subject for subject in publish if not any(overlaps(subject, one) for one in (*taken, *spoken))
    ] == []


@pytest.mark.parametrize(
    ("account", "publish"),
    [
        (Account.NODES, node_permissions("web1", ["10.0.0.1"], reads_registrations=True).publish),
        (Account.OPS, operator_permissions("op", EVERYTHING).publish),
    ],
)
def test_no_account_takes_a_question_that_its_users_may_not_ask(
    account: Account, publish: tuple[str, ...]
) -> None:
    taken = [one.subject for one in imports(account, grants()) if one.kind == ExportKind.SERVICE]
    # The server itself needs it: see `accounts._questions`.
    needed = "$JS.API.INFO"

    assert [one for one in taken if not any(overlaps(subject, one) for subject in publish)] == [needed]


def test_nodes_take_no_question_about_streams() -> None:
    taken = [one.subject for one in imports(Account.NODES, grants()) if one.subject.startswith("$JS.API.")]

    assert {subject.split(".")[2] for subject in taken} == {"DIRECT", "INFO"}


def test_claims_are_as_jwts_have_them() -> None:
    found = exports_and_imports(Account.OPS, KEYS)

    assert {
        "name": "$JS.API.DIRECT.GET.KV_CCM_DATA",
        "subject": "$JS.API.DIRECT.GET.KV_CCM_DATA",
        "account": "Actl",
        "local_subject": "$JS.API.DIRECT.GET.KV_CCM_DATA",
        "type": "service",
    } in found["imports"]
    assert {each["type"] for each in found["exports"]} == {"service"}
    assert {
        "name": "$JS.API.DIRECT.GET.KV_CCM_DATA",
        "subject": "$JS.API.DIRECT.GET.KV_CCM_DATA",
        "type": "service",
        "response_type": "Stream",
        "response_threshold": 30_000_000_000,
    } in exports_and_imports(Account.CTL, KEYS)["exports"]


def test_the_configuration_has_the_same_table() -> None:
    text = as_configuration({Account.CTL: "", Account.OPS: "", Account.NODES: ""})

    assert text.count("jetstream: enabled") == 2
    assert text.count("account: ") == sum(len(imports(account, grants())) for account in Account)
    assert "NODES {" in text


def test_notices_of_buckets_that_agents_obey_reach_them() -> None:
    subscribe = node_permissions("web1").subscribe
    heard = {subject.split(".")[3] for subject in subscribe if subject.startswith("choria.ccm.poke.")}

    assert heard == set(NOTIFYING)


def test_all_that_is_stored_of_events_is_handed_to_the_stream() -> None:
    services = {one.subject for one in imports(Account.NODES, grants()) if one.kind == ExportKind.SERVICE}

    assert set(stored_patterns()) <= services
