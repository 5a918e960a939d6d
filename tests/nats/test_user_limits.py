"""What one connection of a node may hold and send, whatever the server itself would take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import nats
import pytest

from ccm_agent.bus.access.credentials import new_authority, server_configuration, user_credentials
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import WAIT_S, running_server

pytestmark = pytest.mark.nats

USERS = {"web1": node_permissions("web1"), "op": operator_permissions("op", Role())}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that takes messages of four megabytes, and credentials of those users beside it."""
    directory = tmp_path_factory.mktemp("nats")
    authority = new_authority()
    for name, allowed in USERS.items():
        made = user_credentials(authority.of(allowed.account), name, allowed)
        (directory / f"{name}.creds").write_text(made.text.reveal())
    known = server_configuration(authority) + "max_payload: 4MB\n"
    with running_server(directory, known) as one:
        yield one


class Plain:
    """A plain client, which the broker's refusals end."""

    def __init__(self) -> None:
        self.client = nats.NATS()
        self._ended = asyncio.Event()

    async def connect(self, server: NatsServer, name: str) -> None:
        """Connect as a user, once."""

        async def ended() -> None:
            self._ended.set()

        creds = str(server.settings.directory / f"{name}.creds")
        await self.client.connect(
            server.url,
            user_credentials=creds,
            closed_cb=ended,
            allow_reconnect=False,
            max_reconnect_attempts=0,
        )

    async def why_ended(self) -> str:
        """What the broker said when it ended the connection."""
        async with asyncio.timeout(WAIT_S):
            await self._ended.wait()
        return str(self.client.last_error)


@pytest.mark.parametrize(("name", "most"), [("web1", 2_000), ("op", 1_000)])
async def test_subscriptions_have_an_end(server: NatsServer, name: str, most: int) -> None:
    plain = Plain()
    await plain.connect(server, name)

    for number in range(most):
        await plain.client.subscribe(f"_INBOX_{name}.{number}")
    await plain.client.flush()
    await plain.client.subscribe(f"_INBOX_{name}.more")

    assert "maximum subscriptions exceeded" in await plain.why_ended()


async def test_a_message_of_a_node_has_an_end(server: NatsServer) -> None:
    plain = Plain()
    await plain.connect(server, "web1")

    await plain.client.publish("$KV.CCM_NODES.facts.web1", b"x" * 1_000_000)
    await plain.client.flush()
    # The client has not heard that this user's messages are smaller than the server's.
    await plain.client.publish("$KV.CCM_NODES.facts.web1", b"x" * 1_100_000)

    assert "maximum payload violation" in await plain.why_ended()
