"""The file type: files and directories."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.file.command import COMMAND
from ccm_agent.resources.file.model import KEEP, FileProperties, FileState
from ccm_agent.resources.file.resource import (
    check,
    check_when_applied,
    decide,
    finalize,
    find_extensions,
    reach,
)
from ccm_agent.resources.file.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.file.providers.posix import PosixFile

    return PosixFile(context.files, context.directory, lambda: context.port("download"))


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.file.providers.existing import find_files

    return await find_files(context, argument)


TYPE: ResourceType[FileProperties, FileState] = ResourceType(
    name="file",
    summary="Files and directories: content, owner, group and mode.",
    properties=FileProperties,
    state=FileState,
    decide=decide,
    check=check,
    check_when_applied=check_when_applied,
    finalize=finalize,
    ensure=("present", "absent", "directory"),
    find_extensions=find_extensions,
    stable_when_changed=True,
    status_name=posixpath.abspath,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    ignorable={
        "content": {"replace": False},
        "source": {"replace": False},
        "owner": {"owner": KEEP},
        "group": {"group": KEEP},
        "mode": {"mode": "xxx"},
    },
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1, find_existing=_find_existing),),
    command=COMMAND,
)
