"""The host type: entries of /etc/hosts."""

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
from ccm_agent.resources.host.model import HostProperties, HostState
from ccm_agent.resources.host.resource import check, decide, reach
from ccm_agent.resources.host.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_hosts_file(context: ResourceContext) -> Any:
    from ccm_agent.resources.host.providers.hosts_file import HostsFile

    return HostsFile(context.files, context.port("locks"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.host.providers.existing import find_hosts

    return await find_hosts(context, argument)


TYPE: ResourceType[HostProperties, HostState] = ResourceType(
    name="host",
    summary="Host names in /etc/hosts: addresses and aliases.",
    properties=HostProperties,
    state=HostState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    ignorable={"aliases": {"aliases": None}},
    command=CommandLine(
        arguments=("name", "address"),
        examples=(
            "db.example.net 192.0.2.7 --aliases db --diff",
            "db.example.net --ensure absent",
        ),
    ),
    providers=(
        ProviderSpec(name="hosts_file", make=_make_hosts_file, rank=10, find_existing=_find_existing),
    ),
)
