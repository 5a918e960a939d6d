"""The command line of `ccm ensure service`."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import UsageError
from ccm_agent.resources.contract import CommandLine, Flag


def gather(given: dict[str, Any]) -> dict[str, Any]:
    """
    Convert flags to properties. Two switches set `enable`. Without a switch, `enable` is not managed.

    Raises:
        UsageError: Both switches are given.
    """
    values = dict(given)
    enable, disable = values.pop("enable", None), values.pop("disable", None)
    if enable and disable:
        raise UsageError(
            "--enable and --disable are mutually exclusive: use one, or neither to leave the setting unmanaged"
        )
    if enable or disable:
        values["enable"] = bool(enable)
    return values


COMMAND = CommandLine(
    examples=("nginx running --enable", "cups stopped --disable"),
    alias="svc",
    flags=(
        Flag(field="enable", names=("--enable",), kind="switch", help="Start the service at boot."),
        Flag(names=("--disable",), kind="switch", help="Do not start the service at boot."),
        Flag(field="subscribe", names=("--subscribe", "-S"), kind="list", placeholder="TYPE#NAME"),
    ),
    gather=gather,
)
