"""The systemd_unit type: systemd units, including timers, and their drop-ins."""

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
from ccm_agent.resources.systemd_unit.model import SystemdUnitProperties, SystemdUnitState
from ccm_agent.resources.systemd_unit.resource import check, decide, reach
from ccm_agent.resources.systemd_unit.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_systemd(context: ResourceContext) -> Any:
    from ccm_agent.resources.systemd_unit.providers.systemd import SystemdUnits

    return SystemdUnits(
        context.runner,
        context.files,
        context.port("locks"),
        context.directory,
        asks_systemd=context.may_run_commands,
    )


def _has_systemd(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("systemctl")


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.systemd_unit.providers.existing import find_units

    return await find_units(context, argument)


TYPE: ResourceType[SystemdUnitProperties, SystemdUnitState] = ResourceType(
    name="systemd_unit",
    summary="systemd units, timers and drop-ins, each a file in /etc/systemd/system.",
    properties=SystemdUnitProperties,
    state=SystemdUnitState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify, located_by=("unit", "drop_in")),
    command=CommandLine(
        examples=(
            "backup.timer --source backup.timer --diff",
            "nginx.service --drop-in limits.conf --content $'[Service]\\nLimitNOFILE=65536\\n'",
            "backup.timer absent",
        ),
    ),
    providers=(
        ProviderSpec(
            name="systemd", make=_make_systemd, rank=10, is_usable=_has_systemd, find_existing=_find_existing
        ),
    ),
)
