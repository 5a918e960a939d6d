"""The sysctl type: kernel parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import CommandLine, ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.sysctl.model import SysctlProperties, SysctlState
from ccm_agent.resources.sysctl.resource import check, decide, reach
from ccm_agent.resources.sysctl.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_procfs(context: ResourceContext) -> Any:
    from ccm_agent.resources.sysctl.providers.procfs import Procfs

    return Procfs(context.files, context.port("kernel"), context.port("locks"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.sysctl.providers.existing import find_parameters

    return await find_parameters(context, argument)


TYPE: ResourceType[SysctlProperties, SysctlState] = ResourceType(
    name="sysctl",
    summary="Kernel parameters: the live value, and the value at boot.",
    properties=SysctlProperties,
    state=SysctlState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify, located_by=("file",)),
    command=CommandLine(
        arguments=("name", "value"),
        examples=(
            "vm.swappiness 10",
            "net.ipv4.ip_forward 1 --file /etc/sysctl.d/70-router.conf --diff",
            "vm.swappiness --ensure absent",
        ),
    ),
    providers=(ProviderSpec(name="procfs", make=_make_procfs, rank=10, find_existing=_find_existing),),
)
