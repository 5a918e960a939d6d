"""The Events port."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.bus.subjects import event_subject, run_pattern
from ccm_agent.model.errors import BusUnavailableError, ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START, SESSION_SUMMARY, TRANSACTION_EVENT
from ccm_agent.model.ports import Published, StoredEvent
from ccm_agent.model.wire import AGENT_SHUTDOWN, AGENT_STARTUP, PROTOCOL, SESSION_ANSWER, SESSION_PROGRESS
from tests.support.nats_server import Heard

RUN = new_id()
START = event_subject(SESSION_START, "web1", RUN)
CHANGE = event_subject(TRANSACTION_EVENT, "web1", RUN)
SUMMARY = event_subject(SESSION_SUMMARY, "web1", RUN)


async def test_an_event_is_stored_when_publish_returns(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")

    sequence = (await node.events.publish(START, "id1", b"one")).sequence

    assert timeless(await operator.events.read(run_pattern(RUN))) == [
        StoredEvent(subject=START, body=b"one", sequence=sequence)
    ]


async def test_a_reader_gets_the_senders_claims_about_place_and_author(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    heard = Heard()
    await operator.events.follow(run_pattern(RUN), heard)

    headers = {"Ccm-Chain": "a place", "Ccm-Signature": "a signature", "Other": "x"}
    published = await node.events.publish(START, "id1", b"one", headers)

    early = StoredEvent(subject=START, body=b"one", chain="a place", signature="a signature")
    stored = msgspec.structs.replace(early, sequence=published.sequence)
    assert await heard.wait(1) == [early]
    assert timeless(await operator.events.read(run_pattern(RUN))) == [stored]
    assert timeless(await operator.events.newest([START])) == [stored]


async def test_reader_is_reported_when_events_were_stored_and_since_when_there_are_any(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")

    before = await operator.events.oldest()
    await node.events.publish(START, "id1", b"one")
    await node.events.publish(SUMMARY, "id2", b"two")
    first, second = [event.time async for event in operator.events.scan(run_pattern(RUN))]

    assert before is None
    assert await operator.events.oldest() == first
    assert first is not None
    assert second is not None
    assert first <= second


def timeless(events: list[StoredEvent]) -> list[StoredEvent]:
    """Without what differs from run to run."""
    return [msgspec.structs.replace(event, time=None) for event in events]


async def test_events_are_read_in_the_order_in_which_they_were_stored(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    for number, subject in enumerate([START, CHANGE, CHANGE, SUMMARY]):
        await node.events.publish(subject, f"id{number}", str(number).encode())

    everything = await operator.events.read(run_pattern(RUN))
    later = await operator.events.read(run_pattern(RUN), everything[2].sequence)

    assert [event.body for event in everything] == [b"0", b"1", b"2", b"3"]
    assert [event.body for event in later] == [b"2", b"3"]


async def test_a_run_is_read_without_others_and_a_node_without_others(broker) -> None:
    node = await broker.connect("web1")
    other = new_id()
    await node.events.publish(START, "id1", b"web1")
    await node.events.publish(event_subject(SESSION_START, "web2.example.com", RUN), "id2", b"web2")
    await node.events.publish(event_subject(SESSION_START, "web1", other), "id3", b"other run")

    assert [event.body for event in await node.events.read(run_pattern(RUN))] == [b"web1", b"web2"]
    assert [event.body for event in await node.events.read(run_pattern(RUN, "web2.example.com"))] == [b"web2"]


async def test_the_newest_event_of_each_subject_is_read_without_the_older_ones(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    start, stop = event_subject(AGENT_STARTUP, "web1"), event_subject(AGENT_SHUTDOWN, "web1")
    for number, subject in enumerate([start, stop, start, event_subject(AGENT_STARTUP, "web2"), SUMMARY]):
        await node.events.publish(subject, f"id{number}", str(number).encode())

    everything = await operator.events.newest([f"{PROTOCOL}.agent.*.web1", SUMMARY])
    nothing = await operator.events.newest([event_subject(AGENT_STARTUP, "web9")])
    nobody = await operator.events.newest([])

    assert [(event.subject, event.body) for event in everything] == [
        (stop, b"1"),
        (start, b"2"),
        (SUMMARY, b"4"),
    ]
    assert (nothing, nobody) == ([], [])


async def test_the_same_event_sent_again_is_stored_once(broker) -> None:
    node = await broker.connect("web1")

    first = await node.events.publish(START, "id1", b"one")
    again = await node.events.publish(START, "id1", b"one")

    assert (first.is_duplicate, again) == (False, Published(sequence=first.sequence, is_duplicate=True))
    assert len(await node.events.read(run_pattern(RUN))) == 1


async def test_a_reader_hears_events_answers_and_progress_early(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    heard = Heard()
    await operator.events.follow(run_pattern(RUN), heard)

    answer = event_subject(SESSION_ANSWER, "web1", RUN)
    progress = event_subject(SESSION_PROGRESS, "web1", RUN)
    await node.events.announce(answer, b"accepted")
    await node.events.publish(START, "id1", b"one")
    await node.events.announce(progress, b"at it")

    assert await heard.wait(3) == [
        StoredEvent(subject=answer, body=b"accepted"),
        StoredEvent(subject=START, body=b"one"),
        StoredEvent(subject=progress, body=b"at it"),
    ]


async def test_announced_events_are_not_stored(broker) -> None:
    node = await broker.connect("web1")

    await node.events.announce(event_subject(SESSION_PROGRESS, "web1", RUN), b"at it")
    await node.events.publish(START, "id1", b"one")

    assert [event.subject for event in await node.events.read(run_pattern(RUN))] == [START]


async def test_an_answer_cannot_be_published_as_if_it_were_stored(broker) -> None:
    node = await broker.connect("web1")

    with pytest.raises(BusUnavailableError):
        await node.events.publish(event_subject(SESSION_ANSWER, "web1", RUN), "id1", b"accepted")


async def test_following_ends_when_it_is_stopped(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    stopped, going = Heard(), Heard()
    stop = await operator.events.follow(run_pattern(RUN), stopped)
    await operator.events.follow(run_pattern(RUN), going)

    await stop()
    await node.events.publish(START, "id1", b"one")
    await going.wait(1)

    assert stopped.items == []


async def test_following_continues_after_the_broker_was_away(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    heard = Heard()
    await operator.events.follow(run_pattern(RUN), heard)
    await node.events.publish(START, "id1", b"one")
    await heard.wait(1)

    await broker.stop()
    with pytest.raises(BusUnavailableError):
        await node.events.publish(CHANGE, "id2", b"two")
    with pytest.raises(BusUnavailableError):
        await node.events.announce(event_subject(SESSION_PROGRESS, "web1", RUN), b"at it")
    await broker.start()
    await node.events.publish(CHANGE, "id2", b"two")

    assert [event.body for event in await heard.wait(2)] == [b"one", b"two"]
    assert [event.body for event in await operator.events.read(run_pattern(RUN))] == [b"one", b"two"]


async def test_events_of_the_agent_itself_are_stored(broker) -> None:
    node = await broker.connect("web1")
    subject = event_subject(AGENT_STARTUP, "web1.example.com")

    await node.events.publish(subject, "id1", b"up")

    assert [event.subject for event in await node.events.read("io.choria.ccm.v1.agent.>")] == [subject]


async def test_only_the_subjects_of_events_are_published_on(broker) -> None:
    node = await broker.connect("web1")

    with pytest.raises(ProtocolError):
        await node.events.publish("io.choria.ccm.v1.manifest.apply.request.all", "id1", b"x")
    with pytest.raises(ProtocolError):
        await node.events.announce("io.choria.ccm.v1.manifest.apply.request.all", b"x")


async def test_a_document_copied_to_the_subject_of_an_event_is_dropped(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    heard = Heard()
    await operator.events.follow(run_pattern(RUN), heard)
    await broker.put_plain("CCM_DATA", "trap", b'{"protocol":"io.choria.ccm.v1.session.summary"}')

    await broker.copy_to(SUMMARY, "KV_CCM_DATA", "$KV.CCM_DATA.trap")
    await node.events.publish(START, "id1", b"one")

    assert [event.body for event in await heard.wait(1)] == [b"one"]
    assert operator.events.dropped == 1


async def test_a_document_copied_into_the_stream_of_events_is_dropped_by_readers(broker) -> None:
    node, operator = await broker.connect("web1"), await broker.connect("op")
    await broker.put_plain("CCM_DATA", "trap", b'{"protocol":"io.choria.ccm.v1.session.summary"}')

    await broker.copy_to(SUMMARY, "KV_CCM_DATA", "$KV.CCM_DATA.trap")
    sequence = (await node.events.publish(START, "id1", b"one")).sequence

    assert sequence == 2
    assert timeless(await operator.events.read(run_pattern(RUN))) == [
        StoredEvent(subject=START, body=b"one", sequence=2)
    ]
    assert operator.events.dropped == 1


async def test_an_event_of_64_kib_is_stored_whole(broker) -> None:
    node = await broker.connect("web1")

    await node.events.publish(CHANGE, "id1", b"x" * 65536)

    assert [len(event.body) for event in await node.events.read(run_pattern(RUN))] == [65536]
