"""
Compares the units that systemd has loaded with the files, to decide whether systemd must read a unit again.

`NeedDaemonReload` does not indicate every change. For example, systemd 252 does not detect a new file that replaces a file of the
distribution, or the first drop-in of a unit. Therefore the paths that systemd has read are also compared.

Source: systemctl(1), systemd.unit(5), org.freedesktop.systemd1(5); systemd 252 (Debian 12).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping

from ccm_agent.resources.systemd_unit.model import SystemdUnitProperties

PROPERTIES = "Names,LoadState,FragmentPath,DropInPaths,NeedDaemonReload"

_STRONGER = (
    "/etc/systemd/",
    "/run/systemd/transient/",
    "/run/systemd/system.control/",
    "/run/systemd/generator.early/",
)
"""Directories whose files take precedence over files of the distribution. Some also take precedence over files of this type."""

Unit = Mapping[str, str]
"""The properties of a unit that systemd has loaded."""


def pattern(wanted: SystemdUnitProperties) -> str:
    """
    Return the argument for `systemctl show`.

    A pattern matches only loaded units. This avoids loading units that need no reload, which takes 20 ms each. However, a pattern
    does not match aliases, so the unit of a drop-in is requested by name.
    """
    unit = wanted.unit_name
    stem, suffix = posixpath.splitext(unit)
    if stem.endswith(("@", "-")):
        return f"{stem}*{suffix}"
    return unit if wanted.drop_in else f"[{unit[0]}]{unit[1:]}"


def by_name(output: str) -> dict[str, list[Unit]]:
    """
    Parse the output of `systemctl show`. A unit is returned under each name whose files it reads, so an instance is also under
    its template.
    """
    units: dict[str, list[Unit]] = {}
    for block in output.strip("\n").split("\n\n"):
        unit = dict(line.partition("=")[::2] for line in block.splitlines())
        names = {name for own in unit.get("Names", "").split() for name in _names(own)}
        for name in names:
            units.setdefault(name, []).append(unit)
    return units


def _names(name: str) -> Iterator[str]:
    """
    Yield the names whose files a unit reads. `a-b@c.service` also reads files of `a-b@.service`, and drop-ins of `a-.service`.
    """
    yield name
    stem, suffix = posixpath.splitext(name)
    template, at, _ = stem.partition("@")
    if at:
        yield f"{template}@{suffix}"
    while dash := template.rfind("-") + 1:
        yield f"{template[:dash]}{suffix}"
        template = template[: dash - 1]


def must_reload(wanted: SystemdUnitProperties, is_there: bool, units: Iterable[Unit]) -> bool:
    """
    Whether systemd must read its units again.

    Args:
        wanted: The resource.
        is_there: Whether the resource's file exists.
        units: The loaded units that read the file.
    """
    return any(_is_outdated(wanted, is_there, unit) for unit in units)


def _is_outdated(wanted: SystemdUnitProperties, is_there: bool, unit: Unit) -> bool:
    if unit.get("NeedDaemonReload") == "yes":
        return True
    if not is_there or unit.get("LoadState") == "masked":
        return False
    if not wanted.drop_in:
        return not unit.get("FragmentPath", "").startswith(_STRONGER)
    # systemd does not read drop-ins of a unit that does not exist
    is_read = any(
        path.startswith(_STRONGER) and posixpath.basename(path) == wanted.drop_in
        for path in unit.get("DropInPaths", "").split()
    )
    return not is_read and unit.get("LoadState") != "not-found"
