"""Every shell block of the documentation for users runs in order, as a reader would run it; see tests/support/pages.py."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import format_scope
from ccm_agent.testing.nats_server import find_server, free_ports
from tests.support import pages
from tests.support.fleet import Fleet, a_file, fleet, manifest
from tests.support.pages import Setting
from tests.support.secured import secured_fleet
from tests.support.warm_ccm import warm_programs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(90)]

PAGES = pages.users_pages()
SETTINGS = pages.settings()
HERE = [
    page
    for page, found in PAGES.items()
    if SETTINGS.get(page, Setting()).fleet != "machine"
    and any(one.is_typed and not one.kind for one in found)
]
FORGOTTEN = ["KV_CCM_DATA", "KV_CCM_ASSIGNMENTS", "KV_CCM_RUNS", "CCM_SCHEDULES", "CCM_EVENTS"]
"""Streams that are new for each page, so that revisions begin with 1."""


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    with warm_programs("ccm", "ccmctl") as folder:
        yield folder


@pytest.fixture(scope="session")
def pages_trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        built.add("web1", "web2", "db1", change_pause="0s")
        yield built


@pytest.fixture(scope="session")
def pages_secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        yield one.fleet


class Desk:
    """A reader's terminal, with the programs that start at once."""

    def __init__(self, fleet: Fleet, programs: Path) -> None:
        self.fleet = fleet
        self.environ = {
            **fleet.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "REAL": str(Path(sys.executable).parent),
            "TERM": "dumb",
            "AGENT": str(fleet.agents["web1"].directory / "agent.yaml"),
        }

    def ccmctl(self, *words: str) -> list[dict[str, object]]:
        """The records of a command."""
        done = subprocess.run(
            ["ccmctl", *words, "--json"], env=self.environ, capture_output=True, text=True, check=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def clean(self) -> None:
        """Remove what the page before left on the broker; nodes have the roles of the tutorial."""
        for one in self.ccmctl("assignments"):
            self.ccmctl("unassign", str(one["name"]), "--scope", format_scope(str(one["scope"])), "--yes")
        for one in self.ccmctl("nodes"):
            if one["node"] not in self.fleet.agents:
                self.ccmctl("node", "rm", str(one["node"]), "--yes")
        asyncio.run(self._forget())
        self.ccmctl("init")
        self.ccmctl("facts", "set", "web1", "web2", "role=web")
        self.ccmctl("facts", "set", "db1", "role=db")

    async def _forget(self) -> None:
        async with Connection(settings_for(self.fleet.url)) as connection:
            await connection.connect_now()
            for name in FORGOTTEN:
                await call(connection, f"STREAM.DELETE.{name}")


@pytest.mark.parametrize("page", HERE)
def test_blocks_of_a_page_run_in_order(
    page: str, programs: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    setting, found = SETTINGS.get(page, Setting()), PAGES[page]
    if missing := [name for name in setting.needs if not shutil.which(name)]:
        pytest.skip(f"needs {', '.join(missing)}")
    if setting.fleet == "none":
        (port,) = free_ports(1)
        environ = alone(tmp_path, port)
        setting = setting.at(port=port, tmp=tmp_path)
    else:
        desk = Desk(request.getfixturevalue(f"pages_{setting.fleet}"), programs)
        if setting.fleet == "trio":
            desk.clean()
        environ = desk.environ
        setting = setting.at(home=environ["HOME"])
        (tmp_path / "site").mkdir()
        (tmp_path / "site/manifest.yaml").write_text(manifest(a_file("motd")))
    for name, text in pages.files(found).items():
        if not name.startswith("/"):
            (tmp_path / name).write_text(text)
    typed = pages.commands([one for one in found if one.is_typed and not one.kind], setting)

    pages.follow([pages.Command(line=0, text=setting.before + "\n"), *typed], setting, tmp_path, environ)


def alone(directory: Path, port: int) -> dict[str, str]:
    """The environment of a reader who has a checkout and nothing else; a broker is to be at the port."""
    for name in (".venv", ".ci"):
        (directory / name).symlink_to(pages.TOP / name)
    return {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(directory),
        "USER": "tester",
        "TERM": "dumb",
        "NATS_URL": f"nats://127.0.0.1:{port}",
        "NATS_SERVER": str(find_server()),
        "XDG_STATE_HOME": str(directory / "state"),
    }


def test_blocks_that_are_not_run_are_counted() -> None:
    left_out = {page: [one for one in found if one.kind == "not run"] for page, found in PAGES.items()}

    assert {page: len(found) for page, found in left_out.items() if found} == {
        page: setting.not_run for page, setting in SETTINGS.items() if setting.not_run
    }
    assert set(SETTINGS) <= set(PAGES)
