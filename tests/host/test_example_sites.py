"""
The sites in deploy/examples: their plans, applied, in use, stable, drifted and repaired.

With apt, the packages are Debian's own. With dnf, they are RPMs of the same files: paths and names of services stay Debian's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import testenv

from tests.support.machine import make_kind

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

TOP = Path(__file__).parents[2]
SITES = TOP / "deploy/examples"
CONSOLE = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMES = re.compile(r"\bruntime=\S+|\bin [\d.]+m?s$", re.MULTILINE)
Run = Callable[..., str]


SOURCES = {
    "apt": """\
set -e
rm /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/debian ./' >/etc/apt/sources.list
apt-get update -q
apt-get install -y -q curl
""",
    "dnf": """\
set -e
sh /root/repack-debs.sh /srv/debian /srv/repacked
printf '[repacked]\\nname=repacked\\nbaseurl=file:///srv/repacked\\ngpgcheck=0\\n' >/etc/yum.repos.d/cmtest.repo
dnf -q -y install curl
""",
}


@pytest.fixture(scope="module", params=["apt", "dnf"])
def kind(request: pytest.FixtureRequest) -> str:
    """The package manager of the machine."""
    return str(request.param)


@pytest.fixture(scope="module")
def host(
    lab: testenv.Lab, program_binds: dict[str, str], debian_packages: Path, kind: str
) -> Iterator[testenv.Node]:
    """A machine that installs Debian's packages."""
    node = lab.create(f"sites-{kind}", {**program_binds, str(debian_packages): "/srv/debian"}).start()
    make_kind(node, kind)
    script = Path(testenv.__file__).parent / "packages/repack-debs.sh"
    node.path("/root/repack-debs.sh").write_text(script.read_text())
    node.run("sh", "-c", SOURCES[kind], timeout=120)
    yield node
    lab.remove(node)


@pytest.fixture
def shell(host: testenv.Node, program: str) -> Run:
    """Runs a command line in the directory of a site; its output, errors included."""

    def run(site: str, line: str) -> str:
        path = f"{Path(program).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = ["env", "-C", SITES / site, f"PATH={path}", "sh", "-c", f"exec 2>&1; {line}"]
        return str(host.run(*command, check=False, timeout=200).stdout)

    return run


def shown(readme: str) -> list[tuple[str, str]]:
    """The commands of a page, each with its output."""
    return [
        (line.removeprefix("$ "), output)
        for block in CONSOLE.findall(readme)
        for line, _, output in (
            part.partition("\n") for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)
        )
        if line
    ]


def check_readme(shell: Run, site: str, kind: str = "apt") -> None:
    """What a page shows is what its commands print, times and package manager aside."""
    page = (SITES / site / "README.md").read_text()
    commands = shown(page.replace("provider=apt", f"provider={kind}"))
    assert commands

    printed = [(command, TIMES.sub("", shell(site, command))) for command, _ in commands]

    assert printed == [(command, TIMES.sub("", output)) for command, output in commands]


def outcomes(shell: Run, site: str) -> dict[str, str]:
    """Apply a site; the outcome of each resource, as `type#name`."""
    found, printed = {}, shell(site, "ccm apply manifest.yaml --json")
    for line in printed.splitlines():
        record = json.loads(line)
        if record["record"] == "event":
            event = record["event"]
            assert event["error"] == [], printed
            found[f"{event['type']}#{event['name']}"] = "changed" if event["changed"] else "stable"
    return found


def check_applied(shell: Run, site: str, drift: str, repaired: set[str]) -> None:
    """A site changes the host, then nothing; after a drift it changes what repairs it."""
    first, second = outcomes(shell, site), outcomes(shell, site)

    assert "changed" in first.values()
    assert set(second.values()) == {"stable"}
    assert shell(site, drift) == ""
    assert {name for name, outcome in outcomes(shell, site).items() if outcome == "changed"} == repaired
    assert set(outcomes(shell, site).values()) == {"stable"}


def test_nginx_serves_the_sites_over_tls(shell: Run, kind: str) -> None:
    site = "nginx-tls"
    shell(site, "ccm apply --only package#nginx --only package#openssl manifest.yaml")
    if kind == "apt":
        check_readme(shell, site)
    enabled = "/etc/nginx/sites-enabled"
    drift = f"echo '}}' >> {enabled}/sites.conf; touch {enabled}/other /srv/www/old; systemctl stop nginx"
    repaired = {"directory#/srv/www", "scaffold#/etc/nginx/sites-enabled", "exec#nginx -t", "service#nginx"}

    check_applied(shell, site, drift, repaired)

    name, key = "www.example.net", "/etc/nginx/tls/www.example.net"
    page = shell(site, f"curl -sS --cacert {key}.crt --resolve {name}:443:127.0.0.1 https://{name}/")
    assert page == (SITES / site / "www/index.html").read_text()
    assert "\nLocation: https://localhost/\n" in shell(site, "curl -sSi http://localhost/")
    assert shell(site, f"stat -c '%a %U' {key}.key") == "600 root\n"
    assert shell(site, "ls /etc/nginx/sites-enabled /srv/www") == (
        "/etc/nginx/sites-enabled:\nsites.conf\n\n/srv/www:\nindex.html\n"
    )


def test_a_broken_site_never_reaches_nginx(shell: Run, host: testenv.Node) -> None:
    site = "nginx-tls"
    outcomes(shell, site)
    before = shell(site, "systemctl show -P MainPID nginx")
    broken = host.path("/root/broken")
    shell(site, "cp -r . /root/broken")
    (broken / "templates/sites.conf").write_text("server {\n")

    printed = shell(site, "ccm apply /root/broken/manifest.yaml")

    assert "exec#nginx -t failed" in printed
    assert "service#nginx skipped due to unmet requirement" in printed
    assert shell(site, "systemctl show -P MainPID nginx") == before
    assert "changed" in outcomes(shell, site).values()
    assert shell(site, "nginx -t -q") == ""


def test_the_node_exporter_serves_its_metrics_and_ours(shell: Run, kind: str) -> None:
    site = "node-exporter"
    only = "--only package#prometheus-node-exporter --only package#cron"
    shell(site, f"ccm apply {only} manifest.yaml")
    if kind == "apt":
        check_readme(shell, site)
    exporter, job = "/etc/default/prometheus-node-exporter", "/etc/cron.d/package-metrics"
    drift = f"sed -i 's/^ARGS=.*/ARGS=/' {exporter}; rm {job}; systemctl stop prometheus-node-exporter"
    repaired = {f"edit#{exporter}", "cron#package-metrics", "service#prometheus-node-exporter"}

    check_applied(shell, site, drift, repaired)

    if kind == "dnf":
        shell(site, "systemctl start cron")  # packages of Debian start it
    if kind == "apt":
        assert shell(site, "$(sed -n 's/^.* root //p' /etc/cron.d/package-metrics)") == ""
    metrics = shell(site, "curl -sS http://localhost:9100/metrics")
    own = re.findall(r"^node_packages_changed_seconds (\S+)$", metrics, re.MULTILINE)
    # it is when dpkg last changed a package
    installed = [float(shell(site, "stat -c %Y /var/lib/dpkg/status"))] if kind == "apt" else []
    assert [float(value) for value in own] == installed
    assert 'node_systemd_unit_state{name="cron.service",state="active",type="simple"} 1\n' in metrics
    assert shell(site, "systemctl show -P ProtectSystem prometheus-node-exporter") == "strict\n"
    assert shell(site, "systemctl is-active cron") == "active\n"


def test_sshd_has_every_hardened_setting_and_one_by_its_number(shell: Run, kind: str) -> None:
    site = "sshd-hardened"
    shell(site, "ccm apply --only package#openssh-server manifest.yaml")
    if kind == "apt":
        check_readme(shell, site)
    shell(site, "ccm apply --tags cis-5.1.20 manifest.yaml")
    assert shell(site, "cat /etc/ssh/sshd_config.d/*") == "PermitRootLogin no\n"
    rules, key = "/etc/ssh/sshd_config.d/10-hardened.conf", "/etc/ssh/ssh_host_rsa_key"
    drift = f"sed -i 's/^PermitRootLogin.*/PermitRootLogin yes/' {rules}; chmod 644 {key}"
    repaired = {"edit#sshd PermitRootLogin", f"file#{key}", "service#ssh"}

    check_applied(shell, site, drift, repaired)

    data = json.loads(shell(site, "ccm hiera parse manifest.yaml"))["sshd"]
    effective = dict(line.split(" ", 1) for line in shell(site, "sshd -T").splitlines())
    assert {name: effective[name.lower()].lower() for name in data} == {
        name: str(rule["value"]).lower() for name, rule in data.items()
    }
    assert len(data) == 20
    assert shell(site, "systemctl is-active ssh") == "active\n"
    bastion = json.loads(shell(site, "ccm hiera parse manifest.yaml role=bastion"))["sshd"]
    assert bastion["DisableForwarding"] == {"cis": "5.1.8", "value": "no"}


def test_the_application_counts_in_its_database(shell: Run, kind: str) -> None:
    site, conf = "app-and-database", "/etc/redis/redis.conf"
    drift = (
        f"sed -i 's/^port .*/port 6379/' {conf}; systemctl stop counter; chmod 600 /opt/counter/counter.py"
    )
    repaired = {f"edit#{conf}", "file#/opt/counter/counter.py", "service#redis-server", "service#counter"}

    check_applied(shell, site, drift, repaired)

    visits = [shell(site, "curl -sS http://localhost:8080/") for _ in range(2)]
    assert visits == ["1\n", "2\n"]
    shell(site, "systemctl restart redis-server; redis-cli -s /run/redis/redis.sock ping")
    assert shell(site, "curl -sS --retry 5 --retry-all-errors http://localhost:8080/") == "3\n"
    assert shell(site, "setpriv --reuid nobody --clear-groups redis-cli -s /run/redis/redis.sock ping") == (
        "Could not connect to Redis at /run/redis/redis.sock: Permission denied\n"
    )
    assert "6379" not in shell(site, "cat /proc/net/tcp /proc/net/tcp6")
    check_readme(shell, site, kind)
