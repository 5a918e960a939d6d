"""The apply type: another manifest, applied as part of this one."""

from __future__ import annotations

from typing import Any

from ccm_agent.resources.apply.model import ApplyProperties, ApplyState
from ccm_agent.resources.apply.resource import check, decide, has_changed, reach
from ccm_agent.resources.contract import CommandLine, ProviderSpec, ResourceContext, ResourceType


def _make(context: ResourceContext) -> Any:
    from ccm_agent.resources.apply.providers.ccmmanifest import CcmManifest

    return CcmManifest(context)


TYPE: ResourceType[ApplyProperties, ApplyState] = ResourceType(
    name="apply",
    summary="Another manifest, applied as part of this one.",
    properties=ApplyProperties,
    state=ApplyState,
    decide=decide,
    providers=(ProviderSpec(name="ccmmanifest", make=_make),),
    ensure=("present",),
    default_ensure="present",
    check=check,
    has_changed=has_changed,
    verify=False,
    why_unverified="each resource of the child was verified; applying it again would be a second run",
    contains_manifest=True,
    reach=reach,
    can_status=False,
    why_no_status="use `ccm apply --noop` to see what a manifest would change",
    command=CommandLine(is_offered=False),
)
