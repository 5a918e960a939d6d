"""The repository type: package repositories for apt and dnf, and their signing keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import (
    CommandLine,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.registry import has_apt, has_dnf, is_other, is_red_hat
from ccm_agent.resources.repository.checks import check
from ccm_agent.resources.repository.model import APT, DNF, RepositoryProperties, RepositoryState
from ccm_agent.resources.repository.resource import decide, reach
from ccm_agent.resources.repository.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_apt(context: ResourceContext) -> Any:
    from ccm_agent.resources.repository.providers.apt import make_apt

    return make_apt(context)


def _make_dnf(context: ResourceContext) -> Any:
    from ccm_agent.resources.repository.providers.dnf import make_dnf

    return make_dnf(context)


async def _find_with_apt(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.repository.providers.existing import find_repositories

    return await find_repositories(context, argument, APT, _make_apt(context))


async def _find_with_dnf(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.repository.providers.existing import find_repositories

    return await find_repositories(context, argument, DNF, _make_dnf(context))


TYPE: ResourceType[RepositoryProperties, RepositoryState] = ResourceType(
    name="repository",
    summary="Package repositories of apt and dnf, with the keys that sign them.",
    properties=RepositoryProperties,
    state=RepositoryState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        examples=(
            "local --uris file:/srv/rpm --trusted --noop",
            "docker absent",
        ),
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
