"""The cron type: jobs in /etc/cron.d."""

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
from ccm_agent.resources.cron.model import CronProperties, CronState
from ccm_agent.resources.cron.resource import check, decide, reach
from ccm_agent.resources.cron.undo import earlier, identify

if TYPE_CHECKING:
    from ccm_agent.resources.existing import ExistingResources


def _make_crond(context: ResourceContext) -> Any:
    from ccm_agent.resources.cron.providers.crond import Crond

    return Crond(context.files, context.clock)


async def _find_existing(context: ResourceContext, argument: str) -> ExistingResources:
    from ccm_agent.resources.cron.providers.existing import find_jobs

    return await find_jobs(context, argument)


TYPE: ResourceType[CronProperties, CronState] = ResourceType(
    name="cron",
    summary="Jobs that cron runs on a schedule, each in a file in /etc/cron.d.",
    properties=CronProperties,
    state=CronState,
    decide=decide,
    check=check,
    reach=reach,
    ensure=(PRESENT, ABSENT),
    default_ensure=PRESENT,
    is_extension=True,
    undo=UndoRules(earlier=earlier, identify=identify),
    command=CommandLine(
        examples=(
            "backup --schedule '30 2 * * *' --command '/usr/local/bin/backup --all' --diff",
            "report --schedule @weekly --user www-data --command /srv/report --environment MAILTO=ops@example.com",
            "backup absent",
        ),
    ),
    providers=(ProviderSpec(name="crond", make=_make_crond, rank=10, find_existing=_find_existing),),
)
