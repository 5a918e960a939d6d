"""Host name, time zone and locale of real machines, as their programs see them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

OBSERVE = (
    "hostname; hostnamectl --static; readlink -f /etc/localtime; date +%Z; cat /etc/timezone /etc/hostname "
    "/etc/default/locale /etc/locale.conf; true"
)


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_settings_are_set_undone_and_repaired(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.run("sh", "-c", "echo before > /etc/hostname && hostname before")
    machine.run(
        "sh", "-c", "echo Etc/UTC > /etc/timezone && ln -sf /usr/share/zoneinfo/Etc/UTC /etc/localtime"
    )
    if kind == "dnf":
        machine.run("rm", "-f", "/etc/timezone", "/etc/debian_version", "/etc/default/locale")
    else:
        machine.path("/etc/default/locale").write_text("LANG=C\nLC_TIME=C\n")
    settings = [
        {"hostname": {"value": "web1.example.net"}},
        {"timezone": {"value": "Europe/Berlin"}},
        {"locale": {"value": "C.UTF-8"}},
    ]

    phases = run_phases(
        machine,
        [{"system": settings}],
        observe=OBSERVE,
        drift="hostname drifted; ln -sf /usr/share/zoneinfo/Asia/Tokyo /etc/localtime; "
        "sed -i s/^LANG=.*/LANG=C/ /etc/default/locale /etc/locale.conf || true",
    )

    seen = phases.applied.seen.splitlines()
    assert seen[:3] == ["web1.example.net", "web1.example.net", "/usr/share/zoneinfo/Europe/Berlin"]
    assert seen[3] in ("CET", "CEST")
    own = ["LANG=C.UTF-8"] if kind == "dnf" else ["LANG=C.UTF-8", "LC_TIME=C"]
    assert seen[-len(own) :] == own
    check_phases(phases)
