"""The Requests port, and the protocol's own defences in it."""

from __future__ import annotations

import pytest

from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.subjects import (
    fact_scope,
    node_scope,
    own_subject,
    request_subject,
    schedule_subject,
    scopes_of,
)
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.wire import MANIFEST_APPLY, NODE_PING
from tests.support.nats_server import Heard

PING = b'{"protocol":"io.choria.ccm.v1.node.ping.request","run":"r"}'


def ping(scope: str) -> str:
    """The subject of a ping."""
    return request_subject(NODE_PING, scope)


async def test_a_request_reaches_subscribers_of_its_scope(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1.example.com")
    heard = Heard()
    await node.requests.subscribe(["all", "node.web1.example.com"], heard)

    await operator.requests.publish(ping("node.web1.example.com"), PING, {"Signature": "abc"})

    assert await heard.wait(1) == [
        IncomingRequest(
            subject="io.choria.ccm.v1.node.ping.request.node.web1.example.com",
            protocol=NODE_PING,
            scope="node.web1.example.com",
            body=PING,
            headers={"Ccm-Sent": "1", "Signature": "abc"},
        )
    ]


async def test_requests_arrive_in_the_order_in_which_they_were_sent(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(["all", "node.web1"], heard)

    for scope in ["all", "node.web1", "all", "node.web1"]:
        await operator.requests.publish(ping(scope), PING)

    assert [each.scope for each in await heard.wait(4)] == ["all", "node.web1", "all", "node.web1"]


FACTS = ["web", "two words", "a.b", "*", ">", "é", "", "=", "WEB", "web.*", "x" * 300]


async def test_every_fact_routes_to_exactly_the_nodes_that_have_it(broker) -> None:
    operator = await broker.connect("op")
    heard = {}
    for number, value in enumerate(FACTS):
        name = f"n{number}"
        heard[name] = Heard()
        node = await broker.connect(name)
        await node.requests.subscribe(scopes_of(name, {"role": value, value: "key"}), heard[name])

    for value in FACTS:
        await operator.requests.publish(ping(fact_scope("role", value)), PING)
        await operator.requests.publish(ping(fact_scope(value, "key")), PING)
    await operator.requests.publish(ping("all"), PING)

    for number, value in enumerate(FACTS):
        got = await heard[f"n{number}"].wait(3)
        assert [each.scope for each in got] == [fact_scope("role", value), fact_scope(value, "key"), "all"]


async def test_the_value_of_one_fact_is_not_the_key_of_another(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(scopes_of("web1", {"role": "web"}), heard)

    await operator.requests.publish(ping(fact_scope("web", "role")), PING)
    await operator.requests.publish(ping(fact_scope("role.web", "")), PING)
    await operator.requests.publish(ping("all"), PING)

    assert [each.scope for each in await heard.wait(1)] == ["all"]


async def test_scopes_can_be_replaced_without_losing_messages_of_kept_ones(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(scopes_of("web1", {"role": "web"}), heard)

    await node.requests.subscribe(scopes_of("web1", {"role": "db"}), heard)
    for scope in [fact_scope("role", "web"), fact_scope("role", "db"), "all"]:
        await operator.requests.publish(ping(scope), PING)

    assert [each.scope for each in await heard.wait(2)] == [fact_scope("role", "db"), "all"]


async def test_scopes_stand_after_the_broker_was_away(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(["all", "node.web1"], heard)

    await broker.stop()
    await broker.start()
    await operator.requests.publish(ping("node.web1"), PING)

    assert [each.scope for each in await heard.wait(1)] == ["node.web1"]


async def test_scopes_chosen_while_the_broker_is_away_begin_with_its_return(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await broker.stop()

    await node.requests.subscribe(["all"], heard)
    await broker.start()
    await operator.requests.publish(ping("all"), PING)

    assert [each.scope for each in await heard.wait(1)] == ["all"]


async def test_a_request_cannot_be_sent_while_the_broker_is_away(broker) -> None:
    operator = await broker.connect("op")
    await broker.stop()

    with pytest.raises(BusUnavailableError):
        await operator.requests.publish(ping("all"), PING)


async def test_a_request_without_subscribers_is_not_an_error(broker) -> None:
    operator = await broker.connect("op")

    await operator.requests.publish(ping("node.nobody"), PING)


async def test_only_the_subjects_of_requests_are_published_on(broker) -> None:
    operator = await broker.connect("op")

    with pytest.raises(ProtocolError):
        await operator.requests.publish("io.choria.ccm.v1.agent.startup.web1", PING)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"protocol":"io.choria.ccm.v1.manifest.apply.request"}', id="another request"),
        pytest.param(b'{"run":"x"}', id="no protocol"),
        pytest.param(b'{"protocol":7}', id="a protocol that is not text"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"protocol: io.choria.ccm.v1.node.ping.request", id="no JSON"),
    ],
)
async def test_a_body_that_does_not_speak_its_subjects_protocol_is_refused(broker, body) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard, refused = Heard(), Heard()
    await node.requests.subscribe(["all"], heard, refused)

    await operator.requests.publish(ping("all"), body)
    await operator.requests.publish(ping("all"), PING)

    assert len(await heard.wait(1)) == 1
    [(subject, error)] = refused.items
    assert subject == ping("all")
    assert isinstance(error, ProtocolError)


async def test_a_document_copied_to_the_subject_of_a_request_is_refused(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard, refused = Heard(), Heard()
    await node.requests.subscribe(["all"], heard, refused)
    await operator.bucket("CCM_DATA").put("trap", PING)

    await broker.copy_to(ping("all"), "KV_CCM_DATA", "$KV.CCM_DATA.trap")

    [(subject, error)] = await refused.wait(1)
    assert subject == ping("all")
    assert "a copy of a message in KV_CCM_DATA" in str(error)
    assert heard.items == []


SITE = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request","name":"site"}'


async def test_the_last_due_request_is_returned_as_delivered(broker) -> None:
    node = await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(["all"], heard)
    subject = request_subject(MANIFEST_APPLY, "all")

    await broker.fire(subject, SITE)
    [delivered] = await heard.wait(1)
    found = await node.requests.last_due(subject)

    assert found is not None
    assert found.scheduled
    assert (found.subject, found.protocol, found.scope, found.body) == (subject, MANIFEST_APPLY, "all", SITE)
    assert scheduled_run_id(found) == scheduled_run_id(delivered)


async def test_the_newest_due_request_is_returned_for_each_subject(broker) -> None:
    node = await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(["all"], heard)
    subject = request_subject(MANIFEST_APPLY, "all")
    await broker.fire(subject, SITE)
    await heard.wait(1)
    await broker.fire(subject, SITE.replace(b"site", b"base"))
    await heard.wait(2)

    found = await node.requests.last_due(subject)

    assert found is not None
    assert found.body == SITE.replace(b"site", b"base")
    assert await node.requests.last_due(request_subject(MANIFEST_APPLY, "node.web1")) is None


async def test_each_schedule_with_a_subject_of_its_own_has_its_own_last_request(broker) -> None:
    node = await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe(["all", "node.web1"], heard)
    shared = request_subject(MANIFEST_APPLY, "all")
    backup, patch = (
        own_subject(schedule_subject(MANIFEST_APPLY, "all", name)) for name in ("backup", "patch")
    )
    for subject in (shared, backup, patch):
        await broker.fire(subject, SITE.replace(b"site", subject.encode()))

    delivered = await heard.wait(3)
    own = await node.requests.own_subjects(["all"])
    found = [await node.requests.last_due(subject) for subject in (shared, *own)]

    assert own == [backup, patch]
    assert await node.requests.own_subjects(["node.web1"]) == []
    assert [one.subject for one in found if one] == [shared, backup, patch]
    assert {(one.protocol, one.scope, one.scheduled) for one in found if one} == {
        (MANIFEST_APPLY, "all", True)
    }
    assert [scheduled_run_id(one) for one in found if one] == [scheduled_run_id(one) for one in delivered]


async def test_no_schedule_has_a_subject_of_its_own_unless_one_was_made(broker) -> None:
    node = await broker.connect("web1")

    assert await node.requests.own_subjects(["all"]) == []


async def test_due_requests_cannot_be_read_without_a_broker(broker) -> None:
    node = await broker.connect("web1")
    await broker.stop()

    with pytest.raises(BusUnavailableError):
        await node.requests.last_due(request_subject(MANIFEST_APPLY, "all"))


async def test_an_apply_is_another_subject_than_a_ping(broker) -> None:
    operator, node = await broker.connect("op"), await broker.connect("web1")
    heard = Heard()
    await node.requests.subscribe([node_scope("web1")], heard)

    body = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request"}'
    await operator.requests.publish(request_subject(MANIFEST_APPLY, "node.web1"), body)

    assert [each.protocol for each in await heard.wait(1)] == [MANIFEST_APPLY]
