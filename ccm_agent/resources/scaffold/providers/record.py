"""
The record of a scaffold: the written files, and the results of `post` commands.

Without the record, a file that a command changed would be treated as drift in every run, and a scaffold whose source no longer
exists could not be removed. See docs/adr/0050-scaffold-post.md.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ccm_agent.model.ports import Digest, Records

KIND = "scaffold"


class FileResult(Struct, kw_only=True, omit_defaults=True):
    """
    The result of one rendered file.

    Attributes:
        key: The digest of the rendered content together with the commands that ran on it; "" if no command ran.
        files: The paths of the files that were written for the rendered file. If commands ran, each with its SHA-256.
        sizes: If commands ran, the size of each file in bytes. Empty in records of earlier versions.
        failed: Whether nothing was written because a command failed.
    """

    key: str = ""
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}
    failed: bool = False

    def digest(self, path: str) -> Digest:
        """Return the recorded digest of one of the files."""
        return Digest(self.files[path], self.sizes.get(path, -1))


class ScaffoldRecord(Struct, kw_only=True, omit_defaults=True):
    """
    The stored data of a scaffold.

    Attributes:
        name: The scaffold's directory. It is only stored for people who read the file.
        made: Results by path of the rendered file, relative to the directory.
    """

    name: str = ""
    made: dict[str, FileResult] = {}

    @property
    def files(self) -> list[str]:
        """Return the paths of all files that were written."""
        return sorted({path for made in self.made.values() for path in made.files})


def key_of(content: bytes, commands: list[tuple[str, ...]]) -> str:
    """Return the digest of rendered content together with its commands."""
    digest = sha256(msgspec.json.encode(commands))
    digest.update(content)
    return digest.hexdigest()


async def recall(records: Records, name: str) -> ScaffoldRecord | None:
    """Return the record of a directory's scaffold; None if there is no record or it cannot be decoded."""
    document = await records.recall(KIND, name)
    if document is None:
        return None
    try:
        record = _with_paths(msgspec.json.decode(document, type=ScaffoldRecord), _from_json)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None  # treated as a missing record, so commands are run once more
    # these paths are removed later, so they must be inside the directory
    return record if all(map(_is_inside, record.files)) else None


async def keep(records: Records, record: ScaffoldRecord) -> None:
    """Store the record. An empty record is also stored, to indicate that nothing remains to be removed."""
    await records.keep(KIND, record.name, msgspec.json.encode(_with_paths(record, _to_json)))


async def forget(records: Records, name: str) -> None:
    """Delete the record."""
    await records.keep(KIND, name, None)


def _is_inside(path: str) -> bool:
    return bool(path) and not path.startswith("/") and "\0" not in path and ".." not in path.split("/")


def _with_paths(record: ScaffoldRecord, change: Callable[[str], str]) -> ScaffoldRecord:
    made = {
        change(path): replace(
            one,
            files={change(file): digest for file, digest in one.files.items()},
            sizes={change(file): size for file, size in one.sizes.items()},
        )
        for path, one in record.made.items()
    }
    return ScaffoldRecord(name=change(record.name), made=made)


def _to_json(path: str) -> str:
    """Encode a path for JSON. Each byte becomes a character, because the path may not be UTF-8."""
    return path if path.isascii() else path.encode(errors="surrogateescape").decode("latin-1")


def _from_json(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1").decode(errors="surrogateescape")
