"""Symlinks of a real machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import testenv

from tests.support.machine import check_phases, run_phases

pytestmark = [pytest.mark.host, pytest.mark.timeout(300)]


def test_symlinks_are_stable_repaired_and_undone(only: Callable[[str], testenv.Node]) -> None:
    machine = only("apt")
    machine.run("sh", "-c", "mkdir /srv/links; cd /srv/links; echo a > a; ln -s a moved; ln -s a old")
    links = [
        {"/srv/links/new": {"target": "/srv/links/a", "owner": "daemon", "group": "daemon"}},
        {"/srv/links/moved": {"target": "no where"}},
        {"/srv/links/old": {"ensure": "absent"}},
    ]

    phases = run_phases(
        machine,
        [{"symlink": links}],
        observe="cd /srv/links && stat -c '%N %U %G' *",
        drift="cd /srv/links && ln -sfn a new && ln -sfn b moved && ln -s a old",
    )

    check_phases(phases)
    assert phases.applied.seen == (
        "'a' root root\n'moved' -> 'no where' root root\n'new' -> '/srv/links/a' daemon daemon\n"
    )
