"""Fixtures of the end-to-end tests: fleets of real processes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.support.fleet import Fleet, fleet

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three nodes: web1 and web2 with role=web, db1 with role=db; shared by a module's tests."""
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", "web2", "db1")
        assert built.ctl("facts", "set", "web1", "web2", "role=web").code == 0
        assert built.ctl("facts", "set", "db1", "role=db").code == 0
        yield built


@pytest.fixture(autouse=True)
def clean_folders(request: pytest.FixtureRequest) -> None:
    """Each test begins with empty folders on the nodes of the shared fleet."""
    if "trio" in request.fixturenames:
        request.getfixturevalue("trio").forget_files()


@pytest.fixture(scope="session")
def broker_for_faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A broker for the tests of faults, one after the other."""
    with fleet(tmp_path_factory.mktemp("faults")) as built:
        yield built


@pytest.fixture
def site(broker_for_faults: Fleet) -> Iterator[Fleet]:
    """A broker; a test brings agents of its own, does what it likes to the broker, and leaves none of it to the next test."""
    yield broker_for_faults
    while broker_for_faults.agents:
        _, agent = broker_for_faults.agents.popitem()
        agent.kill()
        agent.open_gates()
    if not broker_for_faults.broker.pid:
        broker_for_faults.broker.start()


@pytest.fixture
def name() -> str:
    """Of an agent that no other test has."""
    return f"n{next(NUMBERS)}"
