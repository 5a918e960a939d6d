"""An operator whose rights end at a role: which subjects ccmctl chooses, and how a run ends that the broker refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    """web1 and web2 with role=web, db1 with role=db; bob may apply to role=web."""
    with secured_fleet(tmp_path) as one:
        url = one.fleet.environ["NATS_URL"]
        for name, role in (("web2", "web"), ("db1", "db")):
            one.fleet.add(name, nats={"url": url, "creds": str(one.give("node", name))})
            assert one.as_("tester", "facts", "set", name, f"role={role}").code == 0
        one.fleet.wait_for(
            lambda: (
                sorted(
                    str(node["facts"].get("role")) for node in one.as_("bob", "nodes", "--json").named("node")
                )
                == ["db", "web", "web"]
            ),
            "the roles",
        )
        yield one


def test_a_selector_with_names_of_nodes_is_sent_to_the_role_that_the_operator_may_use(
    secured: Secured,
) -> None:
    path = secured.fleet.write("site.json", manifest(a_file("a")))
    words = ("apply", path, "--yes", "--json", "--timeout", "30s", "-t")

    waves = secured.as_("bob", *words, "role=web,node in (web1,web2)", "--batch", "1")
    plain = secured.as_("bob", *words, "node=web2")

    assert (waves.code, waves.states) == (0, {"web1": "changed", "web2": "changed"}), waves.err
    assert (plain.code, plain.states) == (0, {"web2": "stable"}), plain.err


def test_a_rollout_that_the_broker_refuses_ends_and_names_the_right_that_is_missing(secured: Secured) -> None:
    path = secured.fleet.write("site.json", manifest(a_file("a")))
    words = ("apply", path, "--yes", "--json", "--batch", "1", "-t")

    refused = secured.as_("bob", *words, "node in (web1,db1)")
    open_ones = secured.as_("bob", "rollout", "list", "--json").named("rollout")
    allowed = secured.as_("bob", *words, "role=web")

    assert refused.code == 1
    assert "bob may not send this request to node=web1; it lacks the right `--apply node=web1`" in refused.err
    assert open_ones == []
    assert [one["run"] for one in secured.as_("bob", "run", "list", "--json").named("run")] == [allowed.run]
    assert not (secured.fleet.agents["db1"].files / "a").exists()
    assert (allowed.code, set(allowed.states)) == (0, {"web1", "web2"}), allowed.err
