"""A rollout that an operator starts is driven from the record that the operator stored, and from no other one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.app import Broker
from tests.support.controller import FakeNode
from tests.support.fleet import a_file, manifest
from tests.support.signed_desk import Crew, SignedDesk


class ChangedRecords:
    """CCM_RUNS as the holder of the broker shows it: records with one more byte."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def matching(self, patterns: list[str], **options: Any) -> list[KeyValueEntry]:
        """Change each record."""
        found = await self._inner.matching(patterns, **options)
        return [
            replace(one, value=one.value + b" ") if one.key.endswith(".request") else one for one in found
        ]


class TakenOver(SignedDesk):
    """A desk at a broker that changes records."""

    @contextlib.asynccontextmanager
    async def _connect(self, settings: BusSettings) -> AsyncIterator[Broker]:
        async with super()._connect(settings) as broker:
            yield Broker(replace(broker.fleet, runs=ChangedRecords(broker.fleet.runs)))


@pytest.mark.parametrize(("kind", "is_sent"), [(TakenOver, False), (SignedDesk, True)])
def test_a_rollout_is_not_driven_from_a_record_that_does_not_verify(
    tmp_path: Path, kind: type[SignedDesk], *, is_sent: bool
) -> None:
    node = FakeNode("web1", {"role": "web"}, ())
    path = tmp_path / "site.yaml"
    path.write_text(manifest(a_file("a")))

    said = kind(Crew(), node).ccmctl("apply", str(path), "-t", "role=web", "--batch", "1", "--yes", "--json")

    assert bool(node.heard) is is_sent, said.err
    assert ("its record is unverified: the content was changed after signing" in said.err) is not is_sent
