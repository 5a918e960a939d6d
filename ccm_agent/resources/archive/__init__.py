"""The archive type: archives from web servers, downloaded and unpacked."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.formats.urls import is_web
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.archive.command import COMMAND
from ccm_agent.resources.archive.model import ArchiveProperties, ArchiveState
from ccm_agent.resources.archive.resource import check, check_by_lint, decide, reach
from ccm_agent.resources.contract import ProviderSpec, ResourceContext, ResourceType


def _make_http(context: ResourceContext) -> Any:
    from ccm_agent.resources.archive.providers.http import Http

    return Http(context.files, context.port("download"), context.port("unpack"), context.say)


def _is_web(wanted: ArchiveProperties) -> bool:
    return is_web(wanted.url)


TYPE: ResourceType[ArchiveProperties, ArchiveState] = ResourceType(
    name="archive",
    summary="Archives that are downloaded and unpacked.",
    properties=ArchiveProperties,
    state=ArchiveState,
    decide=decide,
    check=check,
    check_by_lint=check_by_lint,
    ensure=(PRESENT, ABSENT),
    providers=(ProviderSpec(name="http", make=_make_http, rank=10, takes=_is_web),),
    stable_when_changed=True,
    reach=reach,
    noop_separator=". ",
    can_status=False,
    why_no_status="the state of an archive depends on properties in a manifest, not only on its name",
    command=COMMAND,
)
