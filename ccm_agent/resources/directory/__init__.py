"""The directory type: directories with their content."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import (
    CommandLine,
    ProviderSpec,
    ResourceContext,
    ResourceType,
    UndoRules,
)
from ccm_agent.resources.directory.model import DirectoryProperties, DirectoryState
from ccm_agent.resources.directory.resource import check, decide, reach
from ccm_agent.resources.directory.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.directory.providers.posix import PosixDirectory

    return PosixDirectory(context)


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.directory.providers.existing import find_directory

    return await find_directory(context, argument)


TYPE: ResourceType[DirectoryProperties, DirectoryState] = ResourceType(
    name="directory",
    summary="Directories and their content: copied from a source, purged, limited in age and size.",
    properties=DirectoryProperties,
    state=DirectoryState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    status_name=posixpath.abspath,
    undo=UndoRules(
        earlier=earlier,
        identify=identify,
        parts=lambda wanted, provider, keep: provider.keep(wanted, keep),
    ),
    command=CommandLine(
        examples=(
            "/srv/www --source www --purge --noop",
            "/var/backups/app --max-age 30d",
        ),
        hidden=frozenset({"diff"}),
    ),
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1, find_existing=_find_existing),),
)
