"""An operator whose rights end at a role: which subjects ccmctl chooses, and how a run ends that the broker refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import nkeys
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


def narrowed(secured: Secured, name: str) -> str:
    """
    The credentials of an operator, with the same key, and without the right to publish to role=web.

    The signers list allows the request all the same, so the broker alone refuses it.
    """
    text = (secured.directory / f"{name}.creds").read_text()
    token = next(line for line in text.splitlines() if line.startswith("ey"))
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    allowed = claims["nats"]["pub"]["allow"]
    claims["nats"]["pub"]["allow"] = [subject for subject in allowed if ".role.web" not in subject]
    assert claims["nats"]["pub"]["allow"] != allowed
    account = nkeys.from_seed(bytearray((secured.keys / "ops.seed").read_bytes().strip()))
    signed = f"{head}.{_encode(json.dumps(claims).encode())}"
    path = secured.directory / f"{name}-narrow.creds"
    path.write_text(text.replace(token, f"{signed}.{_encode(account.sign(signed.encode()))}"))
    path.chmod(0o600)
    return f"{name}-narrow"


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


LACKING = "it lacks the right `--apply role=web`"


def test_a_rollout_that_only_the_broker_refuses_is_aborted_and_names_the_right(secured: Secured) -> None:
    words = (
        "apply",
        secured.fleet.write("site.json", manifest(a_file("a"))),
        "-t",
        "role=web",
        "--batch",
        "1",
    )

    refused = secured.as_(narrowed(secured, "bob"), *words, "--yes", "--json")
    shown = secured.as_("bob", "run", "show", refused.run, "--json").named("run")
    left = secured.as_("bob", "rollout", "list", "--json").named("rollout")
    allowed = secured.as_("bob", *words, "--yes", "--json")

    assert (refused.code, LACKING in refused.err) == (1, True), refused.err
    assert ([one["phase"] for one in shown], left) == (["aborted"], [])
    assert (allowed.code, allowed.states) == (0, {"web1": "changed", "web2": "changed"}), allowed.err


@pytest.mark.parametrize("is_served", [False, True], ids=["run resume", "rollout serve"])
def test_a_rollout_whose_next_driver_the_broker_refuses_is_paused_with_the_reason(
    secured: Secured, is_served: bool
) -> None:
    may = secured.directory / "may"
    path = secured.fleet.write("job.json", manifest(("exec", "job", {"command": f"test -e {may}"})))
    narrow = narrowed(secured, "bob")
    failed = secured.as_("tester", "apply", path, "-t", "role=web", "--batch", "1", "--yes", "--json")
    run = failed.run
    may.touch()

    if is_served:
        assert secured.as_("tester", "run", "resume", run, "--detach").code == 0
        refused = secured.as_(narrow, "rollout", "serve", "--once")
    else:
        refused = secured.as_(narrow, "run", "resume", run)
    [paused] = secured.as_("tester", "rollout", "list", "--json").named("rollout")
    again = secured.as_(narrow, "rollout", "serve", "--once")
    resumed = secured.as_("bob", "run", "resume", run, "--json")

    assert (failed.code, failed.states) == (2, {"web1": "failed"}), failed.err
    assert (refused.code, LACKING in refused.err) == (0 if is_served else 1, True), refused.err
    assert (paused["run"], paused["phase"], LACKING in paused["reason"]) == (run, "paused", True)
    assert (again.code, LACKING in again.err) == (0, False), again.err
    assert (resumed.code, resumed.states["web2"]) == (2, "changed"), resumed.err
