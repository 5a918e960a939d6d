"""A secured fleet with a join service, and hosts that join it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from ccm_agent.bus.access.credentials import credentials_text
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import JoinToken, read_token, sign_request, verify_answer
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.joining.join import JoinedHost
from ccm_agent.joining.join import join_fleet as join_fleet_of
from ccm_agent.joining.membership import JoinPlaces
from ccm_agent.model.errors import CcmError
from ccm_agent.model.records.join import JoinAnswer
from ccm_agent.model.secret import Secret
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.join_outcomes import JoinOutcome
from ccm_ctl.fleet.keys.join_service import JoinService, serve_joins
from ccm_ctl.fleet.keys.keys import Keys
from tests.support import processes
from tests.support.fleet import TOP, Controller, Done
from tests.support.secured import Secured, secured_broker

COMMAND = "ccm join "


class JoinFleet(Secured):
    """A fleet without nodes, and with a join service of the operator `joiner`, once `serve` was called."""

    service: Controller

    def serve(self, *words: str) -> None:
        """Start the join service, and wait until it answers."""
        path = self.directory / "joiner.creds"
        if not path.exists():
            self.give("operator", "joiner", "--join", "--facts")
        arguments = ("--json", "join", "serve", *words)
        self.service = self.fleet.begin(*arguments, environ={"CCM_CREDS": str(path)})
        self.fleet.wait_for(lambda: "waiting for nodes" in self.service.so_far.err, "the join service")

    @contextlib.asynccontextmanager
    async def serving(self, valid_s: int) -> AsyncIterator[list[JoinOutcome]]:
        """A join service in this process, whose credentials are short-lived; its outcomes."""
        path, outcomes, ready = self.directory / "joiner.creds", list[JoinOutcome](), asyncio.Event()
        if not path.exists():
            self.give("operator", "joiner", "--join", "--facts")
        settings = bus_settings(ConnectionOptions(), self.fleet.environ | {"CCM_CREDS": str(path)})
        async with connected(settings) as broker:
            assert broker.connection is not None
            assert broker.fleet.trust is not None
            keys = JoinKeys(Keys(self.keys))
            issuer = keys.issuer(broker.fleet.trust.root)
            service = JoinService(broker.fleet, issuer, outcomes.append, keys.added, valid_s=valid_s)
            task = asyncio.create_task(serve_joins(broker.connection, service, ready.set))
            try:
                await ready.wait()
                yield outcomes
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def token(self, *words: str) -> str:
        """The text of a new token."""
        done = self.as_("tester", "token", "create", "--json", *words)
        assert done.code == 0, done.err
        [line] = done.records
        return str(line["command"]).removeprefix(COMMAND)

    def join(self, token: str, name: str, *words: str, environ: Mapping[str, str] | None = None) -> Done:
        """Run `ccm join` on a host whose files are below a directory of that name."""
        command = [sys.executable, "-m", "ccm_agent", "join", token, *self.place(name), "--json", *words]
        environ = self.fleet.environ | dict(environ or {})
        done = processes.run(command, cwd=TOP, env=environ, timeout=120)
        return Done(done.returncode, done.stdout, done.stderr)

    def join_here(self, token: str, name: str, host: str = "") -> JoinedHost:
        """Join in this process, which takes a fraction of the time."""
        places = JoinPlaces.below(str(self.host(host or name)))
        return join_fleet_of(token, name, places, lambda _: None, insecure=False, wait_s=0)

    def refused(self, token: str, name: str, host: str = "") -> str:
        """The code of the error with which a host cannot join."""
        try:
            self.join_here(token, name, host)
        except CcmError as err:
            return err.code
        raise AssertionError(f"{name} joined")

    def uses(self, token: str) -> int:
        """How many nodes have used a token."""
        listed = self.as_("tester", "token", "list", "--json").records
        return next(int(one["used"]) for one in listed if one["token"] == read_token(token).id)

    @contextlib.asynccontextmanager
    async def holder(self, token: JoinToken) -> AsyncIterator[Connection]:
        """A connection with the credentials in a token."""
        path = self.directory / f"{token.id}.creds"
        path.write_text(credentials_text(token.jwt, token.seed).reveal())
        path.chmod(0o600)
        settings = settings_for(token.servers, identity=token.id, creds=str(path))
        async with Connection(settings) as connection:
            await connection.connect_now()
            yield connection

    async def ask(
        self, token: JoinToken, name: str, seed: Secret, *, late_ms: int = 0, within_s: float = 20
    ) -> JoinAnswer:
        """The answer to one request of a host whose clock may be late."""
        key, now_ms = SigningKey(seed), int(time.time() * 1000)
        request = sign_request(key, name, now_ms - late_ms, "1.0.0", token=token)
        async with self.holder(token) as connection:
            message = await connection.request(
                request.subject, request.body, request.headers, within_s=within_s
            )
        header = message.headers[SIGNATURE_HEADER]
        return verify_answer(message.body, header, request, name, key.public_key, token.root, now_ms=now_ms)

    def place(self, name: str) -> list[str]:
        """The options that name the host's files and the node."""
        return ["--state", str(self.host(name)), "--name", name]

    def host(self, name: str) -> Path:
        """Where the files of a host are."""
        return self.directory / "hosts" / name

    @property
    def outcomes(self) -> list[dict[str, object]]:
        """The results that the service has reported."""
        lines = self.service.so_far.out.splitlines()
        return [one for one in map(json.loads, lines) if one["record"] == "join"]


@contextlib.contextmanager
def join_fleet(directory: Path) -> Iterator[JoinFleet]:
    """A secured broker whose keys are ready for tokens. All ends with the block."""
    with secured_broker(directory, JoinFleet) as one:
        yield one
