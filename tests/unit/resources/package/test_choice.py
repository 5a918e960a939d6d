"""Which package manager is driven where both are installed."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import NoProviderError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.package import TYPE
from ccm_agent.resources.registry import ProviderRegistry


class Programs:
    """A host with these programs."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def has_program(self, name: str) -> bool:
        return name in self._names

    def exists(self, path: str) -> bool:
        return False


def facts(family: str) -> dict[str, Any]:
    return {"host": {"info": {"platformFamily": family}}}


@pytest.mark.parametrize(
    ("family", "programs", "wanted", "provider"),
    [
        ("debian", ["apt-get", "dnf"], "", "apt"),
        ("fedora", ["apt-get", "dnf"], "", "dnf"),
        ("rhel", ["apt-get", "dnf"], "", "dnf"),
        ("debian", ["apt-get", "dnf"], "dnf", "dnf"),
        ("debian", ["dnf"], "", "dnf"),
        ("", ["apt-get", "dnf"], "", "apt"),
    ],
)
async def test_the_choice_follows_the_platform_unless_it_is_named(
    family: str, programs: list[str], wanted: str, provider: str
) -> None:
    registry = ProviderRegistry(Catalog(), Programs(*programs))

    assert (await registry.pick(TYPE, wanted, facts(family))).name == provider


async def test_a_host_without_either_has_no_provider() -> None:
    with pytest.raises(NoProviderError, match="the programs of apt, dnf are not installed"):
        await ProviderRegistry(Catalog(), Programs()).pick(TYPE, "", facts("debian"))
