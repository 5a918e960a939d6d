"""Fixtures of the end-to-end tests: fleets of real processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import Fleet, fleet


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
