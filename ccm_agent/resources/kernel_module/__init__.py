"""The kernel_module type: Linux kernel modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.kernel_module.command import COMMAND
from ccm_agent.resources.kernel_module.model import KernelModuleProperties, KernelModuleState
from ccm_agent.resources.kernel_module.resource import check, decide, reach
from ccm_agent.resources.kernel_module.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_kmod(context: ResourceContext) -> Any:
    from ccm_agent.resources.kernel_module.providers.kmod import Kmod

    return Kmod(context.runner, context.files, context.port("trees"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.kernel_module.providers.existing import find_modules

    return await find_modules(context, argument)


TYPE: ResourceType[KernelModuleProperties, KernelModuleState] = ResourceType(
    name="kernel_module",
    summary="Kernel modules: loaded now and at boot, with options, or blacklisted.",
    properties=KernelModuleProperties,
    state=KernelModuleState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=COMMAND,
    providers=(ProviderSpec(name="kmod", make=_make_kmod, rank=10, find_existing=_find_existing),),
)
