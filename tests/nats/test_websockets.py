"""Websockets: there for addresses that ask for them, and not paid for by anybody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.nats_server import running_server

pytestmark = pytest.mark.nats

PROGRAM = """
import asyncio, json, sys
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for

async def main():
    answers = []
    for url in sys.argv[1:]:
        async with asyncio.timeout(15), Connection(settings_for(url)) as connection:
            await connection.connect_now()
            heard = asyncio.Queue()
            await connection.subscribe(["word"], heard.put_nowait)
            await connection.publish("word", b"said")
            answers.append([(await heard.get()).body.decode(), "aiohttp" in sys.modules])
    is_late = "nats.js.api" not in sys.modules
    import aiohttp, nats.aio.client
    others = [aiohttp.ClientSession, type(nats.aio.client.Client().jetstream())]
    names = [each.__name__ for each in others]
    print(json.dumps([*answers, is_late, *names, len([f for f in sys.meta_path if "ccm" in type(f).__module__])]))

asyncio.run(main())
"""

OTHERS = ["ClientSession", "JetStreamContext"]
"""What other code of the process can still import and use."""


@pytest.fixture
def urls(tmp_path, unused_tcp_port):
    """Where one server takes connections: over TCP, and over a websocket."""
    extra = (
        'authorization { users = [ { user: web1, password: "s3cret" } ] }\n'
        f'websocket {{ host: "127.0.0.1", port: {unused_tcp_port}, no_tls: true }}\n'
    )
    with running_server(tmp_path, extra) as server:
        yield f"nats://web1:s3cret@127.0.0.1:{server.port}", f"ws://web1:s3cret@127.0.0.1:{unused_tcp_port}"


def said_by(*urls: str) -> list[object]:
    """What a fresh interpreter says that connects to each address in turn."""
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *urls], capture_output=True, text=True, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_over_tcp_nothing_of_websockets_is_imported_and_others_still_can(urls) -> None:
    tcp, _ = urls

    assert said_by(tcp) == [["said", False], True, *OTHERS, 0]


def test_an_address_of_a_websocket_works_first_and_after_tcp(urls) -> None:
    tcp, websocket = urls

    assert said_by(websocket) == [["said", True], True, *OTHERS, 0]
    assert said_by(tcp, websocket) == [["said", False], ["said", True], True, *OTHERS, 0]
