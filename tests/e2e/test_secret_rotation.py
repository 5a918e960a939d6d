"""A secret that real agents use gets a new value, wave after wave; the old one goes when none uses it, whoever is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.test_secrets import Holder
from tests.support.fleet import Done, Fleet, a_file, manifest
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

NODES = ("web1", "web2", "web3")
OLD, NEW = "first-value-plain", "second-value-plain"
PRINTS_NEW = f"{sys.executable} -c \"print('{NEW}')\""
USES = ("content", "password", "{{ secret('db-password') }}")


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Secured]:
    """Three nodes that have converged on an assignment that reads the secret."""
    with secured_broker(tmp_path, Secured) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        for name in NODES:
            creds = one.give("node", name)
            nats = {"url": one.fleet.environ["NATS_URL"], "creds": str(creds)}
            one.fleet.add(name, interval="1h", change_pause="0s", nats=nats)
        assert one.as_("tester", "secret", "init").code == 0
        assert one.as_("tester", "facts", "set", *NODES, "role=web").code == 0
        assert one.fleet.ctl("secret", "put", "db-password", "--for", "role=web", stdin=OLD).code == 0
        assign(one.fleet, a_file("password", "{{ secret('db-password') }}"))
        one.fleet.wait_for(lambda: contents(one.fleet) == [OLD] * 3, "the old value on all nodes")
        wait_uses(one.fleet, 1, 1, 1)
        yield one
        one.fleet.open_gates()


def assign(fleet: Fleet, *resources: tuple[str, str, dict[str, object]]) -> None:
    path = fleet.write("site.yaml", manifest(*resources))
    done = fleet.ctl("assign", "site", path, "-t", "role=web", "--yes")
    assert done.code == 0, done.err


def contents(fleet: Fleet) -> list[str | None]:
    paths = [fleet.agents[node].files / "password" for node in NODES]
    return [path.read_text() if path.exists() else None for path in paths]


def who(fleet: Fleet) -> dict[str, dict[str, object]]:
    done = fleet.ctl("secret", "who", "db-password", "--json")
    assert done.code == 0, done.err
    return {one["node"]: one for one in done.named("secret_node")}


def uses(fleet: Fleet) -> list[object]:
    return [one.get("uses") for one in who(fleet).values()]


def wait_uses(fleet: Fleet, *revisions: int) -> None:
    fleet.wait_for(lambda: uses(fleet) == list(revisions), f"the revisions {revisions} in use")


def rotate(fleet: Fleet, *words: str) -> Done:
    return fleet.ctl("secret", "rotate", "db-password", *words, "--yes", "--json")


def values(at: Secured) -> set[str]:
    """The revisions whose values the broker stores."""
    return {key.rpartition(".")[2] for key in Holder(at).read() if key.startswith("value.")}


def test_a_new_value_reaches_nodes_in_batches_and_the_old_one_goes(at: Secured) -> None:
    done = rotate(at.fleet, "--with", PRINTS_NEW, "--batch", "1")

    assert done.code == 0, done.out + done.err
    assert contents(at.fleet) == [NEW] * 3
    assert uses(at.fleet) == [2, 2, 2]
    assert all(one["uses_since"] for one in who(at.fleet).values())
    assert values(at) == {"2"}
    assert NEW not in done.out + done.err
    assert rotate(at.fleet, "--resume").named("secret") == [
        {"record": "secret", "name": "db-password", "revision": 2}
    ]
