"""Directories of real machines: a source, purge, limits, owners, and mount points in the tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

PREPARE = """
mkdir -p /root/www/css /srv/www/old/deep
echo index > /root/www/index.html; echo style > /root/www/css/site.css
printf '#!/bin/sh\\n' > /root/www/hook; chmod 755 /root/www/hook
echo stale > /srv/www/index.html; echo x > /srv/www/old/deep/x; ln -s /etc/passwd /srv/www/link
chmod 600 /srv/www/old/deep/x; chown -R daemon /srv/www/old
"""
OBSERVE = "cd / && find srv/www -printf '%p %y %U:%G %m %l\\n' | sort; cat srv/www/index.html srv/www/old/deep/x 2>&1"
DRIFT = "cd /srv/www; echo drift > css/site.css; rm hook; touch added; chmod 777 css; ln -sf /etc/shadow index.html"


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_directories_are_stable_repaired_and_undone(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.run("sh", "-ec", PREPARE)
    wanted = {"source": "/root/www", "purge": True, "owner": "daemon", "directory_mode": "0750"}

    phases = run_phases(machine, [{"directory": [{"/srv/www": wanted}]}], observe=OBSERVE, drift=DRIFT)

    check_phases(phases)
    uid = machine.run("id", "-u", "daemon").stdout.strip()
    assert phases.applied.seen.splitlines()[:6] == [
        f"srv/www d {uid}:0 750 ",
        f"srv/www/css d {uid}:0 750 ",
        f"srv/www/css/site.css f {uid}:0 644 ",
        f"srv/www/hook f {uid}:0 755 ",
        f"srv/www/index.html f {uid}:0 644 ",
        "index",
    ]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_old_files_go_and_the_others_stay(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run(
        "sh",
        "-ec",
        "mkdir -p /var/backups/app/sub; cd /var/backups/app; for n in 1 2 3 40; do head -c 8192 /dev/urandom > sub/$n.gz; "
        "touch -d \"$n days ago\" sub/$n.gz; done; touch -d '1 year ago' notes; ln -s sub/1.gz latest.gz",
    )
    tidy = (program, "ensure", "directory", "/var/backups/app", "--matches", "*.gz")

    first = machine.run(*tidy, "--max-age", "30d", "--max-size", "20KiB")
    again = machine.run(*tidy, "--max-age", "30d", "--max-size", "20KiB")

    left = machine.run("sh", "-c", "cd /var/backups/app; ls -d * sub/*").stdout.split()
    assert left == ["latest.gz", "notes", "sub", "sub/1.gz", "sub/2.gz"]
    assert " changed " in first.stdout + first.stderr
    assert " stable " in again.stdout + again.stderr


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_what_is_mounted_in_a_directory_is_not_touched(
    only: Callable[[str], testenv.Node], program: str, kind: str
) -> None:
    machine = only(kind)
    machine.run(
        "sh",
        "-ec",
        "mkdir -p /srv/m/tmpfs /srv/m/bind /srv/m/gone /srv/precious /root/few; touch /root/few/few; echo x > /srv/precious/x; "
        "mount -t tmpfs none /srv/m/tmpfs; echo x > /srv/m/tmpfs/x; mount --bind /srv/precious /srv/m/bind; "
        "chown -R daemon /srv/precious",
    )
    ensure = (program, "ensure", "directory", "/srv/m")

    purged = machine.run(*ensure, "--source", "/root/few", "--purge")
    tidied = machine.run(*ensure, "--max-age", "1us")
    given = machine.run(*ensure, "--owner", "games", "--recurse")
    removed = machine.run(*ensure, "absent", "--force", check=False)

    assert "changed" in purged.stdout + purged.stderr
    assert "failed" not in tidied.stdout + given.stdout
    assert "is a mount point; unmount it first" in removed.stdout + removed.stderr
    left = machine.run("sh", "-c", "cd /srv/m; ls -d *; cat */x; stat -c %U bind/x /srv/m")
    assert left.stdout.split() == ["bind", "tmpfs", "x", "x", "daemon", "games"]
    machine.run("umount", "/srv/m/tmpfs", "/srv/m/bind")
    machine.run(*ensure, "absent", "--force")
    assert machine.run("sh", "-c", "ls -d /srv/m /srv/precious/x", check=False).stdout == "/srv/precious/x\n"
