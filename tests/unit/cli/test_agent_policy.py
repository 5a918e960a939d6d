"""`ccm agent policy test`: whole outputs, and the status that scripts rely on."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from ccm_agent.cli.main import run
from tests.support.ccm_json import checked

POLICY = """\
default: deny
time_zone: Europe/Berlin
rules:
  - name: web team
    signers: [alice]
    allow: [apply, plan]
    hours: Mon-Fri 08:00-18:00
    only: {paths: [/srv/www/**]}
  - name: apprentices
    roles: [apprentice]
    allow: [plan]
    max_mode: plan
"""
MONDAY = "2026-11-23T09:30"


class Host:
    """A folder with a policy, and what the command says about it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text(POLICY)
        self._capsys = capsys

    @property
    def foot(self) -> str:
        """The last line."""
        return f"  policy: {self.policy}, digest {sha256(self.policy.read_bytes()).hexdigest()[:12]}\n"

    def test(self, *arguments: str, policy: bool = True) -> tuple[int, str, str]:
        """Status, standard output and standard error."""
        which = ["--policy", str(self.policy)] if policy else []
        code = run(["agent", "policy", "test", *which, *arguments])
        said = self._capsys.readouterr()
        return code, said.out, said.err


@pytest.fixture(autouse=True)
def own_process(blockbuster: BlockBuster) -> None:
    """A command is a process of its own: it may block."""
    blockbuster.deactivate()


@pytest.fixture
def host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Host:
    return Host(tmp_path, capsys)


def test_an_allowed_request_names_the_rule(host: Host) -> None:
    assert host.test("--signer", "alice", "--at", MONDAY) == (
        0,
        "allowed: the rule `web team` (policy.yaml:4) of the node's policy allows alice to apply\n"
        f"  decided by rule `web team` (line 4)\n{host.foot}",
        "",
    )


def test_a_refused_request_explains_why_no_rule_matched(host: Host) -> None:
    code, out, _ = host.test("--signer", "alice", "--at", "2026-11-22T09:30")

    assert code == 2
    assert out == (
        "refused: no rule of the node's policy allows alice to apply now; the rule `web team` did not match: its hours are "
        "Mon-Fri 08:00-18:00 (Europe/Berlin)\n"
        "  rule `web team` (line 4) did not match: its hours are Mon-Fri 08:00-18:00 (Europe/Berlin)\n"
        f"  rule `apprentices` (line 9) did not match: it does not apply to alice\n{host.foot}"
    )


def test_a_restricted_plan_explains_its_meaning(host: Host) -> None:
    code, out, _ = host.test("--role", "apprentice", "--action", "plan")

    assert code == 0
    assert out == (
        "allowed: the rule `apprentices` (policy.yaml:9) of the node's policy allows a signer without a name to plan\n"
        "  restricted: the manifest cannot run commands, and can read only its own files\n"
        "  rule `web team` (line 4) did not match: it does not apply to a signer without a name\n"
        f"  decided by rule `apprentices` (line 9)\n{host.foot}"
    )


@pytest.mark.parametrize(
    ("resource", "code", "said"),
    [
        (("file", "/srv/www/index.html"), 0, "  file#/srv/www/index.html: allowed\n"),
        (("file", "/etc/motd"), 2, "  file#/etc/motd: refused (policy.path): "),
        (("exec", "reboot"), 2, "  exec#reboot: refused (policy.type): "),
        (("archive", "/srv/www/a.tgz"), 0, "  archive#/srv/www/a.tgz: allowed\n"),
        (("scaffold", "/srv/www"), 0, "  scaffold#/srv/www: allowed\n"),
        (("package", "nginx"), 2, "  package#nginx: refused (policy.type): "),
    ],
)
def test_one_resource(host: Host, resource: tuple[str, str], code: int, said: str) -> None:
    kind, name = resource

    found, out, _ = host.test("--signer", "alice", "--at", MONDAY, "--type", kind, "--name", name)

    assert (found, said in out) == (code, True)


def test_a_symlink_is_followed_before_a_path_is_judged(host: Host) -> None:
    (host.folder / "www").mkdir()
    (host.folder / "out").symlink_to("/etc")
    host.policy.write_text(POLICY.replace("/srv/www", str(host.folder)))

    code, out, _ = host.test(
        "--signer", "alice", "--at", MONDAY, "--type", "file", "--name", f"{host.folder}/out/x"
    )

    assert code == 2
    assert f"the path {host.folder}/out/x, which is /etc/x" in out


def test_a_manifest_is_judged_resource_by_resource(host: Host) -> None:
    manifest = host.folder / "site.yaml"
    manifest.write_text(
        "ccm:\n  resources:\n"
        "    - file: {name: /srv/www/a, ensure: absent}\n"
        "    - exec: {name: touch /tmp/never}\n"
    )

    code, out, _ = host.test("--signer", "alice", "--at", MONDAY, "--manifest", str(manifest), "--json")

    found = checked("ccm_agent_policy_test", out)
    assert code == 2
    assert [(one["resource"], one["is_allowed"], one.get("code")) for one in found["resources"]] == [
        ("file#/srv/www/a", True, None),
        ("exec#touch /tmp/never", False, "policy.type"),
    ]
    assert (found["is_allowed"], found["rule"], found["line"]) == (False, "web team", 4)


def test_a_manifest_whose_templates_read_forbidden_data_is_refused(host: Host) -> None:
    manifest = host.folder / "site.yaml"
    manifest.write_text(
        "ccm: {resources: [{file: {name: \"{{ readFile('/etc/hostname') }}\", ensure: absent}}]}"
    )

    code, out, _ = host.test("--signer", "alice", "--at", MONDAY, "--manifest", str(manifest))

    assert code == 2
    assert "does not allow to read /etc/hostname" in out


def test_the_agents_own_configuration_and_its_policy(host: Host) -> None:
    config = host.folder / "config.yaml"
    config.write_text("interval: 5m\n")

    code, out, _ = host.test("--signer", "local", "--config", str(config), policy=False)

    assert code == 0
    assert out.startswith("allowed: no rule of the node's policy applies to the node's own configuration\n")
    assert out.endswith(host.foot)


def test_without_a_policy_everything_is_allowed(host: Host) -> None:
    config = host.folder / "config.yaml"
    config.write_text("interval: 5m\n")
    host.policy.unlink()

    assert host.test("--config", str(config), policy=False) == (0, "allowed: the node has no policy\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--type", "file"), "--type and --name must be used together"),
        (("--type", "file", "--name", "/a", "--manifest", "m"), "are mutually exclusive"),
        (("--at", "noon"), "--at noon: not a time; write one such as"),
        (("--action", "aply"), "aply"),
        (("--signer", "alice", "--at", MONDAY, "--type", "fil", "--name", "/a"), "did you mean `file`?"),
    ],
)
def test_a_contradictory_question_is_refused(host: Host, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = host.test(*arguments)

    assert (code, out) == (1, "")
    assert said in err


def test_a_broken_policy_is_an_error_and_no_answer(host: Host) -> None:
    host.policy.write_text("default: deny\nrulez: []\n")

    code, out, err = host.test("--signer", "alice")

    assert (code, out) == (1, "")
    assert f"{host.policy}:2:1: unknown key `rulez`, did you mean `rules`?" in err


def test_the_configuration_is_checked_with_its_policy(host: Host, capsys: pytest.CaptureFixture[str]) -> None:
    config = host.folder / "config.yaml"
    config.write_text("identity: web1\n")

    assert run(["agent", "--config", str(config), "--check-config"]) == 0
    capsys.readouterr()
    host.policy.write_text("default: maybe\n")
    assert run(["agent", "--config", str(config), "--check-config"]) == 1

    assert f"{host.policy}:1" in capsys.readouterr().err
