"""
Finds files that have not changed since a package installed them.

Source: dpkg-query(1), dpkg 1.21; deb-md5sums(5); rpm(8), rpm 4.18.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterable, Mapping, Sequence

from ccm_agent.model.errors import CommandError
from ccm_agent.model.ports import Command, Runner, Tree, TreeEntry
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.registry import HostProbe

QUERY_LIMIT_S = 120
OUTPUT_LIMIT_BYTES = 64 << 20
PATHS_AT_ONCE = 500
"""The maximum number of paths in one call. The kernel limits the arguments of a program."""
CONFFILES = "${Conffiles}\n"
FOLDER_LIMIT_BYTES = 16 << 20


async def read_own_files(context: ResourceContext, folder: str) -> dict[str, TreeEntry]:
    """
    Return the files in a folder, without those that are unchanged since a package installed them.

    Args:
        context: Provides access to the files.
        folder: The absolute path of the folder. If it does not exist, the result is empty. Symlinks and subfolders are left
            out.

    Returns:
        The files by absolute path, sorted.

    Raises:
        FileError: A file cannot be read, or the files are too large.
    """
    (look,) = await context.files.inspect([folder], digest=False, follow=False)
    if look.kind != "directory":
        return {}
    tree: Tree = await context.port("trees").read(folder, FOLDER_LIMIT_BYTES)
    files = {
        posixpath.join(folder, entry.path): entry
        for entry in tree.entries
        if entry.kind == "file" and "/" not in entry.path
    }
    usual = await find_unchanged(context, {path: entry.content for path, entry in files.items()})
    return {path: files[path] for path in sorted(files) if path not in usual}


async def find_unchanged(
    context: ResourceContext, files: Mapping[str, bytes], directories: Iterable[str] = ()
) -> set[str]:
    """Return the files and directories that the package manager reports as unchanged; see `PackagedFiles.unchanged`."""
    probe = HostProbe()
    packaged = PackagedFiles(
        context.runner, has_dpkg=probe.has_program("dpkg-query"), has_rpm=probe.has_program("rpm")
    )
    return await packaged.unchanged(files, directories)


class PackagedFiles:
    """
    Queries the package manager of this host.

    Args:
        runner: Runs the package manager's programs.
        has_dpkg, has_rpm: Whether this host has these package managers.
    """

    def __init__(self, runner: Runner, *, has_dpkg: bool, has_rpm: bool) -> None:
        self._runner = runner
        self._has_dpkg = has_dpkg
        self._has_rpm = has_rpm

    async def unchanged(self, files: Mapping[str, bytes], directories: Iterable[str]) -> set[str]:
        """
        Return the files whose content matches their package, and the directories that belong to a package.

        Args:
            files: The content of each file, by absolute path.
            directories: Absolute paths.
        """
        paths = sorted({*files, *directories})
        found: set[str] = set()
        if self._has_dpkg:
            found |= await self._by_dpkg(files, paths)
        if self._has_rpm:
            found |= await self._by_rpm(paths)
        return found

    async def _by_dpkg(self, files: Mapping[str, bytes], paths: Sequence[str]) -> set[str]:
        owners = await self._owners(paths)
        sums = parse_conffiles(await self._ask("dpkg-query", "-W", f"-f={CONFFILES}"))
        for package in sorted({package for named in owners.values() for package in named}):
            shown = await self._ask("dpkg-query", "--control-show", package, "md5sums", is_optional=True)
            sums |= {path: digest for path, digest in parse_md5sums(shown).items() if path in files}
        return {
            path
            for path in owners
            if path not in files
            or sums.get(path) == hashlib.md5(files[path], usedforsecurity=False).hexdigest()
        }

    async def _owners(self, paths: Sequence[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for some in _batches(paths):
            found |= parse_owners(await self._ask("dpkg-query", "--search", "--", *some, is_optional=True))
        return {path: found[path] for path in paths if path in found}

    async def _by_rpm(self, paths: Sequence[str]) -> set[str]:
        owned: set[str] = set()
        changed: set[str] = set()
        for some in _batches(paths):
            named = await self._ask("rpm", "-qf", "--qf", "%{NAME}\n", "--", *some, is_optional=True)
            packages = sorted({line for line in named.splitlines() if line and " " not in line})
            if not packages:
                continue
            listed = await self._ask("rpm", "-q", "--qf", "[%{FILENAMES}\n]", "--", *packages)
            owned |= set(some) & set(listed.splitlines())
            verify = ("rpm", "-V", "--nodeps", "--noscripts", "--nomtime", "--", *packages)
            changed |= parse_verify(await self._ask(*verify, is_optional=True))
        return owned - changed

    async def _ask(self, *argv: str, is_optional: bool = False) -> str:
        command = Command(argv=argv, time_limit_s=QUERY_LIMIT_S, output_limit_bytes=OUTPUT_LIMIT_BYTES)
        done = await self._runner.run(command)
        if done.timed_out or (done.code and not is_optional):
            said = done.stderr.decode(errors="replace").strip()
            raise CommandError(f"`{argv[0]} {argv[1]}` failed: {said or f'exit status {done.code}'}")
        return done.stdout.decode(errors="surrogateescape")


def parse_owners(output: str) -> dict[str, list[str]]:
    """Return the packages of each path from the output of `dpkg-query --search`."""
    found = {}
    for line in output.splitlines():
        packages, _, path = line.partition(": /")
        if path and not packages.startswith("diversion by "):
            found[f"/{path}"] = packages.split(", ")
    return found


def parse_conffiles(output: str) -> dict[str, str]:
    """Return the MD5 digest of each configuration file from output in the format CONFFILES."""
    rows = [line.split() for line in output.splitlines()]
    return {row[0]: row[1] for row in rows if len(row) >= 2 and row[0].startswith("/")}


def parse_md5sums(output: str) -> dict[str, str]:
    """Return the MD5 digest of each file from a package's `md5sums`."""
    rows = [line.partition("  ") for line in output.splitlines()]
    return {f"/{path}": digest for digest, _, path in rows if path}


def parse_verify(output: str) -> set[str]:
    """Return the changed files from the output of `rpm -V`."""
    return {line[line.index(" /") + 1 :] for line in output.splitlines() if " /" in line}


def _batches(paths: Sequence[str]) -> Iterable[Sequence[str]]:
    return (paths[at : at + PATHS_AT_ONCE] for at in range(0, len(paths), PATHS_AT_ONCE))
