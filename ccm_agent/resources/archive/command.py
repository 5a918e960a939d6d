"""The command line of `ccm ensure archive`."""

from __future__ import annotations

import os
from typing import Any

from ccm_agent.model.errors import UsageError
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.contract import CommandLine, Flag
from ccm_agent.resources.owners import own_group, own_user


def gather(given: dict[str, Any]) -> dict[str, Any]:
    """
    Convert flags to properties. Owner and group default to those of this process.

    Raises:
        UsageError: The owner is not USER:GROUP, or the directory to unpack into does not exist.
    """
    values = dict(given)
    values.setdefault("ensure", PRESENT)
    owner = str(values.pop("owner", "") or "")
    user, _, group = owner.partition(":")
    if owner and not (user and group):
        raise UsageError(f"--owner must be USER:GROUP, not {owner!r}")
    values["owner"], values["group"] = user or own_user(), group or own_group()
    directory = values.get("extract_parent")
    if directory and not os.path.isdir(directory):  # noqa: PTH112 - pathlib is slow to import
        raise UsageError(f"--extract {directory}: there is no such directory")
    if not values.get("password") and os.environ.get("HTTP_PASSWORD"):
        values["password"] = os.environ["HTTP_PASSWORD"]
    return values


COMMAND = CommandLine(
    examples=(
        "/opt/app.tar.gz https://example.net/app-1.2.tar.gz --extract-parent /opt --creates /opt/app --owner root:root",
    ),
    arguments=("name", "url"),
    required=("url",),
    flags=(
        Flag(field="headers", names=("--header", "-H", "--headers"), kind="map", placeholder="K:V"),
        Flag(field="username", names=("--username",), placeholder="USER"),
        Flag(
            field="password",
            names=("--password",),
            placeholder="PASS",
            help="Password for basic authentication. HTTP_PASSWORD is safer, because `ps` does not show it.",
        ),
        Flag(field="checksum", names=("--checksum",), placeholder="SHA256"),
        Flag(field="extract_parent", names=("--extract", "--extract-parent"), placeholder="DIR"),
        Flag(field="creates", names=("--creates",), placeholder="FILE"),
        Flag(field="owner", names=("--owner",), help="Owner of the archive file.", placeholder="USER:GROUP"),
        Flag(field="ensure", names=("--ensure",), help="`present` (default) or `absent`."),
    ),
    hidden=frozenset({"group"}),
    gather=gather,
)
