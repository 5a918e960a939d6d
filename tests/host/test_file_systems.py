"""File systems of real machines: tmpfs and bind mounts, which need no device."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


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
