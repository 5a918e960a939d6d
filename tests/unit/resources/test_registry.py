"""Which provider is taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ccm_agent.model.errors import NoProviderError
from ccm_agent.resources.contract import Probe, ProviderSpec
from ccm_agent.resources.registry import HostProbe, ProviderRegistry
from tests.support.engine import Board, Types, note_type


class FakeProbe:
    def __init__(self, *programs: str) -> None:
        self.programs = programs

    def has_program(self, name: str) -> bool:
        return name in self.programs

    def exists(self, path: str) -> bool:
        return False


def spec(name: str, rank: int = 50) -> ProviderSpec:
    def is_usable(facts: Mapping[str, Any], probe: Probe) -> bool:
        return probe.has_program(name)

    return ProviderSpec(name=name, make=lambda _context: None, rank=rank, is_usable=is_usable)


class Catalog(Types):
    def foreign_providers(self, type_name: str) -> list[ProviderSpec]:
        return [spec("foreign", 1)]


KIND = note_type(Board(), providers=(spec("slow", 20), spec("fast", 10), spec("same", 10)))


async def pick(wanted: str, *programs: str) -> str:
    return (await ProviderRegistry(Catalog(KIND), FakeProbe(*programs)).pick(KIND, wanted, {})).name


@pytest.mark.parametrize(
    ("wanted", "programs", "picked"),
    [
        pytest.param("", ("slow", "fast", "same"), "fast", id="the lowest rank, the first of those"),
        pytest.param("", ("slow", "same"), "same", id="of those that can work"),
        pytest.param("slow", ("slow", "fast"), "slow", id="the one that is named"),
        pytest.param("", ("foreign",), "foreign", id="another's where none of ours can work"),
        pytest.param("", ("foreign", "slow"), "slow", id="ours before another's"),
        pytest.param("foreign", ("foreign", "slow"), "foreign", id="another's by name"),
    ],
)
async def test_the_provider_is(wanted: str, programs: tuple[str, ...], picked: str) -> None:
    assert await pick(wanted, *programs) == picked


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        pytest.param("none", "has no provider `none`: it has slow, fast, same, foreign", id="unknown"),
        pytest.param(
            "fast", "the provider `fast` of `note` is not available on this host", id="named, not usable"
        ),
        pytest.param(
            "",
            "no provider of `note` is available on this host: the programs of slow, fast",
            id="none usable",
        ),
    ],
)
async def test_a_missing_provider_is_an_error_with_the_available_ones(wanted: str, message: str) -> None:
    with pytest.raises(NoProviderError, match=message):
        await pick(wanted)


async def test_the_host_is_asked_once_in_a_run() -> None:
    asked = []

    class Counting(FakeProbe):
        def has_program(self, name: str) -> bool:
            asked.append(name)
            return True

    registry = ProviderRegistry(Catalog(KIND), Counting())
    for _ in range(3):
        await registry.pick(KIND, "", {})

    assert asked == ["fast", "same", "slow"]


def test_programs_are_looked_for_in_path_and_in_the_systems_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "ccm-test-tool"
    tool.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    probe = HostProbe()

    assert probe.has_program("ccm-test-tool")
    assert probe.has_program("sh")
    assert not probe.has_program("ccm-no-such-tool")
    assert probe.exists(str(tool))
    assert not probe.exists(str(tmp_path / "none"))
