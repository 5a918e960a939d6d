"""The directory type: directories with their content."""

from __future__ import annotations

import posixpath
from typing import Any

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


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.directory.providers.posix import PosixDirectory

    return PosixDirectory(context)


TYPE: ResourceType[DirectoryProperties, DirectoryState] = ResourceType(
    name="directory",
    summary="Directories with their content: copied from a source, purged, tidied.",
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
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1),),
)
