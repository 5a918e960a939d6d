"""Which server is tried next, for how long, and after which pause."""

from __future__ import annotations

import random

import pytest

from ccm_agent.bus.connection.server_rotation import ServerRotation
from ccm_agent.bus.connection.settings import BusSettings, replaced, settings_for
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError, CcmError
from tests.support.returning_fleet import HighestNumbers, simulated_return

SERVERS = ["nats://a:4222", "nats://b:4222", "nats://c:4222"]
NO_ANSWER, REFUSED = BusUnavailableError("no answer"), BusDeniedError("wrong credentials")
FORMER = BusSettings(longest_pause_s=8.0, longest_connect_s=5.0)
"""Limits with which attempts of agents are never fewer than 90 % of the fleet in ten seconds."""


@pytest.fixture
def settings() -> BusSettings:
    return replaced(settings_for(",".join(SERVERS)), spread_s=2.0)


def after(
    settings: BusSettings, misses: int, err: CcmError = NO_ANSWER, took_s: float = 5.0
) -> ServerRotation:
    """A rotation after so many failed attempts."""
    rotation = ServerRotation(settings, HighestNumbers())
    for _ in range(misses):
        rotation.missed(err, took_s)
    return rotation


def test_each_server_is_tried_once_in_a_round(settings: BusSettings) -> None:
    rotation = ServerRotation(settings, random.Random(1))
    tried = []

    for _ in SERVERS:
        tried.append(rotation.next())
        rotation.missed(NO_ANSWER, 5.0)

    assert sorted(tried) == SERVERS
    assert rotation.are_all_tried


def test_servers_of_one_round_are_tried_without_a_pause(settings: BusSettings) -> None:
    rotation = after(settings, 1)

    assert (rotation.are_all_tried, rotation.pause_s()) == (False, 0.0)


@pytest.mark.parametrize(
    ("rounds", "longest_s"), [(1, 0.5), (3, 2.0), (5, 8.0), (7, 32.0), (8, 64.0), (9, 120.0), (5000, 120.0)]
)
def test_the_pause_doubles_with_each_slow_round_up_to_two_minutes(
    settings: BusSettings, rounds: int, longest_s: float
) -> None:
    assert after(settings, rounds * len(SERVERS)).pause_s() == longest_s


@pytest.mark.parametrize(("rounds", "longest_s"), [(1, 0.5), (3, 2.0), (5, 8.0), (5000, 8.0)])
def test_pauses_stay_short_while_the_broker_is_down(
    settings: BusSettings, rounds: int, longest_s: float
) -> None:
    assert after(settings, rounds * len(SERVERS), took_s=0.01).pause_s() == longest_s


def test_pauses_are_spread_over_the_whole_range(settings: BusSettings) -> None:
    rotation = ServerRotation(settings, random.Random(1))
    for _ in range(8 * len(SERVERS)):
        rotation.missed(NO_ANSWER, 5.0)

    pauses = [rotation.pause_s() for _ in range(1000)]

    shares = [sum(low <= pause < low + 16 for pause in pauses) for low in (0, 16, 32, 48)]
    assert all(200 <= share <= 300 for share in shares)


def test_a_loss_is_followed_by_a_short_random_wait(settings: BusSettings) -> None:
    assert after(settings, 0).pause_s() == 2.0


@pytest.mark.parametrize(("rounds", "limit_s"), [(0, 5.0), (1, 10.0), (2, 20.0), (3, 30.0), (5000, 30.0)])
def test_an_attempt_may_take_longer_after_each_round(
    settings: BusSettings, rounds: int, limit_s: float
) -> None:
    assert after(settings, rounds * len(SERVERS)).limit_s() == limit_s


def test_a_refused_login_is_repeated_sooner_and_with_the_first_limit(settings: BusSettings) -> None:
    rotation = after(settings, 10 * len(SERVERS), REFUSED, 0.01)

    assert (rotation.limit_s(), rotation.pause_s()) == (5.0, 30.0)


def test_a_connection_that_lasted_begins_the_count_again(settings: BusSettings) -> None:
    rotation = after(settings, 10 * len(SERVERS))

    rotation.ended(3600.0)

    assert (rotation.misses, rotation.pause_s()) == (0, 2.0)
    rotation.missed(NO_ANSWER, 0.01)
    assert rotation.misses == 1


@pytest.mark.parametrize(
    ("restarts", "longest_s"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (7, 32.0), (9, 120.0), (5000, 120.0)]
)
def test_a_broker_that_fails_under_its_clients_again_and_again_is_asked_less_often(
    restarts: int, longest_s: float
) -> None:
    rotation = ServerRotation(BusSettings(), HighestNumbers())
    for _ in range(restarts):
        rotation.missed(NO_ANSWER, 0.01)
        rotation.ended(10.0)

    assert rotation.pause_s() == longest_s


@pytest.mark.parametrize(("restarts", "longest_s"), [(1, 8.0), (3, 8.0), (4, 16.0), (6, 64.0)])
def test_pauses_stay_short_for_a_broker_that_is_restarted_a_few_times(
    restarts: int, longest_s: float
) -> None:
    rotation = ServerRotation(BusSettings(), HighestNumbers())
    for _ in range(restarts):
        rotation.ended(10.0)
    for _ in range(20):
        rotation.missed(NO_ANSWER, 0.01)

    assert rotation.pause_s() == longest_s


def test_an_agent_whose_connection_was_dropped_soon_tries_another_server(settings: BusSettings) -> None:
    rotation = ServerRotation(settings, random.Random(1))
    dropped_by = rotation.next()

    rotation.ended(10.0)

    assert rotation.next() != dropped_by


def test_members_of_the_cluster_are_tried_beside_the_configured_servers(settings: BusSettings) -> None:
    rotation = ServerRotation(settings, random.Random(1))

    rotation.learn(["nats://d:4222", "nats://a:4222"])

    tried = set()
    for _ in range(4):
        tried.add(rotation.next())
        rotation.missed(NO_ANSWER, 5.0)
    assert tried == {*SERVERS, "nats://d:4222"}


def test_a_fleet_returns_to_a_broker_that_completes_a_fraction_of_its_logins() -> None:
    found = simulated_return(BusSettings(), 2000, 50, down_s=3, end_s=120)

    # 2,000 logins at 50 a second take 40 s at least
    assert found.is_complete
    assert found.back_at_s[1900] < 60
    assert found.attempts_each < 8


def test_a_fleet_too_large_for_the_longest_attempt_returns_with_longer_pauses() -> None:
    found = simulated_return(BusSettings(), 4000, 60, down_s=3, end_s=300)
    short = simulated_return(BusSettings(longest_pause_s=8.0), 4000, 60, down_s=3, end_s=300)

    # the broker needs 67 s for all of them, and each waits 30 s at most
    assert found.is_complete
    assert len(short.back_at_s) < 2500
    assert found.attempts_each < short.attempts_each


def test_with_the_former_limits_most_of_a_fleet_does_not_return() -> None:
    found = simulated_return(FORMER, 2000, 50, down_s=3, end_s=120)

    # all were accepted in the first seconds, before the logins that no agent waits for filled the queue
    assert found.back_at_s[-1] < 10
    assert len(found.back_at_s) < 400
    assert found.attempts_each > 15


def test_a_single_agent_is_back_within_seconds_of_a_restart() -> None:
    returns = sorted(
        simulated_return(BusSettings(), 1, 100, down_s=3, end_s=60, seed=seed).back_at_s[0]
        for seed in range(1000)
    )

    after_the_start = [at_s - 3 for at_s in returns]
    assert after_the_start[500] < 2
    assert after_the_start[990] < 8
