"""The node's key as an encrypted credential of systemd: under our unit, with a broker that accepts this key only."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import testenv

from ccm_agent.testing.nats_server import find_server
from tests.support.nats_keys import user_seed

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

TOP = Path(__file__).resolve().parents[2]
SERVER = "/usr/local/bin/nats-server"
SEALED = "/etc/choria/ccm/node.key.enc"
DROP_IN = "/etc/systemd/system/ccm-agent.service.d/credentials.conf"
CLIENTS = "import sys, urllib.request as u; sys.stdout.write(u.urlopen('http://127.0.0.1:8222/connz?auth=1').read().decode())"
WAIT_S = 60.0


@pytest.fixture
def node(lab: testenv.Lab, program_binds: dict[str, str], program: str) -> Iterator[testenv.Node]:
    """A machine with our unit, which is not started."""
    made = lab.create("credentials", {**program_binds, str(find_server()): SERVER}).start()
    # a system boots with shared mounts; without them, the mount with the credentials stays in the process that made it
    made.run("mount", "--make-rshared", "/")
    made.run("ln", "-s", program, "/usr/bin/ccm")
    yield made
    lab.remove(made)


def write(node: testenv.Node, path: str, text: str) -> None:
    node.run("mkdir", "-p", str(Path(path).parent))
    node.path(path).write_text(text)


def clients(node: testenv.Node) -> list[str | None]:
    """The users that the broker has accepted."""
    found = json.loads(node.run(sys.executable, "-c", CLIENTS).stdout)
    return [one.get("authorized_user") for one in found["connections"]]


def wait_for_client(node: testenv.Node, key: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while key not in clients(node):
        log = node.run("journalctl", "-u", "ccm-agent", "-o", "cat", "--no-pager").stdout
        assert time.monotonic() < deadline, f"the agent does not connect\n{log}"
        time.sleep(0.1)


def test_agent_connects_with_a_key_that_is_encrypted_on_disk(node: testenv.Node) -> None:
    raw, key = user_seed()
    seed = raw.decode()
    # the lines that the unit shows
    unit = (TOP / "deploy/systemd/ccm-agent.service").read_text()
    load = next(line for line in unit.splitlines() if "LoadCredentialEncrypted=" in line).lstrip("# ")
    write(node, "/etc/systemd/system/ccm-agent.service", unit)
    write(node, DROP_IN, f"[Service]\n{load.replace('node.creds', 'node.key')}\n")
    write(
        node, "/etc/nats.conf", f"http: 127.0.0.1:8222\nauthorization {{ users = [ {{ nkey: {key} }} ] }}\n"
    )
    write(
        node,
        "/etc/systemd/system/nats.service",
        f"[Service]\nExecStart={SERVER} -a 127.0.0.1 -c /etc/nats.conf\n",
    )
    config = {
        "identity": "web1",
        "nats": {"url": "nats://127.0.0.1:4222", "nkey": "/run/credentials/ccm-agent.service/node.key"},
    }
    write(node, "/etc/choria/ccm/config.yaml", json.dumps(config))
    node.run("systemd-creds", "encrypt", "--name=node.key", "-", SEALED, input=seed)
    node.run("systemctl", "daemon-reload")
    node.run("systemctl", "start", "nats")
    node.run("systemctl", "start", "ccm-agent")

    wait_for_client(node, key)

    assert seed not in node.path(SEALED).read_text()
    found = node.run("grep", "-rlF", seed, "/etc", "/var/lib/ccm", "/var/log", check=False)
    assert (found.returncode, found.stdout) == (1, "")
    # that the search finds it where it is readable
    assert node.run("grep", "-rlF", seed, "/run/credentials/ccm-agent.service").returncode == 0
