"""Parameters of a real kernel: those of a machine's own network, which alone are writable there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import testenv

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

TTL = "net.ipv4.ip_default_ttl"


def apply(machine: testenv.Node, program: str, name: str, **properties: Any) -> tuple[int, str]:
    resources = [{"sysctl": [{name: properties}]}]
    machine.path("/root/one.yaml").write_text(json.dumps({"ccm": {"resources": resources}}))
    done = machine.run(program, "apply", "/root/one.yaml", check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "properties", "message"),
    [
        pytest.param("vm.swappiness", {"value": "11"}, "/proc/sys is read-only here", id="read-only"),
        pytest.param(
            "net.ipv4.nosuch", {"value": "1"}, "the kernel has no parameter net.ipv4.nosuch", id="missing"
        ),
        pytest.param("net.ipv4.conf", {"value": "1"}, "it is a group of parameters", id="a group"),
        pytest.param(TTL, {"value": "many"}, "the kernel does not accept 'many'", id="not a number"),
        pytest.param(TTL, {"value": "100000"}, "the kernel does not accept '100000'", id="out of range"),
    ],
)
def test_what_this_kernel_refuses_changes_nothing(
    only: Callable[[str], testenv.Node], program: str, name: str, properties: dict[str, Any], message: str
) -> None:
    machine = only("apt")
    file = "/etc/sysctl.d/80-refused.conf"

    code, output = apply(machine, program, name, file=file, **properties)

    assert code != 0
    assert message in output
    assert not machine.path(file).exists()


def test_the_file_alone_is_managed_where_the_live_value_cannot_be(
    only: Callable[[str], testenv.Node], program: str
) -> None:
    machine = only("dnf")

    code, output = apply(
        machine, program, "vm.swappiness", value="11", apply=False, file="/etc/sysctl.d/90-a.conf"
    )

    assert code == 0, output
    assert machine.path("/etc/sysctl.d/90-a.conf").read_text() == "vm.swappiness = 11\n"
