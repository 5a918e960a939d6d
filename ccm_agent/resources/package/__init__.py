"""The package type: packages of the system's package manager."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.contract import (
    CommandLine,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.package.model import PackageProperties, PackageState
from ccm_agent.resources.package.resource import check, check_when_applied, decide, has_changed, reach
from ccm_agent.resources.package.undo import earlier, identify
from ccm_agent.resources.registry import has_apt, has_dnf, is_other, is_red_hat

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_apt(context: ResourceContext) -> Any:
    from ccm_agent.resources.package.providers.apt import Apt

    return Apt(context.runner, context.port("locks"))


def _make_dnf(context: ResourceContext) -> Any:
    from ccm_agent.resources.package.providers.dnf import Dnf

    return Dnf(context.runner, context.port("locks"))


async def _find_with_apt(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.package.providers.existing import find_with_apt

    return await find_with_apt(context, argument)


async def _find_with_dnf(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.package.providers.existing import find_with_dnf

    return await find_with_dnf(context, argument)


def _gather(given: dict[str, Any]) -> dict[str, Any]:
    """Set `ensure` to `present` if the command line does not give it."""
    return {"ensure": PRESENT, **given}


TYPE: ResourceType[PackageProperties, PackageState] = ResourceType(
    name="package",
    summary="Software packages of the system's package manager.",
    properties=PackageProperties,
    state=PackageState,
    decide=decide,
    check=check,
    check_when_applied=check_when_applied,
    has_changed=has_changed,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        alias="pkg",
        gather=_gather,
        examples=("nginx", "nginx latest --noop", "telnet absent"),
    ),
    providers=(
        ProviderSpec(
            name="apt",
            make=_make_apt,
            rank=10,
            is_usable=has_apt,
            fits=is_other,
            find_existing=_find_with_apt,
        ),
        ProviderSpec(
            name="dnf",
            make=_make_dnf,
            rank=20,
            is_usable=has_dnf,
            fits=is_red_hat,
            find_existing=_find_with_dnf,
        ),
    ),
)
