"""The mount type: file systems in /etc/fstab, and whether they are mounted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ccm_agent.resources.contract import (
    CommandLine,
    Probe,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.mount.model import ABSENT, MOUNTED, PRESENT, UNMOUNTED, MountProperties, MountState
from ccm_agent.resources.mount.resource import check, decide, reach
from ccm_agent.resources.mount.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_util_linux(context: ResourceContext) -> Any:
    from ccm_agent.resources.mount.providers.util_linux import UtilLinux

    return UtilLinux(context.runner, context.files, context.port("locks"))


def _has_mount(facts: Mapping[str, Any], probe: Probe) -> bool:
    return probe.has_program("mount")


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.mount.providers.existing import find_mounts

    return await find_mounts(context, argument)


TYPE: ResourceType[MountProperties, MountState] = ResourceType(
    name="mount",
    summary="File systems: their entry in /etc/fstab, and whether they are mounted.",
    properties=MountProperties,
    state=MountState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(MOUNTED, UNMOUNTED, PRESENT, ABSENT),
    default_ensure=MOUNTED,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        examples=(
            "/srv/data --device UUID=0a1b2c3d-0000-4000-8000-000000000001 --fstype ext4 --diff",
            "/var/scratch --device tmpfs --fstype tmpfs --options size=64m,noexec",
            "/mnt/old absent",
        ),
    ),
    providers=(
        ProviderSpec(
            name="util_linux",
            make=_make_util_linux,
            rank=10,
            is_usable=_has_mount,
            find_existing=_find_existing,
        ),
    ),
)
