"""Undoes the change of a job by restoring the earlier job."""

from __future__ import annotations

import hashlib

from ccm_agent.model.errors import InputError
from ccm_agent.model.records.undo import EarlierState, Identity, KeepFile
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import Decision
from ccm_agent.resources.cron.model import MODE, CronProperties, CronState
from ccm_agent.resources.cron.resource import check, content

FOREIGN = "its file differed from what this type writes"


async def earlier(
    wanted: CronProperties, found: CronState, decision: Decision, keep: KeepFile
) -> EarlierState:
    """Return the state before a change; see `UndoRules`. A file is restored only if it can be reproduced byte for byte."""
    if found.ensure == ABSENT:
        return EarlierState(properties={"ensure": ABSENT})
    job = found.job
    if found.kind != "file" or job is None or found.mode != f"{MODE:04o}" or found.uid != 0:
        return EarlierState(why_not=FOREIGN)
    back = CronProperties(
        name=wanted.name,
        ensure=PRESENT,
        schedule=job.schedule,
        user=job.user,
        command=job.command,
        environment=list(job.environment),
    )
    try:
        check(back)
    except InputError:
        return EarlierState(why_not=FOREIGN)
    if hashlib.sha256(content(back)).hexdigest() != found.checksum:
        return EarlierState(why_not=FOREIGN)
    return EarlierState(
        properties={
            "ensure": PRESENT,
            "schedule": back.schedule,
            "user": back.user,
            "command": back.command,
            "environment": back.environment,
        }
    )


def identify(state: CronState) -> Identity:
    """Return the identity of a state; see `UndoRules`."""
    return {"kind": state.kind, "content": state.checksum, "mode": state.mode, "owner": str(state.uid)}
