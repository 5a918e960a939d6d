"""The service type: services of the init system."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.resources.contract import Probe, ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.service.command import COMMAND
from ccm_agent.resources.service.model import RUNNING, STOPPED, ServiceProperties, ServiceState
from ccm_agent.resources.service.resource import check, check_when_applied, decide, reach
from ccm_agent.resources.service.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_systemd(context: ResourceContext) -> Any:
    from ccm_agent.resources.service.providers.systemd import Systemd

    return Systemd(context.runner, context.port("locks"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.service.providers.existing import find_with_systemd

    return await find_with_systemd(context, argument)


def _has_systemctl(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("systemctl")


TYPE: ResourceType[ServiceProperties, ServiceState] = ResourceType(
    name="service",
    summary="Services of the init system: running or stopped, enabled or disabled at boot.",
    properties=ServiceProperties,
    state=ServiceState,
    decide=decide,
    check=check,
    check_when_applied=check_when_applied,
    ensure=(RUNNING, STOPPED),
    default_ensure=RUNNING,
    command=COMMAND,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    providers=(
        ProviderSpec(
            name="systemd",
            make=_make_systemd,
            rank=10,
            is_usable=_has_systemctl,
            find_existing=_find_existing,
        ),
    ),
)
