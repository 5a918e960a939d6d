"""Host names of real machines, as their resolver finds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]

BEFORE = "127.0.0.1\tlocalhost\n# ours\n192.0.2.6   web.test www # primary\n192.0.2.9 old.test\n"


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_names_are_resolved_undone_and_repaired(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.path("/etc/hosts").write_text(BEFORE)
    hosts = [
        {"db.test": {"address": ["192.0.2.7", "2001:db8::7"], "aliases": ["sql"]}},
        {"web.test": {"address": "192.0.2.8", "aliases": ["www", "shop"]}},
        {"old.test": {"ensure": "absent"}},
    ]

    phases = run_phases(
        machine,
        [{"host": hosts}],
        observe="sort /etc/hosts; getent ahosts sql | sort; getent ahosts shop; getent ahosts old.test",
        drift="sed -i -e s/192.0.2.8/192.0.2.6/ -e /db.test/d /etc/hosts",
    )

    check_phases(phases)
    assert machine.path("/etc/hosts").read_text() == (
        "127.0.0.1\tlocalhost\n# ours\n192.0.2.8   web.test www shop # primary\n"
        "192.0.2.7 db.test sql\n2001:db8::7 db.test sql\n"
    )
    found = {line.split()[0] for line in phases.applied.seen.splitlines() if "STREAM" in line}
    assert found == {"192.0.2.7", "2001:db8::7", "192.0.2.8"}
