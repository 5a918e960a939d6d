"""The group type: local groups and their members."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import (
    CommandLine,
    Probe,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.group.model import GroupProperties, GroupState
from ccm_agent.resources.group.resource import check, decide, reach
from ccm_agent.resources.group.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_shadow(context: ResourceContext) -> Any:
    from ccm_agent.resources.group.providers.shadow import ShadowGroups

    return ShadowGroups(context.runner, context.files, context.port("locks"))


def _has_shadow(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("groupadd")


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.group.providers.existing import find_groups

    return await find_groups(context, argument)


TYPE: ResourceType[GroupProperties, GroupState] = ResourceType(
    name="group",
    summary="Local groups and their members.",
    properties=GroupProperties,
    state=GroupState,
    decide=decide,
    check=check,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    reach=reach,
    ignorable={"gid": {"gid": None}, "members": {"members": None, "members_exclusive": False}},
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(examples=("web --gid 900", "docker --members alice --members bob", "games absent")),
    providers=(
        ProviderSpec(
            name="shadow", make=_make_shadow, rank=10, is_usable=_has_shadow, find_existing=_find_existing
        ),
    ),
)
