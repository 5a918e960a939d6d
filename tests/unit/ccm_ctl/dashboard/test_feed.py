"""The buffer that all browsers read."""

from __future__ import annotations

import json
from datetime import timedelta

from ccm_agent.model.outcome import TRANSACTION_EVENT
from ccm_agent.model.records.verdicts import Verdict
from ccm_ctl.dashboard.feed import EventFeed, frame_of
from ccm_ctl.fleet.events.live_events import LiveEvent
from ccm_ctl.fleet.events.messages import AgentMessage
from tests.support.controller import NOW, event

RUN = "2zFXabcdefghijklmnopqrstuvw"


def live(sequence: int, **fields: object) -> LiveEvent:
    verdict = fields.pop("verdict", None)
    said = event(str(fields.pop("name", "/etc/motd")), sequence, **fields)
    heard = AgentMessage(node="web1", run=RUN, protocol=TRANSACTION_EVENT, said=said)
    return LiveEvent(
        sequence=sequence, heard=heard, verdict=verdict if isinstance(verdict, Verdict) else None
    )


def a_feed(**limits: int) -> EventFeed:
    return EventFeed(lambda: NOW, **limits)


def ids(encoded: bytes) -> list[int]:
    return [int(line[4:]) for line in encoded.decode().splitlines() if line.startswith("id: ")]


def test_browser_gets_the_events_after_its_last_one() -> None:
    feed = a_feed()
    feed.add([live(3), live(5), live(9)])

    last, encoded = feed.after(3)

    assert (last, ids(encoded)) == (9, [5, 9])
    assert feed.after(9) == (9, b"")


def test_a_browser_that_is_too_far_back_is_known() -> None:
    feed = a_feed(kept_events=10)
    feed.add([live(number) for number in range(1, 13)])

    assert not feed.has(1)
    assert feed.has(2)
    assert feed.has(12)
    assert not feed.has(13)


def test_memory_is_bounded_by_bytes_too() -> None:
    feed = a_feed(kept_bytes=5000)
    feed.add([live(number, error=["x" * 400]) for number in range(1, 101)])

    _, encoded = feed.after(feed.last - 90)

    assert len(encoded) <= 5000
    assert feed.last == 100


def test_a_stream_that_begins_again_leaves_nothing_behind() -> None:
    feed = a_feed()
    feed.add([live(7)])
    epoch = feed.epoch

    feed.restart()

    assert (feed.epoch, feed.last, feed.newest(10), feed.timeline()) == (epoch + 1, 0, [], [])


def test_the_time_line_counts_by_meaning_in_half_minutes() -> None:
    feed = a_feed()
    feed.add([live(1), live(2, failed=True), live(3, timestamp=NOW - timedelta(minutes=10))])

    begin = int(NOW.timestamp())
    assert feed.timeline() == [[begin - 600, 0, 1, 0, 0], [begin, 0, 1, 1, 0]]


def test_events_between_two_times_are_found() -> None:
    feed = a_feed()
    feed.add(
        [
            live(1, timestamp=NOW - timedelta(minutes=9)),
            live(2, timestamp=NOW - timedelta(minutes=5)),
            live(3),
        ]
    )

    found = feed.newest(10, NOW - timedelta(minutes=6), NOW - timedelta(minutes=1))

    assert [frame.id for frame in found] == [2]


def test_a_node_whose_clock_is_ahead_does_not_write_into_the_future() -> None:
    assert frame_of(live(1, timestamp=NOW + timedelta(days=900)), NOW).time == NOW


def test_a_frame_is_short_and_says_what_is_forged() -> None:
    frame = frame_of(live(1, error=["x" * 9000], failed=True, verdict=Verdict.FORGED), NOW)

    assert len(frame.text) < 600
    assert (frame.meaning, frame.word, frame.verdict) == ("bad", "failed", "forged")


def test_a_line_break_in_a_value_does_not_end_a_message() -> None:
    feed = a_feed()
    feed.add([live(1, name="a\n\nid: 9\ndata: {}\r")])

    [line] = [line for line in feed.after(0)[1].decode().split("\n\n") if line]

    assert json.loads(line.partition("data: ")[2])["id"] == 1
