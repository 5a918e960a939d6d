"""Health checks of a resource, and their results."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Any

from msgspec import Meta, Struct


class HealthStatus(IntEnum):
    """Exit statuses of Nagios. Events contain the name in lower case, as in CCM."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class HealthCheck(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One check. It has either a `command` (Nagios format) or `goss_rules`."""

    command: Annotated[str, Meta(description="Nagios plugin command line. Its exit code is the result.")] = ""
    goss_rules: Annotated[
        Any, Meta(description="Goss rules: a mapping of resource types to expectations.")
    ] = None
    name: Annotated[str, Meta(description="Name of the check. Default: the command's file name.")] = ""
    timeout: Annotated[str, Meta(description="Time limit of one attempt, such as `10s`.")] = ""
    tries: Annotated[int, Meta(description="Maximum attempts before the check fails.")] = 0
    try_sleep: Annotated[str, Meta(description="Time between attempts, such as `1s`.")] = ""
    format: Annotated[str, Meta(description="`nagios` (default) or `goss`.")] = ""


class HealthResult(Struct, frozen=True, kw_only=True, rename={"output": "Output"}):
    """
    The result of a check.

    In events the field is called `Output`, as in Choria CCM.

    Attributes:
        status: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
        tries: The number of attempts.
        output: The output of the check, limited in size.
        name: The check's name.
    """

    status: int
    tries: int = 1
    output: str = ""
    name: str = ""
