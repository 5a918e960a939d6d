"""The network as health checks see it, on servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import cast

import pytest
from aiohttp import web

from ccm_agent.model.errors import DownloadError
from ccm_agent.model.network import HttpRequest
from ccm_agent.model.secret import Secret
from ccm_agent.system.http.network import SystemNetwork

WAIT_S = 10.0


class Site:
    """A web server: what it was asked, and where it listens."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.moves: dict[str, tuple[int, str]] = {}
        self.port = self.other_port = 0

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
    for _ in range(2):
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    (_, made.port), (_, made.other_port) = runner.addresses
    yield made
    await runner.cleanup()


async def test_an_answer_is_one_whatever_its_status(site: Site) -> None:
    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork("t").ask(
            HttpRequest(
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


@pytest.mark.parametrize("where", ["localhost:{port}", "127.0.0.1:{other_port}"])
async def test_a_redirect_to_another_host_or_port_is_followed_without_secrets(where: str, site: Site) -> None:
    there = where.format(port=site.port, other_port=site.other_port)
    site.moves = {"/a": (302, "/b"), "/b": (307, f"http://{there}/c")}

    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(
            HttpRequest(url=f"{site.url}/a", headers=(("X-Token", "t"),), username="u", password=Secret("p"))
        )

    assert answer.status == 503
    assert [(path, "X-Token" in headers, "Authorization" in headers) for _, path, headers, _ in site.requests] == [
        ("/a", True, True),
        ("/b", True, True),
        ("/c", False, False),
    ]  # fmt: skip


async def test_user_and_password_win_over_a_header(site: Site) -> None:
    async with asyncio.timeout(WAIT_S):
        await SystemNetwork().ask(
            HttpRequest(url=site.url, headers=(("authorization", "x"),), username="u", password=Secret("p"))
        )

    assert site.requests[0][2]["Authorization"] == "Basic dTpw"


async def test_a_redirect_that_is_not_followed_is_the_answer(site: Site) -> None:
    site.moves = {"/a": (302, "/b")}

    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(HttpRequest(url=f"{site.url}/a", follows_redirects=False))

    assert answer.status == 302


@pytest.mark.parametrize(
    ("path", "target", "why"),
    [
        pytest.param("/a", "/a", "redirects more than 10 times", id="in circles"),
        pytest.param(
            "/a",
            "file:///etc/passwd",
            "leads to file:, but only http and https are supported",
            id="to a file",
        ),
    ],
)
async def test_a_redirect_without_target_is_not_an_answer(
    path: str, target: str, why: str, site: Site
) -> None:
    site.moves = {path: (302, target)}

    with pytest.raises(DownloadError) as caught:
        async with asyncio.timeout(WAIT_S):
            await SystemNetwork().ask(HttpRequest(url=site.url + path))

    assert str(caught.value) == f"{site.url}{path}: {why}"


async def test_a_body_is_kept_up_to_its_limit(site: Site) -> None:
    async with asyncio.timeout(WAIT_S):
        answer = await SystemNetwork().ask(HttpRequest(url=f"{site.url}/large", limit_bytes=10))

    assert answer.body == b"x" * 10


async def test_a_missing_server_gives_no_answer_and_shows_no_password(site: Site) -> None:
    server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()

    with pytest.raises(DownloadError) as caught:
        async with asyncio.timeout(WAIT_S):
            await SystemNetwork().ask(HttpRequest(url=f"http://u:secret@127.0.0.1:{port}/"))

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
        # no check by isinstance: before Python 3.12 the transport is not a subclass of what it is
        self.transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if b"silent" in data:
            return
        if b"liar" in data:
            data = bytes([data[0] ^ 1]) + data[1:]
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
async def test_a_name_server_is_queried_by_udp_and_by_tcp_for_long_answers(
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


@pytest.mark.parametrize(
    ("name", "record", "why"),
    [
        pytest.param(
            "host", "PTR", "'host' does not appear to be an IPv4 or IPv6 address", id="not an address"
        ),
        pytest.param("", "A", "the name is empty", id="no name"),
        pytest.param("a..b", "A", "A DNS label is empty.", id="an empty label"),
        pytest.param("a" * 64, "A", "A DNS label is > 63 octets long.", id="a label that is too long"),
        pytest.param("a." * 130, "A", "A DNS name is > 255 octets long.", id="a name that is too long"),
    ],
)
async def test_an_invalid_query_is_an_error(name: str, record: str, why: str, name_server: int) -> None:
    with pytest.raises(DownloadError) as caught:
        await SystemNetwork().records("127.0.0.1", name_server, name, record)

    assert str(caught.value) == f"127.0.0.1: {why}"


async def test_an_answer_to_another_question_is_not_believed(name_server: int) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await SystemNetwork().records("127.0.0.1", name_server, "liar.example", "A")


async def test_an_address_may_be_asked_for_and_a_name_may_be_international(name_server: int) -> None:
    async with asyncio.timeout(WAIT_S):
        assert await SystemNetwork().records("localhost", name_server, "192.0.2.1", "PTR") == []
        assert await SystemNetwork().records("127.0.0.1", name_server, "bücher.example", "A") == ["10.0.0.1"]


async def test_a_name_server_that_is_missing_is_an_error_at_once() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    with pytest.raises(DownloadError) as caught:
        async with asyncio.timeout(WAIT_S):
            await SystemNetwork().records("127.0.0.1", port, "a.example", "A")

    assert str(caught.value) == "127.0.0.1: connection refused"
