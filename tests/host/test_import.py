"""`ccm import` on machines with apt, with dnf and with systemd: the manifest changes nothing there, and restores what is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import testenv

from tests.support.openpgp_keys import KEY as REPOSITORY_KEY

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

UNIT = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"
INSTALL = {
    "apt": "apt-get install -y -q cmtest-tool=1.0-1 >/dev/null",
    "dnf": "dnf -q -y install cmtest-tool-1.0-1 >/dev/null 2>&1",
}
REMOVE = {"apt": "apt-get remove -y -q cmtest-tool >/dev/null", "dnf": "rpm -e cmtest-tool"}


def events_of_plan(machine: testenv.Node, program: str) -> list[dict[str, Any]]:
    """Plan the manifest that was written; the event of each resource."""
    plan = machine.run(program, "apply", "/root/site/manifest.yaml", "--noop", "--json")
    return [line["event"] for line in map(json.loads, plan.stdout.splitlines()) if line["record"] == "event"]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_an_import_is_stable_and_restores(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", INSTALL[kind])
    machine.run("mkdir", "-p", "/etc/app")
    machine.path("/etc/app/app.conf").write_text("listen 80\n")
    machine.path("/etc/app/key.pem").write_text("-----BEGIN PRIVATE KEY-----\nhidden\n")
    machine.run("ln", "-s", "app.conf", "/etc/app/current")
    machine.run("chmod", "0644", "/etc/app/app.conf", "/etc/app/key.pem")
    machine.path("/etc/systemd/system/t-app.service").write_text(UNIT)
    machine.path("/etc/systemd/system-preset").mkdir(exist_ok=True)
    machine.path("/etc/systemd/system-preset/10-t.preset").write_text("disable t-app.service\n")
    machine.run("sh", "-c", "systemctl daemon-reload; systemctl enable --now t-app 2>&1")

    done = machine.run(
        program,
        "import",
        "package,service,file:/etc/app,file:/etc/issue",
        "-o",
        "/root/site",
        "--json",
    )

    told = json.loads(done.stdout)
    found = {(one["type"], one["name"]) for one in told["resources"]}
    assert {
        ("package", "cmtest-tool"),
        ("service", "t-app"),
        ("file", "/etc/app"),
        ("file", "/etc/app/app.conf"),
        ("symlink", "/etc/app/current"),
    } <= found
    assert ("file", "/etc/app/key.pem") not in found
    # it belongs to a package; only dpkg knows it as unchanged
    assert (("file", "/etc/issue") in found) is (kind == "dnf")
    assert "/etc/app/key.pem" in {one["name"] for one in told["left_out"]}
    assert machine.run("grep", "-rl", "hidden", "/root/site", check=False).stdout == ""

    events = events_of_plan(machine, program)
    assert len(events) == len(found)
    assert not any(event["changed"] or event["failed"] for event in events)

    machine.run("sh", "-c", REMOVE[kind])
    machine.run("sh", "-c", "systemctl disable --now t-app 2>&1; rm -r /etc/app")
    assert len([event for event in events_of_plan(machine, program) if event["changed"]]) == 5
    machine.run(program, "apply", "/root/site/manifest.yaml", timeout=120)

    assert machine.path("/etc/app/app.conf").read_text() == "listen 80\n"
    assert machine.run("readlink", "/etc/app/current").stdout == "app.conf\n"
    assert machine.run("systemctl", "is-active", "t-app").stdout.strip() == "active"
    assert not any(event["changed"] for event in events_of_plan(machine, program))


MADE = """\
set -e
groupadd -g 1500 web
groupadd -g 1501 team
useradd -u 1500 -g web -G team -m -s /bin/bash -c 'Alice A' alice
useradd -u 1600 -m alone
usermod -L -e 1 alone
install -d -m 0700 -o alice -g web /home/alice/.ssh
echo "$KEY alice@laptop" >/home/alice/.ssh/authorized_keys
chown alice:web /home/alice/.ssh/authorized_keys && chmod 0600 /home/alice/.ssh/authorized_keys
printf 'alice:%s\\n' "$HASH" | chpasswd -e
mkdir -p /etc/cron.d /etc/sysctl.d
printf '# Managed by ccm\\n@daily root /bin/true\\n' >/etc/cron.d/t-job
printf 'net.ipv4.ip_default_ttl = 66\\nnet.ipv4.conf.lo.forwarding = 1\\n' >/etc/sysctl.d/80-t.conf
sysctl -q -p /etc/sysctl.d/80-t.conf
sysctl -q -w net.ipv4.conf.lo.forwarding=0
echo 'tmpfs /srv/scratch tmpfs size=1m 0 0' >>/etc/fstab
mkdir -p /srv/scratch && mount /srv/scratch
"""
LOST = """\
set -e
userdel -r alice 2>/dev/null && userdel -r alone 2>/dev/null
groupdel team && { groupdel web || true; }
rm /etc/cron.d/t-job /etc/sysctl.d/80-t.conf
umount /srv/scratch && sed -i /scratch/d /etc/fstab
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"
HASH = "$6$saltsalt$" + "h" * 86
OBSERVED = (
    "id alice; id alone; getent passwd alice alone; getent group team web; cat /home/alice/.ssh/authorized_keys "
    "/etc/cron.d/t-job /etc/sysctl.d/80-t.conf; passwd -S alone | cut -d' ' -f2; grep scratch /etc/fstab; findmnt -n /srv/scratch"
)


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_accounts_jobs_parameters_and_file_systems_are_restored(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("env", f"KEY={KEY}", f"HASH={HASH}", "sh", "-c", MADE)
    before = machine.run("sh", "-c", OBSERVED).stdout

    types = "mount,sysctl,cron,user,group"
    told = json.loads(machine.run(program, "import", types, "-o", "/root/site2", "--json").stdout)

    assert [(one["type"], one["name"]) for one in told["resources"]] == [
        ("group", "web"),
        ("group", "team"),
        ("user", "alice"),
        ("user", "alone"),
        ("mount", "/srv/scratch"),
        ("sysctl", "net.ipv4.ip_default_ttl"),
        ("cron", "t-job"),
    ]
    left_out = {one["name"]: one["reason"] for one in told["left_out"]}
    assert left_out["alice"] == "its `password_hash` is a secret"
    # what the file sets is not what the kernel has
    assert left_out["net.ipv4.conf.lo.forwarding"].startswith("an apply would change it: ")
    assert machine.run("grep", "-rlF", HASH, "/root/site2", check=False).stdout == ""

    machine.run("sh", "-c", LOST)
    apply = (program, "apply", "/root/site2/manifest.yaml", "--json")
    first = machine.run(*apply, timeout=120).stdout
    again = machine.run(*apply, timeout=120).stdout

    changed = [
        [line["event"]["name"] for line in map(json.loads, output.splitlines()) if line["record"] == "event"
         and line["event"]["changed"]]
        for output in (first, again)
    ]  # fmt: skip
    assert len(changed[0]) == 7
    assert changed[1] == []
    restored = machine.run("sh", "-c", OBSERVED).stdout
    # the parameter that was left out is not in the file any more
    assert restored == before.replace("net.ipv4.conf.lo.forwarding = 1\n", "")


SET = """\
set -e
echo '192.0.2.7 db.example.net db' >>/etc/hosts
echo '127.0.1.1 web1' >>/etc/hosts
hostname web1 && echo web1 >/etc/hostname
ln -sfn ../usr/share/zoneinfo/Europe/Berlin /etc/localtime && rm -f /etc/timezone
mkdir -p /etc/systemd/system/t-one.service.d /srv/www/css /srv/www/bin
units=/etc/systemd/system
rm -f $units/t-app.service
printf '[Service]\\nExecStart=/bin/true\\n[Install]\\nWantedBy=multi-user.target\\n' >$units/t-one.service
printf '[Service]\\nNice=5\\n' >/etc/systemd/system/t-one.service.d/nice.conf
printf '[Service]\\nEnvironment=API_TOKEN=hunter2222\\nExecStart=/bin/true\\n' >/etc/systemd/system/t-two.service
chmod 0644 /etc/systemd/system/t-*.service /etc/systemd/system/t-one.service.d/*
ln -s /dev/null /etc/systemd/system/t-off.service
systemctl daemon-reload && systemctl enable t-one 2>/dev/null
echo '<p>' >/srv/www/index.html && echo 'a {}' >/srv/www/css/a.css && echo '#!/bin/sh' >/srv/www/bin/run
ln -s index.html /srv/www/start.html
echo 'password = hunter2222' >/srv/www/local.ini
chown -R www-data:www-data /srv/www && chmod 0755 /srv/www /srv/www/css /srv/www/bin /srv/www/bin/run
chmod 0644 /srv/www/index.html /srv/www/css/a.css /srv/www/local.ini
"""
GONE = """\
set -e
sed -i /db.example.net/d /etc/hosts
ln -sfn ../usr/share/zoneinfo/UTC /etc/localtime
systemctl disable t-one 2>/dev/null
rm -r /etc/systemd/system/t-one.service /etc/systemd/system/t-one.service.d /srv/www
systemctl daemon-reload
"""
SEEN = """\
cat /etc/hosts /etc/hostname /etc/systemd/system/t-one.service /etc/systemd/system/t-one.service.d/nice.conf
hostname; readlink /etc/localtime; systemctl show -P Nice t-one; cat /repository
find /srv/www ! -name local.ini -printf '%p %y %m %u %g %l\\n' | sort; cat /srv/www/index.html /srv/www/css/a.css /srv/www/bin/run
"""
REPOSITORY = {
    "apt": {"uris": ["file:/srv/apt"], "suites": ["./"], "trusted": True},
    "dnf": {"uris": ["file:///srv/rpm"], "trusted": True, "priority": 20},
}
REPOSITORY_FILE = {"apt": "/etc/apt/sources.list.d/t-own.sources", "dnf": "/etc/yum.repos.d/t-own.repo"}


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_hosts_settings_units_repositories_and_directories_are_restored(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run("sh", "-c", SET)
    repository = {"ccm": {"resources": [{"repository": [{"t-own": REPOSITORY[kind]}]}]}}
    machine.path("/root/repository.yaml").write_text(json.dumps(repository))
    machine.run(program, "apply", "/root/repository.yaml", timeout=120)
    seen = SEEN.replace("/repository", REPOSITORY_FILE[kind])
    before = machine.run("sh", "-c", seen).stdout

    types = "directory:/srv/www,systemd_unit,host,system,repository"
    told = json.loads(machine.run(program, "import", types, "-o", "/root/site3", "--json").stdout)

    assert [(one["type"], one["name"]) for one in told["resources"]] == [
        ("repository", "t-own"),
        ("directory", "/srv/www"),
        ("symlink", "/srv/www/start.html"),
        ("systemd_unit", "t-one.service"),
        ("systemd_unit", "t-one.service.d/nice.conf"),
        ("host", "server"),  # of the machine itself
        ("host", "db.example.net"),
        ("system", "hostname"),
        ("system", "timezone"),
    ]
    left_out = {one["name"]: one["reason"] for one in told["left_out"]}
    assert left_out["t-two.service"] == "contains what looks like a password or token"
    assert left_out["t-off.service"] == "is masked, which this type does not support"
    assert left_out["/srv/www/local.ini"] == "contains what looks like a password or token"
    assert machine.run("grep", "-rl", "hunter2222", "/root/site3", check=False).stdout == ""

    machine.run("sh", "-c", GONE)
    machine.run("rm", REPOSITORY_FILE[kind])
    apply = (program, "apply", "/root/site3/manifest.yaml", "--json")
    first, again = (machine.run(*apply, timeout=120).stdout for _ in range(2))

    assert _changed(first) == [
        ("repository", "t-own"),
        ("directory", "/srv/www"),
        ("symlink", "/srv/www/start.html"),
        ("systemd_unit", "t-one.service"),
        ("systemd_unit", "t-one.service.d/nice.conf"),
        ("host", "db.example.net"),
        ("system", "timezone"),
    ]
    assert _changed(again) == []
    # an entry that was removed from the middle of the file returns at its end
    assert sorted(machine.run("sh", "-c", seen).stdout.splitlines()) == sorted(before.splitlines())


def _changed(output: str) -> list[tuple[str, str]]:
    events = [line["event"] for line in map(json.loads, output.splitlines()) if line["record"] == "event"]
    return [(one["type"], one["name"]) for one in events if one["changed"]]


def test_a_directory_with_mount_points_is_not_imported(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("apt")
    machine.run(
        "sh",
        "-ec",
        "mkdir -p /srv/m/tmpfs /srv/m/bind /srv/precious; echo x > /srv/m/own; echo x > /srv/precious/x; "
        "mount -t tmpfs none /srv/m/tmpfs; echo x > /srv/m/tmpfs/x; mount --bind /srv/precious /srv/m/bind",
    )

    done = machine.run(program, "import", "directory:/srv/m", "-o", "/root/site4", check=False)

    machine.run("umount", "/srv/m/tmpfs", "/srv/m/bind")
    assert done.returncode == 1
    assert "is a mount point" in done.stderr


def test_the_key_of_a_repository_is_imported_as_a_file(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("apt")
    machine.path("/usr/share/keyrings/t-signed.asc").write_text(REPOSITORY_KEY)
    machine.run("chmod", "0644", "/usr/share/keyrings/t-signed.asc")
    properties = {
        **REPOSITORY["apt"],
        "trusted": False,
        "enabled": False,
        "signed_by": "/usr/share/keyrings/t-signed.asc",
    }
    repository = {"ccm": {"resources": [{"repository": [{"t-signed": properties}]}]}}
    machine.path("/root/signed.yaml").write_text(json.dumps(repository))
    machine.run(program, "apply", "/root/signed.yaml", timeout=120)

    told = json.loads(machine.run(program, "import", "repository", "-o", "/root/site5", "--json").stdout)

    found = [(one["type"], one["name"]) for one in told["resources"]]
    assert found.index(("file", "/usr/share/keyrings/t-signed.asc")) < found.index(("repository", "t-signed"))
