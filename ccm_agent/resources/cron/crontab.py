"""
The format of files in /etc/cron.d.

Schedules are checked here, because neither the broker's expressions (`model/formats/cron.py`) nor cronsim has exactly the
syntax of cron. Both accept schedules such as `5/15`, for which cron ignores the whole file. `Cron` computes the next times, so no
library is needed.

Source: crontab(5) of cron 3.0 (Debian) and of cronie. Only syntax that both accept is used.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ccm_agent.model.formats.cron import Cron
from ccm_agent.resources.cron.model import CronJob

HEADER = "# Managed by ccm"
REBOOT = "@reboot"
NICKNAMES = {
    REBOOT: "",
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = re.compile(r"(?:\*|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d{1,3}))?", re.ASCII)
_PLAIN = re.compile(r"[A-Za-z0-9_./:@,+-]+")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE = re.compile(r"(?P<schedule>@\w+|\S+(?:[ \t]+\S+){4})[ \t]+(?P<user>\S+)[ \t]+(?P<command>\S.*)")
_SETTING = re.compile(rf"(?P<name>{VARIABLE.pattern})[ \t]*=(?P<value>.*)")


class Crontab(Cron):
    """
    A schedule in cron's syntax.

    Raises:
        ValueError: The text is not a valid schedule. The message contains the reason.
    """

    def __init__(self, schedule: str) -> None:
        words = NICKNAMES.get(schedule, schedule).split(" ")
        if len(words) != len(_FIELDS) or "" in words:
            raise ValueError(
                "expected five fields separated by spaces (minute, hour, day of the month, month, day of the week), or one of "
                + ", ".join(NICKNAMES)
            )
        sets = [_numbers(word, *field) for word, field in zip(words, _FIELDS, strict=True)]
        sets[4] = {day % 7 for day in sets[4]}
        super().__init__(" ".join(["0", *(",".join(map(str, sorted(one))) for one in sets)]))
        # cron also treats `*/2` as a star: a day must then match both fields
        self._any_day, self._any_weekday = words[2][0] == "*", words[4][0] == "*"
        if self._any_weekday and min(sets[2]) > max(_MONTH_LENGTHS[month - 1] for month in sets[3]):
            raise ValueError("this day does not exist, so the job would never run")


def _numbers(word: str, name: str, least: int, most: int, names: Sequence[str]) -> set[int]:
    found: set[int] = set()
    for part in word.split(","):
        match = _PART.fullmatch(part)
        if match is None or (match["step"] and match["first"] and not match["last"]):
            raise ValueError(f"`{part}` is not a valid {name}")
        low = _number(match["first"], names, least)
        high = _number(match["last"], names, most if match["first"] is None else low)
        step = int(match["step"] or 1)
        if not least <= low <= high <= most or step < 1:
            raise ValueError(f"`{part}` is not a valid {name}: use {least} to {most}")
        found |= set(range(low, high + 1, step))
    return found


def _number(word: str | None, names: Sequence[str], default: int) -> int:
    if word is None:
        return default
    if word.lower() in names:
        return names.index(word.lower()) + (1 if len(names) == len(_MONTHS) else 0)
    return int(word) if word.isdecimal() and len(word) <= 2 else -1


def render(job: CronJob) -> str:
    """Return the content of a job's file."""
    settings = [
        f"{name}={_quoted(value)}" for name, _, value in (one.partition("=") for one in job.environment)
    ]
    return "\n".join([HEADER, *settings, f"{job.schedule} {job.user} {job.command}", ""])


def parse(text: str) -> CronJob | None:
    """Return the job in a file; None if there is not exactly one."""
    jobs: list[re.Match[str]] = []
    environment = []
    for line in text.split("\n"):
        line = line.strip(" \t")
        if not line or line.startswith("#"):
            continue
        if setting := _SETTING.fullmatch(line):
            value = _unquoted(setting["value"].lstrip(" \t"))
            environment.append(f"{setting['name']}={value}")
        elif job := _LINE.fullmatch(line):
            jobs.append(job)
        else:
            return None
    if len(jobs) != 1:
        return None
    return CronJob(**jobs[0].groupdict(), environment=tuple(environment))


def can_quote(value: str) -> bool:
    """Whether cron can read a value. Quoted values have no escapes."""
    return '"' not in value or "'" not in value


def _quoted(value: str) -> str:
    if _PLAIN.fullmatch(value):
        return value
    return f"'{value}'" if '"' in value else f'"{value}"'


def _unquoted(value: str) -> str:
    is_quoted = len(value) >= 2 and value[0] in "\"'" and value[0] == value[-1]
    return value[1:-1] if is_quoted else value
