"""Decides the steps of a host resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each, refuse
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.host.lines import normal_address
from ccm_agent.resources.host.model import HostEntry, HostProperties, HostState

HOSTS = "/etc/hosts"
LOCALHOST = "localhost"
LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
NAME_LENGTH = 253
MOST = 100
"""The maximum number of aliases or addresses of one host."""


def check(wanted: HostProperties) -> None:
    """Refuse values that the resolver would ignore or interpret as another entry."""
    check_each(wanted, _check_name, _check_addresses, _check_aliases, _check_presence, _check_loopback)


def _check_host_name(name: str, field: str) -> None:
    if len(name) > NAME_LENGTH:
        refuse(f"a host name can have at most {NAME_LENGTH} characters, not {len(name)}", field)
    labels = name.split(".")
    if not all(LABEL.fullmatch(one) for one in labels) or labels[-1].isdigit():
        refuse(
            f"{name!r} is not a host name: parts of letters, digits, `_` and `-`, at most 63 characters each, separated by dots",
            field,
        )


def _check_name(wanted: HostProperties) -> None:
    _check_host_name(wanted.name, "name")


def _check_addresses(wanted: HostProperties) -> None:
    addresses = wanted.addresses
    if wanted.ensure == ABSENT and addresses in ([], [""]):
        return
    if not any(addresses):
        refuse("`address` is required", "address")
    if len(addresses) > MOST:
        refuse(f"`address` has {len(addresses)} addresses, more than {MOST}", "address")
    seen: set[str] = set()
    for one in addresses:
        normal = normal_address(one)
        if not normal:
            refuse(f"{one[:NAME_LENGTH]!r} is neither an IPv4 nor an IPv6 address", "address")
        if normal in seen:
            refuse(f"the address {normal} is given twice", "address")
        seen.add(normal)


def _check_aliases(wanted: HostProperties) -> None:
    aliases = wanted.aliases or []
    if len(aliases) > MOST:
        refuse(f"`aliases` has {len(aliases)} names, more than {MOST}", "aliases")
    seen = {wanted.name.lower()}
    for index, one in enumerate(aliases):
        _check_host_name(one, f"aliases[{index}]")
        if one.lower() in seen:
            refuse(f"the name {one} is given twice", f"aliases[{index}]")
        seen.add(one.lower())


def _check_presence(wanted: HostProperties) -> None:
    if wanted.ensure == ABSENT and wanted.name.lower() == LOCALHOST:
        refuse(f"the entry of {LOCALHOST} cannot be removed: programs on this host need it", "ensure")


def _check_loopback(wanted: HostProperties) -> None:
    names = {one.lower() for one in (wanted.name, *(wanted.aliases or ()))}
    if LOCALHOST in names and not all(_is_loopback(normal_address(one)) for one in wanted.addresses if one):
        refuse(f"{LOCALHOST} must have a loopback address, such as 127.0.0.1 or ::1", "address")


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def reach(wanted: HostProperties) -> HostAccess:
    """Return the host objects that the resource accesses; see `ResourceType`."""
    return HostAccess(paths=(HOSTS,))


def decide(wanted: HostProperties, found: HostState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the host type; see docs/resources/host.md."""
    changes = tuple(_changes(wanted, found))
    if not changes:
        return Decision()
    if wanted.ensure == ABSENT:
        step = Step(noop=f"Would have removed the host from {HOSTS}", action=lambda p: p.remove(wanted))
    else:
        verb = "added the host to" if found.ensure == ABSENT else "changed the host in"
        step = Step(noop=f"Would have {verb} {HOSTS}", action=lambda p: p.write(wanted))
    reason = "; ".join(f"{one.property} is {one.before!r}, wanted {one.after!r}" for one in changes)
    return Decision(steps=(step,), reason=reason, changes=changes)


def _changes(wanted: HostProperties, found: HostState) -> Iterator[PropertyChange]:
    stays = wanted.ensure == PRESENT
    if found.ensure != wanted.ensure:
        yield PropertyChange(property="ensure", before=found.ensure, after=wanted.ensure)
    addresses = [normal_address(one) for one in wanted.addresses] if stays else []
    aliases = wanted.aliases if stays else []
    # without `aliases`, several lines may assign different names to the same address
    has_extra = aliases is not None and len(found.entries) > len(addresses)
    if set(found.addresses) != set(addresses) or has_extra:
        before, after = ", ".join(found.addresses), ", ".join(addresses)
        yield PropertyChange(property="address", before=before, after=after)
    entries = found.entries or (HostEntry(address=""),)
    if aliases is not None and not all(one.has_aliases(aliases) for one in entries):
        before = ", ".join(" ".join(one.aliases) for one in entries)
        yield PropertyChange(property="aliases", before=before, after=" ".join(aliases))
