"""
The files that `ccmctl studio` opens. These are the files in a folder, or one file in it.

Paths are from a browser. Each part of a path is opened without following links, starting at the open folder. Neither `..` nor a
link that another user creates can lead outside of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from ccm_agent.model.errors import InputError, NotFoundError, RevisionError

SUFFIXES = (".yaml", ".yml")
FILE_BYTES = 1 << 20
"""The maximum size of a file that is opened. Lint and forms would take seconds for a larger file."""
FILES = 500
"""The maximum number of files that are listed."""
LOOKED_AT = 5000
"""The maximum number of folder entries that are checked. The folder may be a home directory with many files."""
DEPTH = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class StudioFile(Struct, frozen=True, kw_only=True):
    """
    The text of a file, and its digest. When the file is saved later, the digest shows whether it has changed in the meantime.
    """

    path: str
    text: str
    digest: str


class Workspace:
    """
    The open folder.

    Args:
        root: The folder.
        only: The only file that may be read and written. "": all YAML files below the folder.

    Attributes:
        root: The folder's absolute path.
    """

    def __init__(self, root: Path, only: str = "") -> None:
        self.root = root.absolute()
        self.only = only

    @classmethod
    def open(cls, path: Path) -> Workspace:
        """
        Open a folder or a file. A file that does not exist is created when it is first saved.

        Raises:
            InputError: The path is neither a folder nor the name of a YAML file.
        """
        if path.is_dir():
            return cls(path)
        if path.suffix not in SUFFIXES:
            raise InputError(
                f"{path}: neither a folder nor a YAML file; name a folder, or a file such as site.yaml"
            )
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: not a regular file")
        if not path.parent.is_dir():
            raise InputError(f"{path}: the folder {path.parent} does not exist")
        return cls(path.parent, path.name)

    def files(self) -> list[str]:
        """Return the paths of the YAML files, sorted. Hidden folders, links and deeply nested files are left out."""
        if self.only:
            return [self.only] if (self.root / self.only).is_file() else []
        found: list[str] = []
        left = LOOKED_AT
        for folder, folders, names in os.walk(self.root):
            inner = Path(folder).relative_to(self.root)
            folders[:] = sorted(one for one in folders if one[0] != ".") if len(inner.parts) < DEPTH else []
            left -= len(folders) + len(names)
            found += [
                str(inner / name)
                for name in names
                if name.endswith(SUFFIXES) and name[0] != "." and (Path(folder) / name).is_file()
            ]
            if left < 0 or len(found) >= FILES:
                break
        return sorted(found)[:FILES]

    def read(self, path: str) -> StudioFile:
        """
        Return a file.

        Raises:
            InputError: The path is outside of the folder, or the file is not text or is too large.
            NotFoundError: There is no such file.
        """
        with self._folder_of(path, self._manifest_parts(path)) as (folder, name):
            content, _ = _read(folder, name, path)
        try:
            text = content.decode()
        except UnicodeDecodeError as err:
            raise InputError(f"{path}: is not UTF-8 text") from err
        return StudioFile(path=path, text=text, digest=digest_of(content))

    def check_path(self, path: str) -> None:
        """
        Check that a manifest may be saved under a path.

        Raises:
            InputError: The path is not allowed.
        """
        self._manifest_parts(path)

    def write(self, path: str, text: str, digest: str) -> str:
        """
        Save a file atomically, and return its new digest.

        Args:
            path: The path below the folder.
            text: The new text.
            digest: The digest of the file when it was opened. "": it is new.

        Raises:
            RevisionError: The file on disk has changed since it was opened.
            InputError: The path is outside of the folder, or the file cannot be written.
        """
        content = text.encode(errors="surrogatepass")
        if len(content) > FILE_BYTES:
            raise InputError(f"{path}: larger than {FILE_BYTES >> 10} KiB")
        with self._folder_of(path, self._manifest_parts(path)) as (folder, name):
            try:
                _replace(folder, name, path, content, digest)
            except OSError as err:
                raise InputError(f"{path}: cannot be written: {err.strerror}") from err
        return digest_of(content)

    def read_bytes(self, path: str) -> bytes:
        """
        Return the content of any file to which a manifest refers.

        Raises:
            InputError: The path is outside of the folder, or the file is too large.
            NotFoundError: There is no such file.
        """
        with self._folder_of(path, self._beside(path)) as (folder, name):
            return _read(folder, name, path)[0]

    @contextlib.contextmanager
    def opened_directory(self, path: str) -> Iterator[int]:
        """
        Yield the descriptor of a directory to which a manifest refers.

        Raises:
            InputError: The path is outside of the folder, or is not a directory.
            NotFoundError: There is no such directory.
        """
        with self._folder_of(path, [*self._beside(path), "."]) as (folder, _):
            yield folder

    @contextlib.contextmanager
    def _folder_of(self, path: str, parts: list[str]) -> Iterator[tuple[int, str]]:
        """Yield the descriptor of a file's folder, and the file's name."""
        with contextlib.ExitStack() as stack:
            folder = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)  # the operator may have specified a link
            stack.callback(os.close, folder)
            for part in parts[:-1]:
                try:
                    folder = os.open(part, _FOLDER, dir_fd=folder)
                except FileNotFoundError as err:
                    raise NotFoundError(f"{path}: the folder {part} does not exist") from err
                except OSError as err:
                    raise InputError(f"{path}: {part} is not a folder that can be opened here") from err
                stack.callback(os.close, folder)
            yield folder, parts[-1]

    def _beside(self, path: str) -> list[str]:
        if self.only:
            raise InputError(
                f"{path}: only {self.only} is open; `ccmctl studio FOLDER` opens its whole folder"
            )
        return _parts(path)

    def _manifest_parts(self, path: str) -> list[str]:
        parts = _parts(path)
        if not path.endswith(SUFFIXES):
            raise InputError(f"{path}: manifests are named *.yaml or *.yml")
        if self.only and path != self.only:
            raise InputError(f"{path}: only {self.only} is open; `ccmctl studio FOLDER` opens a folder")
        return parts


def _parts(path: str) -> list[str]:
    parts = path.split("/")
    if not all(parts) or any(part.startswith(".") or "\0" in part for part in parts):
        raise InputError(f"{path}: not a path below the folder that is open")
    return parts


def digest_of(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def _read(folder: int, name: str, path: str) -> tuple[bytes, os.stat_result]:
    try:
        number = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError as err:
        raise NotFoundError(f"{path}: there is no such file") from err
    except OSError as err:
        raise InputError(f"{path}: cannot be opened here: {err.strerror}") from err
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            raise InputError(f"{path}: not a regular file")
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise InputError(f"{path}: larger than {FILE_BYTES >> 10} KiB")
    return content, found


def _replace(folder: int, name: str, path: str, content: bytes, digest: str) -> None:
    """Replace the opened file with a new file, keeping its owner and mode."""
    temporary = f".{name[:100]}.{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    # a file that replaces a private one must be private from the start
    number = os.open(temporary, flags, 0o600 if digest else 0o666, dir_fd=folder)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
            if digest:
                _take_over(number, folder, name, path, digest)
            file.flush()
            os.fsync(number)
        if digest:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            try:
                os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError as err:
                raise RevisionError(f"{path}: exists already; open it, or save under another name") from err
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
    os.fsync(folder)


def _take_over(number: int, folder: int, name: str, path: str, digest: str) -> None:
    """Give a file the mode and owner of the file that it replaces, which must not have changed since it was opened."""
    changed = f"{path}: changed on disk since it was opened; open it again"
    try:
        before, found = _read(folder, name, path)
    except NotFoundError as err:
        raise RevisionError(f"{path}: was removed since it was opened; save it as a new file") from err
    if digest_of(before) != digest:
        raise RevisionError(changed)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        for owner in (
            found.st_uid,
            -1,
        ):  # ordinary users can change a file's group only to groups of which they are members
            with contextlib.suppress(PermissionError):
                os.fchown(number, owner, found.st_gid)
    mode = stat.S_IMODE(found.st_mode)
    if os.fstat(number).st_gid != found.st_gid:
        mode &= ~stat.S_IRWXG  # these permissions were not meant for the file's new group
    os.fchmod(number, mode)
