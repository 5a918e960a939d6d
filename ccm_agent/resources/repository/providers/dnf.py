"""
Package lists of dnf repositories.

Source: dnf(8), dnf.conf(5); dnf 4.14. dnf5 has the same options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Files, Trees
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.package_tool import DNF_LOCK_WORDS, PackageTool, refuse, run_dnf
from ccm_agent.resources.repository.formats import FORMATS, SECTION
from ccm_agent.resources.repository.model import DNF, MODE
from ccm_agent.resources.repository.providers.files import FOLDER_BYTES, RepositoryFiles
from ccm_agent.resources.repository.providers.package_lists import REFRESH_LIMIT_S

MAIN = "/etc/dnf/dnf.conf"
SETTINGS = ("/etc/dnf/libdnf5.conf.d", "/usr/share/dnf5/libdnf.conf.d")
"""Folders with additional dnf5 settings for all repositories."""

STRICT = b"skip_if_unavailable=0\n"
"""With this setting, an unreachable server is an error even if dnf's main file makes it a warning."""
_METADATA_SETTING = re.compile(rb"^repo_gpgcheck=", re.MULTILINE)
_METADATA_CHECK = re.compile(
    rb"^[ \t]*repo_gpgcheck[ \t]*[=:][ \t]*(?!(?:0|no|false|off)[ \t\r]*$)", re.MULTILINE | re.IGNORECASE
)
"""Matches the setting if dnf may interpret its value as true."""


class DnfLists:
    """Package lists of dnf; see `PackageLists`."""

    name = DNF

    def __init__(self, tool: PackageTool, files: Files, trees: Trees) -> None:
        self._tool = tool
        self._files = files
        self._trees = trees

    async def try_out(self, repository: str, folder: str, file: bytes) -> None:
        """
        See `PackageLists`.

        The name of dnf's cache depends on the repository's name and URL, so the final file uses the same cache. With signed
        metadata, the cache also contains previously accepted keys. Therefore an empty cache is used, to verify the desired key.
        """
        options = [f"--setopt=reposdir={folder}"]
        if await self._checks_metadata(file):
            options.append(f"--setopt=cachedir={folder}/cache")
        await self._files.write(f"{folder}/{repository}.repo", file + STRICT, mode=MODE)
        what = f"could not fetch the metadata of the repository {repository}, so nothing was changed"
        try:
            done = await run_dnf(self._tool, what, "makecache", *options, limit_s=REFRESH_LIMIT_S)
        except CommandError as err:
            raise CommandError(f"{what}: {err.message}", output=err.output) from err
        refuse(done, what, DNF_LOCK_WORDS)

    async def _checks_metadata(self, file: bytes) -> bool:
        """
        Whether dnf verifies the metadata of a repository, according to the repository's file or otherwise the known settings.
        """
        if _METADATA_SETTING.search(file):
            return _METADATA_CHECK.search(file) is not None
        there = [
            look.path
            for look in await self._files.inspect([MAIN, *SETTINGS], digest=False)
            if look.kind != "absent"
        ]
        try:
            texts = [await self._files.read(MAIN, FOLDER_BYTES)] if MAIN in there else []
            for folder in there[len(texts) :]:
                texts += [one.content for one in (await self._trees.read(folder, FOLDER_BYTES)).entries]
        except FileError:
            return True
        return any(_METADATA_CHECK.search(text) for text in texts)

    async def refresh(self, repository: str, path: str) -> None:
        """See `PackageLists`. Nothing is fetched, because dnf fetches the required lists when it installs packages."""

    async def fault(self) -> str:
        """See `PackageLists`. There is no fault, because dnf ignores files that it cannot read."""
        return ""

    async def places(self, names: Collection[str]) -> Mapping[str, str]:
        """See `PackageLists`. If several definitions have the same name, dnf's choice between them is undefined."""
        folder, suffix = FORMATS[DNF].directory, FORMATS[DNF].suffix
        try:
            tree = await self._trees.read(folder, FOLDER_BYTES)
        except FileError:
            return {}  # the folder does not exist yet, or a later read of the file reports the error
        found: dict[str, str] = {}
        for entry in tree.entries:
            if entry.path.endswith(suffix) and "/" not in entry.path:
                own = entry.path.removesuffix(suffix)
                sections = SECTION.findall(entry.content.decode(errors="replace"))
                found |= {one: f"{folder}/{entry.path}" for one in sections if one != own and one in names}
        return found


def make_dnf(context: ResourceContext) -> RepositoryFiles:
    """Return the provider `dnf`."""
    locks, trees = context.port("locks"), context.port("trees")
    tool = PackageTool(context.runner, locks, {})
    manager = DnfLists(tool, context.files, trees)
    return RepositoryFiles(
        manager, locks, context.files, trees, context.directory, lambda: context.port("download")
    )
