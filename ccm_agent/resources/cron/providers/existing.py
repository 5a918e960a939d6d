"""The jobs in /etc/cron.d that no package installed, for `ccm import cron`."""

from __future__ import annotations

import posixpath

from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.cron.crontab import parse, render
from ccm_agent.resources.cron.model import DIRECTORY, CronProperties
from ccm_agent.resources.cron.resource import check
from ccm_agent.resources.existing import ExistingBuilder, ExistingResources, refuse_argument
from ccm_agent.resources.packaged import read_own_files
from ccm_agent.resources.secret_signs import find_sign


async def find_jobs(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the jobs whose files are exactly as this type writes them. A manifest would change all other files.

    Raises:
        UsageError: An argument was given.
        FileError: /etc/cron.d cannot be read.
    """
    refuse_argument("cron", argument)
    builder = ExistingBuilder("cron", CronProperties, check)
    for path, entry in (await read_own_files(context, DIRECTORY)).items():
        text = entry.content.decode(errors="replace")
        name, job = posixpath.basename(path), parse(text)
        if job is None or render(job) != text:
            builder.leave_out(name, f"differs from what this type writes; use `ccm import file:{DIRECTORY}`")
        elif sign := find_sign(entry.content, entry.mode):
            builder.leave_out(name, sign)
        else:
            environment = {"environment": list(job.environment)} if job.environment else {}
            properties = {"schedule": job.schedule, "user": job.user, "command": job.command}
            builder.add(name, properties | environment)
    return builder.result()
