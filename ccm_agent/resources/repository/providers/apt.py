"""
Package lists of apt repositories.

Source: sources.list(5), apt-get(8), apt.conf(5); apt 2.6 (Debian 12).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Files
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.package_tool import (
    APT_ENVIRONMENT,
    APT_LOCK_WORDS,
    PackageTool,
    is_apt_locked,
    refuse,
    tail,
)
from ccm_agent.resources.repository.model import APT, MODE
from ccm_agent.resources.repository.providers.files import RepositoryFiles
from ccm_agent.resources.repository.providers.package_lists import REFRESH_LIMIT_S

LISTS_MODE = 0o755
OPTIONS = (
    "Dir::Etc::SourceParts=/dev/null",
    "APT::Get::List-Cleanup=false",
    "APT::Update::Error-Mode=any",
    # do not write caches, because caches of only this repository would replace those of all repositories
    "Dir::Cache::pkgcache=",
    "Dir::Cache::srcpkgcache=",
)
"""Options to fetch the lists of only one repository. Other lists are kept, and an unreachable server is an error."""
TRIAL_OPTIONS = tuple(
    f"Acquire::IndexTargets::{target}::DefaultEnabled=false"
    for target in ("deb::Packages", "deb::Translations", "deb-src::Sources")
)
"""Options to fetch only the signed index, without the lists to which it refers."""


class AptLists:
    """Package lists of apt; see `PackageLists`."""

    name = APT

    def __init__(self, tool: PackageTool, files: Files) -> None:
        self._tool = tool
        self._files = files

    async def try_out(self, repository: str, folder: str, file: bytes) -> None:
        """
        See `PackageLists`.

        The lists are stored in the folder, because the host may have lists of the same name from another file with another key.
        """
        path, lists = f"{folder}/{repository}.sources", f"{folder}/lists"
        await self._files.write(path, file, mode=MODE)
        await self._files.set_attributes(f"{lists}/partial", mode=LISTS_MODE, directory=True)
        await self._update(repository, path, f"Dir::State::lists={lists}", *TRIAL_OPTIONS)

    async def refresh(self, repository: str, path: str) -> None:
        """See `PackageLists`."""
        await self._update(repository, path)

    async def _update(self, repository: str, path: str, *more: str) -> None:
        options = [word for one in (f"Dir::Etc::SourceList={path}", *OPTIONS, *more) for word in ("-o", one)]
        what = f"could not fetch the package lists of the repository {repository}, so nothing was changed"
        try:
            done = await self._tool.change(
                "apt-get", "update", "-q", *options, limit_s=REFRESH_LIMIT_S, is_locked=is_apt_locked
            )
        except CommandError as err:
            raise CommandError(f"{what}: {err.message}", output=err.output) from err
        refuse(done, what, APT_LOCK_WORDS)

    async def fault(self) -> str:
        """See `PackageLists`. The check makes apt read all lists of sources, and nothing else."""
        done = await self._tool.ask("apt-get", "indextargets", "--format", "$(SITE)")
        return "" if done.code == 0 else tail(done)

    async def places(self, names: Collection[str]) -> Mapping[str, str]:
        """See `PackageLists`. Repositories of apt have no names."""
        return {}


def make_apt(context: ResourceContext) -> RepositoryFiles:
    """Return the provider `apt`."""
    locks = context.port("locks")
    tool = PackageTool(context.runner, locks, APT_ENVIRONMENT)
    manager = AptLists(tool, context.files)
    return RepositoryFiles(
        manager,
        locks,
        context.files,
        context.port("trees"),
        context.directory,
        lambda: context.port("download"),
    )
