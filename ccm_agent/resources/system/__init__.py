"""The system type: the host name, time zone and locale of the machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import CommandLine, ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.system.model import SystemProperties, SystemState
from ccm_agent.resources.system.resource import check, decide, reach
from ccm_agent.resources.system.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_etc(context: ResourceContext) -> Any:
    from ccm_agent.resources.system.providers.etc import Etc

    return Etc(context.runner, context.files, context.port("kernel"), context.port("locks"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.system.providers.existing import find_settings

    return await find_settings(context, argument)


TYPE: ResourceType[SystemProperties, SystemState] = ResourceType(
    name="system",
    summary="Settings of the whole machine: host name, time zone and locale.",
    properties=SystemProperties,
    state=SystemState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        arguments=("name", "value"),
        examples=(
            "hostname web1.example.net --diff",
            "timezone Europe/Berlin",
            "locale de_DE.UTF-8 --noop",
        ),
    ),
    providers=(ProviderSpec(name="etc", make=_make_etc, rank=10, find_existing=_find_existing),),
)
