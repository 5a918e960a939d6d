"""Which server is tried next, and after which pause."""

from __future__ import annotations

import pytest

from ccm_agent.bus.connection.server_rotation import ServerRotation
from ccm_agent.bus.connection.settings import BusSettings, replaced, settings_for

SERVERS = ["nats://a:4222", "nats://b:4222", "nats://c:4222"]


@pytest.fixture
def settings() -> BusSettings:
    return replaced(settings_for(",".join(SERVERS)), pause_s=8.0, spread_s=2.0)


def test_each_server_is_tried_once_in_a_round(settings: BusSettings) -> None:
    rotation = ServerRotation(settings)
    tried = []

    for _ in SERVERS:
        tried.append(rotation.next())
        rotation.missed()

    assert sorted(tried) == SERVERS
    assert rotation.are_all_tried


def test_servers_of_one_round_are_tried_without_a_pause(settings: BusSettings) -> None:
    rotation = ServerRotation(settings)
    rotation.missed()

    assert (rotation.are_all_tried, rotation.pause_s()) == (False, 0.0)


@pytest.mark.parametrize(("rounds", "longest_s"), [(1, 0.5), (3, 2.0), (5, 8.0), (50, 8.0)])
def test_the_pause_doubles_with_each_round_up_to_a_limit(
    settings: BusSettings, rounds: int, longest_s: float
) -> None:
    rotation = ServerRotation(settings)
    for _ in range(rounds * len(SERVERS)):
        rotation.missed()

    assert longest_s / 2 <= rotation.pause_s() <= longest_s


@pytest.mark.parametrize(
    ("lasted_s", "misses"),
    [
        pytest.param(3600.0, 0, id="a connection that lasted begins the count again"),
        pytest.param(0.1, 3, id="one that was dropped at once counts as a miss"),
    ],
)
def test_a_connection_counts_when_it_lasted(settings: BusSettings, lasted_s: float, misses: int) -> None:
    rotation = ServerRotation(settings)
    rotation.missed()
    rotation.missed()

    rotation.ended(lasted_s)

    assert rotation.misses == misses


def test_members_of_the_cluster_are_tried_beside_the_configured_servers(settings: BusSettings) -> None:
    rotation = ServerRotation(settings)

    rotation.learn(["nats://d:4222", "nats://a:4222"])

    tried = set()
    for _ in range(4):
        tried.add(rotation.next())
        rotation.missed()
    assert tried == {*SERVERS, "nats://d:4222"}
