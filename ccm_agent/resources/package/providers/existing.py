"""Finds manually installed packages, for `ccm import package`."""

from __future__ import annotations

from collections.abc import Iterable

from ccm_agent.model.errors import UsageError
from ccm_agent.model.resource import PRESENT
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.existing import ExistingResource, ExistingResources
from ccm_agent.resources.package.providers import apt
from ccm_agent.resources.package_tool import (
    APT_ENVIRONMENT,
    APT_LOCK_WORDS,
    DNF_LOCK_WORDS,
    PackageTool,
    refuse,
)

PRIORITIES = "${Package} ${Essential} ${Priority} ${db:Status-Status}\n"
BASE = frozenset({"required", "important", "standard"})
"""Priorities of the packages that Debian's installation selects."""
FAILED = "could not list the packages"


async def find_with_apt(context: ResourceContext, argument: str) -> ExistingResources:
    """Return the packages that are marked as manually installed, except packages of Debian's base system."""
    _refuse_argument(argument)
    tool = PackageTool(context.runner, context.port("locks"), APT_ENVIRONMENT)
    manual = await tool.ask("apt-mark", "showmanual")
    refuse(manual, FAILED, APT_LOCK_WORDS)
    shown = await tool.ask("dpkg-query", "-W", f"-f={PRIORITIES}")
    refuse(shown, FAILED, APT_LOCK_WORDS)
    added = parse_added(shown.stdout.decode(errors="replace"))
    names = manual.stdout.decode(errors="replace").split()
    return _present(name for name in names if apt.plain_name(name) in added)


async def find_with_dnf(context: ResourceContext, argument: str) -> ExistingResources:
    """
    Return the manually installed packages. In dnf, packages that the installer selected are also marked as manually installed.
    """
    _refuse_argument(argument)
    tool = PackageTool(context.runner, context.port("locks"), {})
    # without -C, dnf would contact the mirrors
    done = await tool.ask("dnf", "-C", "-q", "repoquery", "--userinstalled", "--qf", "%{name}\n")
    refuse(done, FAILED, DNF_LOCK_WORDS)
    return _present(done.stdout.decode(errors="replace").split())


def parse_added(output: str) -> set[str]:
    """Parse output in the format PRIORITIES. Return the installed packages that do not belong to the base system."""
    rows = [line.split(" ") for line in output.splitlines()]
    return {
        row[0]
        for row in rows
        if len(row) == 4 and row[1] != "yes" and row[2] not in BASE and row[3] == apt.INSTALLED
    }


def _present(names: Iterable[str]) -> ExistingResources:
    return ExistingResources(
        resources=tuple(
            ExistingResource(name=name, properties={"ensure": PRESENT}) for name in sorted(set(names))
        )
    )


def _refuse_argument(argument: str) -> None:
    if argument:
        raise UsageError(f"package:{argument}: `package` takes no argument; use `package`")
