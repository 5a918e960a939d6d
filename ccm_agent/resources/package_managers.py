"""Which package manager a host has, for the types that use it: `package` and `repository`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ccm_agent.resources.contract import Probe


def has_apt(facts: Mapping[str, Any], probe: Probe) -> bool:
    """Whether apt is installed; see `ProviderSpec.is_usable`."""
    return probe.has_program("apt-get")


def has_dnf(facts: Mapping[str, Any], probe: Probe) -> bool:
    """Whether dnf is installed."""
    return probe.has_program("dnf")


def is_red_hat(facts: Mapping[str, Any]) -> bool:
    """Whether the host is of a family that uses dnf; see `ProviderSpec.fits`."""
    host = facts.get("host")
    info = host.get("info") if isinstance(host, Mapping) else None
    family = str(info.get("platformFamily") or "") if isinstance(info, Mapping) else ""
    return family in ("rhel", "fedora", "suse")


def is_other(facts: Mapping[str, Any]) -> bool:
    """Whether the host is of another family."""
    return not is_red_hat(facts)
