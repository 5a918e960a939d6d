"""Three agents that nobody asks anything of: they converge on what changes, wherever it stands."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ccm_agent.bus.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.settings import settings_for
from tests.support.bundles import packed
from tests.support.fleet import Fleet, a_file, fleet, manifest

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NODES = ("web1", "web2", "db1")
DATA = "kv://CCM_DATA/common"


class Web:
    """
    A web server with one thing on it.

    Attributes:
        content: What is there.
        status: What it answers.
        answers: The status of each answer that it gave.
    """

    def __init__(self) -> None:
        self.content = b""
        self.status = 200
        self.answers: list[int] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                etag = f'"{hashlib.sha256(web.content).hexdigest()}"'
                is_same = web.status == 200 and self.headers.get("If-None-Match") == etag
                status = 304 if is_same else web.status
                body = web.content if status == 200 else b""
                self.send_response(status)
                self.send_header("ETag", etag)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                web.answers.append(status)

            def log_message(self, format: str, *args: object) -> None:
                """Keep the test's output to itself."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/web.tar.gz"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()


def put_object(fleet: Fleet, content: bytes) -> None:
    async def put() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            await NatsObjects(connection, "CCM_MANIFESTS").put("site.tar.gz", content)

    asyncio.run(put())


def put_data(fleet: Fleet, greeting: str) -> None:
    async def put() -> None:
        async with Connection(settings_for(fleet.url)) as connection:
            await connection.connect_now()
            await NatsKeyValue(connection, "CCM_DATA").put(
                "common", f"data: {{greeting: {greeting}}}".encode()
            )

    asyncio.run(put())


def everywhere(fleet: Fleet, name: str, content: str) -> None:
    """Wait until all nodes have a file with this content."""

    def has(path: Path) -> bool:
        return path.exists() and path.read_text() == content

    fleet.wait_for(
        lambda: all(has(agent.files / name) for agent in fleet.agents.values()), f"{name} to be {content}"
    )


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    one = Web()
    yield one
    one.close()


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory, web: Web) -> Iterator[Fleet]:
    with fleet(tmp_path_factory.mktemp("fleet")) as built:
        path = built.write(
            "site.yaml", manifest(a_file("file", "1"), a_file("data", "{{ lookup('data.greeting') }}"))
        )
        put_object(built, packed(manifest(a_file("object", "1"))))
        put_data(built, "hello")
        web.content = packed(manifest(a_file("web", "1")))
        sources = [path, "obj://CCM_MANIFESTS/site.tar.gz", web.url]
        built.add(
            *NODES,
            manifests=sources,
            external_data_url=DATA,
            interval="1h",
            watch_interval="1s",
            change_pause="0s",
        )
        for name, content in (("file", "1"), ("object", "1"), ("web", "1"), ("data", "hello")):
            everywhere(built, name, content)
        yield built


def test_they_converge_on_a_file_that_changed(three: Fleet) -> None:
    three.write("site.yaml", manifest(a_file("file", "2"), a_file("data", "{{ lookup('data.greeting') }}")))

    everywhere(three, "file", "2")


def test_they_converge_on_an_object_that_changed(three: Fleet) -> None:
    put_object(three, packed(manifest(a_file("object", "2"))))

    everywhere(three, "object", "2")


def test_they_converge_on_data_that_changed(three: Fleet) -> None:
    put_data(three, "goodbye")

    everywhere(three, "data", "goodbye")


def test_they_converge_on_a_web_bundle_that_changed_and_fetch_it_once(three: Fleet, web: Web) -> None:
    web.answers.clear()
    web.content = packed(manifest(a_file("web", "2")))

    everywhere(three, "web", "2")
    three.wait_for(lambda: web.answers.count(304) > 3, "looks at what has not changed")
    assert web.answers.count(200) == len(NODES)


def test_they_converge_again_after_the_web_server_was_broken(three: Fleet, web: Web) -> None:
    web.status = 500
    three.wait_for(lambda: web.answers.count(500) > 3, "looks at a broken server")
    web.content = packed(manifest(a_file("web", "3")))[:-10]
    web.status = 200
    three.wait_for(
        lambda: all(agent.log.count("a manifest cannot be fetched") > 1 for agent in three.agents.values()),
        "everybody to see the broken bundle",
    )
    web.content = packed(manifest(a_file("web", "4")))

    everywhere(three, "web", "4")


def test_a_node_that_starts_without_broker_and_web_converges_on_what_it_had(three: Fleet, web: Web) -> None:
    agent = three.agents["web1"]
    agent.kill()
    three.broker.stop()
    web.status = 503
    wanted = {path.name: path.read_text() for path in agent.files.iterdir()}
    for path in agent.files.iterdir():
        path.unlink()

    agent.start()

    def found() -> dict[str, str]:
        return {path.name: path.read_text() for path in agent.files.iterdir()}

    three.wait_for(lambda: found() == wanted, "the files to be there again")
    assert set(wanted) == {"file", "data", "object", "web"}


def test_a_critical_check_brings_back_what_was_removed(tmp_path: Path) -> None:
    kind, name, properties = a_file("guarded")
    check = {"name": "there", "command": f"/bin/sh -c 'test -e {name} || exit 2'", "format": "nagios"}
    with fleet(tmp_path / "fleet") as built:
        path = built.write("site.yaml", manifest((kind, name, {**properties, "health_checks": [check]})))
        built.add("web1", manifests=[path], interval="1h", watch_interval="1h", health_check_interval="1s")
        everywhere(built, "guarded", "x")

        (built.agents["web1"].files / "guarded").unlink()

        everywhere(built, "guarded", "x")
        log = built.agents["web1"].log
    assert log.count("a critical health check is acted upon") == 1
