"""The symlink type: symbolic links."""

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
from ccm_agent.resources.symlink.model import SymlinkProperties, SymlinkState
from ccm_agent.resources.symlink.resource import check, decide, reach
from ccm_agent.resources.symlink.undo import earlier, identify


def _make_posix(context: ResourceContext) -> Any:
    from ccm_agent.resources.symlink.providers.posix import PosixSymlink

    return PosixSymlink(context.files)


TYPE: ResourceType[SymlinkProperties, SymlinkState] = ResourceType(
    name="symlink",
    summary="Symbolic links: target, owner and group.",
    properties=SymlinkProperties,
    state=SymlinkState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    status_name=posixpath.abspath,
    undo=UndoRules(earlier=earlier, identify=identify),
    ignorable={"target": {"target": ""}, "owner": {"owner": ""}, "group": {"group": ""}},
    command=CommandLine(
        examples=(
            "/usr/local/bin/app --target /opt/app/bin/app",
            "/usr/local/bin/old absent --noop",
        ),
    ),
    providers=(ProviderSpec(name="posix", make=_make_posix, rank=1),),
)
