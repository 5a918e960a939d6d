"""The edit type: lines and blocks in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import CommandLine, ProviderSpec, ResourceContext, ResourceType, UndoRules
from ccm_agent.resources.edit.model import EditProperties
from ccm_agent.resources.edit.resource import check
from ccm_agent.resources.edited_files import EditedState, decide, earlier, identify, reach

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.edit.providers.posix import PosixEdit

    return PosixEdit(context.files, context.runner)


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.edit.providers.existing import find_blocks

    return await find_blocks(context, argument)


TYPE: ResourceType[EditProperties, EditedState] = ResourceType(
    name="edit",
    summary="Lines and blocks in files.",
    properties=EditProperties,
    state=EditedState,
    decide=decide,
    check=check,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    reach=reach,
    undo=UndoRules(earlier=earlier, identify=identify),
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1, find_existing=_find_existing),),
    command=CommandLine(
        hidden=frozenset({"edits", "diff"}),
        examples=(
            "/etc/ssh/sshd_config --line 'PermitRootLogin no' --match '^#?PermitRootLogin' --validate 'sshd -t -f %s'",
            "/etc/hosts --line '192.0.2.7 db' --diff",
            "/etc/issue absent --match password",
        ),
    ),
)
