"""A node with a policy of its own, an agent as people start it, and operators whose signatures it knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.bus.signatures.signing import signing_key_in_credentials
from tests.support import processes
from tests.support.ccm_json import checked
from tests.support.fleet import FILES, TOP, WAIT_S, Done, Fleet, a_file, manifest
from tests.support.secured import Secured, secured_broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

POLICY = """\
default: deny
rules:
  - name: alice
    signers: [alice]
    allow: [all]
    forbid: {types: [exec]}
  - name: root of all
    roles: [admin]
    allow: [all]
  - name: look first
    signers: ["*"]
    allow: [plan, check]
"""


class Guarded(Secured):
    """A secured broker and one node that knows three signers: tester (admin), alice (applies), pat (plans)."""

    def __init__(self, directory: Path, fleet: Fleet) -> None:
        super().__init__(directory, fleet)
        self.signers: list[dict[str, Any]] = []

    def trust(self, name: str, path: Path, **role: Any) -> None:
        """Let the node know an operator."""
        key = signing_key_in_credentials(path.read_text())
        assert key is not None
        self.signers.append({"name": name, "key": key.public_key, **role})

    @property
    def files(self) -> Path:
        """Where the node's managed files are."""
        return self.fleet.agents["web1"].files

    @property
    def policy(self) -> Path:
        """The policy, beside the agent's configuration."""
        return self.fleet.agents["web1"].directory / "policy.yaml"

    def rewrite(self, text: str) -> None:
        """Another policy, and SIGHUP; waits until the agent says that it has it."""
        self.policy.write_text(text)
        process = self.fleet.agents["web1"].process
        assert process is not None
        process.send_signal(1)
        self.fleet.wait_for(lambda: self._is_read(), "the policy to be read")

    def _is_read(self) -> bool:
        status = checked("ccm_agent_status", self.agent("status", "--json").out)["policy"] or {}
        wanted = sha256(self.policy.read_bytes()).hexdigest()
        return status.get("digest") == wanted or ("trouble" in status and "rulez" in self.policy.read_text())

    def agent(self, *words: str) -> Done:
        """`ccm agent …` at the node."""
        one = self.fleet.agents["web1"]
        config = str(one.directory / "agent.yaml")
        command = [sys.executable, "-m", "ccm_agent", "agent", "--config", config, *words]
        done = processes.run(command, cwd=TOP, env=one.environ, timeout=WAIT_S)
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    with secured_broker(directory, Guarded) as one:
        creds = one.give("node", "web1")
        one.trust("alice", one.give("operator", "alice", "--apply", "all"), apply=[">"])
        one.trust("pat", one.give("operator", "pat", "--plan", "all"), plan=[">"])
        one.trust("tester", one.keys / "tester.creds", apply=[">"], roles=["admin"])
        fleet = one.fleet
        fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        (directory / "web1").mkdir()
        (directory / "web1" / "policy.yaml").write_text(POLICY)
        nats = {"url": fleet.environ["NATS_URL"], "creds": str(creds)}
        fleet.add("web1", nats=nats, trusted_signers=one.signers)
        yield one


@pytest.fixture(autouse=True)
def as_at_first(guarded: Guarded) -> Iterator[None]:
    """Each test begins and ends with the first policy and no files."""
    yield
    if guarded.policy.read_text() != POLICY:
        guarded.rewrite(POLICY)
    for path in guarded.files.iterdir():
        path.unlink()


def _site(guarded: Guarded, *resources: tuple[str, str, dict[str, Any]]) -> str:
    return guarded.fleet.write("site.yaml", manifest(*resources))


def _guarded_exec() -> tuple[str, str, dict[str, Any]]:
    """A command with a guard and a check, each of which would leave a file."""
    return (
        "exec",
        f"touch {FILES}/executed",
        {
            "onlyif": f"touch {FILES}/guarded",
            "unless": f"sh -c 'touch {FILES}/unless; false'",
            "health_checks": [{"command": f"touch {FILES}/checked"}],
        },
    )


def test_a_forbidden_command_fails_with_the_rule_and_runs_nothing(guarded: Guarded) -> None:
    done = guarded.as_(
        "alice",
        "ensure",
        "exec",
        f"touch {guarded.files}/executed",
        "--targets",
        "node=web1",
        "--yes",
        "--json",
    )

    (event,) = done.resources
    assert (done.code, done.states) == (2, {"web1": "failed"})
    assert (event["code"], event["error"]) == (
        "policy.type",
        ["the rule `alice` (policy.yaml:3) of the node's policy does not allow resources of the type exec"],
    )
    assert list(guarded.files.iterdir()) == []


def test_in_a_manifest_the_forbidden_command_fails_and_the_rest_is_applied(guarded: Guarded) -> None:
    path = _site(guarded, a_file("motd"), _guarded_exec())

    done = guarded.as_("alice", "apply", path, "--targets", "node=web1", "--yes")

    assert done.code == 2
    assert "the rule `alice` (policy.yaml:3) of the node's policy does not allow" in done.out
    assert [one.name for one in guarded.files.iterdir()] == ["motd"]


def test_operator_with_all_permissions_runs_the_same_command(guarded: Guarded) -> None:
    path = _site(guarded, _guarded_exec())

    done = guarded.as_("tester", "apply", path, "--targets", "node=web1", "--yes", "--json")

    assert (done.code, done.states) == (0, {"web1": "changed"})
    assert {one.name for one in guarded.files.iterdir()} == {"executed", "guarded", "unless", "checked"}


@pytest.mark.parametrize("flag", ["--noop", "--monitor-only"])
def test_plan_of_an_operator_without_apply_runs_no_guard_and_no_check(guarded: Guarded, flag: str) -> None:
    path = _site(guarded, a_file("motd"), _guarded_exec())

    shown = guarded.as_("pat", "apply", path, "--targets", "node=web1", flag)
    done = guarded.as_("pat", "apply", path, "--targets", "node=web1", flag, "--json")

    events = {event["type"]: event for event in done.resources}
    assert (shown.code, done.code) == (0, 0)
    assert "unknown until applied" in shown.out
    assert "in a plan by pat, who may only plan here" in events["exec"]["unknown"]
    assert events["exec"]["skipped"]
    assert done.named("result")[0]["summary"]["unknown_count"] == 1
    assert list(guarded.files.iterdir()) == []


def test_plan_of_an_operator_with_apply_runs_guards(guarded: Guarded) -> None:
    path = _site(guarded, _guarded_exec())

    done = guarded.as_("tester", "apply", path, "--targets", "node=web1", "--noop", "--json")

    assert done.states == {"web1": "changed"}
    assert (guarded.files / "guarded").exists()
    assert not (guarded.files / "executed").exists()


def test_the_policy_wins_over_the_right_to_apply(guarded: Guarded) -> None:
    guarded.rewrite("default: deny\nrules: [{name: nobody, signers: [alice], deny: [all]}]\n")
    path = _site(guarded, a_file("motd"))

    done = guarded.as_("alice", "apply", path, "--targets", "node=web1", "--yes", "--json")
    said = guarded.agent("policy", "test", "--signer", "alice", "--action", "apply")

    assert (done.code, done.states) == (2, {"web1": "refused"})
    reason = "the rule `nobody` (policy.yaml:2) of the node's policy denies alice to apply"
    assert done.reasons == {"web1": reason}
    assert (said.code, said.out.splitlines()[0]) == (2, f"refused: {reason}")
    assert list(guarded.files.iterdir()) == []


def test_a_broken_policy_stops_everything_and_is_visible(guarded: Guarded) -> None:
    guarded.rewrite("default: allow\nrulez: []\n")
    path = _site(guarded, a_file("motd"))

    done = guarded.as_("tester", "apply", path, "--targets", "node=web1", "--yes", "--json")
    pinged = guarded.as_("tester", "ping")
    status = guarded.agent("status")
    checked = guarded.agent("--check-config")
    why = guarded.as_("tester", "why", "web1")

    assert (done.code, done.states) == (2, {"web1": "refused"})
    assert "unknown key `rulez`" in done.reasons["web1"]
    assert pinged.code == 0
    assert "Policy:       invalid, so the node refuses all requests" in status.out
    assert (checked.code, "unknown key `rulez`" in checked.err) == (1, True)
    assert "policy" in why.out
    assert list(guarded.files.iterdir()) == []


def test_an_assignment_that_the_policy_refuses_reports_why(guarded: Guarded) -> None:
    guarded.rewrite("default: deny\nrules: [{name: requests, signers: [tester], allow: [apply]}]\n")
    path = guarded.fleet.write("site/manifest.yaml", manifest(a_file("assigned")))

    assigned = guarded.as_(
        "tester", "assign", "site", str(Path(path).parent), "--targets", "node=web1", "--yes"
    )
    guarded.fleet.wait_for(
        lambda: "policy" in guarded.as_("tester", "why", "web1").out, "the node to say that it refuses"
    )
    why = guarded.as_("tester", "why", "web1")
    guarded.as_("tester", "unassign", "site", "--targets", "node=web1")

    assert assigned.code == 0, assigned.err
    assert "no rule of the node's policy allows tester" in why.out, why.err
    assert list(guarded.files.iterdir()) == []
