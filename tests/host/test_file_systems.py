"""File systems of real machines: tmpfs and bind mounts, which need no device."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_file_systems_are_mounted_undone_and_repaired(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.run(
        "sh",
        "-c",
        "mkdir -p /srv/old; printf '# kept\\ntmpfs /srv/old tmpfs defaults 0 0\\n' > /etc/fstab; mount /srv/old",
    )
    mounts = [
        {"/srv/a b": {"device": "tmpfs", "fstype": "tmpfs", "options": "size=1m,noexec"}},
        {"/srv/bind": {"device": "/etc", "fstype": "none", "options": "bind"}},
        {"/srv/later": {"ensure": "present", "device": "tmpfs", "fstype": "tmpfs"}},
        {"/srv/old": {"device": "tmpfs", "fstype": "tmpfs", "options": "ro"}},
    ]

    phases = run_phases(
        machine,
        [{"mount": mounts}],
        observe="cat /etc/fstab; findmnt --noheadings --list --output TARGET,FSTYPE,OPTIONS | grep /srv/ | sort",
        drift="umount '/srv/a b' && sed -i /later/d /etc/fstab",
    )

    check_phases(phases)
    fstab = (
        "# kept\ntmpfs /srv/old tmpfs ro 0 0\ntmpfs /srv/a\\040b tmpfs size=1m,noexec 0 0\n"
        "/etc /srv/bind none bind 0 0\ntmpfs /srv/later tmpfs defaults 0 0\n"
    )
    assert phases.applied.seen.startswith(fstab), phases.applied.seen
    assert machine.run("test", "-f", "/srv/bind/fstab").returncode == 0


def test_a_device_that_is_missing_does_not_get_into_the_table(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("apt")
    before = machine.path("/etc/fstab").read_text()
    resources = [{"mount": [{"/srv/none": {"device": "/dev/nosuch", "fstype": "ext4"}}]}]
    machine.path("/root/one.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))

    done = machine.run(program, "apply", "/root/one.yaml", check=False, timeout=120)

    assert done.returncode != 0
    assert "/srv/none cannot be mounted" in done.stdout + done.stderr
    assert machine.path("/etc/fstab").read_text() == before
