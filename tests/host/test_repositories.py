"""Signed repositories of apt and dnf on real machines: applied, undone, drifted, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import testenv
from msgspec import Struct

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

KEYS = """\
set -e
export GNUPGHOME=/root/gpg
mkdir -m 700 -p $GNUPGHOME
for name in right wrong; do
  gpg --batch -q --passphrase '' --quick-generate-key $name@example.net ed25519 sign never
  gpg -q --armor --export $name@example.net > /root/$name.asc
  gpg --list-keys --with-colons $name@example.net | awk -F: '/^fpr/ { print $10; exit }' > /root/$name.fingerprint
done
"""

SIGN = {
    "apt": """\
set -e
export GNUPGHOME=/root/gpg
cp -r /srv/apt /srv/signed
cd /srv/signed
gpg --batch -q -u right@example.net --clearsign -o InRelease Release
rm Release
rm -f /etc/apt/sources.list.d/*
""",
    "dnf": """\
set -e
export GNUPGHOME=/root/gpg
cp -r /srv/rpm /srv/signed
cd /srv/signed
files=$(find . -name 'cmtest-tool-*.rpm')
rpmsign --define '_gpg_name right@example.net' --define '__gpg /usr/bin/gpg' --addsign $files >/dev/null
createrepo_c -q .
gpg --batch -q -u right@example.net --detach-sign --armor repodata/repomd.xml
rm -f /etc/yum.repos.d/*
""",
}
FOLDERS = {"apt": "/etc/apt", "dnf": "/etc/yum.repos.d /etc/pki"}
FILE = {"apt": "/etc/apt/sources.list.d/{}.sources", "dnf": "/etc/yum.repos.d/{}.repo"}
KEY_FILE = {"apt": "/etc/apt/keyrings/{}.asc", "dnf": "/etc/pki/rpm-gpg/{}.asc"}


class Host(Struct, frozen=True):
    """A machine with a signed repository in /srv/signed, the keys `right` and `wrong`, and no other repository."""

    kind: str
    machine: testenv.Node
    program: str

    def repository(self, key: str = "right", fingerprint: str = "right", **properties: Any) -> dict[str, Any]:
        """The properties of the signed repository."""
        given = {
            "uris": ["file:/srv/signed" if self.kind == "apt" else "file:///srv/signed"],
            "key": f"/root/{key}.asc",
            "key_fingerprint": self.machine.path(f"/root/{fingerprint}.fingerprint").read_text().strip(),
        }
        own = {"suites": ["./"]} if self.kind == "apt" else {"repo_gpgcheck": True}
        return {name: value for name, value in {**given, **own, **properties}.items() if value is not None}

    def apply(self, *resources: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
        """Apply; the exit status and the events of the resources."""
        manifest = json.dumps({"ccm": {"resources": resources}})
        self.machine.path("/root/m.yaml").write_text(manifest)
        done = self.machine.run(
            self.program, "apply", "/root/m.yaml", "--events", "/root/events", check=False, timeout=120
        )
        lines = self.machine.path("/root/events").read_text().splitlines()
        self.machine.path("/root/events").unlink()
        events = [json.loads(line) for line in lines]
        return done.returncode, [one for one in events if one["protocol"].endswith("transaction.event")]

    def path(self, template: dict[str, str], name: str = "own") -> Path:
        """A file of a repository."""
        return Path(self.machine.path(template[self.kind].format(name)))

    def reset(self) -> None:
        """No repository, and no package of it."""
        for template in (FILE, KEY_FILE):
            for name in ("own", "other"):
                self.path(template, name).unlink(missing_ok=True)
        clean = {
            "apt": "dpkg --purge cmtest-tool 2>/dev/null; rm -rf /var/lib/apt/lists/*",
            "dnf": "rpm -e cmtest-tool 2>/dev/null; rpm -e gpg-pubkey 2>/dev/null; dnf -q clean all",
        }
        self.machine.run("sh", "-c", f"{clean[self.kind]}; true")


@pytest.fixture(scope="module", params=["apt", "dnf"])
def prepared(only: Callable[[str], testenv.Node], program: str, request: pytest.FixtureRequest) -> Host:
    machine = only(request.param)
    machine.run("sh", "-c", KEYS)
    machine.run("sh", "-c", SIGN[request.param])
    return Host(request.param, machine, program)


@pytest.fixture
def host(prepared: Host) -> Iterator[Host]:
    prepared.reset()
    yield prepared
    prepared.reset()


def test_repositories_are_applied_undone_and_repaired(host: Host) -> None:
    folders = FOLDERS[host.kind]

    phases = run_phases(
        host.machine,
        [{"repository": [{"own": host.repository()}]}],
        observe=f"find {folders} -type f -exec stat -c '%n %a %U' {{}} + -exec sha256sum {{}} +",
        drift=f"rm {KEY_FILE[host.kind].format('own')} && chmod 666 {FILE[host.kind].format('own')}",
    )

    check_phases(phases)
    assert f"{FILE[host.kind].format('own')} 644 root\n" in phases.applied.seen
    assert f"{KEY_FILE[host.kind].format('own')} 644 root\n" in phases.applied.seen


def test_a_package_of_a_new_repository_is_installed_in_the_same_run(host: Host) -> None:
    code, events = host.apply(
        {"repository": [{"own": host.repository()}]}, {"package": [{"cmtest-tool": {"ensure": "1.1-1"}}]}
    )

    assert [one["error"] for one in events] == [[], []]
    assert (code, [one["changed"] for one in events]) == (0, [True, True])


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        pytest.param({"fingerprint": "wrong"}, "its fingerprint is", id="a key with another fingerprint"),
        pytest.param(
            {"key": "wrong", "fingerprint": "wrong"},
            "could not fetch the",
            id="a key that does not sign the repository",
        ),
        pytest.param(
            {"uris": ["file:/srv/nosuch"]}, "could not fetch the", id="a repository that is not there"
        ),
        pytest.param({"key": "nosuch"}, "/root/nosuch.asc", id="no key"),
    ],
)
def test_a_repository_that_cannot_be_used_changes_nothing(
    host: Host, properties: dict[str, Any], why: str
) -> None:
    assert host.apply({"repository": [{"own": host.repository()}]})[0] == 0
    before = host.path(FILE).read_bytes(), host.path(KEY_FILE).read_bytes()

    code, (changed, new) = host.apply(
        {"repository": [{"own": host.repository(**properties)}, {"other": host.repository(**properties)}]}
    )

    assert code == 2
    assert why in changed["error"][0]
    assert why in new["error"][0]
    assert (host.path(FILE).read_bytes(), host.path(KEY_FILE).read_bytes()) == before
    assert not host.path(FILE, "other").exists()
    assert not host.path(KEY_FILE, "other").exists()
    assert host.machine.run("sh", "-c", "ls -d /var/cache/ccm-repository 2>/dev/null || true").stdout == ""


def test_a_repository_without_a_signature_needs_a_word(host: Host) -> None:
    unsigned = {"key": None, "key_fingerprint": None, "repo_gpgcheck": None, "trusted": True}
    properties = {**host.repository(), **unsigned}
    trusted = {name: value for name, value in properties.items() if value is not None}

    code, events = host.apply(
        {"repository": [{"own": trusted}]}, {"package": [{"cmtest-tool": {"ensure": "present"}}]}
    )
    again, (second, _) = host.apply(
        {"repository": [{"own": trusted}]}, {"package": [{"cmtest-tool": {"ensure": "present"}}]}
    )

    assert (code, [one["error"] for one in events]) == (0, [[], []])
    assert (again, second["changed"]) == (0, False)
    assert ("Trusted: yes" if host.kind == "apt" else "gpgcheck=0") in host.path(FILE).read_text()
