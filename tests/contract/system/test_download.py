"""Downloads from a web server on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from ccm_agent.model.errors import DownloadError, FileError
from ccm_agent.model.ports import Transfer, Transferred
from ccm_agent.model.secret import Secret
from ccm_agent.system.http.download import SystemDownload

WAIT_S = 10.0
LARGE = bytes(range(256)) * 20_000
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A web server of a test: handlers by path, and what was asked of it."""

    def __init__(self) -> None:
        self.pages: dict[str, Handler] = {}
        self.requests: list[web.Request] = []
        self.url = ""
        self.other = ""
        self.other_port = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        page = self.pages.get(request.path)
        return await page(request) if page else web.Response(status=404)

    def page(self, path: str, **answer: object) -> str:
        """Answer a path so, and its URL."""

        async def handler(request: web.Request) -> web.Response:
            return web.Response(**answer)  # type: ignore[arg-type]

        self.pages[path] = handler
        return self.url + path

    def redirect(self, path: str, location: str, status: int = 302) -> str:
        return self.page(path, status=status, headers={"Location": location})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A server that has two names and two ports: `localhost` is another host than `127.0.0.1`."""
    site = Site()
    server = web.Server(site.answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    for _ in range(2):
        await web.TCPSite(runner, "127.0.0.1", 0).start()
    (_, port), (_, other_port) = runner.addresses
    site.url, site.other = f"http://127.0.0.1:{port}", f"http://localhost:{port}"
    site.other_port = f"http://127.0.0.1:{other_port}"
    yield site
    await runner.cleanup()


@pytest.fixture
def download() -> SystemDownload:
    return SystemDownload("ccm/test", stall_s=0.3, pause_s=0.01)


async def refused(awaitable: Awaitable[object]) -> str:
    with pytest.raises(DownloadError) as caught:
        await awaitable
    return caught.value.message


class TestFetching:
    async def test_content_comes_with_size_digest_and_validators(
        self, site: Site, download: SystemDownload
    ) -> None:
        url = site.page(
            "/a", body=b"text", headers={"ETag": '"1"', "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        )

        done = await download.fetch(Transfer(url=url))

        assert done == Transferred(
            content=b"text",
            size_bytes=4,
            sha256=hashlib.sha256(b"text").hexdigest(),
            etag='"1"',
            last_modified="Thu, 01 Jan 2026 00:00:00 GMT",
        )
        assert site.requests[0].headers["User-Agent"] == "ccm/test"

    async def test_unchanged_content_is_not_transferred(self, site: Site, download: SystemDownload) -> None:
        url = site.page("/a", status=304)

        done = await download.fetch(Transfer(url=url, etag='"1"'))

        assert done == Transferred(is_unchanged=True, etag='"1"')
        assert site.requests[0].headers["If-None-Match"] == '"1"'

    async def test_a_date_is_sent_if_there_is_no_etag(self, site: Site, download: SystemDownload) -> None:
        url = site.page("/a", status=304)

        await download.fetch(Transfer(url=url, last_modified="Thu, 01 Jan 2026 00:00:00 GMT"))

        assert site.requests[0].headers["If-Modified-Since"] == "Thu, 01 Jan 2026 00:00:00 GMT"

    @pytest.mark.parametrize("status", [204, 206, 304, 401, 404, 500])
    async def test_no_other_status_is_content(
        self, site: Site, download: SystemDownload, status: int
    ) -> None:
        url = site.page("/a", status=status)

        assert (await refused(download.fetch(Transfer(url=url)))).startswith(
            f"{url}: the server answered {status}"
        )

    async def test_a_longer_answer_than_allowed_is_refused_by_its_content_length(
        self, site: Site, download: SystemDownload
    ) -> None:
        url = site.page("/a", body=b"12345")

        message = await refused(download.fetch(Transfer(url=url, limit_bytes=4)))

        assert message == f"{url}: is larger than 4 bytes, the limit"

    async def test_a_longer_answer_than_allowed_is_refused_by_its_actual_length(
        self, site: Site, download: SystemDownload
    ) -> None:
        async def endless(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            try:
                while True:
                    await response.write(b"x" * 10_000)
            except ConnectionError:
                return response

        site.pages["/a"] = endless

        message = await refused(download.fetch(Transfer(url=f"{site.url}/a", limit_bytes=50_000)))

        assert message == f"{site.url}/a: is larger than 50000 bytes, the limit"

    async def test_compressed_content_is_not_taken_for_the_content(
        self, site: Site, download: SystemDownload
    ) -> None:
        url = site.page("/a", body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})

        message = await refused(download.fetch(Transfer(url=url)))

        assert message == f"{url}: the server sent a compressed response, although this was not requested"

    async def test_a_silent_server_is_abandoned(self, site: Site, download: SystemDownload) -> None:
        stop = asyncio.Event()

        async def silent(request: web.Request) -> web.StreamResponse:
            await stop.wait()
            return web.Response()

        site.pages["/a"] = silent
        async with asyncio.timeout(WAIT_S):
            message = await refused(download.fetch(Transfer(url=f"{site.url}/a")))
        stop.set()

        assert message == f"{site.url}/a: the server sent nothing for 0.3 s"

    async def test_a_refused_connection_is_reported(self, site: Site, download: SystemDownload) -> None:
        message = await refused(download.fetch(Transfer(url="http://127.0.0.1:1/a")))

        assert message.startswith("http://127.0.0.1:1/a: cannot connect to 127.0.0.1:1: ")

    @pytest.mark.parametrize(
        ("url", "message"),
        [
            (
                "file:///etc/passwd",
                "file:///etc/passwd: leads to file:, but only http and https are supported",
            ),
            ("ftp://host/a", "ftp://host/a: leads to ftp:, but only http and https are supported"),
            ("/a", "/a: leads to no:, but only http and https are supported"),
            ("http://", "http://: leads to http:, but only http and https are supported"),
            ("http://[::1", "http://[::1: this is not a URL"),
        ],
    )
    async def test_a_url_that_is_not_http_is_refused(
        self, download: SystemDownload, url: str, message: str
    ) -> None:
        assert await refused(download.fetch(Transfer(url=url))) == message


class TestUrls:
    @pytest.mark.parametrize(
        ("written", "sent"),
        [
            pytest.param("/a*b%2fc?x=%2f%41&y=a+b", "/a*b%2fc?x=%2f%41&y=a+b", id="as it is written"),
            pytest.param("/a/../b", "/a/../b", id="dots are the server's affair"),
            pytest.param(
                "/a b/\u00fc?q=\u00fc", "/a%20b/%C3%BC?q=%C3%BC", id="what cannot be sent is quoted"
            ),
            pytest.param("/100%", "/100%25", id="a percent sign by itself"),
            pytest.param("?x=1", "/?x=1", id="no path"),
            pytest.param("/a#part", "/a", id="no fragment"),
        ],
    )
    @pytest.mark.parametrize("by_redirect", [False, True])
    async def test_a_url_is_sent_as_it_is_written(
        self, site: Site, download: SystemDownload, written: str, sent: str, by_redirect: bool
    ) -> None:
        url = site.redirect("/from", site.url + written) if by_redirect else site.url + written

        await refused(download.fetch(Transfer(url=url)))

        assert site.requests[-1].raw_path == sent


class TestSecrets:
    BASIC = "Basic bWU6cHc="

    @pytest.mark.parametrize("by", ["properties", "url"])
    async def test_user_and_password_are_sent(self, site: Site, download: SystemDownload, by: str) -> None:
        url = site.page("/a")
        transfer = Transfer(url=url, username="me", password=Secret("pw"))
        if by == "url":
            transfer = Transfer(url=url.replace("http://", "http://me:pw@"))

        await download.fetch(transfer)

        assert site.requests[0].headers["Authorization"] == self.BASIC

    async def test_a_header_wins_over_them(self, site: Site, download: SystemDownload) -> None:
        url = site.page("/a")
        headers = {"authorization": Secret("Bearer token"), "X-Site": "one"}

        await download.fetch(Transfer(url=url, headers=headers, username="me", password=Secret("pw")))

        assert site.requests[0].headers.getall("Authorization") == ["Bearer token"]
        assert site.requests[0].headers["X-Site"] == "one"

    async def test_headers_go_with_a_redirect_on_the_same_host_and_a_password_does_not(
        self, site: Site, download: SystemDownload
    ) -> None:
        site.page("/b", body=b"x")
        url = site.redirect("/a", "/b")

        await download.fetch(Transfer(url=url, username="me", password=Secret("pw"), headers={"X-Key": "k"}))

        assert [request.headers.get("Authorization") for request in site.requests] == [self.BASIC, None]
        assert site.requests[1].headers["X-Key"] == "k"

    @pytest.mark.parametrize("by", ["properties", "url"])
    @pytest.mark.parametrize("where", ["other", "other_port"])
    async def test_they_go_to_no_other_host_and_port(
        self, site: Site, download: SystemDownload, by: str, where: str
    ) -> None:
        site.page("/b", body=b"x")
        url = site.redirect("/a", f"{getattr(site, where)}/b")
        transfer = Transfer(url=url, username="me", password=Secret("pw"), headers={"X-Key": "k"})
        if by == "url":
            transfer = Transfer(url=url.replace("http://", "http://me:pw@"), headers={"X-Key": "k"})

        await download.fetch(transfer)

        assert site.requests[1].headers.keys() & {"Authorization", "X-Key", "Cookie"} == set()

    async def test_nor_back_again_by_a_cookie(self, site: Site, download: SystemDownload) -> None:
        site.page("/b", body=b"x")
        url = site.page("/a", status=302, headers={"Location": "/b", "Set-Cookie": "session=1"})

        await download.fetch(Transfer(url=url))

        assert "Cookie" not in site.requests[1].headers

    async def test_no_error_shows_them(self, site: Site, download: SystemDownload) -> None:
        url = site.url.replace("http://", "http://me:hunter2@")

        messages = [
            await refused(download.fetch(Transfer(url=f"{url}/missing"))),
            await refused(download.fetch(Transfer(url="http://me:hunter2@127.0.0.1:1/"))),
            await refused(download.fetch(Transfer(url="http://me:hunter2@[::1/"))),
            await refused(
                download.fetch(Transfer(url=f"{site.url}/", headers={"X": Secret("hunter2\r\nY: z")}))
            ),
        ]

        assert [message for message in messages if "hunter2" in message] == []
        assert len(site.requests) == 1


class TestRedirects:
    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_each_kind_is_followed(self, site: Site, download: SystemDownload, status: int) -> None:
        site.page("/b", body=b"x")
        url = site.redirect("/a", "b", status)

        assert (await download.fetch(Transfer(url=url))).content == b"x"

    async def test_ten_are_followed_and_no_more(self, site: Site, download: SystemDownload) -> None:
        for number in range(11):
            site.redirect(f"/{number}", f"/{number + 1}")
        site.page("/11", body=b"x")

        ten = await download.fetch(Transfer(url=f"{site.url}/1"))
        eleven = await refused(download.fetch(Transfer(url=f"{site.url}/0")))

        assert ten.content == b"x"
        assert eleven == f"{site.url}/0: redirects more than 10 times"

    @pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/", "data:text/plain,x"])
    async def test_a_redirect_to_another_scheme_is_refused(
        self, site: Site, download: SystemDownload, location: str
    ) -> None:
        url = site.redirect("/a", location)

        message = await refused(download.fetch(Transfer(url=url)))

        scheme = location.partition(":")[0]
        assert message == f"{url}: leads to {scheme}:, but only http and https are supported"

    async def test_an_invalid_address_is_reported(self, site: Site, download: SystemDownload) -> None:
        url = site.redirect("/a", "http://[::1")

        assert await refused(download.fetch(Transfer(url=url))) == f"{url}: redirects to an invalid URL"


class TestSaving:
    async def test_a_new_file_that_only_its_owner_may_read(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        url = site.page("/a", body=LARGE, headers={"ETag": '"1"'})
        progress: list[tuple[int, int]] = []

        done = await download.save(
            Transfer(url=url), f"{tmp_path}/a", lambda *so_far: progress.append(so_far)
        )

        assert done == Transferred(
            size_bytes=len(LARGE), sha256=hashlib.sha256(LARGE).hexdigest(), etag='"1"'
        )
        assert (tmp_path / "a").read_bytes() == LARGE
        assert os.stat(tmp_path / "a").st_mode & 0o7777 == 0o600
        assert progress[-1] == (len(LARGE), len(LARGE))
        assert progress == sorted(progress)

    async def test_existing_content_already_is_an_error_and_stays(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        url = site.page("/a", body=b"new")
        (tmp_path / "a").write_text("old")

        with pytest.raises(FileError) as caught:
            await download.save(Transfer(url=url), f"{tmp_path}/a")

        assert caught.value.message == f"{tmp_path}/a: cannot be written: File exists"
        assert (tmp_path / "a").read_text() == "old"

    async def test_nothing_is_left_of_a_failure(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        url = site.page("/a", body=LARGE)

        await refused(download.save(Transfer(url=f"{site.url}/none"), f"{tmp_path}/a"))
        await refused(download.save(Transfer(url=url, limit_bytes=1000), f"{tmp_path}/a"))

        assert os.listdir(tmp_path) == []

    async def test_unchanged_content_leaves_no_file(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        url = site.page("/a", status=304)

        done = await download.save(Transfer(url=url, etag='"1"'), f"{tmp_path}/a")

        assert done == Transferred(is_unchanged=True, etag='"1"')
        assert os.listdir(tmp_path) == []

    async def test_nothing_is_left_of_a_cancellation(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        begun, stop = asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b"x" * 100_000)
            begun.set()
            await stop.wait()
            return response

        site.pages["/a"] = slow
        task = asyncio.create_task(SystemDownload().save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a"))
        async with asyncio.timeout(WAIT_S):
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        stop.set()

        assert os.listdir(tmp_path) == []


class Flaky:
    """A page that breaks off after so many bytes each time, and goes on when it is asked to."""

    def __init__(self, site: Site, *, etag: str, each: int, resumes: bool = True) -> None:
        self.ranges: list[str] = []
        self._etag, self._each, self._resumes = etag, each, resumes
        self.content = LARGE
        site.pages["/a"] = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        asked = request.headers.get("Range", "")
        self.ranges.append(asked)
        start = 0
        if asked and self._resumes and request.headers.get("If-Range") == self._etag:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        response = web.StreamResponse(status=206 if start else 200, headers={"ETag": self._etag})
        response.content_length = len(self.content) - start
        if start:
            response.headers["Content-Range"] = f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"
        await response.prepare(request)
        await response.write(self.content[start : start + self._each])
        if start + self._each < len(self.content) and request.transport:
            request.transport.close()
        return response


class TestGoingOn:
    async def test_where_it_broke_off(self, site: Site, download: SystemDownload, tmp_path: Path) -> None:
        flaky = Flaky(site, etag='"1"', each=2_000_000)

        async with asyncio.timeout(WAIT_S):
            done = await download.save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a")

        assert done.sha256 == hashlib.sha256(LARGE).hexdigest()
        assert (tmp_path / "a").read_bytes() == LARGE
        assert flaky.ranges[0] == ""
        assert flaky.ranges[1].startswith("bytes=")
        assert len(flaky.ranges) == 3

    async def test_from_the_start_where_the_server_cannot_continue(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        flaky = Flaky(site, etag='W/"1"', each=len(LARGE) - 1000)
        broken = flaky.answer

        async def once(request: web.Request) -> web.StreamResponse:
            flaky._each = flaky._each if not flaky.ranges else len(LARGE)
            return await broken(request)

        site.pages["/a"] = once
        async with asyncio.timeout(WAIT_S):
            done = await download.save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a")

        assert done.sha256 == hashlib.sha256(LARGE).hexdigest()
        assert flaky.ranges == ["", ""]

    async def test_from_the_start_where_the_content_is_another_by_now(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        flaky = Flaky(site, etag='"1"', each=2_000_000)
        broken = flaky.answer

        async def changes(request: web.Request) -> web.StreamResponse:
            if flaky.ranges:
                flaky._etag, flaky._each, flaky.content = '"2"', len(LARGE), LARGE[::-1]
            return await broken(request)

        site.pages["/a"] = changes
        async with asyncio.timeout(WAIT_S):
            done = await download.save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a")

        assert (done.sha256, done.etag) == (hashlib.sha256(LARGE[::-1]).hexdigest(), '"2"')
        assert (tmp_path / "a").read_bytes() == LARGE[::-1]

    async def test_number_of_resumed_transfers_is_limited(
        self, site: Site, download: SystemDownload, tmp_path: Path
    ) -> None:
        flaky = Flaky(site, etag='"1"', each=1_000_000)
        broken = flaky.answer

        async def dries_up(request: web.Request) -> web.StreamResponse:
            flaky._each = flaky._each if not flaky.ranges else 0
            return await broken(request)

        site.pages["/a"] = dries_up
        async with asyncio.timeout(WAIT_S):
            message = await refused(download.save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a"))

        assert message == f"{site.url}/a: the transfer was interrupted"
        assert len(flaky.ranges) == 6
        assert os.listdir(tmp_path) == []

    async def test_not_at_another_place(self, site: Site, download: SystemDownload, tmp_path: Path) -> None:
        flaky = Flaky(site, etag='"1"', each=2_000_000)
        broken = flaky.answer

        async def lies(request: web.Request) -> web.StreamResponse:
            if flaky.ranges:
                return web.Response(status=206, body=b"x", headers={"Content-Range": "bytes 0-0/1"})
            return await broken(request)

        site.pages["/a"] = lies
        async with asyncio.timeout(WAIT_S):
            message = await refused(download.save(Transfer(url=f"{site.url}/a"), f"{tmp_path}/a"))

        assert message == f"{site.url}/a: the server resumed at the wrong position"
        assert os.listdir(tmp_path) == []
