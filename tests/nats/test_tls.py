"""TLS, and that nothing is sent without it where it is demanded."""

from __future__ import annotations

import asyncio

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.model.errors import BusDeniedError, BusSetupError
from ccm_agent.model.secret import Secret
from tests.support.certificates import make_certificates
from tests.support.nats_server import running_server, settings

pytestmark = pytest.mark.nats

USERS = 'authorization { users = [ { user: web1, password: "s3cret" } ] }\n'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority and what it signed, for all tests here."""
    return make_certificates(tmp_path_factory.mktemp("tls"))


def tls(certificates, extra: str = "") -> str:
    """Server configuration with TLS."""
    return f'{USERS}tls {{ cert_file: "{certificates.cert}", key_file: "{certificates.key}"\n{extra} }}\n'


async def test_a_certificate_of_the_known_authority_is_taken(tmp_path, certificates) -> None:
    with running_server(tmp_path, tls(certificates)) as server:
        chosen = settings(server, "web1", user="web1", password=Secret("s3cret"), ca=certificates.ca)
        async with Connection(chosen) as connection:
            await connection.connect_now()
            await connection.publish("any", b"", confirm=True)


async def test_a_certificate_of_an_unknown_authority_is_refused(tmp_path, certificates) -> None:
    other = make_certificates(tmp_path / "other")

    with running_server(tmp_path, tls(certificates)) as server:
        chosen = settings(server, "web1", user="web1", password=Secret("s3cret"), ca=other.ca)
        async with Connection(chosen) as connection:
            with pytest.raises(BusDeniedError, match="the TLS handshake with this broker failed"):
                await connection.connect_now()


async def test_a_certificate_for_another_name_is_refused(tmp_path, certificates) -> None:
    with running_server(tmp_path, tls(certificates)) as server:
        chosen = settings(
            server,
            "web1",
            user="web1",
            password=Secret("s3cret"),
            ca=certificates.ca,
            tls_hostname="elsewhere",
        )
        async with Connection(chosen) as connection:
            with pytest.raises(BusDeniedError, match="the TLS handshake with this broker failed"):
                await connection.connect_now()


async def test_a_broker_that_asks_for_a_certificate_gets_ours(tmp_path, certificates) -> None:
    extra = f'ca_file: "{certificates.ca}", verify: true'

    with running_server(tmp_path, tls(certificates, extra)) as server:
        chosen = settings(
            server,
            "web1",
            user="web1",
            password=Secret("s3cret"),
            ca=certificates.ca,
            cert=certificates.client_cert,
            key=certificates.client_key,
        )
        async with Connection(chosen) as connection:
            await connection.connect_now()


async def test_tls_may_begin_before_the_servers_info(tmp_path, certificates) -> None:
    with running_server(tmp_path, tls(certificates)) as server:
        # The readiness check speaks no TLS, so the server begins in the usual way and is told afterwards.
        await asyncio.to_thread(server.reload, tls(certificates, "handshake_first: true"))
        chosen = settings(
            server, "web1", user="web1", password=Secret("s3cret"), ca=certificates.ca, tls_first=True
        )
        async with Connection(chosen) as connection:
            await connection.connect_now()


async def test_a_file_of_certificates_that_is_missing_is_named(tmp_path) -> None:
    with running_server(tmp_path) as server:
        async with Connection(settings(server, "web1", ca=str(tmp_path / "missing.pem"))) as connection:
            with pytest.raises(BusSetupError, match=r"missing\.pem"):
                await connection.connect_now()


@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_credentials_are_not_sent_to_a_broker_that_offers_no_tls(scheme, certificates) -> None:
    heard = bytearray()

    async def pretend(reader, writer) -> None:
        writer.write(b'INFO {"auth_required":true,"nonce":"x","max_payload":1048576}\r\n')
        heard.extend(await reader.read(4096))
        writer.close()

    listening = await asyncio.start_server(pretend, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        chosen = settings_for(f"{scheme}://web1:s3cret@localhost:{port}", ca=certificates.ca)

        async with Connection(chosen) as connection:
            with pytest.raises(BusDeniedError, match="offers no TLS"):
                await connection.connect_now()

    assert bytes(heard) == b""
