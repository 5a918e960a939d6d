"""Each route of the dashboard and the studio, read from the server itself: whom it answers, and from which page."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from ccm_ctl.dashboard.access import DashboardUser, Right
from ccm_ctl.dashboard.middleware import FORGERY_HEADER, READING
from ccm_ctl.studio.studio_pages import StudioPages
from ccm_ctl.studio.workspace import Workspace
from tests.contract.dashboard.test_server import Site, served

TOKEN = "0123456789abcdef0123456789abcdef"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()
CODES_OF_THE_GUARD = (401, 403, 421)


class Routes:
    """Notes the routes of the server that it is added to."""

    def __init__(self) -> None:
        self.application: web.Application | None = None

    def add_to(self, application: web.Application) -> None:
        """See `FurtherPages`."""
        self.application = application

    def found(self) -> list[tuple[str, str]]:
        """Method and path of each route below /api, parts of paths filled in."""
        assert self.application is not None
        known = {
            (route.method, re.sub(r"\{[^}]*\}", "x", route.resource.canonical))
            for route in self.application.router.routes()
            if route.resource is not None
        }
        return sorted(
            (method, path) for method, path in known if path.startswith("/api/") and method != "HEAD"
        )

    def reading(self) -> set[str]:
        """Paths with a body that change nothing on the fleet."""
        assert self.application is not None
        return self.application[READING]


@contextlib.asynccontextmanager
async def everything(folder: Path, right: Right = Right.ACT) -> AsyncIterator[tuple[Site, Routes]]:
    """A dashboard with the studio, and a user who is signed in."""
    routes = Routes()
    user = DashboardUser(name="ann", right=right)
    async with served(routes, StudioPages(Workspace.open(folder)), **{DIGEST: user}) as site:
        await site.sign_in(TOKEN)
        yield site, routes


async def status(site: Site, method: str, path: str, headers: Mapping[str, str]) -> int:
    """The status of an answer, whose body is not read: a stream has no end."""
    body = None if method == "GET" else b"{}"
    async with site.http.request(method, site.address + path, headers=headers, data=body) as answer:
        return answer.status


def genuine(site: Site) -> dict[str, str]:
    return {"Origin": site.address, FORGERY_HEADER: site.action}


def forgeries(site: Site, other: str) -> dict[str, dict[str, str]]:
    """Headers that a page of another site, or of another session, can have a browser send."""
    own, token = {"Origin": site.address}, {FORGERY_HEADER: site.action}
    return {
        "nothing": {},
        "no token": own,
        "no origin": token,
        "another origin": {"Origin": "http://evil.example", **token},
        "origin null": {"Origin": "null", **token},
        "the same name with another port": {"Origin": site.address + "1", **token},
        "the token of another session": {**own, FORGERY_HEADER: other},
        "another site": {**own, **token, "Sec-Fetch-Site": "cross-site"},
        "another host of the site": {**own, **token, "Sec-Fetch-Site": "same-site"},
    }


async def test_a_forged_request_reaches_no_route_that_has_a_body(tmp_path: Path) -> None:
    async with everything(tmp_path) as (site, routes):
        _, other = await site.sign_in(TOKEN)
        await site.sign_in(TOKEN)
        changing = [one for one in routes.found() if one[0] != "GET" and one[1] != "/api/session"]
        answers = {
            (method, path, name): await status(site, method, path, headers)
            for method, path in changing
            for name, headers in forgeries(site, other["action"]).items()
        }
        genuine_ones = {one: await status(site, *one, genuine(site)) for one in changing}

    assert len(changing) >= 6
    assert {one: code for one, code in answers.items() if code != 403} == {}
    assert {one: code for one, code in genuine_ones.items() if code in CODES_OF_THE_GUARD} == {}


async def test_no_route_answers_without_a_session(tmp_path: Path) -> None:
    async with everything(tmp_path) as (site, routes):
        closed = [one for one in routes.found() if one[1] != "/api/session"]
        signed_in = {one: await status(site, *one, genuine(site)) for one in closed}
        site.http.cookie_jar.clear()
        answers = {one: await status(site, *one, genuine(site)) for one in closed}

    assert len(closed) >= 30
    assert {one: code for one, code in answers.items() if code != 401} == {}
    assert {one: code for one, code in signed_in.items() if code in CODES_OF_THE_GUARD} == {}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::ffff:7f00:1]"]
)
async def test_no_route_answers_under_another_name(tmp_path: Path, host: str) -> None:
    async with everything(tmp_path) as (site, routes):
        rebound = {**genuine(site), "Host": host, "Origin": f"http://{host}"}
        answers = {one: await status(site, *one, rebound) for one in routes.found()}
        own = await status(site, "GET", "/api/fleet", genuine(site))

    assert {one: code for one, code in answers.items() if code != 421} == {}
    assert own == 200


async def test_no_route_answers_a_page_of_another_site(tmp_path: Path) -> None:
    async with everything(tmp_path) as (site, routes):
        asked = [one for one in routes.found() if one[1] != "/api/session"]
        far = {**genuine(site), "Sec-Fetch-Site": "cross-site"}
        near = {**genuine(site), "Sec-Fetch-Site": "same-origin"}
        answers = {one: await status(site, *one, far) for one in asked}
        own = {one: await status(site, *one, near) for one in asked}

    assert {one: code for one, code in answers.items() if code != 403} == {}
    assert {one: code for one, code in own.items() if code in CODES_OF_THE_GUARD} == {}


async def test_a_user_who_may_only_look_changes_nothing(tmp_path: Path) -> None:
    async with everything(tmp_path, Right.READ) as (site, routes):
        changing = [one for one in routes.found() if one[0] != "GET" and one[1] != "/api/session"]
        answers = {one: await status(site, *one, genuine(site)) for one in changing}
        reading = routes.reading()

    refused = {path for (_, path), code in answers.items() if code == 403}
    assert refused == {path for _, path in changing} - reading
    assert refused
    # what is not a change of the fleet: checks, evaluations, and the files of the operator's own folder
    assert reading == {"/api/studio/evaluate", "/api/studio/files", "/api/studio/lint"}


@pytest.mark.parametrize("size", [3 << 20])
async def test_a_huge_body_is_refused_by_each_route(tmp_path: Path, size: int) -> None:
    async with everything(tmp_path) as (site, routes):
        answers = {}
        for method, path in [one for one in routes.found() if one[0] in ("POST", "PUT")]:
            data = io.BytesIO(b'{"text": "' + b"x" * size + b'"}')
            url = site.address + path
            with contextlib.suppress(aiohttp.ClientError):  # the connection may end while the body is sent
                async with site.http.request(method, url, headers=genuine(site), data=data) as answer:
                    answers[method, path] = answer.status
        after = await status(site, "GET", "/api/fleet", genuine(site))

    assert {one: code for one, code in answers.items() if code not in (400, 413)} == {}
    assert len(answers) >= 6
    assert after == 200


async def test_a_session_that_another_one_chose_is_not_taken_over(tmp_path: Path) -> None:
    """Session fixation: a cookie that was there before the sign-in is worth nothing afterwards."""
    async with served(**{DIGEST: DashboardUser(name="ann", right=Right.ACT)}) as site:
        await site.sign_in()
        [planted] = [(one.key, one.value) for one in site.http.cookie_jar]
        await site.sign_in(TOKEN)
        [own] = [(one.key, one.value) for one in site.http.cookie_jar]
        _, said = await site.ask("GET", "/api/session")
        site.http.cookie_jar.clear()
        site.http.cookie_jar.update_cookies({planted[0]: planted[1]})
        _, before = await site.ask("GET", "/api/session")

    assert planted[0] == own[0]
    assert planted[1] != own[1]
    assert (said["name"], before["name"]) == ("ann", "op")


SLOW = 10
"""Clients of each kind that begin a request and do not go on."""


async def test_clients_that_do_not_go_on_hold_up_no_other(tmp_path: Path) -> None:
    async with everything(tmp_path) as (site, routes), contextlib.AsyncExitStack() as stack:
        await site.sign_in(TOKEN)
        [cookie] = site.http.cookie_jar
        host = site.address.partition("://")[2]
        head = f"Host: {host}\r\nCookie: {cookie.key}={cookie.value}\r\nOrigin: {site.address}\r\n"
        head += f"{FORGERY_HEADER}: {site.action}\r\n"
        path = next(path for method, path in routes.found() if method == "POST" and path != "/api/session")
        begun = {
            "half a head": f"GET /api/fleet HTTP/1.1\r\n{head}",
            "half a body": f"POST {path} HTTP/1.1\r\n{head}Content-Length: 2\r\n\r\n{{",
            "no reading": f"GET /api/stream?after=0 HTTP/1.1\r\n{head}\r\n",
        }
        slow = {
            name: [await _connect(stack, host, text) for _ in range(SLOW)] for name, text in begun.items()
        }

        async with asyncio.timeout(10):
            own = [await status(site, "GET", "/api/fleet", genuine(site)) for _ in range(SLOW)]
            posted = await status(site, "POST", path, genuine(site))

        # they are slow and not wrong: each is answered once it has said the rest
        rest = {"half a head": b"\r\n", "half a body": b"}", "no reading": b""}
        answers = {
            name: [await _answer(one, rest[name]) for one in clients] for name, clients in slow.items()
        }

    assert own == [200] * SLOW
    assert posted not in CODES_OF_THE_GUARD
    assert answers == {
        "half a head": [200] * SLOW,
        "half a body": [posted] * SLOW,
        "no reading": [200] * SLOW,
    }


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connect(stack: contextlib.AsyncExitStack, host: str, text: str) -> Client:
    """A client that has sent this."""
    name, _, port = host.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    stack.callback(writer.close)
    writer.write(text.encode())
    await writer.drain()
    return reader, writer


async def _answer(client: Client, rest: bytes) -> int:
    """Send the rest, and return the status of the answer."""
    reader, writer = client
    writer.write(rest)
    async with asyncio.timeout(10):
        line = await reader.readline()
    return int(line.split()[1])
