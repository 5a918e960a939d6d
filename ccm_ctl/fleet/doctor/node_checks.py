"""
Checks of `ccmctl doctor` for nodes, using the records of the nodes in CCM_NODES.

A node writes its own record. With a stolen node key, an attacker can make the record of this node look healthy, but not the
records of other nodes. Names, versions and times are untrusted data, so the length of the output is limited.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Sized

from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.wire import DUPLICATE_IDENTITY, NodeRecord
from ccm_ctl.fleet.doctor.results import (
    Check,
    CheckResult,
    DoctorContext,
    MissingError,
    listed,
    ok,
    problem,
    warning,
)
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.nodes.node_clock import CLOCK_PROBLEM_S, CLOCK_WARNING_S
from ccm_ctl.fleet.nodes.nodes import Node

IDS = (
    "nodes.records",
    "nodes.signatures",
    "nodes.unsigned",
    "nodes.outdated",
    "nodes.version",
    "nodes.identity",
    "nodes.conflict",
    "nodes.clock",
    "nodes.disk",
    "nodes.policy",
)

READ_S = 60.0
"""The time limit in seconds. Reading the records of ten thousand nodes takes several seconds."""

VERSIONS_SHOWN = 4
VERSION_LENGTH = 32

Records = Mapping[str, NodeRecord]
"""The records that could be read, by node."""

_NUMBERS = re.compile(r"\d{1,9}")


async def check_nodes(context: DoctorContext) -> Sequence[CheckResult]:
    """Run all checks for nodes with one read of the records."""
    if context.fleet is None:
        raise MissingError("there is no connection to the broker")
    inventory = await read_inventory(context.fleet)
    return judge_nodes(list(inventory.nodes.values()), context.version)


def judge_nodes(nodes: Sequence[Node], version: str) -> list[CheckResult]:
    """
    Judge the nodes.

    Args:
        nodes: All nodes of the fleet. Nodes that were never seen have no record.
        version: The version of this program.
    """
    records = {node.name: node.record for node in nodes if node.record is not None}
    return [
        _unreadable(nodes),
        _signatures(records),
        _unsigned(records),
        _outdated(records),
        _versions(records, version),
        _identity(records),
        _conflict(records),
        _clock(nodes),
        _disk(records),
        _policy(records),
    ]


def _unreadable(nodes: Sequence[Node]) -> CheckResult:
    found = [node.name for node in nodes if node.record is None and (node.is_present or not node.assigned)]
    if not found:
        return ok("nodes.records", "The record of every node can be read.")
    sentence = f"The state is unknown on {_share(found, nodes)}, because the record cannot be read."
    return problem("nodes.records", sentence, f"ccmctl why {found[0]}", found)


def _signatures(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if not record.signatures]
    if not found:
        return ok("nodes.signatures", "Every node requires signatures.")
    sentence = f"Unsigned operation on {_share(found, records)}: any client that can publish on the broker can command them."
    fix = f"ccmctl node add {found[0]} > {found[0]}.creds   # then set nats.creds in its agent.yaml"
    return problem("nodes.signatures", sentence, fix, found)


def _unsigned(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if record.signatures and record.unsigned]
    if not found:
        return ok("nodes.unsigned", "No node that requires signatures accepts unsigned data or objects.")
    sentence = (
        f"Unsigned hiera data or objects are accepted on {_share(found, records)}. "
        "Remove `stamped_data: false` and `unsigned_objects: true` from their agent.yaml, and restart the agents."
    )
    return warning("nodes.unsigned", sentence, names=found)


def _outdated(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if record.plans_only]
    if not found:
        return ok("nodes.outdated", "No node reports that its signers list is too old.")
    sentence = (
        f"Only plans are accepted on {_share(found, records)}: the signers list there was not confirmed within "
        "its maximum age. "
        "If the published list is confirmed, the broker withholds it from these nodes."
    )
    return problem("nodes.outdated", sentence, "ccmctl signers renew", found)


def _versions(records: Records, version: str) -> CheckResult:
    others = {name: record.version for name, record in records.items() if record.version != version}
    if not others:
        return ok("nodes.version", f"Every agent has the version of this ccmctl, {version}.")
    counts = Counter(map(_short, others.values())).most_common(VERSIONS_SHOWN)
    shown = ", ".join(f"{has or 'unknown'}: {count}" for has, count in counts)
    are_older = all(_parts(has) < _parts(version) for has in others.values())
    word = "older" if are_older else "other"
    sentence = (
        f"Agents of {word} versions than this ccmctl ({version}) on {_share(list(others), records)}: {shown}."
    )
    return warning("nodes.version", sentence, names=list(others))


def _identity(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if record.conflict.startswith(DUPLICATE_IDENTITY)]
    if not found:
        return ok("nodes.identity", "Every agent has its own identity.")
    sentence = f"Two agents share one identity on {_share(found, records)}; both refuse to run anything."
    return problem("nodes.identity", sentence, f"ccmctl why {found[0]}", found)


def _conflict(records: Records) -> CheckResult:
    reported = [name for name, record in records.items() if record.conflict]
    found = [name for name in reported if not records[name].conflict.startswith(DUPLICATE_IDENTITY)]
    if not found:
        return ok("nodes.conflict", "No node reports a broken policy or conflicting assignments.")
    sentence = f"A broken policy or conflicting assignments are reported by {_share(found, records)}."
    return problem("nodes.conflict", sentence, f"ccmctl why {found[0]}", found)


def _clock(nodes: Sequence[Node]) -> CheckResult:
    off = {node.name: abs(node.clock_off_s) for node in nodes if node.clock_off_s is not None}
    wrong = [name for name, seconds in off.items() if seconds >= CLOCK_WARNING_S]
    if not wrong:
        return ok("nodes.clock", "The clocks of all nodes that are present agree with the broker's.")
    sentence = f"The clock differs from the broker's by more than {format_duration(CLOCK_WARNING_S)} on {_share(wrong, nodes)}."
    fix = "timedatectl set-ntp true   # on each node"
    if all(off[name] < CLOCK_PROBLEM_S for name in wrong):
        return warning("nodes.clock", sentence, fix, wrong)
    sentence += f" A node whose clock is off by more than {format_duration(CLOCK_PROBLEM_S)} can refuse signed requests."
    return problem("nodes.clock", sentence, fix, wrong)


def _disk(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if record.disk]
    if not found:
        return ok("nodes.disk", "No node reports that it cannot write its state to disk.")
    sentence = (
        f"The state cannot be written to disk on {_share(found, records)}: events are kept only in memory, so a restart loses "
        "them, and runs cannot be undone."
    )
    return problem("nodes.disk", sentence, "df -h /var/lib/choria/ccm   # on each node", found)


def _policy(records: Records) -> CheckResult:
    found = [name for name, record in records.items() if record.policy is False and not record.conflict]
    if not found:
        return ok("nodes.policy", "No node reports a missing policy.")
    sentence = (
        f"No policy.yaml on {_share(found, records)}: only the operators' roles limit what runs there. "
        "A policy limits what stolen operator credentials can do."
    )
    return warning("nodes.policy", sentence, names=found)


def _share(names: Sequence[str], of: Sized) -> str:
    """Format a share, such as `2 of 5 nodes (web1, web2)`."""
    nodes = "node" if len(of) == 1 else "nodes"
    return f"{len(names)} of {len(of)} {nodes} ({listed(names)})"


def _short(version: str) -> str:
    return version if len(version) <= VERSION_LENGTH else f"{version[:VERSION_LENGTH]}…"


def _parts(version: str) -> tuple[int, ...]:
    """Return a version for comparison. Digits beyond a limit are ignored, because the record may be hostile."""
    return tuple(int(part) for part in _NUMBERS.findall(version[:VERSION_LENGTH])[:4])


def node_checks() -> list[Check]:
    """Return the checks for nodes."""
    return [Check(ids=IDS, look=check_nodes, limit_s=READ_S)]
