"""Selects the provider that manages a type on this host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from ccm_agent.model.errors import NoProviderError
from ccm_agent.resources.catalog import Catalog
from ccm_agent.resources.contract import AnyType, Probe, ProviderSpec

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Directories that are searched for programs in addition to PATH."""


class HostProbe:
    """Checks the host. Results are cached, because programs are rarely installed or removed within a run."""

    def __init__(self) -> None:
        self._programs: dict[str, bool] = {}

    def has_program(self, name: str) -> bool:
        """Whether an executable of this name is in PATH or in one of the system's directories."""
        if name not in self._programs:
            import shutil

            self._programs[name] = bool(shutil.which(name) or shutil.which(name, path=SEARCH_PATH))
        return self._programs[name]

    def exists(self, path: str) -> bool:
        """Whether an absolute path exists."""
        return os.path.exists(path)  # noqa: PTH110 - pathlib is slow to import


class ProviderRegistry:
    """
    Selects providers and caches the results, for one run or command.

    Args:
        catalog: The types, and providers from other packages.
        probe: Checks the host. With None, the real host is checked.
    """

    def __init__(self, catalog: Catalog, probe: Probe | None = None) -> None:
        self.catalog = catalog
        self._probe = probe
        self._picked: dict[tuple[str, str], ProviderSpec] = {}

    async def pick(self, kind: AnyType, wanted: str, facts: Mapping[str, Any]) -> ProviderSpec:
        """
        Return the provider that the manifest names, or otherwise the best usable provider; see `_usable`.

        Args:
            kind: The resource type.
            wanted: A provider's name, or "" for any provider.
            facts: Facts of the host. They are only read if the result depends on them.

        Raises:
            NoProviderError: The provider does not exist, or none works on this host.
        """
        key = (kind.name, wanted)
        found = self._picked.get(key)
        if found is None:
            found = await asyncio.to_thread(self._search, kind, wanted, facts)
            self._picked[key] = found
        return found

    def _search(self, kind: AnyType, wanted: str, facts: Mapping[str, Any]) -> ProviderSpec:
        probe = self._probe or HostProbe()
        own = kind.providers
        found = _usable(own, wanted, facts, probe)
        if found is None:
            foreign = self.catalog.foreign_providers(kind.name)
            found = _usable(foreign, wanted, facts, probe)
            if found is None:
                raise NoProviderError(_why_none(kind, (*own, *foreign), wanted))
        return found


def _usable(
    specs: tuple[ProviderSpec, ...] | list[ProviderSpec], wanted: str, facts: Mapping[str, Any], probe: Probe
) -> ProviderSpec | None:
    """
    Return the best usable provider. Providers that fit this host are preferred, then a lower rank, then an earlier position.
    """
    named = sorted((spec for spec in specs if not wanted or spec.name == wanted), key=lambda spec: spec.rank)
    usable = [spec for spec in named if spec.is_usable(facts, probe)]
    if len(usable) > 1:
        # the sort is stable; facts are read only if the choice depends on them
        usable.sort(key=lambda spec: spec.fits is not None and not spec.fits(facts))
    return usable[0] if usable else None


def _why_none(kind: AnyType, specs: tuple[ProviderSpec, ...], wanted: str) -> str:
    names = ", ".join(spec.name for spec in specs) or "none"
    if wanted and wanted not in [spec.name for spec in specs]:
        return f"the type `{kind.name}` has no provider `{wanted}`: it has {names}"
    if wanted:
        return f"the provider `{wanted}` of `{kind.name}` is not available on this host: its programs are not installed"
    return (
        f"no provider of `{kind.name}` is available on this host: the programs of {names} are not installed"
    )


def has_apt(facts: Mapping[str, Any], probe: Probe) -> bool:
    """Whether apt is installed; see `ProviderSpec.is_usable`."""
    return probe.has_program("apt-get")


def has_dnf(facts: Mapping[str, Any], probe: Probe) -> bool:
    """Whether dnf is installed."""
    return probe.has_program("dnf")


def is_red_hat(facts: Mapping[str, Any]) -> bool:
    """Whether the host's distribution family uses dnf; see `ProviderSpec.fits`."""
    host = facts.get("host")
    info = host.get("info") if isinstance(host, Mapping) else None
    family = str(info.get("platformFamily") or "") if isinstance(info, Mapping) else ""
    return family in ("rhel", "fedora", "suse")


def is_other(facts: Mapping[str, Any]) -> bool:
    """Whether the host's distribution family does not use dnf."""
    return not is_red_hat(facts)
