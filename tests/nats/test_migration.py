"""From one account for all to several, with a fleet that is at work all the time."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.schedule_index import INDEX_SUBJECT
from ccm_agent.bus.streams import call
from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import Done, Fleet, a_file, manifest
from tests.support.nats_server import require_server
from tests.support.one_account import OneAccount, make_old_streams, recorded

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


class Old:
    """A fleet of the time of one account: an agent web1, operators tester (who may do everything) and bob."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.server = NatsServer(ServerSettings(directory=directory / "nats"))
        self.fleet = Fleet(directory, [self.server])
        self.keys = OneAccount(directory / "home" / ".config" / "ccm" / "keys")
        self.creds = directory / "creds"
        self.creds.mkdir()

    def start(self) -> None:
        """The broker with the streams of that time, and the agent."""
        self.server.settings = msgspec.structs.replace(self.server.settings, extra=self.configuration)
        self.server.start()
        self.fleet.environ["NATS_URL"] = self.server.url
        for name in ("tester", "bob", "web1"):
            shutil.copy(self.keys.give(name), self.creds / f"{name}.creds")
        asyncio.run(self._on_broker(make_old_streams))
        self.fleet.environ["CCM_CREDS"] = str(self.creds / "tester.creds")
        self.fleet.add("web1", nats={"url": self.server.url, "creds": str(self.creds / "web1.creds")})

    @property
    def configuration(self) -> str:
        """What the servers include."""
        return (self.keys.folder / "nats-security.conf").read_text()

    def reload(self) -> None:
        """Let the server take the configuration, as a signal does."""
        self.server.reload(self.configuration)

    def as_(self, name: str, *words: str) -> Done:
        """Run `ccmctl` with an operator's credentials."""
        return self.fleet.ctl(*words, environ={"CCM_CREDS": str(self.creds / f"{name}.creds")})

    def give(self, kind: str, name: str, *words: str) -> Path:
        """New credentials, in the place of those that there may be."""
        done = self.fleet.ctl(kind, "add", name, *words)
        assert (done.code, done.err) == (0, "")
        path = self.creds / f"{name}.creds"
        path.write_text(done.out)
        path.chmod(0o600)
        return path

    def streams(self) -> dict[str, dict[str, Any]]:
        """What the broker says about each stream of that time."""
        return asyncio.run(self._on_broker(_infos))

    async def _on_broker(self, work: Any) -> Any:
        settings = settings_for(self.server.url, identity="tester", creds=str(self.creds / "tester.creds"))
        async with Connection(settings) as connection:
            await connection.connect_now()
            return await work(connection)


async def _infos(connection: Connection) -> dict[str, dict[str, Any]]:
    names = [config["name"] for config in recorded()["streams"]]
    return {name: await call(connection, f"STREAM.INFO.{name}") for name in names}


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Old]:
    require_server()
    one = Old(tmp_path)
    try:
        one.start()
        yield one
    finally:
        one.fleet.close()


def apply(old: Old, name: str, content: str, nodes: int = 1) -> Done:
    """An operator changes a file on the web nodes; each must say so, and just once."""
    path = old.fleet.write("site.yaml", manifest(a_file("motd", content)))
    done = old.as_(name, "apply", path, "--targets", "role=web", "--yes", "--json")
    assert (done.code, set(done.states.values()), len(done.states)) == (0, {"changed"}, nodes), done.err
    numbers = done.numbers
    assert all(sorted(set(found)) == found for found in numbers.values()), numbers
    return done


def test_a_fleet_moves_to_several_accounts_without_losing_a_stream_or_a_node(old: Old) -> None:
    fleet, web1 = old.fleet, old.fleet.agents["web1"]
    assert fleet.ctl("facts", "set", "web1", "role=web").code == 0
    first = apply(old, "bob", "one")
    before = old.streams()

    # It begins: nothing changes for who is there.
    begun = fleet.ctl("init", "--security", "--migrate")
    old.reload()
    shutil.copy(old.keys.folder / "tester.creds", old.creds / "tester.creds")
    again = fleet.ctl("init", "--security", "--migrate", "--json")

    assert (begun.code, again.code, again.err.count("their credentials are valid until")) == (0, 0, 1), (
        again.err
    )
    assert {(one["name"], one["kind"], one["connected"]) for one in again.named("left")} == {
        ("web1", "node", True),
        ("bob", "operator", False),
    }
    apply(old, "bob", "two")

    # Nodes and operators of both kinds work with each other.
    old.give("operator", "ann", "--apply", "role=web", "--facts")
    fleet.add("web2", nats={"url": old.server.url, "creds": str(old.give("node", "web2"))})
    assert old.as_("ann", "facts", "set", "web2", "role=web").code == 0
    for number, name in enumerate(("ann", "bob", "tester")):
        apply(old, name, f"three {number}", nodes=2)
    assert "lost" not in web1.log
    # credentials from before several schedules for a scope cannot read the index of schedules, and those from before signatures
    # cannot read the signers list
    violations = [line for line in old.server.log.read_text().lower().splitlines() if "violation" in line]
    allowed = (INDEX_SUBJECT, "kv_ccm_trust")
    assert [line for line in violations if not any(subject in line for subject in allowed)] == []

    # Those that are left move, and it ends.
    old.give("node", "web1")
    still = fleet.ctl("init", "--security", "--migrate", "--json")
    assert [(one["name"], one["has_new"]) for one in still.named("left")] == [("web1", True), ("bob", False)]
    web1.stop()
    web1.start()
    fleet.wait_present(["web1"])
    shutil.copy(old.creds / "bob.creds", old.creds / "bob.old.creds")
    old.give("operator", "bob", "--apply", "role=web")
    ended = fleet.ctl("init", "--security", "--migrate")
    old.reload()

    assert ended.code == 0
    assert "no user has old credentials" in ended.out
    for name in ("bob.old", "web1.first"):
        if name == "web1.first":
            shutil.copy(old.keys.folder / "web1.creds", old.creds / f"{name}.creds")
        assert "refused our credentials" in old.as_(name, "nodes").err
    for number, name in enumerate(("ann", "bob", "tester")):
        apply(old, name, f"four {number}", nodes=2)
    after = old.streams()
    assert {name: info["created"] for name, info in after.items()} == {
        name: info["created"] for name, info in before.items()
    }
    assert all(after[name]["state"]["messages"] >= info["state"]["messages"] for name, info in before.items())
    # Its agent did not sign this run, and what is unsigned does not count any more.
    assert fleet.ctl("run", "show", first.run, "--json").states == {"web1": "running"}


def test_watching_ends_when_requested(old: Old) -> None:
    assert old.fleet.ctl("init", "--security", "--migrate").code == 0
    shutil.copy(old.keys.folder / "tester.creds", old.creds / "tester.creds")
    old.reload()

    ended = old.fleet.ctl("init", "--security", "--migrate", "--finish", "--json")
    old.reload()

    assert ended.code == 0
    assert {one["name"] for one in ended.named("left")} == {"web1", "bob"}
    assert "refused our credentials" in old.as_("bob", "nodes").err
    assert old.fleet.ctl("nodes").code == 0


def test_its_time_ends_by_itself_with_whatever_is_done_next(old: Old) -> None:
    assert old.fleet.ctl("init", "--security", "--migrate", "--migrate-within", "4s").code == 0
    shutil.copy(old.keys.folder / "tester.creds", old.creds / "tester.creds")
    old.fleet.wait_for(
        lambda: old.fleet.ctl("init", "--security", "--migrate").out.count("void the old credentials"),
        "the time to be over",
    )
    old.reload()

    assert "refused our credentials" in old.as_("bob", "nodes").err
