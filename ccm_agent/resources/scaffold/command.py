"""The command line of `ccm ensure scaffold`."""

from __future__ import annotations

import os
from typing import Any

from ccm_agent.model.errors import UsageError
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.contract import CommandLine, Flag
from ccm_agent.resources.scaffold.model import DEFAULT_ENGINE, DELIMITERS


def gather(given: dict[str, Any]) -> dict[str, Any]:
    """
    Convert flags to properties.

    Raises:
        UsageError: The source is not a directory. For `absent`, the source may be missing.
    """
    values = {"ensure": PRESENT, "engine": DEFAULT_ENGINE, **given}
    if "post" in values:
        values["post"] = [{glob: command} for glob, command in values["post"].items()]
    source = values.get("source", "")
    if values["ensure"] != ABSENT and not os.path.isdir(source):  # noqa: PTH112 - pathlib is slow to import
        what = f"{source} is not a directory" if source else "give a directory of templates"
        raise UsageError(f"SOURCE: {what}")
    return values


COMMAND = CommandLine(
    examples=("/etc/app templates/app --purge --post '*.sh=chmod 0755 {}'",),
    arguments=("name", "source", "ensure"),
    flags=(
        Flag(field="engine", names=("--engine",), placeholder="|".join(DELIMITERS)),
        Flag(field="skip_empty", names=("--skip-empty/--no-skip-empty",)),
        Flag(field="left_delimiter", names=("--left-delimiter",), placeholder="TEXT"),
        Flag(field="right_delimiter", names=("--right-delimiter",), placeholder="TEXT"),
        Flag(field="purge", names=("--purge",)),
        Flag(
            field="post",
            names=("--post",),
            kind="map",
            placeholder="PATTERN=TOOL",
            help="Command to run on each rendered file whose name matches. May be repeated.",
        ),
        Flag(field="timeout", names=("--timeout",), placeholder="DURATION"),
    ),
    hidden=frozenset({"data", "diff"}),
    gather=gather,
)
