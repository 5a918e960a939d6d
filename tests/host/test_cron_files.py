"""Jobs in the /etc/cron.d of real machines."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", ["apt", "dnf"])
def test_jobs_are_written_undone_and_repaired(only: Callable[[str], testenv.Node], kind: str) -> None:
    machine = only(kind)
    machine.run("sh", "-c", "mkdir -p /etc/cron.d; printf '* * * * * root x\\n' > /etc/cron.d/foreign")
    jobs = [
        {"backup": {"schedule": "30 2 * * *", "command": "/bin/true", "environment": ["MAILTO="]}},
        {"report": {"schedule": "@weekly", "user": "daemon", "command": r"date +\%F"}},
    ]

    phases = run_phases(
        machine,
        [{"cron": jobs}],
        observe="cd /etc/cron.d && stat -c '%n %a %U' * && tail -n +1 *",
        drift="chmod 666 /etc/cron.d/backup && rm /etc/cron.d/report",
    )

    check_phases(phases)
    assert 'MAILTO=""\n30 2 * * * root /bin/true\n' in phases.applied.seen
    assert "@weekly daemon date +\\%F\n" in phases.applied.seen
    assert "backup 644 root\n" in phases.applied.seen
    assert "report 644 root\n" in phases.applied.seen
