"""
The configuration of Choria CCM's documentation, as it stands there, under our unit: at its own paths, as root, on a machine.

On the machine is a broker with the buckets that the configuration names, made as any NATS client makes them. There is no
`config.example.com`: a source that is away is part of the case.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testenv

from ccm_agent.testing.nats_server import find_server
from tests.support.bundles import packed
from tests.support.public_configuration import PUBLIC_EXAMPLE

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

TOP = Path(__file__).resolve().parents[2]
SERVER = "/usr/local/bin/nats-server"
CONFIG = "/etc/choria/ccm/config.yaml"
BROKER = f"""
[Service]
ExecStart={SERVER} -a 127.0.0.1 -js -sd /var/lib/nats
"""
STORE = """
import asyncio, base64, sys
import nats

async def main():
    async with await nats.connect("nats://127.0.0.1:4222") as connection:
        stream = connection.jetstream()
        data = await stream.create_key_value(bucket="ccm-data", direct=True)
        await data.put("common", b"data: {greeting: hello}")
        manifests = await stream.create_object_store("ccm-manifests")
        await manifests.put("app.tar.gz", base64.b64decode(sys.argv[1]))

asyncio.run(main())
"""
WAIT_S = 60.0


def a_file(name: str) -> str:
    """A manifest of one file with the greeting in it."""
    body = {
        "ensure": "present",
        "content": "{{ lookup('data.greeting') }}",
        "owner": "root",
        "group": "root",
        "mode": "0644",
    }
    return json.dumps({"ccm": {"resources": [{"file": [{f"/root/{name}": body}]}]}})


@pytest.fixture(scope="module")
def node(lab: testenv.Lab, program_binds: dict[str, str], program: str) -> Iterator[testenv.Node]:
    """A machine with our unit, the public configuration, and a broker in the context that it names."""
    made = lab.create("public", {**program_binds, str(find_server()): SERVER}).start()
    files = {
        CONFIG: PUBLIC_EXAMPLE,
        "/etc/choria/ccm/manifests/base.yaml": a_file("base"),
        "/root/.config/nats/context/CCM.json": json.dumps({"url": "nats://127.0.0.1:4222"}),
        "/etc/systemd/system/nats.service": BROKER,
        "/etc/systemd/system/ccm-agent.service": (TOP / "deploy/systemd/ccm-agent.service").read_text(),
    }
    for path, text in files.items():
        made.run("mkdir", "-p", str(Path(path).parent))
        made.path(path).write_text(text)
    made.run("ln", "-s", program, "/usr/bin/ccm")
    made.run("systemctl", "daemon-reload")
    made.run("systemctl", "start", "nats")
    ready = "until (exec 3<>/dev/tcp/127.0.0.1/4222) 2>/dev/null; do sleep 0.05; done"
    made.run("timeout", "30", "bash", "-c", ready)
    made.run(str(Path(program).parent / "ccmctl"), "init", "--server", "nats://127.0.0.1:4222")
    content = base64.b64encode(packed(a_file("app"))).decode()
    made.run(sys.executable, "-c", STORE, content)
    yield made
    lab.remove(made)


def wait_for(node: testenv.Node, happened: Callable[[], bool], what: str) -> None:
    """Look until something has happened in the machine."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, f"waited in vain for {what}\n{log(node)}"
        time.sleep(0.1)


def log(node: testenv.Node) -> str:
    """What the service has said."""
    return str(node.run("journalctl", "-u", "ccm-agent", "-o", "cat", "--no-pager").stdout)


def reads(node: testenv.Node, path: str) -> str:
    """A file of the machine; "" when it is not there."""
    found = node.path(path)
    return found.read_text() if found.exists() else ""


def test_the_agent_starts_unchanged_and_the_node_converges(node: testenv.Node) -> None:
    # it returns when systemd has heard from the agent that it is ready
    ensured = node.run("ccm", "ensure", "service", "ccm-agent", "running", "--enable")

    wait_for(node, lambda: reads(node, "/root/base") == "hello", "the manifest of the host")
    wait_for(node, lambda: reads(node, "/root/app") == "hello", "the manifest of the object store")
    wait_for(node, lambda: "config.example.com" in log(node), "the source that is away to be told")
    metrics = node.run(
        "bash",
        "-c",
        "exec 3<>/dev/tcp/127.0.0.1/9100; printf 'GET /metrics HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3",
    )
    assert "changed" in ensured.stdout + ensured.stderr
    assert node.run("systemctl", "is-enabled", "ccm-agent").stdout.strip() == "enabled"
    assert "choria_ccm_agent_apply_duration_seconds" in metrics.stdout
    assert node.path("/etc/choria/ccm/source").is_dir()


def test_a_typo_in_a_key_is_refused_by_name(node: testenv.Node, program: str) -> None:
    node.path(CONFIG).write_text(PUBLIC_EXAMPLE.replace("\ninterval:", "\nintervall:"))
    try:
        done: Any = node.run(program, "agent", "--config", CONFIG, check=False)
        node.run("systemctl", "reload", "ccm-agent")
        wait_for(
            node, lambda: "the configuration was not reloaded" in log(node), "the running agent to refuse it"
        )
        active = node.run("systemctl", "is-active", "ccm-agent").stdout.strip()
    finally:
        node.path(CONFIG).write_text(PUBLIC_EXAMPLE)

    why = "unknown key `intervall`, did you mean `interval`?"
    assert (done.returncode, f"{CONFIG}:2:1: error: {why}" in done.stderr) == (1, True), done.stderr
    assert f"{CONFIG}:2:1: {why}" in log(node)
    assert active == "active"
