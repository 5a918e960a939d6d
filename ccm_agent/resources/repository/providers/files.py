"""Reads and writes the files of repositories and their keys, for apt and dnf."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ccm_agent.model.errors import CcmError, CommandError, FileError, InputError
from ccm_agent.model.ports import Download, FileInfo, Files, Locks, Transfer, Trees
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.resources.host_tools import trial_folder
from ccm_agent.resources.repository.checks import checked_key
from ccm_agent.resources.repository.formats import FORMATS
from ccm_agent.resources.repository.model import (
    FILE,
    MODE,
    TEXT,
    URL,
    RepositoryFile,
    RepositoryProperties,
    RepositoryState,
)
from ccm_agent.resources.repository.openpgp import KEY_LIMIT_BYTES, parse_public_key

if TYPE_CHECKING:
    from ccm_agent.resources.changes import FileChange
    from ccm_agent.resources.repository.providers.package_lists import PackageLists

LIMIT_BYTES = 1 << 20
_DIRECTORY_MODE = 0o755
FOLDER_BYTES = 16 << 20
"""The maximum total size of the files in a folder. A larger folder contains files other than repositories."""
STAGING = "/var/cache/ccm-repository"
"""The folder for trial copies of the files while package lists are fetched. The file system must have space for metadata."""
LOCK = "repository"
_ROOT = "root"


class RepositoryFiles:
    """
    The provider of repositories. All methods raise HostError if the operating system refuses an operation.

    Args:
        manager: The package manager.
        locks: Provides the lock of the folder for copies.
        files: Reads and writes the files.
        trees: Reads the other files in the folder of repositories.
        directory: The base directory for relative paths of keys.
        download: Returns the port that fetches keys.
    """

    def __init__(
        self,
        manager: PackageLists,
        locks: Locks,
        files: Files,
        trees: Trees,
        directory: str,
        download: Callable[[], Download],
    ) -> None:
        self._manager = manager
        self._locks = locks
        self._format = FORMATS[manager.name]
        self._files = files
        self._trees = trees
        self._directory = directory
        self._download = download

    async def status(self, wanted: RepositoryProperties) -> RepositoryState:
        """Read the state of both files; see `Provider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[RepositoryProperties]) -> list[RepositoryState]:
        """
        Return the result of `status` for each repository. All files are inspected in one call, and only files that differ are
        read.
        """
        paths = [path for one in wanted for path in self._paths(one.name)]
        looks = await self._files.inspect(paths, follow=False)
        others = await self._manager.places({one.name for one in wanted})
        return [
            await self._state(one, looks[2 * number], looks[2 * number + 1], others.get(one.name, ""))
            for number, one in enumerate(wanted)
        ]

    async def compare(self, wanted: RepositoryProperties, found: RepositoryState) -> list[FileChange]:
        """Return the changes of both files, for a diff."""
        from ccm_agent.resources.repository.providers.compare import compare_files

        after = self._format.content(wanted) if wanted.ensure == PRESENT else None
        drops_key = await self._drops_key(wanted, found)
        return await compare_files(self._files, wanted, found, after, drops_key=drops_key)

    async def write(self, wanted: RepositoryProperties, found: RepositoryState, *, refresh: bool) -> None:
        """
        Write both files.

        The key is read or fetched, and its fingerprint is verified. With `refresh`, the package manager first tries copies of
        both files. Then the files are changed. They are restored if the package manager can no longer read its configuration, or
        cannot fetch the package lists.

        Raises:
            PropertyError: The key does not have the desired fingerprint.
            DownloadError: The key cannot be fetched.
            CommandError: The package lists cannot be fetched.
        """
        key = await self._key(wanted, found)
        if refresh:
            await self._try_out(wanted, key)
        path, key_path = self._paths(wanted.name)
        was_sound = not await self._manager.fault()
        earlier = [(file, await self._content(file)) for file in (found.file, found.key_file)]
        drops_key = await self._drops_key(wanted, found)
        try:
            if key:
                await self._write(key_path, key)
            await self._write(path, self._format.content(wanted))
            if drops_key:
                await self._files.remove(key_path)
            if was_sound and (fault := await self._manager.fault()):
                raise CommandError(
                    f"{self._manager.name} cannot use the repository {wanted.name} with the other repositories, so its files "
                    f"were restored: {fault}"
                )
            # Do not refresh if the configuration was already faulty. For example, another file may define the same lists with
            # another key.
            if refresh and was_sound:
                await self._manager.refresh(wanted.name, path)
        except BaseException as err:
            faults = [fault for file, content in earlier if (fault := await self._restore(file, content))]
            if faults and isinstance(err, CcmError):
                raise FileError(f"{err.message}; not restored: {', '.join(faults)}") from err
            raise

    async def remove(self, wanted: RepositoryProperties, found: RepositoryState) -> None:
        """Remove the repository's file. Also remove its key if no other file refers to the key."""
        path, key_path = self._paths(wanted.name)
        drops_key = await self._drops_key(wanted, found)
        # remove the repository first, because a repository without its key is an error for apt
        await self._files.remove(path)
        if drops_key:
            await self._files.remove(key_path)

    # ---- internal ----

    def _paths(self, name: str) -> tuple[str, str]:
        return self._format.path(name), self._format.key_path(name)

    async def _drops_key(self, wanted: RepositoryProperties, found: RepositoryState) -> bool:
        """
        Return whether the change removes the key. This requires that the repository no longer uses it, and no other file in the
        folder refers to it.
        """
        path, key_path = self._paths(wanted.name)
        stays = wanted.ensure == PRESENT and (wanted.key != "" or wanted.signed_by == key_path)
        if stays or not found.uses_key:
            return False
        main = self._format.main
        try:
            tree = await self._trees.read(self._format.directory, FOLDER_BYTES)
            (look,) = await self._files.inspect([main], digest=False)
            contents = [] if look.kind == "absent" else [await self._files.read(main, FOLDER_BYTES)]
        except FileError:
            return False  # when in doubt, keep the key: an unused key is harmless, but a repository without its key is unusable
        own = posixpath.basename(path)
        contents += [one.content for one in tree.entries if one.path != own]
        return not any(key_path.encode() in one for one in contents)

    async def _state(
        self, wanted: RepositoryProperties, file: FileInfo, key_file: FileInfo, also_in: str
    ) -> RepositoryState:
        state = RepositoryState(
            protocol="io.choria.ccm.v1.resource.repository.state",
            type="repository",
            name=wanted.name,
            ensure=ABSENT if file.kind == "absent" else PRESENT,
            manager=self._manager.name,
            file=_seen(file),
            key_file=_seen(key_file),
            also_in=also_in,
        )
        await self._read_file(state, self._format.content(wanted))
        await self._read_key(state, await self._desired_key(wanted, state))
        return state

    async def _read_file(self, state: RepositoryState, desired: bytes) -> None:
        text = (await self._text(state.file, desired)).decode(errors="replace")
        state.keep_content(self._format.parse(state.name, text) if text else None)
        is_unread = state.file.size > 0 and not text
        state.others = "unreadable content" if is_unread else self._format.others(state.name, text)
        state.uses_key = self._format.key_path(state.name) in text

    async def _desired_key(self, wanted: RepositoryProperties, state: RepositoryState) -> bytes:
        """
        Return the desired key in the form in which it is written; b"" if there is no key, if it must be fetched, or if it cannot
        be used.
        """
        if wanted.key_form not in (TEXT, FILE):
            return b""
        try:
            key = await self._given_key(wanted)
        except (InputError, FileError) as err:
            state.key_error = err.message
            return b""
        state.desired_key_checksum = hashlib.sha256(key).hexdigest()
        return key

    async def _read_key(self, state: RepositoryState, desired: bytes) -> None:
        content = await self._text(state.key_file, desired)
        try:
            key = parse_public_key(content)
        except ValueError:
            return
        state.key_fingerprint = key.fingerprint
        if key.armored() == content:
            state.keep_key(content.decode())

    async def _text(self, file: RepositoryFile, desired: bytes) -> bytes:
        """Return the content of a file; b"" if it does not exist or cannot be read, so that it is replaced."""
        if file.kind != "file":
            return b""
        if file.checksum == hashlib.sha256(desired).hexdigest():
            return desired
        try:
            return await self._files.read(file.path, LIMIT_BYTES)
        except FileError:
            return b""

    async def _key(self, wanted: RepositoryProperties, found: RepositoryState) -> bytes:
        """Return the desired key in the form in which it is written; b"" if there is no key."""
        if wanted.key_form != URL:
            return await self._given_key(wanted) if wanted.key else b""
        if found.key:
            try:
                return checked_key(found.key.encode(), wanted).armored()
            except InputError:
                pass  # the file contains another key, which is replaced
        got = await self._download().fetch(Transfer(url=wanted.key, limit_bytes=KEY_LIMIT_BYTES))
        return checked_key(got.content, wanted).armored()

    async def _given_key(self, wanted: RepositoryProperties) -> bytes:
        """Return a key that is given as a text or a file, in the form in which it is written."""
        if wanted.key_form == TEXT:
            return checked_key(wanted.key.encode(errors="replace"), wanted).armored()
        path = posixpath.normpath(posixpath.join(self._directory, wanted.key))
        return checked_key(await self._files.read(path, KEY_LIMIT_BYTES), wanted).armored()

    async def _try_out(self, wanted: RepositoryProperties, key: bytes) -> None:
        why = f"could not fetch the package lists of the repository {wanted.name}, so nothing was changed"
        way_out = "; run it as root, or set `refresh: false`"
        async with trial_folder(
            self._files, self._locks, STAGING, lock=LOCK, why=why, mode=_DIRECTORY_MODE, way_out=way_out
        ):
            key_path = f"{STAGING}/{wanted.name}.asc"
            if key:
                await self._files.write(key_path, key, mode=MODE)
            await self._manager.try_out(wanted.name, STAGING, self._format.content(wanted, key_path))

    async def _write(self, path: str, content: bytes) -> None:
        folder = posixpath.dirname(path)
        (look,) = await self._files.inspect([folder], digest=False)
        if look.kind == "absent":
            await self._files.set_attributes(folder, mode=_DIRECTORY_MODE, directory=True)
        await self._files.write(path, content, owner=_ROOT, group=_ROOT, mode=MODE)

    async def _content(self, file: RepositoryFile) -> bytes | None:
        """Return the content of a file, to restore it later; None if it is not a file."""
        return await self._files.read(file.path, LIMIT_BYTES) if file.kind == "file" else None

    async def _restore(self, file: RepositoryFile, content: bytes | None) -> str:
        """Restore a file if it was changed. Return the reason if this failed; "" otherwise."""
        try:
            (look,) = await self._files.inspect([file.path], follow=False)
            if _seen(look) == file:
                return ""
            if content is not None:
                await self._files.write(file.path, content, owner=str(file.uid), mode=int(file.mode, 8))
                return ""
            await self._files.remove(file.path)
            if file.link:
                await self._files.link(file.path, file.link)
        except FileError as err:
            return str(err)
        return ""


def _seen(look: FileInfo) -> RepositoryFile:
    is_file = look.kind == "file"
    return RepositoryFile(
        path=look.path,
        kind=look.kind,
        link=look.link,
        checksum=look.sha256,
        size=look.size_bytes if is_file else 0,
        mode=f"{look.mode:04o}" if is_file else "",
        uid=look.uid if is_file else -1,
    )
