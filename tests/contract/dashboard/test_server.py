"""The dashboard over HTTP, on a broker in memory: who is let in, what every answer says, and how events reach browsers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import RenderWorker
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.dashboard.access import ONE_USE_S, SESSION_S, Access, DashboardUser, Right
from ccm_ctl.dashboard.middleware import HEADERS
from ccm_ctl.dashboard.server import Dashboard, DashboardOptions, FurtherPages, host_headers
from ccm_ctl.fleet.events.live_events import LiveEvent
from ccm_ctl.fleet.events.messages import AgentMessage
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.studio.fleet_pages import StudioFleetPages
from ccm_ctl.studio.workspace import Workspace
from tests.support.controller import NOW, FakeNode, event, fleet_on

RUN = "2zFXabcdefghijklmnopqrstuvw"


class Site:
    """A dashboard that is served, and a browser of sorts."""

    def __init__(self, address: str, access: Access, broker: MemoryBroker, board: Dashboard) -> None:
        self.address = address
        self.access = access
        self.broker = broker
        self.board = board
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        self.action = ""

    async def ask(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, body: object = None
    ) -> tuple[int, Any]:
        """Status and document of an answer."""
        content = None if body is None else json.dumps(body)
        async with self.http.request(method, self.address + path, headers=headers, data=content) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if answer.content_type == "application/json" else text

    async def sign_in(self, token: str = "") -> tuple[int, Any]:
        """Sign in as the page does, with the printed token unless another one is said."""
        status, said = await self.ask(
            "POST",
            "/api/session",
            headers={"Origin": self.address},
            body={"token": token or self.access.new_address_token()},
        )
        self.action = said.get("action", "")
        return status, said

    async def publish(self, number: int, **fields: Any) -> None:
        """An event of web1."""
        said = event(f"/etc/{number}", number, **fields)
        subject = event_subject(said.protocol, "web1", RUN)
        await MemoryBus(self.broker, "web1").events.publish(subject, new_id(), msgspec.json.encode(said))


@contextlib.asynccontextmanager
async def served(
    *pages: FurtherPages,
    studio: tuple[RenderWorker, Workspace] | None = None,
    services: Any = None,
    adapt: Callable[[Fleet], Fleet] = lambda fleet: fleet,
    **tokens: DashboardUser,
) -> AsyncIterator[Site]:
    broker = MemoryBroker(now=lambda: NOW)
    for node in (FakeNode("web1", {"role": "web"}), FakeNode("db1", {"role": "db"}, is_present=False)):
        await node.begin(broker)
    access = Access(b"k" * 32, "op", tokens, lambda: 1000.0, may_act=True)
    fleet = adapt(replace(fleet_on(MemoryBus(broker, "op")), services=services))
    options = DashboardOptions(
        listen="127.0.0.1",
        port=0,
        access=access,
        explain=lambda _: {},
        pages=(*pages, StudioFleetPages(fleet, *(studio or ()))),
    )
    board = Dashboard(fleet, options)
    async with board.serving() as address:
        site = Site(address, access, broker, board)
        async with site.http:
            yield site


async def messages(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, str]]:
    """The messages of a stream, each by its fields."""
    message: dict[str, str] = {}
    async for raw in answer.content:
        line = raw.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            message[name] = value
        elif message:
            yield message
            message = {}


async def numbers(answer: aiohttp.ClientResponse, count: int) -> list[int]:
    """The numbers of the next events of a stream."""
    found: list[int] = []
    async with asyncio.timeout(10):
        async for message in messages(answer):
            if "event" not in message and "data" in message:
                assert message["id"] == str(json.loads(message["data"])["id"])
                found.append(int(message["id"]))
            if len(found) == count:
                return found
    return found


async def test_without_a_session_the_pages_are_empty_and_the_interface_is_closed() -> None:
    async with served() as site:
        page = await site.ask("GET", "/")
        closed = [
            await site.ask("GET", path) for path in ("/api/fleet", "/api/events", "/api/stream", "/api/facts")
        ]

    assert page[0] == 200
    assert "web1" not in page[1]
    assert [status for status, _ in closed] == [401] * 4


async def test_the_printed_token_opens_the_fleet_once() -> None:
    async with served() as site:
        token = site.access.new_address_token()
        first, again = await site.sign_in(token), await site.sign_in(token)
        status, said = await site.ask("GET", "/api/fleet")

    assert (first[0], again[0], status) == (200, 401, 200)
    assert {row["node"]: row["state"] for row in said["rows"]} == {"web1": "present", "db1": "offline"}


async def test_the_cookie_cannot_be_read_by_scripts_or_sent_by_other_sites() -> None:
    async with served() as site:
        await site.sign_in()
        [cookie] = site.http.cookie_jar

    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/")


async def test_every_answer_has_the_headers_that_browsers_need() -> None:
    async with served() as site:
        for path in ("/", "/static/app.js", "/static/none.js", "/api/session", "/none", "/api/fleet"):
            async with site.http.get(site.address + path) as answer:
                missing = [name for name in HEADERS if name not in answer.headers]
                assert (path, missing) == (path, [])
                policy = answer.headers["Content-Security-Policy"]
                assert "unsafe" not in policy
                assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", ""])
async def test_another_name_is_not_answered(host: str) -> None:
    async with served() as site:
        await site.sign_in()
        status, said = await site.ask("GET", "/api/fleet", headers={"Host": host})

    assert status == 421
    assert "rows" not in said


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1"])
async def test_another_origin_cannot_sign_in(origin: str | None) -> None:
    async with served() as site:
        body = {"token": site.access.new_address_token()}
        headers = {} if origin is None else {"Origin": origin}
        status, _ = await site.ask("POST", "/api/session", headers=headers, body=body)

    assert status == 403


async def test_a_request_that_another_site_caused_is_refused() -> None:
    async with served() as site:
        await site.sign_in()
        status, _ = await site.ask("GET", "/api/fleet", headers={"Sec-Fetch-Site": "cross-site"})

    assert status == 403


@pytest.mark.parametrize(
    "path",
    [
        "/static/../access.py",
        "/static/%2e%2e/access.py",
        "/static/..%2faccess.py",
        "/static//etc/passwd",
        "/static/vendor/../../server.py",
        "/static/vendor/VERSIONS.json",
    ],
)
async def test_a_path_outside_the_pages_is_not_found(path: str) -> None:
    async with served() as site:
        port = site.address.rpartition(":")[2]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(10):
            said = await reader.read()
        writer.close()

    assert said.startswith(b"HTTP/1.1 404")
    assert b"import" not in said
    assert b"root:" not in said


async def test_a_user_of_the_file_has_the_name_and_right_of_the_file() -> None:
    token = "0123456789abcdef0123456789abcdef"
    digest = hashlib.sha256(token.encode()).hexdigest()
    async with served(**{digest: DashboardUser(name="bob", right=Right.READ)}) as site:
        status, said = await site.sign_in(token)

    assert (status, said["name"], said["right"]) == (200, "bob", "read")


async def test_rows_come_by_selector_and_as_what_changed() -> None:
    async with served() as site:
        await site.sign_in()
        _, whole = await site.ask("GET", "/api/fleet?targets=role%3Dweb")
        _, later = await site.ask("GET", f"/api/fleet?targets=role%3Dweb&since={whole['version']}")
        _, near = await site.ask("GET", "/api/fleet?targets=role%3Dwev")
        status, bad = await site.ask("GET", "/api/fleet?targets=role%3D%3D%3D(")

    assert [row["node"] for row in whole["rows"]] == ["web1"]
    assert (later["rows"], later["gone"]) == ([], [])
    assert "did you mean role=web" in near["problem"]
    assert (status, "error" in bad) == (400, True)


async def test_events_arrive_in_order_and_resume_at_the_last_one_seen() -> None:
    async with served() as site:
        await site.sign_in()
        async with site.http.get(f"{site.address}/api/stream?after=0") as answer:
            for number in (1, 2, 3):
                await site.publish(number)
            first = await numbers(answer, 3)
        await site.publish(4)
        async with site.http.get(f"{site.address}/api/stream", headers={"Last-Event-ID": "2"}) as answer:
            second = await numbers(answer, 2)

    assert (first, second) == ([1, 2, 3], [3, 4])


@pytest.mark.parametrize("place", ["0", "999999", "x", "-1", "9" * 40])
async def test_a_browser_that_is_too_far_back_loads_everything_again(place: str) -> None:
    async with served() as site:
        await site.sign_in()
        site.board.feed._kept_events = 2
        for number in range(1, 8):
            await site.publish(number)
        async with asyncio.timeout(10):
            while site.board.feed.last < 7:
                await site.board.feed.news.wait()
        async with site.http.get(f"{site.address}/api/stream?after={place}") as answer, asyncio.timeout(10):
            found = []
            async for message in messages(answer):
                found.append(message.get("event", ""))
                if "state" in found:
                    break

    wanted = ["", "reload", "state"] if place in ("0", "999999") else ["", "state"]
    assert found == wanted


def loud(number: int) -> LiveEvent:
    """An event with a long text."""
    said = event("/etc/motd", number, failed=True, error=["x" * 400])
    heard = AgentMessage(node="web1", run=RUN, protocol=said.protocol, said=said)
    return LiveEvent(sequence=number, heard=heard)


async def test_a_browser_that_reads_nothing_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccm_ctl.dashboard.stream.WRITE_S", 0.5)
    async with served() as site:
        await site.sign_in()
        [cookie] = site.http.cookie_jar
        port = int(site.address.rpartition(":")[2])
        slow = socket.socket()
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        slow.connect(("127.0.0.1", port))
        asked = f"GET /api/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie.key}={cookie.value}\r\n\r\n"
        slow.sendall(asked.encode())
        async with site.http.get(f"{site.address}/api/stream?after=0") as answer:
            reading = asyncio.create_task(numbers(answer, 10_000), name="quick")
            for begin in range(1, 10_001, 500):
                site.board.feed.add([loud(number) for number in range(begin, begin + 500)])
                await asyncio.sleep(0)
            async with asyncio.timeout(40):
                found = await reading
        slow.close()

    assert found == list(range(1, 10_001))


def test_the_names_that_are_answered_are_those_of_the_address() -> None:
    access = Access(b"k" * 32, "op", {}, lambda: 0.0, may_act=False)
    local = DashboardOptions(listen="::1", port=7480, access=access, explain=lambda _: {})
    named = DashboardOptions(
        listen="127.0.0.1", port=80, names=("Ops.example.net",), access=access, explain=lambda _: {}
    )

    assert host_headers("::1", 7480, local) == {"[::1]:7480", "localhost:7480"}
    assert host_headers("127.0.0.1", 80, named) >= {"ops.example.net", "ops.example.net:80", "127.0.0.1"}


async def test_a_token_and_a_session_that_have_expired_open_nothing() -> None:
    async with served() as site:
        late = site.access.new_address_token()
        site.access.now = lambda: 1000.0 + ONE_USE_S + 1
        expired, _ = await site.sign_in(late)
        opened, _ = await site.sign_in()
        site.access.now = lambda: 1000.0 + ONE_USE_S + SESSION_S + 3
        status, said = await site.ask("GET", "/api/fleet")

    assert (expired, opened, status) == (401, 200, 401)
    assert said["code"] == "dashboard.signed_out"


async def raw(port: int, request: bytes) -> bytes:
    """What the dashboard answers to bytes; b"": it ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            async with asyncio.timeout(20):
                return await reader.read(100)
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: {host}\r\n\r\n", id="a path of 1 MB"),
        pytest.param(
            b"GET /api/fleet HTTP/1.1\r\nHost: {host}\r\nX-Long: " + b"x" * 1_000_000 + b"\r\n\r\n",
            id="a header of 1 MB",
        ),
        pytest.param(
            b"GET /api/fleet HTTP/1.1\r\nHost: {host}\r\nCookie: ccm-1=" + b"x" * 1_000_000 + b"\r\n\r\n",
            id="a cookie of 1 MB",
        ),
        pytest.param(
            b"GET /api/fleet HTTP/1.1\r\nHost: {host}\r\n" + b"X-Many: x\r\n" * 100_000 + b"\r\n",
            id="100,000 headers",
        ),
        pytest.param(
            b"GET /api/fleet HTTP/1.1\r\nHost: {host}\r\nX: \x00\xff\r\n\r\n", id="a header of bytes"
        ),
    ],
)
async def test_a_request_with_a_huge_head_is_refused_and_others_are_answered(head: bytes) -> None:
    async with served() as site:
        await site.sign_in()
        port = int(site.address.rpartition(":")[2])
        said = await raw(port, head.replace(b"{host}", f"127.0.0.1:{port}".encode()))
        status, _ = await site.ask("GET", "/api/fleet")

    # aiohttp answers before any code of ours; it may also end the connection while the rest still comes
    assert said == b"" or re.match(rb"HTTP/1\.[01] 4\d\d [\w ]+\r\nContent-Type: text/plain", said), said
    assert status == 200


@pytest.mark.parametrize("count", [1, 200])
async def test_cookies_that_nobody_here_made_are_refused(count: int) -> None:
    async with served() as site:
        port = int(site.address.rpartition(":")[2])
        cookies = "; ".join(f"ccm-{port}=e30.{'0' * 30}" for _ in range(count))[:8000]
        head = f"GET /api/fleet HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookies}\r\n\r\n"
        said = await raw(port, head.encode())

    assert said.startswith(b"HTTP/1.1 401")


async def test_a_huge_body_is_refused() -> None:
    async with served() as site:
        headers = {"Origin": site.address}
        status, _ = await site.ask("POST", "/api/session", headers=headers, body={"token": "x" * 1_000_000})

    assert status == 413


async def test_connections_that_never_finish_a_request_hold_up_no_other() -> None:
    async with served() as site, contextlib.AsyncExitStack() as stack:
        port = int(site.address.rpartition(":")[2])
        for _ in range(200):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"GET / HTTP/1.1\r\nHost:")
        status, _ = await site.sign_in()

    assert status == 200
