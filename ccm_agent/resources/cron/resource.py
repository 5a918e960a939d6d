"""Decides the steps of a cron resource. No I/O."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from ccm_agent.model.errors import FileError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.cron.crontab import REBOOT, VARIABLE, Crontab, can_quote, render
from ccm_agent.resources.cron.model import DIRECTORY, CronJob, CronProperties, CronState

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*\$?")
NAME_LENGTH = 100
USER_LENGTH = 32
COMMAND_LENGTH = 998
"""The maximum length of a command. Debian's cron reads at most 1,000 bytes."""
VARIABLES = 100
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_UNESCAPED_PERCENT = re.compile(r"(?<!\\)(?:\\\\)*%")
"""A percent sign that is not escaped. If two backslashes precede it, the first one escapes the second."""


def check(wanted: CronProperties) -> None:
    """Refuse properties that cron would ignore or misread."""
    check_each(wanted, _check_name, _check_schedule, _check_user, _check_command, _check_environment)


def _check_name(wanted: CronProperties) -> None:
    name = wanted.name
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH:
        refuse(
            f"{name[:NAME_LENGTH]!r} cannot be the name of a job: only letters, digits, `_` and `-` are allowed, at most "
            f"{NAME_LENGTH}; cron ignores files with other names, such as those with a dot",
            "name",
        )


def _check_schedule(wanted: CronProperties) -> None:
    if wanted.ensure == ABSENT and not wanted.schedule:
        return
    if not wanted.schedule:
        refuse("`schedule` is required, such as `30 2 * * *` or `@daily`", "schedule")
    if len(wanted.schedule) > COMMAND_LENGTH:
        refuse(f"`schedule` is longer than {COMMAND_LENGTH} characters", "schedule")
    if wanted.schedule == REBOOT:
        return
    try:
        Crontab(wanted.schedule)
    except ValueError as err:
        refuse(f"invalid `schedule` {wanted.schedule[:NAME_LENGTH]!r}: {err}", "schedule")


def _check_user(wanted: CronProperties) -> None:
    if not USER.fullmatch(wanted.user) or len(wanted.user) > USER_LENGTH:
        refuse(f"{wanted.user[:NAME_LENGTH]!r} is not the name of a user", "user")


def _check_command(wanted: CronProperties) -> None:
    command = wanted.command
    if wanted.ensure == PRESENT and not command:
        refuse("`command` is required", "command")
    if _CONTROL.search(command):
        refuse(
            "`command` has a newline or another control character, which would end the job's line", "command"
        )
    if _UNESCAPED_PERCENT.search(command):
        refuse("`command` has a percent sign, at which cron ends the command; write it as `\\%`", "command")
    if len(command.encode(errors="replace")) > COMMAND_LENGTH:
        refuse(
            f"`command` is longer than cron's limit of {COMMAND_LENGTH} bytes; call a script",
            "command",
        )
    if command != command.strip():
        refuse("`command` begins or ends with a space", "command")


def _check_environment(wanted: CronProperties) -> None:
    if len(wanted.environment) > VARIABLES:
        refuse(f"`environment` has more than {VARIABLES} variables", "environment")
    names: set[str] = set()
    for index, one in enumerate(wanted.environment):
        name, equals, value = one.partition("=")
        place = f"environment[{index}]"
        if not equals or not VARIABLE.fullmatch(name):
            refuse(
                "a variable must be `NAME=value`; its name may contain only letters, digits and `_`", place
            )
        if name in names:
            refuse(f"the variable `{name}` is given twice", place)
        names.add(name)
        if _CONTROL.search(value) or not can_quote(value):
            refuse(f"the value of `{name}` has a control character, or both kinds of quotes", place)
        if len(value.encode(errors="replace")) > COMMAND_LENGTH - len(name):
            refuse(f"the value of `{name}` is longer than cron allows", place)


def reach(wanted: CronProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(paths=(wanted.path,))


def job_of(wanted: CronProperties) -> CronJob:
    """Return the desired job."""
    return CronJob(
        schedule=wanted.schedule,
        user=wanted.user,
        command=wanted.command,
        environment=tuple(wanted.environment),
    )


def content(wanted: CronProperties) -> bytes:
    """Return the content of the job's file."""
    return render(job_of(wanted)).encode()


def decide(wanted: CronProperties, found: CronState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the cron type; see docs/resources/cron.md."""
    if found.kind not in ("absent", "file", "symlink"):
        return Decision(error=FileError(f"{wanted.path} is not a regular file: it is a {found.kind}"))
    if wanted.ensure == ABSENT:
        if found.ensure == ABSENT:
            return Decision()
        return Decision(
            steps=(Step(noop="Would have removed the job", action=lambda p: p.remove(wanted)),),
            reason=f"{wanted.path} exists",
            changes=(PropertyChange(property="ensure", before=PRESENT, after=ABSENT),),
            contents=lambda p: p.compare(wanted),
        )
    difference = _difference(wanted, found)
    if not difference:
        return Decision()
    if not found.has_directory and not context.noop:
        why = f"{DIRECTORY} does not exist: install `cron` (Debian) or `cronie` (dnf systems)"
        return Decision(error=FileError(why))
    noop = "Would have created the job" if found.ensure == ABSENT else "Would have changed the job"
    return Decision(
        steps=(Step(noop=noop, action=lambda p: p.write(wanted)),),
        reason=difference,
        changes=tuple(_changes(wanted, found)),
        contents=lambda p: p.compare(wanted),
    )


def _difference(wanted: CronProperties, found: CronState) -> str:
    if found.kind != "file":
        return f"{wanted.path} is {found.kind}, wanted a file"
    if found.checksum != hashlib.sha256(content(wanted)).hexdigest():
        return f"{wanted.path} has different content"
    mode = f"{wanted.mode_bits:04o}"
    if found.mode != mode or found.uid != 0:
        return f"{wanted.path} has mode {found.mode} and owner {found.uid}, wanted {mode} and 0"
    return ""


def _changes(wanted: CronProperties, found: CronState) -> Iterator[PropertyChange]:
    pairs = (
        ("ensure", found.ensure, PRESENT),
        ("schedule", found.schedule, wanted.schedule),
        ("user", found.user, wanted.user),
        ("next_runs", "", ", ".join(found.next_runs)),
    )
    for name, before, after in pairs:
        if before != after:
            yield PropertyChange(property=name, before=before, after=after)
