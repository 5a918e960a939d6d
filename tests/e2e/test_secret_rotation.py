"""A secret that real agents use gets a new value, wave after wave; the old one goes when none uses it, whoever is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pytest

from ccm_agent.bus.signatures.signing import SignatureKind
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.wire import NodeRecord, SecretUse
from tests.e2e.test_secrets import Holder, key_in
from tests.support.fleet import FILES, TOP, Done, a_file, manifest
from tests.support.secret_search import CommandLines, Needle, Wire, holding
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

NODES = ("web1", "web2", "web3")
FAILS_ON_REQUEST = ("exec", "fails-on-request", {"command": f"test ! -e {FILES}/fails"})


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Three nodes that have converged on an assignment that reads the secret."""
    with secured_broker(tmp_path_factory.mktemp("rotation"), Secured) as one:
        fleet = one.fleet
        fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        for name in NODES:
            creds = one.give("node", name)
            nats = {"url": fleet.environ["NATS_URL"], "creds": str(creds)}
            fleet.add(name, interval="1h", change_pause="0s", nats=nats)
        one.give("operator", "lou")
        assert fleet.ctl("secret", "init").code == 0
        assert fleet.ctl("facts", "set", *NODES, "role=web").code == 0
        assert fleet.ctl("secret", "put", "db-password", "--for", "role=web", stdin="first-plain").code == 0
        path = fleet.write(
            "site.yaml", manifest(a_file("password", "{{ secret('db-password') }}"), FAILS_ON_REQUEST)
        )
        done = fleet.ctl("assign", "site", path, "-t", "role=web", "--yes")
        assert done.code == 0, done.err
        fleet.wait_for(lambda: contents(one) == ["first-plain"] * 3, "the first value on all nodes")
        fleet.wait_for(lambda: uses(one) == [1, 1, 1], "the first revision in all records")
        yield one


def contents(at: Secured) -> list[str | None]:
    paths = [at.fleet.agents[node].files / "password" for node in NODES]
    return [path.read_text() if path.exists() else None for path in paths]


def uses(at: Secured) -> list[object]:
    """The revision that each node uses."""
    done = at.fleet.ctl("secret", "who", "db-password", "--json")
    found = {one["node"]: one for one in done.named("secret_node")}
    assert all(one.get("uses_since") for one in found.values() if one.get("uses"))
    return [found[node].get("uses") for node in NODES]


def newest(at: Secured) -> int:
    done = at.fleet.ctl("secret", "history", "db-password", "--json")
    return max(int(one["revision"]) for one in done.named("secret_revision"))


def values(at: Secured) -> set[int]:
    """The revisions whose values the broker stores."""
    return {int(key.rpartition(".")[2]) for key in Holder(at).read() if key.startswith("value.")}


def words(at: Secured, value: str) -> list[str]:
    """A rotation to a value, which a program prints."""
    path = at.fleet.write("printed", f"{value}\n")
    return ["secret", "rotate", "db-password", "--with", f"cat {path}", "--batch", "1", "--yes", "--json"]


def resume(at: Secured) -> Done:
    return at.fleet.ctl("secret", "rotate", "db-password", "--resume", "--yes", "--json")


def check_ended(at: Secured, value: str) -> None:
    """All nodes have the value and use its revision, and no other one is stored."""
    revision = newest(at)
    assert contents(at) == [value] * 3
    at.fleet.wait_for(lambda: uses(at) == [revision] * 3, f"revision {revision} in use")
    assert values(at) == {revision}
    doctor = {one["id"]: one["state"] for one in at.fleet.ctl("doctor", "--json").named("check")}
    assert (doctor["secrets.rotated"], doctor["secrets.sealed"]) == ("ok", "ok")


def test_a_new_value_reaches_nodes_in_batches_and_the_old_one_goes(at: Secured) -> None:
    value, name, path = Needle("plain-in-batches"), Needle("db-password"), Needle(f"{at.directory}/printed")
    slow = "import sys, time; time.sleep(1); print(open(sys.argv[1]).read(), end=str())"
    command = words(at, "plain-in-batches")
    command[4] = f"{sys.executable} -c '{slow}' {at.directory}/printed"
    with (
        (wire := Wire(at.fleet.environ["NATS_URL"], at.keys, at.directory)).listening(),
        (lines := CommandLines()).sampled(),
    ):
        done = at.fleet.ctl(*command)

    assert done.code == 0, done.out + done.err
    assert [one["wave"] for one in done.named("rollout")]
    check_ended(at, "plain-in-batches")
    assert holding(value, [*wire.messages, *lines.found, done.out, done.err]) == []
    holders = [f"{node}/files/password" for node in NODES] + ["printed"]
    assert value.files(at.directory) == sorted(f"{at.directory.name}/{one}" for one in holders)
    # that the search finds what is not hidden
    assert holding(name, wire.messages)
    assert holding(path, [*lines.found])
    again = resume(at)
    assert (again.code, [one.get("waiting") for one in again.named("secret")]) == (0, [None])


def test_a_node_that_fails_pauses_it_and_the_others_keep_the_old_value(at: Secured) -> None:
    before = contents(at)[0]
    (at.fleet.agents["web1"].files / "fails").touch()

    failed = at.fleet.ctl(*words(at, "plain-after-failure"))
    doctor = {one["id"]: one for one in at.fleet.ctl("doctor", "--json").named("check")}
    other = at.fleet.ctl(*words(at, "plain-of-another"))
    (at.fleet.agents["web1"].files / "fails").unlink()
    stored, after = values(at), contents(at)
    resumed = resume(at)

    assert (failed.code, len(stored)) == (2, 2), failed.out + failed.err
    assert after == ["plain-after-failure", before, before]
    assert doctor["secrets.rotated"]["state"] == "warning"
    assert doctor["secrets.rotated"]["names"] == list(NODES)
    assert (other.code, "secret rotate db-password --resume" in other.err) == (1, True)
    assert resumed.code in (0, 2), resumed.out + resumed.err
    check_ended(at, "plain-after-failure")


def test_an_offline_node_keeps_the_old_value_until_its_own_key_confirms(at: Secured) -> None:
    holder, agent = Holder(at), at.fleet.agents["web3"]
    revision, before = newest(at), contents(at)[2]
    agent.stop()

    done = at.fleet.ctl(*words(at, "plain-of-offline"))
    stored = values(at)
    record = msgspec.json.decode(holder.read("CCM_NODES")["node.web3"].value, type=NodeRecord)
    thief = msgspec.json.decode(holder.read("CCM_NODES")["node.web2"].value, type=NodeRecord)

    def claim(certificate: str, signer: str) -> set[int]:
        """The values that are left after a record of web3 says that it uses the new one."""
        use = SecretUse(revision=revision + 1, since=datetime.now(UTC))
        said = msgspec.structs.replace(record, certificate=certificate, secrets={"db-password": use})
        body = msgspec.json.encode(said)
        subject = key_subject("CCM_NODES", "node.web3")
        key = key_in(at.directory / f"{signer}.creds")
        signature = key.sign(SignatureKind.STATE, subject, body, issued_ms=int(time.time() * 1000))
        holder.store("node.web3", body, signature, "CCM_NODES")
        assert at.fleet.ctl("rollout", "serve", "--once").code == 0
        return values(at)

    stolen = claim(thief.certificate, "web2"), claim(record.certificate, "web2")
    own = claim(record.certificate, "web3")

    assert done.code == 3, done.out + done.err
    assert [one["waiting"] for one in done.named("secret")] == [["web3"]]
    assert "web3: offline; uses revision" in done.err
    assert (stored, stolen) == ({revision, revision + 1}, (stored, stored))
    assert own == {revision + 1}
    assert contents(at) == ["plain-of-offline", "plain-of-offline", before]
    agent.start()
    at.fleet.wait_present(["web3"])
    assert at.fleet.ctl("run-now", "-t", "node=web3", "--yes").code == 0
    check_ended(at, "plain-of-offline")


def test_operators_who_may_only_look_rotate_nothing(at: Secured) -> None:
    before = {key: entry.revision for key, entry in Holder(at).read().items()}

    done = at.as_("lou", *words(at, "plain-of-lou"))

    assert done.code == 1
    assert "lou" in done.err
    assert {key: entry.revision for key, entry in Holder(at).read().items()} == before
    # that an operator with the rights does: test_a_new_value_reaches_nodes_in_batches_and_the_old_one_goes


def test_a_secret_is_stale_until_it_was_rotated(at: Secured) -> None:
    assert at.fleet.ctl("facts", "set", "web3", "role=db").code == 0
    assert at.fleet.ctl("secret", "sync").code == 0

    stale = at.fleet.ctl("secret", "list", "--stale", "--json")
    doctor = {one["id"]: one for one in at.fleet.ctl("doctor", "--json").named("check")}
    rotated = at.fleet.ctl(*words(at, "plain-without-web3"))
    after = at.fleet.ctl("secret", "list", "--stale", "--json")

    assert [one["stale"] for one in stale.named("secret")] == [["web3"]]
    assert (doctor["secrets.stale"]["state"], doctor["secrets.stale"]["names"]) == ("warning", ["web3"])
    assert "ccmctl secret rotate db-password" in str(doctor["secrets.stale"])
    assert (rotated.code, after.named("secret")) == (0, [])
    assert contents(at)[:2] == ["plain-without-web3"] * 2
    assert at.fleet.ctl("facts", "set", "web3", "role=web").code == 0
    assert at.fleet.ctl("secret", "sync").code == 0
    assert at.fleet.ctl("run-now", "-t", "node=web3", "--yes").code == 0
    check_ended(at, "plain-without-web3")


@pytest.mark.parametrize(
    ("point", "has_revision"),
    [
        pytest.param("value 1", False, id="before anything is stored"),
        pytest.param("head 1", False, id="the value is stored, and nothing names it"),
        pytest.param("wrap 1", True, id="it is sealed to no node"),
        pytest.param("wrap 2", True, id="it is sealed to one node"),
        pytest.param("record 1", True, id="there is no rollout yet"),
        pytest.param("wrap 4", True, id="no node has taken it"),
        pytest.param("request 1", True, id="a node has taken it and was not asked"),
        pytest.param("wrap 5", True, id="a node uses it"),
        pytest.param("removal 1", True, id="all nodes use it"),
        pytest.param("head 2", True, id="the old value is removed, and the head still names it"),
    ],
)
def test_a_controller_that_is_killed_is_followed_by_one_that_ends_well(
    at: Secured, point: str, has_revision: bool
) -> None:
    value = f"plain-{point.replace(' ', '-')}"
    environ = {**at.fleet.environ, "DIE": point, "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "tests.support.mortal_ccmctl", *words(at, value)]

    killed = subprocess.run(command, cwd=TOP, env=environ, capture_output=True, timeout=120, check=False)
    done = resume(at) if has_revision else at.fleet.ctl(*words(at, value))

    assert killed.returncode == -9, killed.stderr
    assert done.code == 0, done.out + done.err
    check_ended(at, value)


def test_a_rollout_server_ends_what_another_one_has_begun(at: Secured) -> None:
    handed = at.fleet.ctl(*words(at, "plain-served"), "--detach")
    environ = {**at.fleet.environ, "DIE": "wrap 2", "PYTHONPATH": str(TOP)}
    command = [sys.executable, "-m", "tests.support.mortal_ccmctl", "rollout", "serve", "--once"]
    killed = subprocess.run(command, cwd=TOP, env=environ, capture_output=True, timeout=120, check=False)
    between = contents(at)

    server = at.fleet.begin("rollout", "serve")
    at.fleet.wait_for(lambda: contents(at) == ["plain-served"] * 3, "the new value on all nodes")
    at.fleet.wait_for(lambda: len(values(at)) == 1, "one value on the broker")
    server.kill()

    assert (handed.code, killed.returncode) == (0, -9), handed.err
    assert between.count("plain-served") == 1
    check_ended(at, "plain-served")
