"""Our own packages in two versions, repositories that offer them, and a fleet that is installed from them by the quickstart."""

from __future__ import annotations

import fcntl
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import testenv

from ccm_agent.testing.nats_server import find_server

TOP = Path(__file__).resolve().parents[2]
BUILD = TOP / "deploy/packages/build.py"
PYTHON = (3, 11)
"""What machines have, and so what packages for them are made with."""

PAGE = TOP / "docs/first-fleet.md"
NEWER = "9.9.9"
"""The version that the second repository offers."""

SHARED = "/srv/own"
"""Where machines find the packages."""

WAIT_S = 60.0
"""How long a test waits for what must happen; only a failure takes so long."""

HIDDEN = {"apt": ["dnf", "rpm"], "dnf": ["apt-get", "apt-cache", "apt-mark", "dpkg-query"]}
"""Programs that a machine of a kind does not have."""

BROKER = "nats1.example.net"

PYTHON_RPM = """\
Name: python%(python)s
Version: %(python)s.0
Release: 1
Summary: stands for what this machine has from elsewhere
License: MIT
BuildArch: noarch
AutoReqProv: no
Provides: python(abi) = %(python)s
Provides: libc.so.6(GLIBC_%(c_library)s)(64bit)
Provides: libstdc++.so.6(GLIBCXX_3.4.21)(64bit)
%%description
None.
%%files
"""

MAKE = """\
set -e
for kind in deb rpm; do
  python3 "$1" $kind /srv/trees/now /root/1 --fast
  python3 "$1" $kind /srv/trees/newer /root/2 --fast
done
# the same tree gives the same bytes
python3 "$1" deb /srv/trees/now /root/again --fast
cmp /root/1/*.deb /root/again/*.deb
rpmbuild -bb --quiet --define "_topdir /root/top" --define "_rpmdir /root/1" --define "_build_name_fmt %{NAME}.rpm" python.spec
cp /root/1/* /root/2
for offered in /root/1 /root/2; do
  createrepo_c -q $offered
  cd $offered
  for f in *.deb; do
    dpkg-deb -f "$f"
    printf 'Filename: ./%s\\nSize: %s\\nSHA256: %s\\n\\n' "$f" "$(stat -c %s "$f")" "$(sha256sum "$f" | cut -d' ' -f1)"
  done > Packages
  { printf 'Origin: own\\nSuite: own\\nArchitectures: amd64 arm64\\nDate: Thu, 01 Jan 2026 00:00:00 +0000\\nSHA256:\\n'
    printf ' %s %s Packages\\n' "$(sha256sum Packages | cut -d' ' -f1)" "$(stat -c %s Packages)"; } > Release
done
"""


def build(lab: testenv.Lab, folder: Path) -> Path:
    """
    Both versions as .deb and .rpm, once for all who share a folder: `FOLDER/1` offers the present one, `FOLDER/2` the newer too.

    Whatever makes packages runs in a machine, so this one needs neither rpmbuild nor createrepo.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done / "2").exists():
            _build(lab, folder / "trees", folder / "half")
            (folder / "half").rename(done)
            shutil.rmtree(folder / "trees")
    return done


def _build(lab: testenv.Lab, trees: Path, out: Path) -> None:
    command = [sys.executable, BUILD, "tree", trees / "now"]
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL)
    shutil.copytree(trees / "now", trees / "newer")
    subprocess.run(
        [sys.executable, str(BUILD), "reversion", str(trees / "newer"), "--version", NEWER], check=True
    )
    machine = lab.create("builds", {str(TOP): str(TOP), str(trees): "/srv/trees"}).start()
    try:
        told = json.loads((trees / "now/package.json").read_text())
        machine.path("/root/python.spec").write_text(PYTHON_RPM % told)
        machine.run("sh", "-c", f"cd /root; {MAKE}", "-", str(BUILD), timeout=240)
        for name in ("1", "2"):
            shutil.copytree(machine.path(f"/root/{name}"), out / name)
    finally:
        lab.remove(machine)


class Host:
    """
    A machine that can install our packages with one package manager.

    Attributes:
        kind: "apt" or "dnf".
        node: The machine.
    """

    def __init__(self, lab: testenv.Lab, packages: Path, kind: str, name: str, **binds: str) -> None:
        self.kind = kind
        self.node = lab.create(name, {str(packages): SHARED, **binds}).start()
        # the file system that all machines share has both package managers
        self.node.run("sh", "-c", 'cd /usr/bin && rm -f "$@"', "-", *HIDDEN[kind])
        self.offer(1)

    def sh(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script of bash in root's home."""
        return self.node.run("bash", "-c", f"set -e; cd; {script}", check=check, timeout=WAIT_S * 2)

    def offer(self, number: int) -> None:
        """Let the repository offer the present version (1), or the newer one as well (2)."""
        where = f"{SHARED}/{number}"
        if self.kind == "apt":
            self.node.path("/etc/apt/sources.list.d/own.list").write_text(
                f"deb [trusted=yes] file:{where} ./\n"
            )
            self.sh("apt-get update -q")
        else:
            text = f"[own]\nname=own\nbaseurl=file://{where}\nenabled=1\ngpgcheck=0\n"
            self.node.path("/etc/yum.repos.d/own.repo").write_text(text)
            self.sh("dnf -q clean expire-cache")

    def manage(self, verb: str) -> None:
        """`install`, `reinstall`, `upgrade`, `remove` or `purge` the package as a person does."""
        if self.kind == "apt":
            words = {"upgrade": "install", "reinstall": "install --reinstall"}.get(verb, verb)
            self.sh(f"apt-get {words} -y -q ccm-agent")
        else:
            self.sh(f"dnf {verb} -y -q ccm-agent")

    def have(self, version: str) -> None:
        """Have another version back, and wait for its agent, if some other is installed."""
        if self.installed == version:
            return
        begun = self.log.count("the agent has started")
        words = {
            "apt": f"apt-get install -y -q --allow-downgrades ccm-agent={version}-*",
            "dnf": f"dnf downgrade -y -q ccm-agent-{version}",
        }
        self.sh(words[self.kind])
        self.wait_for(
            lambda: self.log.count("the agent has started") > begun, f"the agent of version {version}"
        )

    def configure(self, **settings: Any) -> None:
        """Write the agent's configuration."""
        self.node.path("/etc/choria/ccm/config.yaml").write_text(json.dumps(settings))

    @property
    def installed(self) -> str:
        """The version of the package, without its release; "" when there is none."""
        ask = {
            "apt": "dpkg-query -W -f '${Version} ${db:Status-Status}'",
            "dnf": "rpm -q --qf '%{VERSION} installed'",
        }
        done = self.sh(f"{ask[self.kind]} ccm-agent", check=False)
        version, _, status = done.stdout.partition(" ")
        return str(version).partition("-")[0] if done.returncode == 0 and status == "installed" else ""

    @property
    def service(self) -> tuple[str, str]:
        """Whether the agent runs and whether it starts at boot, in systemd's words."""
        ask = "systemctl is-active ccm-agent; systemctl is-enabled ccm-agent || :"
        state, enabled = (self.sh(f"set +e; {ask}", check=False).stdout + "\n\n").split("\n")[:2]
        return state, enabled

    @property
    def pid(self) -> str:
        """The agent's process; "0" when there is none."""
        return str(self.sh("systemctl show -P MainPID ccm-agent").stdout.strip())

    @property
    def log(self) -> str:
        """What its agents have logged."""
        return str(self.sh("journalctl -u ccm-agent -o cat --no-pager").stdout)

    def wait_for(self, happened: Callable[[], object], what: str) -> None:
        """Look until something has happened."""
        deadline = time.monotonic() + WAIT_S
        while not happened():
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}\n{self.log[-3000:]}")
            time.sleep(0.05)


class Page:
    """The quickstart, as far as it is about packages: blocks of shell, each marked with who runs it."""

    def __init__(self) -> None:
        text = PAGE.read_text()
        self.blocks = re.findall(r"^<!-- run: ([a-z ]+) -->\n```sh\n(.*?)^```$", text, re.M | re.S)

    def of(self, who: str) -> list[str]:
        """The blocks of somebody, in order."""
        return [block for runs, block in self.blocks if runs == who]


class Desk:
    """
    The machine of the broker and of the operator, set up as the page says.

    Commands run one after the other in one environment, as in one terminal.
    """

    def __init__(self, host: Host, page: Page) -> None:
        self.host = host
        self.page = page
        self._left = page.of("operator")
        host.sh(f"cp {SHARED}/1/ccm-agent* . && export -p > terminal")

    def follow(self) -> str:
        """Run the next block of the page; what it said."""
        return self.type(self._left.pop(0))

    def follow_last(self, name: str) -> str:
        """Run the last block for a node of another name than the page's `web1`, in a folder of its own; what it said."""
        block = self.page.of("operator")[-1].replace("web1", name)
        return self.type(f"mkdir {name} && cd {name}\n{block}cd")

    def type(self, script: str) -> str:
        """Run what an operator types."""
        return str(self.host.sh(f". ./terminal\n{script}\nexport -p > terminal").stdout)

    def ccmctl(self, *words: str, check: bool = True) -> list[dict[str, Any]]:
        """The records that `ccmctl … --json` prints."""
        script = f". ./terminal\n{shlex.join(['ccmctl', *words, '--json'])}"
        done = self.host.sh(script, check=check)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def wait_broker(self) -> None:
        """Wait until the broker answers."""
        self.host.wait_for(
            lambda: self.host.sh("echo > /dev/tcp/127.0.0.1/4222", check=False).returncode == 0, "the broker"
        )

    def states(self) -> dict[str, str]:
        """The nodes that there are, and whether they are present."""
        return {one["node"]: one["state"] for one in self.ccmctl("nodes") if one["record"] == "node"}

    def wait_present(self, name: str) -> None:
        """Wait until a node has come."""
        self.host.wait_for(lambda: self.states().get(name) == "present", f"{name} to be present")


def make_desk(lab: testenv.Lab, packages: Path) -> Desk:
    """A broker with credentials, made by the page."""
    host = Host(lab, packages, "apt", "nats1", **{str(find_server()): "/usr/local/bin/nats-server"})
    desk = Desk(host, Page())
    desk.follow()
    desk.wait_broker()
    return desk


def join(lab: testenv.Lab, packages: Path, desk: Desk, kind: str, name: str) -> Host:
    """A node in the fleet, by the page; credentials are carried there."""
    host = Host(lab, packages, kind, name)
    with host.node.path("/etc/hosts").open("a") as hosts:
        hosts.write(f"{desk.host.node.ip} {BROKER}\n")
    creds = desk.type(f"ccmctl node add {name}")
    host.node.path("/root/web1.creds").write_text(creds)
    authority = desk.host.node.path("/root/.config/ccm/keys/ca.pem").read_text()
    host.node.path("/root/ca.pem").write_text(authority)
    host.sh(f"cp {SHARED}/1/ccm-agent* .")
    for block in [*desk.page.of(f"node {kind}"), *desk.page.of("node")]:
        host.sh(block.replace("identity: web1", f"identity: {name}"))
    desk.wait_present(name)
    return host
