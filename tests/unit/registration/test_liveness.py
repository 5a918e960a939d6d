"""Which answers are believed, and what a host remembers for it."""

from __future__ import annotations

import pytest

from ccm_agent.registration.liveness import SERVERS_LIMIT, LastSeen, read_sightings, write_sightings

PREFIX = "choria.ccm.registration.v1"
WEB = f"{PREFIX}.*.*.web.*.*"
WEB1, WEB2 = f"{PREFIX}.prod.http.web.10_0_0_1.a", f"{PREFIX}.prod.http.web.10_0_0_2.b"
DB1 = f"{PREFIX}.prod.sql.db.10_0_0_3.c"


def test_the_first_broker_that_is_met_was_never_away() -> None:
    sightings = LastSeen()

    sightings.met("A", 1000)

    assert sightings == LastSeen(servers={"A": 1000})


def test_another_server_process_is_a_break() -> None:
    sightings = LastSeen(servers={"A": 1000})

    sightings.met("B", 2000)

    assert sightings == LastSeen(servers={"A": 1000, "B": 2000}, steady_since=2000)


def test_a_known_server_is_not_a_break() -> None:
    sightings = LastSeen(servers={"A": 1000, "B": 1200}, steady_since=1200)

    sightings.met("A", 2000)

    assert sightings == LastSeen(servers={"A": 1000, "B": 1200}, steady_since=1200)


def test_a_connection_that_was_lost_is_a_break_from_when_it_came_back() -> None:
    sightings = LastSeen(servers={"A": 1000})

    sightings.met("A", 2000, connected_since=1900)

    assert sightings.steady_since == 1900


def test_missed_check_restarts_the_steady_time() -> None:
    sightings = LastSeen(servers={"A": 1000})

    sightings.missed(2000)
    sightings.met("A", 2100)

    assert sightings.steady_since == 2000


def test_a_clock_that_was_put_back_prolongs_nothing() -> None:
    sightings = LastSeen(servers={"A": 5000}, steady_since=5000)

    sightings.met("A", 1000)

    assert sightings.steady_since == 1000


def test_the_servers_that_are_remembered_are_bounded() -> None:
    sightings = LastSeen()

    for number in range(SERVERS_LIMIT + 2):
        sightings.met(f"S{number}", 1000 + number)

    assert list(sightings.servers) == [f"S{number}" for number in range(2, SERVERS_LIMIT + 2)]


@pytest.mark.parametrize(
    ("there", "removed", "missing"),
    [
        pytest.param({WEB1, WEB2}, (), [], id="all are there"),
        pytest.param({WEB1}, (), [WEB2], id="one is gone"),
        pytest.param((), (), [WEB1, WEB2], id="all are gone, and the database is not asked about"),
        pytest.param((), {WEB1}, [WEB2], id="an operator removed one"),
    ],
)
def test_missing_entries_are_known_and_match(there: set[str], removed: set[str], missing: list[str]) -> None:
    sightings = LastSeen(known=[DB1, WEB1, WEB2])

    assert sightings.missing(WEB, there, removed) == missing


def test_an_accepted_answer_replaces_the_known_entries() -> None:
    sightings = LastSeen(known=[DB1, WEB1])

    sightings.believe(WEB, {WEB2})

    assert sightings.known == sorted([DB1, WEB2])


def test_sightings_are_kept_and_read() -> None:
    sightings = LastSeen(servers={"B": 2.0, "A": 1.5}, steady_since=2.5, known=[WEB1])

    assert read_sightings(write_sightings(sightings)) == sightings
    assert write_sightings(read_sightings(write_sightings(sightings))) == write_sightings(sightings)


@pytest.mark.parametrize("document", [None, b"", b"x", b"[]", b'{"known":1}'])
def test_a_record_that_cannot_be_read_is_an_empty_one(document: bytes | None) -> None:
    assert read_sightings(document) == LastSeen()
