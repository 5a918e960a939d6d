"""The scaffold type: renders directories of files from directories of templates."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType
from ccm_agent.resources.scaffold.command import COMMAND
from ccm_agent.resources.scaffold.model import ScaffoldProperties, ScaffoldState
from ccm_agent.resources.scaffold.resource import check, check_when_applied, decide, find_extensions, reach


def _make_choria(context: ResourceContext) -> Any:
    from ccm_agent.resources.scaffold.providers.choria import Choria

    return Choria(context)


TYPE: ResourceType[ScaffoldProperties, ScaffoldState] = ResourceType(
    name="scaffold",
    summary="Directories rendered from templates.",
    properties=ScaffoldProperties,
    state=ScaffoldState,
    decide=decide,
    check=check,
    check_when_applied=check_when_applied,
    ensure=(PRESENT, ABSENT),
    providers=(ProviderSpec(name="choria", make=_make_choria, rank=1),),
    find_extensions=find_extensions,
    stable_when_changed=True,
    reach=reach,
    can_status=False,
    why_no_status="a scaffold is compared with files rendered from a source, which only a manifest names",
    command=COMMAND,
)
