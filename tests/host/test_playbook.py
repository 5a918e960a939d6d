"""The manifest that `python -m bench playbook` compares with a playbook, and how it looks at a machine."""

from __future__ import annotations

from pathlib import Path

import pytest
import testenv

from bench.playbook import machine, run_twice
from bench.playbook.state import changed, differences, shown

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


@pytest.fixture
def node(lab: testenv.Lab, debian_packages: Path) -> testenv.Node:
    """A machine as both programs find it."""
    return machine(lab, "playbook", debian_packages)


def test_the_manifest_changes_a_machine_once_and_every_difference_is_seen(
    lab: testenv.Lab, node: testenv.Node, debian_packages: Path
) -> None:
    run_twice(node, "ccm")

    assert {
        "/etc/passwd", "/etc/sudoers.d/deploy", "/etc/cron.d/backup", "/etc/sysctl.d/90-hardening.conf",
        "/home/deploy/.ssh/authorized_keys", "/srv/app/shared/database", "/srv/www/css/site.css",
    } <= changed(node)  # fmt: skip
    assert shown(node, "/etc/nginx/sites-enabled/default") == "absent"
    assert shown(node, "/srv/app/current") == "lrwxrwxrwx 0:0 to releases/1.0"
    assert shown(node, "/etc/app/app.conf").startswith("-rw-r----- 0:900 ")
    assert differences(node, node)[1] == []
    other = machine(lab, "playbook-other", debian_packages)
    run_twice(other, "ccm")
    assert differences(node, other)[1] == []
    other.run(
        "sh",
        "-c",
        "chmod 444 /etc/app/app.conf; systemctl stop -q app; rm /etc/cron.d/backup; echo 0 > /proc/sys/net/ipv4/tcp_syncookies",
    )

    found = differences(node, other)[1]

    assert [line.split(":")[0] for line in found] == [
        "/etc/app/app.conf", "/etc/cron.d/backup", "units", "sysctls", "sysctls",
    ]  # fmt: skip
