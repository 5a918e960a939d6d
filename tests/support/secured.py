"""A fleet in which every node and operator has credentials, set up as an operator does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import Done, Fleet
from tests.support.nats_server import require_server


class Secured:
    """A fleet whose broker knows each node; `keys` is the folder of the first operator, tester."""

    def __init__(self, directory: Path, fleet: Fleet) -> None:
        self.directory = directory
        self.fleet = fleet
        self.keys = directory / "home" / ".config" / "ccm" / "keys"

    def as_(self, name: str, *words: str) -> Done:
        """Run `ccmctl` with an operator's credentials."""
        creds = self.keys / "tester.creds" if name == "tester" else self.directory / f"{name}.creds"
        return self.fleet.ctl(*words, environ={"CCM_CREDS": str(creds)})

    def give(self, kind: str, name: str, *words: str) -> Path:
        """Credentials as `ccmctl` prints them, in a file."""
        done = self.fleet.ctl(kind, "add", name, *words)
        assert (done.code, done.err) == (0, "")
        path = self.directory / f"{name}.creds"
        path.write_text(done.out)
        path.chmod(0o600)
        return path


S = TypeVar("S", bound=Secured)


@contextlib.contextmanager
def secured_broker(directory: Path, kind: type[S]) -> Iterator[S]:
    """A broker with security and the operator tester, without nodes. All ends with the block."""
    require_server()
    server = NatsServer(ServerSettings(directory=directory / "nats"))
    fleet = Fleet(directory, [server])
    one = kind(directory, fleet)
    try:
        assert fleet.ctl("init", "--security").code == 0
        configuration = (one.keys / "nats-security.conf").read_text()
        server.settings = msgspec.structs.replace(server.settings, extra=configuration)
        server.start()
        fleet.environ["NATS_URL"] = server.url
        made = fleet.ctl("init", "--security")
        assert (made.code, made.err) == (0, "")
        yield one
    finally:
        fleet.close()


@contextlib.contextmanager
def secured_fleet(directory: Path) -> Iterator[Secured]:
    """A broker with security, the node web1 with the role web, and the operators tester and bob. All end with the block."""
    with secured_broker(directory, Secured) as one:
        creds = one.give("node", "web1")
        one.give("operator", "bob", "--apply", "role=web", "--data", "--facts")
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.fleet.add("web1", nats={"url": one.fleet.environ["NATS_URL"], "creds": str(creds)})
        assert one.as_("bob", "facts", "set", "web1", "role=web").code == 0
        yield one
