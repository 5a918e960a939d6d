"""Which revision of a secret a node says that it uses."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from ccm_agent.model.wire import NodeRecord, SecretUse
from ccm_agent.storage.secret_uses import REQUESTED, SecretUses
from ccm_agent.testing.clock import NOON, FakeClock

WEB, DB = "assignment web", "assignment db"


class Stage:
    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(NOON)
        self.path = folder / "secret-uses.json"
        self.changes = 0
        self.restart()

    def restart(self) -> None:
        self.record = NodeRecord(node="web1")
        self.uses = SecretUses(self.path, self.record, self.clock, self._changed)
        self.uses.open()

    async def ran(self, scope: str, *, is_whole: bool = True, **opened: int) -> None:
        self.clock.jump(60)
        await self.uses.note(scope, opened, is_whole=is_whole)

    def _changed(self) -> None:
        self.changes += 1


def use(revision: int, minute: int) -> SecretUse:
    return SecretUse(revision=revision, since=NOON + timedelta(minutes=minute))


async def test_a_node_uses_a_revision_until_its_last_source_has_taken_a_newer_one(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    assert at.record.secrets == {}
    shown = []

    for scope, revision in ((WEB, 1), (DB, 1), (WEB, 2), (WEB, 2), (DB, 2)):
        await at.ran(scope, mail=revision)
        shown.append(at.record.secrets)

    assert shown == [{"mail": one} for one in (use(1, 1), use(1, 2), use(1, 2), use(1, 2), use(2, 5))]
    assert at.changes == 3


async def test_a_source_that_reads_it_no_longer_and_one_that_is_gone_do_not_count(tmp_path: Path) -> None:
    at = Stage(tmp_path)
    await at.ran(WEB, mail=1)
    await at.ran(DB, mail=1, other=3)

    await at.ran(WEB)
    await at.uses.forget(DB)
    gone = at.record.secrets
    await at.ran(WEB, mail=2)
    await at.uses.keep_only("assignment ", {DB})

    assert (gone, at.record.secrets) == ({}, {})


async def test_requested_runs_count_together_and_only_where_no_source_reads_it(tmp_path: Path) -> None:
    at = Stage(tmp_path)

    await at.ran(REQUESTED, is_whole=False, mail=1, other=1)
    await at.ran(REQUESTED, is_whole=False, other=2)
    first = at.record.secrets
    await at.ran(WEB, mail=2)

    assert first == {"mail": use(1, 1), "other": use(2, 2)}
    assert at.record.secrets == {"mail": use(2, 3), "other": use(2, 2)}


async def test_it_is_known_after_a_restart_and_nothing_is_known_from_a_file_that_cannot_be_read(
    tmp_path: Path,
) -> None:
    at = Stage(tmp_path)
    await at.ran(WEB, mail=1)

    await asyncio.to_thread(at.restart)
    known = at.record.secrets
    at.path.write_bytes(b"{")
    await asyncio.to_thread(at.restart)

    assert (known, at.record.secrets) == ({"mail": use(1, 1)}, {})
