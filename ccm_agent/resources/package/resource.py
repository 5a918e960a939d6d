"""Decides the steps of a package resource. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ccm_agent.model.errors import Place, PropertyError
from ccm_agent.model.formats.versions import compare_debian, compare_rpm
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.checks import check_each
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess, Step
from ccm_agent.resources.package.model import LATEST, PackageProperties, PackageState
from ccm_agent.resources.package.provider import PackageProvider

NAME = re.compile(r"[A-Za-z0-9._+:~-]+")
FIRST = re.compile(r"[A-Za-z0-9]")
DANGEROUS = re.compile(r"""[;&|$`()\[\]{}<>*?'"\\!\s]""")


def check(wanted: PackageProperties) -> None:
    """Refuse names and versions that a package manager could misinterpret."""
    check_each(wanted, _check_name, _check_version)


def _check_name(wanted: PackageProperties) -> None:
    name, place = wanted.name, Place(path="$.name")
    if DANGEROUS.search(name):
        raise PropertyError(f"package name contains dangerous characters: {name!r}", place=place)
    if not NAME.fullmatch(name):
        raise PropertyError(
            f"package name contains invalid characters: {name!r} (allowed: alphanumeric, ._+:~-)", place=place
        )


def _check_version(wanted: PackageProperties) -> None:
    ensure, place = wanted.ensure, Place(path="$.ensure")
    if DANGEROUS.search(ensure):
        raise PropertyError(f"package version/ensure contains dangerous characters: {ensure!r}", place=place)


def check_when_applied(wanted: PackageProperties, written: Mapping[str, Any]) -> None:
    """Refuse values that a package manager interprets as an option or a pattern; see `ResourceType`."""
    if not FIRST.match(wanted.name):
        raise PropertyError(
            f"package name {wanted.name!r} must begin with a letter or a digit",
            place=Place(path="$.name"),
        )
    if wanted.ensure.startswith("-"):
        raise PropertyError(
            f"package version {wanted.ensure!r} begins with a hyphen, so a package manager would treat it as an option",
            place=Place(path="$.ensure"),
        )


def reach(wanted: PackageProperties) -> HostAccess:
    """Return the host objects that the resource accesses. Dependencies of the package are not included."""
    return HostAccess(packages=(wanted.name,))


def _debian(found: PackageState, version: str) -> int:
    return compare_debian(found.metadata.version, version)


def _rpm(found: PackageState, version: str) -> int:
    """
    Compare only the given parts of the desired version. If it has no epoch or release, any epoch or release matches.

    dnf matches `name-version` in the same way, so the verification is consistent with the request.
    """
    epoch, mark, rest = version.rpartition(":")
    installed, _, release = found.metadata.version.rpartition("-")
    if not installed:
        installed, release = release, ""
    if mark and (order := _number(str(found.metadata.extended.get("epoch", "0"))) - _number(epoch)):
        return 1 if order > 0 else -1
    wanted_version, dash, wanted_release = rest.partition("-")
    if order := compare_rpm(installed, wanted_version):
        return order
    return compare_rpm(release, wanted_release) if dash else 0


def _number(epoch: str) -> int:
    return int(epoch) if epoch.isdecimal() else 0


COMPARE: dict[str, Callable[[PackageState, str], int]] = {"apt": _debian, "dnf": _rpm}
"""Comparison functions by provider. Other providers use the comparison of rpm."""


def compare(found: PackageState, version: str) -> int:
    """Return -1 if the installed version is older than the desired version, 0 if it matches, and 1 if it is newer."""
    return COMPARE.get(found.metadata.provider, _rpm)(found, version)


def decide(wanted: PackageProperties, found: PackageState, context: DecisionContext) -> Decision:
    """Decide the steps with the decision table of the package type; see docs/resources/package.md."""
    name, ensure = wanted.name, wanted.ensure
    is_absent = found.ensure == ABSENT
    if ensure == LATEST:
        return _latest(found, name, is_absent, context)
    if ensure == ABSENT:
        if is_absent:
            return Decision()
        return _one(
            "Would have uninstalled",
            lambda p: p.uninstall(name),
            f"{found.metadata.version} is installed, wanted absent",
            _version(found, ABSENT),
        )
    if is_absent:
        return _one(
            f"Would have installed version {ensure}",
            lambda p: p.install(name, ensure),
            f"it is absent, wanted {ensure}",
            _version(found, ensure),
        )
    if ensure == PRESENT:
        return Decision()
    order = compare(found, ensure)
    if order == 0:
        return Decision()
    reason = f"version {found.metadata.version} is installed, wanted {ensure}"
    change = _version(found, ensure)
    if order < 0:
        return _one(f"Would have upgraded to {ensure}", lambda p: p.upgrade(name, ensure), reason, change)
    return _one(f"Would have downgraded to {ensure}", lambda p: p.downgrade(name, ensure), reason, change)


def _version(found: PackageState, wanted: str) -> PropertyChange:
    return PropertyChange(property="version", before=found.metadata.version or ABSENT, after=wanted)


def _latest(found: PackageState, name: str, is_absent: bool, context: DecisionContext) -> Decision:
    """
    Return the steps for `latest`. An upgrade is always requested, because only the package manager can determine the newest
    version.

    Afterwards it is only verified that the package is installed. Because a step ran, the resource is not reported as stable, as
    in Choria CCM.
    """
    if is_absent:
        return _one(
            "Would have installed latest",
            lambda p: p.install(name, LATEST),
            "it is absent, wanted latest",
            _version(found, LATEST),
        )
    if context.verifying:
        return Decision(stable=False)
    change = _version(found, LATEST)
    return _one("Would have upgraded to latest", lambda p: p.upgrade(name, LATEST), "", change)


def _one(
    noop: str, action: Callable[[PackageProvider], object], reason: str, change: PropertyChange
) -> Decision:
    step = Step(noop=noop, action=action)  # type: ignore[arg-type]  # a verb returns an awaitable
    return Decision(steps=(step,), reason=reason, changes=(change,))


def has_changed(before: PackageState, after: PackageState) -> bool:
    """
    Whether the installed version, release or epoch has changed. A request for the latest version does not count as a change.
    """
    return (before.metadata.version, before.metadata.extended.get("epoch")) != (
        after.metadata.version,
        after.metadata.extended.get("epoch"),
    )
