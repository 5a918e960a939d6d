"""A Debian machine with nothing but the package joins a fleet with one line, and gets a secret that nothing else ever shows."""

from __future__ import annotations

import json
import secrets
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import testenv

from tests.support.own_packages import BROKER, SHARED, Desk, Host, build, make_desk
from tests.support.secret_search import CommandLines, Needle, Wire, holding

pytestmark = [pytest.mark.host, pytest.mark.timeout(480)]

SERVER = f"tls://{BROKER}:4222"
TARGET = "/etc/app.conf"
MARKER = "shown-on-purpose"
"""A word that is not secret: that it is found shows that the search works."""

FOLDERS = ("etc", "home", "root", "run", "tmp", "usr/local", "var")
"""Where a machine could write the value."""

SHOWN = (
    ("events", "--since", "1h", "--no-follow"),
    ("run", "list"),
    ("run", "show", "last"),
    ("plan", "site/", "-t", "role=db"),
    ("node", "list"),
    ("node", "show", "db1"),
    ("history", "db1"),
    ("state", "db1"),
    ("why", "db1"),
    ("facts", "show", "db1"),
    ("audit",),
    ("token", "list"),
    ("secret", "list"),
    ("secret", "who", "db-password"),
    ("secret", "history", "db-password"),
    ("doctor",),
)

PAGES = (
    "/",
    "/nodes/db1",
    "/api/fleet",
    "/api/facts",
    "/api/events",
    "/api/nodes/db1",
    "/api/nodes/db1/why",
    "/api/nodes/db1/resources",
    "/api/nodes/db1/past",
    "/api/runs",
    "/api/runs/{run}",
    "/api/runs/{run}/nodes/db1",
    "/api/runs/{run}/diffs",
    "/api/assignments",
    "/api/data",
)

READ = """
import http.cookiejar, json, sys, urllib.request
site, _, token = sys.argv[1].partition("/#token=")
opened = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())).open
headers = {"Origin": site, "Content-Type": "application/json"}
opened(urllib.request.Request(site + "/api/session", json.dumps({"token": token}).encode(), headers))
for path in sys.argv[2:]:
    print(path, opened(site + path).read().decode())
"""


@pytest.fixture
def desk(lab: testenv.Lab, packages: Path) -> Iterator[Desk]:
    """A broker with credentials, its operator, and a join service."""
    made = make_desk(lab, packages)
    made.follow()
    with made.host.node.path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{made.host.node.ip} {BROKER}\n")
    made.type("ccmctl secret init\nccmctl operator add joiner --join --facts > joiner.creds")
    serve(made, "join", "CCM_CREDS=/root/joiner.creds", "join", "serve")
    made.host.wait_for(lambda: "waiting for nodes" in unit_log(made, "join"), "the join service")
    yield made
    lab.remove(made.host.node)


@pytest.fixture(scope="module")
def packages(lab: testenv.Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Repositories with our packages."""
    return build(lab, tmp_path_factory.getbasetemp() / "own-packages")


def serve(desk: Desk, unit: str, variable: str, *words: str) -> None:
    """Run a command of the operator as a unit of systemd."""
    variables = f"-E HOME=/root -E CCM_CA=/root/.config/ccm/keys/ca.pem -E {variable}"
    desk.host.sh(f"systemd-run -q --unit {unit} {variables} ccmctl --server {SERVER} {' '.join(words)}")


def unit_log(desk: Desk, unit: str) -> str:
    """What a unit has logged."""
    return str(desk.host.sh(f"journalctl -u {unit} -o cat --no-pager").stdout)


def joined(lab: testenv.Lab, packages: Path, desk: Desk, name: str) -> Host:
    """A machine on which nothing is done but to install the package, to run the printed line, and to start the unit."""
    host = Host(lab, packages, "apt", name)
    with host.node.path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{desk.host.node.ip} {BROKER}\n")
    host.sh(f"apt-get install -y -q {SHARED}/1/ccm-agent_*.deb")
    said = desk.type(f"ccmctl --server {SERVER} token create --role db")
    [line] = [one for one in said.splitlines() if one.startswith("ccm join ")]
    host.sh(line)
    host.sh("systemctl enable --now ccm-agent")
    desk.wait_present(name)
    return host


def apply(desk: Desk, content: str) -> list[dict[str, object]]:
    """Apply a bundle that writes the secret into a file, and gives it to a command."""
    file = {"ensure": "present", "content": content, "owner": "root", "group": "root", "mode": "0600"}
    command = {
        "command": f"sh -c 'echo $PW; sleep 1; echo {MARKER}'",
        "environment": ["PW={{ secret('db-password') }}"],
    }
    resources = [{"file": [{TARGET: file}]}, {"exec": [{MARKER: command}]}]
    site = desk.host.node.path("/root/site")
    site.mkdir(exist_ok=True)
    (site / "manifest.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    return desk.ccmctl("apply", "site/", "-t", "role=db", "--yes", "--diff")


def read_dashboard(desk: Desk, run: str) -> str:
    """What the dashboard answers to a browser that has signed in."""
    serve(desk, "dashboard", "CCM_CREDS=/root/.config/ccm/keys/ann.creds", "dashboard")
    desk.host.wait_for(lambda: "/#token=" in unit_log(desk, "dashboard"), "the dashboard")
    [address] = [one for one in unit_log(desk, "dashboard").splitlines() if "/#token=" in one]
    paths = [path.replace("{run}", run) for path in PAGES]
    return str(desk.host.node.run("python3", "-c", READ, address, *paths).stdout)


def test_a_machine_joins_with_one_line_and_its_secret_is_in_its_file_and_nowhere_else(
    lab: testenv.Lab, packages: Path, desk: Desk, tmp_path: Path
) -> None:
    node, keys = desk.host.node, desk.host.node.path("/root/.config/ccm/keys")
    host = joined(lab, packages, desk, "db1")
    text = secrets.token_urlsafe(24)
    value, marker = Needle(text), Needle(MARKER)
    tls = ssl.create_default_context(cafile=str(keys / "ca.pem")), BROKER
    wire, lines = Wire(f"tls://{node.ip}:4222", keys, tmp_path, tls), CommandLines()

    with wire.listening(), lines.sampled():
        put = node.run(
            "bash",
            "-c",
            "cd; . ./terminal; ccmctl secret put db-password --for role=db --json",
            input=f"{text}\n",
        )
        first = apply(desk, "p={{ secret('db-password') }}\n")
        second = apply(desk, "q={{ secret('db-password') }}\n")
        shown = [desk.ccmctl(*words, check=False) for words in SHOWN]
        [run] = {str(one["run"]) for one in second if one["record"] == "result"}
        pages = read_dashboard(desk, run)
    host.sh(f"logger {MARKER}")
    node.run("logger", MARKER)

    outputs = [put.stdout, put.stderr, *map(json.dumps, [first, second, *shown])]
    journals = [str(one.run("journalctl", "-o", "export", "--no-pager").stdout) for one in (node, host.node)]
    folders = [one.path(f"/{name}") for one in (node, host.node) for name in FOLDERS]
    # it works
    assert host.service == ("active", "enabled")
    assert [one["sealed"] for one in map(json.loads, put.stdout.splitlines())] == [["db1"]]
    assert [one["state"] for one in [*first, *second] if one["record"] == "result"] == ["changed"] * 2
    refused = {str(one) for said in shown for one in said if one["record"] == "error"}
    assert (all(shown), refused) == (True, set())
    file = host.node.path(TARGET)
    assert (file.read_text(), oct(file.stat().st_mode & 0o7777)) == (f"q={text}\n", "0o600")
    # the value is nowhere else
    assert value.files(*folders) == ["etc/app.conf"]
    assert holding(value, [*wire.messages, *lines.found, *outputs, *journals, pages]) == []
    # each of these searches finds what is there
    store = marker.files(node.path("/var/lib/nats"))
    assert any("OBJ_CCM_MANIFESTS" in name for name in store)  # it is compressed there
    assert any("CCM_EVENTS" in name for name in store)
    assert holding(marker, wire.messages)
    assert holding(marker, list(lines.found))
    assert all(marker.is_in(one) for one in journals)
    assert all(marker.is_in(json.dumps(one)) for one in (first, second, shown[0]))
    assert marker.is_in(pages)
