"""
Repositories of dnf.

Source: dnf(8), dnf.conf(5); dnf 4.14. dnf5 has the same options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from ccm_agent.model.errors import CommandError, FileError
from ccm_agent.model.ports import Files, Trees
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.package_tool import DNF_LOCK_WORDS, PackageTool, refuse, run_dnf
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import DNF, MODE
from ccm_agent.resources.repository.providers.files import FOLDER_BYTES, RepositoryFiles
from ccm_agent.resources.repository.providers.package_lists import REFRESH_LIMIT_S

STRICT = b"skip_if_unavailable=0\n"
"""Otherwise dnf only warns of a server that it cannot reach, if its main file says so."""
SIGNED_METADATA = b"\nrepo_gpgcheck=1\n"
_SECTION = re.compile(r"^\[([^\]\n]+)\]", re.MULTILINE)


class DnfLists:
    """dnf; see `PackageLists`."""

    name = DNF

    def __init__(self, tool: PackageTool, files: Files, trees: Trees) -> None:
        self._tool = tool
        self._files = files
        self._trees = trees

    async def refresh(self, repository: str, folder: str, file: bytes) -> None:
        """
        See `PackageLists`.

        The name of dnf's cache is made of the repository's name and URL, so the later file uses it. With signed metadata, the
        cache also has the keys that were accepted before. An empty one shows whether the desired key is the right one.
        """
        options = [f"--setopt=reposdir={folder}"]
        if SIGNED_METADATA in file:
            options.append(f"--setopt=cachedir={folder}/cache")
        await self._files.write(f"{folder}/{repository}.repo", file + STRICT, mode=MODE)
        what = f"could not fetch the metadata of the repository {repository}, so nothing was changed"
        try:
            done = await run_dnf(self._tool, what, "makecache", *options, limit_s=REFRESH_LIMIT_S)
        except CommandError as err:
            raise CommandError(f"{what}: {err.message}", output=err.output) from err
        refuse(done, what, DNF_LOCK_WORDS)

    async def fault(self) -> str:
        """See `PackageLists`. dnf ignores files that it cannot read."""
        return ""

    async def places(self, names: Collection[str]) -> Mapping[str, str]:
        """See `PackageLists`. Of several definitions with one name, dnf uses any."""
        folder, suffix = FORMATS[DNF].directory, FORMATS[DNF].suffix
        try:
            tree = await self._trees.read(folder, FOLDER_BYTES)
        except FileError:
            return {}  # there is no folder yet, or a later look at the file itself fails
        found: dict[str, str] = {}
        for entry in tree.entries:
            if entry.path.endswith(suffix) and "/" not in entry.path:
                own = entry.path.removesuffix(suffix)
                sections = _SECTION.findall(entry.content.decode(errors="replace"))
                found |= {one: f"{folder}/{entry.path}" for one in sections if one != own and one in names}
        return found


def make_dnf(context: ResourceContext) -> RepositoryFiles:
    """Return the provider `dnf`."""
    tool = PackageTool(context.runner, context.port("locks"), {})
    trees = context.port("trees")
    manager = DnfLists(tool, context.files, trees)
    return RepositoryFiles(manager, context.files, trees, context.directory, lambda: context.port("download"))
