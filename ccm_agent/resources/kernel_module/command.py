"""The command line of `ccm ensure kernel_module`."""

from __future__ import annotations

from typing import Any

from ccm_agent.model.errors import UsageError
from ccm_agent.resources.contract import CommandLine, Flag


def gather(given: dict[str, Any]) -> dict[str, Any]:
    """
    Convert flags to properties. Two switches set `loaded`. Without a switch, `ensure` determines the value.

    Raises:
        UsageError: Both switches are given.
    """
    values = dict(given)
    loaded, unloaded = values.pop("loaded", None), values.pop("unloaded", None)
    if loaded and unloaded:
        raise UsageError("--loaded and --unloaded are mutually exclusive")
    if loaded or unloaded:
        values["loaded"] = bool(loaded)
    for switch, field in (("no_persistent", "persistent"), ("no_apply", "apply")):
        if values.pop(switch, None):
            values[field] = False
    return values


COMMAND = CommandLine(
    examples=(
        "br_netfilter",
        "kvm_intel --options nested=1 --diff",
        "floppy absent --blacklisted",
        "nf_conntrack --options hashsize=65536 --no-persistent --no-apply",
    ),
    flags=(
        Flag(names=("--loaded",), kind="switch", help="Load the module, even with `absent`."),
        Flag(names=("--unloaded",), kind="switch", help="Unload the module, even with `present`."),
        Flag(names=("--no-persistent",), kind="switch", help="Do not load the module at boot."),
        Flag(names=("--no-apply",), kind="switch", help="Manage only the files, not the running kernel."),
    ),
    hidden=frozenset({"loaded", "persistent", "apply"}),
    gather=gather,
)
