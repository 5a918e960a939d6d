"""The network as health checks see it, on servers on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiohttp import web

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import Ask
from ccm_agent.model.secret import Secret
from ccm_agent.system.network import SystemNetwork

WAIT_S = 10.0


class Site:
    """A web server: what it was asked, and its two names."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.moves: dict[str, tuple[int, str]] = {}
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.requests.append((request.method, request.path, dict(request.headers), await request.read()))
        if request.path in self.moves:
            status, location = self.moves[request.path]
            return web.Response(status=status, headers={"Location": location})
        if request.path == "/large":
            return web.Response(body=b"x" * 1000)
        return web.Response(status=503, headers={"X-State": "resting"}, text="later")


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    runner = web.ServerRunner(web.Server(made.answer))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


async def test_an_answer_is_one_whatever_its_status(site: Site) -> None:
    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork("t").ask(
            Ask(
                url=f"{site.url}/a",
                method="PUT",
                headers=(("X-A", "1"),),
                body=b"{}",
                username="u",
                password=Secret("p"),
            )
        )

    assert (answer.status, answer.body, dict(answer.headers)["X-State"]) == (503, b"later", "resting")
    method, path, headers, body = site.requests[0]
    assert (method, path, body) == ("PUT", "/a", b"{}")
    assert (headers["X-A"], headers["Authorization"], headers["User-Agent"]) == ("1", "Basic dTpw", "t")


async def test_a_redirect_is_followed_without_what_is_secret_to_another_host(site: Site) -> None:
    site.moves = {"/a": (302, "/b"), "/b": (307, f"http://localhost:{site.port}/c")}

    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(
            Ask(url=f"{site.url}/a", headers=(("X-Token", "t"),), username="u", password=Secret("p"))
        )

    assert answer.status == 503
    assert [(path, "X-Token" in headers, "Authorization" in headers) for _, path, headers, _ in site.requests] == [
        ("/a", True, True),
        ("/b", True, True),
        ("/c", False, False),
    ]  # fmt: skip


async def test_a_redirect_that_is_not_followed_is_the_answer(site: Site) -> None:
    site.moves = {"/a": (302, "/b")}

    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(Ask(url=f"{site.url}/a", follows_redirects=False))

    assert answer.status == 302


@pytest.mark.parametrize(
    ("path", "target", "why"),
    [
        pytest.param("/a", "/a", "the server redirects more than 10 times", id="in circles"),
        pytest.param("/a", "file:///etc/passwd", "only http and https can be asked", id="to a file"),
    ],
)
async def test_a_redirect_that_leads_nowhere_is_no_answer(
    path: str, target: str, why: str, site: Site
) -> None:
    site.moves = {path: (302, target)}

    with pytest.raises(DownloadError) as caught:
        async with asyncio.timeout(WAIT_S):
            await SystemNetwork().ask(Ask(url=site.url + path))

    assert str(caught.value) == f"{site.url}{path}: {why}"


async def test_a_body_is_kept_up_to_its_limit(site: Site) -> None:
    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(Ask(url=f"{site.url}/large", limit_bytes=10))

    assert answer.body == b"x" * 10


async def test_a_server_that_is_not_there_is_no_answer_and_shows_no_password(site: Site) -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    with pytest.raises(DownloadError) as caught:
        async with asyncio.timeout(WAIT_S):
            await SystemNetwork().ask(Ask(url=f"http://u:secret@127.0.0.1:{port}/"))

    assert "secret" not in str(caught.value)
    assert str(caught.value).endswith(": connection refused")
    assert await SystemNetwork().reach("tcp", "127.0.0.1", port) != ""


async def test_an_address_that_listens_is_reached(site: Site) -> None:
    assert await SystemNetwork().reach("tcp", "127.0.0.1", site.port, "127.0.0.1") == ""


async def test_a_name_is_resolved_as_this_host_does() -> None:
    assert "127.0.0.1" in await SystemNetwork().resolve("localhost")
    assert await SystemNetwork().resolve("no-such-name.invalid") == []


# ---- name servers ----

ANSWER = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x0a\x00\x00\x01"


class NameServer(asyncio.DatagramProtocol):
    """Answers over UDP; what is asked of `large` does not fit and is answered over TCP."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # no check by isinstance: before Python 3.12 the transport is no subclass of what it is
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if b"silent" in data:
            return
        flags = b"\x83\x80" if b"large" in data else b"\x81\x80"
        self.transport.sendto(self.answer(data, flags), addr)

    @staticmethod
    def answer(asked: bytes, flags: bytes) -> bytes:
        return asked[:2] + flags + b"\x00\x01\x00\x01\x00\x00\x00\x00" + asked[12:] + ANSWER

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
        data = self.answer(asked, b"\x81\x80")
        writer.write(len(data).to_bytes(2) + data)
        writer.close()


@pytest.fixture
async def name_server() -> AsyncIterator[int]:
    """Its port."""
    loop = asyncio.get_running_loop()
    made = NameServer()
    tcp = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    port = tcp.sockets[0].getsockname()[1]
    transport, _ = await loop.create_datagram_endpoint(lambda: made, local_addr=("127.0.0.1", port))
    yield port
    transport.close()
    tcp.close()
    await tcp.wait_closed()


@pytest.mark.parametrize("name", ["small.example", "large.example"])
async def test_a_name_server_is_asked_by_datagram_and_by_stream_for_what_does_not_fit(
    name: str, name_server: int
) -> None:
    async with asyncio.timeout(WAIT_S):
        assert await SystemNetwork().records("127.0.0.1", name_server, name, "A") == ["10.0.0.1"]


async def test_a_name_server_that_stays_silent_is_waited_for_until_the_caller_gives_up(
    name_server: int,
) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await SystemNetwork().records("127.0.0.1", name_server, "silent.example", "A")


async def test_what_cannot_be_asked_is_an_error(name_server: int) -> None:
    with pytest.raises(DownloadError) as caught:
        await SystemNetwork().records("127.0.0.1", name_server, "host", "PTR")

    assert str(caught.value) == "127.0.0.1: 'host' does not appear to be an IPv4 or IPv6 address"
