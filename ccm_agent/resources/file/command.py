"""The command line of `ccm ensure file`."""

from __future__ import annotations

import os
from typing import Any

from ccm_agent.model.errors import UsageError
from ccm_agent.resources.contract import CommandLine, Flag
from ccm_agent.resources.owners import own_group, own_user

FILE_MODE = "0644"
DIRECTORY_MODE = "0755"


def gather(given: dict[str, Any]) -> dict[str, Any]:
    """
    Convert flags to properties. Owner and group default to those of this process, the mode to 0644.

    Raises:
        UsageError: Two flags give the content, or a named file does not exist.
    """
    values = dict(given)
    if values.pop("no_replace", None):
        values["replace"] = False
    content_file = values.pop("content_file", None)
    if sum(one is not None for one in (content_file, values.get("content"), values.get("source"))) > 1:
        raise UsageError("--content, --content-file and --source are mutually exclusive: use only one")
    if content_file is not None:
        values["content"] = _read(content_file)
    if "source" in values and "://" not in values["source"] and not os.path.exists(values["source"]):  # noqa: PTH110 - pathlib is slow to import
        raise UsageError(f"--source {values['source']}: there is no such file")
    values.setdefault("ensure", "present")
    owner, _, group = str(values.get("owner", "")).partition(":")
    values["owner"] = owner or own_user()
    values["group"] = values.get("group") or group or own_group()
    # the default mode of files is not used for directories, which need execute permission
    if values.setdefault("mode", FILE_MODE) == FILE_MODE and values["ensure"] == "directory":
        values["mode"] = DIRECTORY_MODE
    return values


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", newline="") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except (OSError, UnicodeError) as err:
        reason = err.strerror if isinstance(err, OSError) else "it is not UTF-8 text; use --source"
        raise UsageError(f"--content-file {path}: {reason}") from err


COMMAND = CommandLine(
    examples=(
        "/etc/motd --content 'Welcome' --owner root --group root --mode 0644 --diff",
        "/srv/app directory --owner app --group app --mode 0755",
        "/etc/motd.old absent",
    ),
    flags=(
        Flag(
            field="owner", names=("--owner",), help="Owner as USER or USER:GROUP.", placeholder="USER[:GROUP]"
        ),
        Flag(
            field="mode",
            names=("--mode",),
            placeholder="OCTAL",
            help="Permissions in octal. Default: 0644.",
        ),
        Flag(field="content", names=("--content",), placeholder="TEXT"),
        Flag(
            names=("--content-file",),
            help="File to read the content from. Templates in it are rendered.",
            kind="text",
            placeholder="FILE",
        ),
        Flag(field="source", names=("--source",), placeholder="FILE"),
        Flag(
            names=("--no-replace",),
            kind="switch",
            help="Write the content only when the file is created.",
        ),
    ),
    hidden=frozenset({"replace", "diff"}),
    gather=gather,
)
