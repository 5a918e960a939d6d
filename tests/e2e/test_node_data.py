"""Documents that one node alone may read: agents of this tree and of the released form, on a broker that knows each node."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from tests.support.fleet import TOP, Done, Fleet, a_file, manifest
from tests.support.nats_server import require_server
from tests.support.released import unpack_released

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

NEW = ("web1", "db1")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree of the released form."""
    folder = tmp_path_factory.mktemp("released")
    unpack_released(folder)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Fleet]:
    """Two agents of this tree."""
    require_server()
    server = NatsServer(ServerSettings(directory=tmp_path / "nats"))
    fleet = Fleet(tmp_path / "fleet", [server])
    keys = fleet.directory / "home" / ".config" / "ccm" / "keys"
    try:
        assert fleet.ctl("init", "--security", "--allow-unsigned", "30d").code == 0
        extra = (keys / "nats-security.conf").read_text()
        server.settings = msgspec.structs.replace(server.settings, extra=extra)
        server.start()
        fleet.environ |= {"NATS_URL": server.url, "CCM_CREDS": str(keys / "tester.creds")}
        assert fleet.ctl("init", "--security").code == 0
        for name in NEW:
            add(fleet, name, TOP)
        yield fleet
    finally:
        fleet.close()


def add(site: Fleet, name: str, code: Path) -> None:
    """Start an agent with credentials of its own."""
    creds = Path(site.write(f"{name}.creds", site.ctl("node", "add", name).out))
    creds.chmod(0o600)
    site.add(name, code=code, nats={"url": site.url, "creds": str(creds)})


def put(site: Fleet, node: str, greeting: str) -> str:
    """Store the document of a node; what is said about it."""
    path = site.write(f"data/{node}.yaml", f"data: {{greeting: {greeting}}}\n")
    done = site.ctl("data", "put", f"node/{node}", path)
    assert done.code == 0, done.err
    return done.err


def content(site: Fleet, node: str) -> str:
    path = site.agents[node].files / "motd"
    return path.read_text() if path.exists() else ""


def exposed(site: Fleet) -> dict[str, bool]:
    """Documents that every node can read, and whether they can be moved."""
    done = site.ctl("data", "protect", "--noop", "--json")
    return {record["key"]: record["movable"] for record in done.named("document")}


def assign(site: Fleet, folder: str, *names: str) -> None:
    """Assign the manifest to each node with its own document, and wait until all have converged."""
    for node in names:
        words = (folder, "--targets", f"node={node}", "--data", f"kv://CCM_DATA/node/{node}")
        done = site.ctl("assign", f"app-{node}", *words, "--yes")
        assert done.code == 0, done.err
    wait(site, *names)


def wait(site: Fleet, *names: str) -> None:
    """Wait until the assignments of nodes have converged."""
    for node in names:
        done = site.ctl("assignment", "status", f"app-{node}", "--wait", "60s", "--json")
        assert done.code == 0, done.out


def app(site: Fleet) -> str:
    """The folder of a manifest that writes what the data say."""
    path = site.write("app/manifest.yaml", manifest(a_file("motd", "{{ lookup('data.greeting') }}")))
    return str(Path(path).parent)


def apply_with(site: Fleet, node: str, key: str) -> Done:
    """Apply a manifest on a node with a document."""
    path = site.write("site.yaml", manifest(a_file("stolen", "{{ lookup('data.greeting') }}")))
    words = (path, "--targets", f"node={node}", "--data", f"kv://CCM_DATA/{key}")
    return site.ctl("apply", *words, "--yes", "--json")


def test_each_node_converges_on_its_own_document_and_reads_no_other(site: Fleet) -> None:
    told = {node: put(site, node, f"of-{node}") for node in NEW}
    assign(site, app(site), *NEW)

    stolen = apply_with(site, "web1", "node/db1")

    assert {node: content(site, node) for node in NEW} == {node: f"of-{node}" for node in NEW}
    assert (told, exposed(site)) == (dict.fromkeys(NEW, ""), {})
    assert (stolen.code, stolen.states) == (2, {"web1": "failed"})
    assert "only the node db1 may read it" in json.dumps(stolen.records)
    assert not (site.agents["web1"].files / "stolen").exists()


def test_pinned_document_of_a_node_comes_back_with_its_assignment(site: Fleet) -> None:
    put(site, "db1", "first")
    assign(site, app(site), "db1")
    put(site, "db1", "second")
    pinned = content(site, "db1")
    assert site.ctl("assign", "app-db1", "--refresh", "--yes").code == 0
    wait(site, "db1")
    refreshed = content(site, "db1")

    assert site.ctl("rollback", "app-db1", "--yes").code == 0
    wait(site, "db1")

    assert (pinned, refreshed, content(site, "db1")) == ("first", "second", "first")


def test_node_that_follows_its_document_converges_when_it_changes(site: Fleet) -> None:
    put(site, "db1", "first")
    words = ("--targets", "node=db1", "--data", "kv://CCM_DATA/node/db1", "--follow-data", "--yes")
    assert site.ctl("assign", "app-db1", app(site), *words).code == 0
    wait(site, "db1")

    put(site, "db1", "second")

    site.wait_for(lambda: content(site, "db1") == "second", "db1 to converge on its changed document")


def test_agent_of_the_released_form_reads_its_document_until_it_is_upgraded(
    site: Fleet, released: Path
) -> None:
    add(site, "old1", released)
    told = put(site, "old1", "of-old1")
    assign(site, app(site), "old1")
    leaked = apply_with(site, "web1", "node/old1")
    put(site, "old1", "changed")

    assert content(site, "old1") == "of-old1"
    assert "every node can read node/old1" in told
    assert (leaked.code, exposed(site)) == (0, {"node/old1": False})

    agent = site.agents["old1"]
    agent.stop()
    agent.code = TOP
    agent.start()
    site.wait_present(["old1"])
    site.wait_for(lambda: exposed(site) == {"node/old1": True}, "old1 to say that it reads its own documents")
    moved = site.ctl("data", "protect")
    assert (moved.code, exposed(site)) == (0, {}), moved.err

    # What is pinned is read from the broker alone, as of a revision that was moved.
    agent.stop()
    shutil.rmtree(agent.directory / "state" / "data")
    (agent.files / "motd").unlink()
    agent.start()
    site.wait_for(lambda: content(site, "old1") == "of-old1", "old1 to converge on the pinned revision")
    assert "changed" in site.ctl("data", "get", "node/old1").out
    assert len(site.ctl("data", "history", "node/old1", "--json").named("document")) == 3


def test_agent_of_the_released_form_fails_on_an_unknown_format(site: Fleet, released: Path) -> None:
    put(site, "old1", "of-old1")  # before the node has said anything
    add(site, "old1", released)

    done = apply_with(site, "old1", "node/old1")

    assert (done.code, done.states) == (2, {"old1": "failed"})
    assert "this agent is too old to read documents that are stored for one node" in json.dumps(done.records)
