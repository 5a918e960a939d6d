"""What nodes sign stays genuine to readers over kills, restarts and new credentials."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.fleet import a_file, a_gate, manifest
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        yield one


def verdicts(secured: Secured) -> tuple[int, str, dict[str, int]]:
    """Exit code, verdict and counts of `events --verify`."""
    done = secured.as_("tester", "events", "--verify", "--node", "web1", "--json")
    (report,) = done.named("verification")
    return done.code, report["verdict"], report["counts"]


def test_events_stay_genuine_over_a_kill_a_restart_and_new_credentials(secured: Secured) -> None:
    fleet, agent = secured.fleet, secured.fleet.agents["web1"]
    gated = fleet.write("gated.yaml", manifest(a_file("one"), a_gate(), a_file("two")))
    plain = fleet.write("plain.yaml", manifest(a_file("three")))

    watched = fleet.begin("apply", gated, "-t", "node=web1", "--yes", "--json")
    fleet.wait_for((agent.files / "at-go").exists, "the run to stand at the gate")
    agent.kill()
    agent.open_gates()
    agent.start()
    killed = watched.end()
    after_kill = verdicts(secured)
    secured.give("node", "web1")
    agent.stop()
    agent.start()
    fleet.wait_present(["web1"])
    done = secured.as_("tester", "apply", plain, "-t", "node=web1", "--yes", "--json")
    code, verdict, counts = verdicts(secured)

    assert killed.states == {"web1": "failed"}, killed.err
    assert [record["verdict"] for record in killed.named("result")] == ["verified"]
    assert killed.err.count("not genuine") == 0
    assert after_kill[:2] == (0, "verified")
    assert (done.code, done.states) == (0, {"web1": "changed"}), done.err
    assert [record["verdict"] for record in done.named("result")] == ["verified"]
    assert (code, verdict, set(counts)) == (0, "verified", {"verified"})


def test_an_operator_without_trust_verifies_nothing(secured: Secured) -> None:
    """The block that names the root key is taken out of the credentials, as in those of an older `ccmctl`."""
    text = (secured.keys / "tester.creds").read_text()
    old = secured.directory / "old.creds"
    old.write_text(text[: text.index("-----BEGIN CCM TRUST")])
    old.chmod(0o600)

    path = secured.fleet.write("four.yaml", manifest(a_file("four")))
    applied = secured.as_("tester", "apply", path, "-t", "node=web1", "--yes", "--json")
    done = secured.as_("old", "events", "--verify")
    shown = secured.as_("old", "run", "show", applied.run, "--json")

    assert (done.code, done.out) == (1, "")
    assert "these credentials contain no root key" in done.err
    assert shown.code == 0
    assert not any("verdict" in record for record in shown.records)
