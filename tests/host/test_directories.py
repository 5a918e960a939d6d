"""Directories of real machines: limits, owners, and mount points in the tree."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


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
