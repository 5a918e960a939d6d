"""
What a scaffold must remember: which files it wrote, and what `post` made of them.

Without it a file that a command altered would look like drift each time, and a scaffold whose source is gone could not be
removed. See docs/adr/0050-scaffold-post.md.
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
    What came of one rendered file.

    Attributes:
        key: Digest of what was rendered and of the commands that ran on it; "" when none did.
        files: Paths of what was written for it; with commands the SHA-256 of each.
        sizes: With commands how many bytes each has; records of earlier versions do not say it.
        failed: A command failed, so nothing was written.
    """

    key: str = ""
    files: dict[str, str] = {}
    sizes: dict[str, int] = {}
    failed: bool = False

    def digest(self, path: str) -> Digest:
        """What is known of one of the files."""
        return Digest(self.files[path], self.sizes.get(path, -1))


class ScaffoldRecord(Struct, kw_only=True, omit_defaults=True):
    """
    A scaffold's memory.

    Attributes:
        name: Its directory, for whoever looks into the file.
        made: By path of the rendered file, relative to the directory.
    """

    name: str = ""
    made: dict[str, FileResult] = {}

    @property
    def files(self) -> list[str]:
        """Everything that was written."""
        return sorted({path for made in self.made.values() for path in made.files})


def key_of(content: bytes, commands: list[tuple[str, ...]]) -> str:
    """What tells one rendered content with its commands from another."""
    digest = sha256(msgspec.json.encode(commands))
    digest.update(content)
    return digest.hexdigest()


async def recall(records: Records, name: str) -> ScaffoldRecord | None:
    """The memory of the scaffold of a directory; None when there is none, or it cannot be understood."""
    document = await records.recall(KIND, name)
    if document is None:
        return None
    try:
        record = _with_paths(msgspec.json.decode(document, type=ScaffoldRecord), _from_json)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None  # as good as none: things are done once more
    # what it names is removed one day, so it names nothing outside
    return record if all(map(_is_inside, record.files)) else None


async def keep(records: Records, record: ScaffoldRecord) -> None:
    """Remember; a record of nothing is kept too, for it says that nothing is left to remove."""
    await records.keep(KIND, record.name, msgspec.json.encode(_with_paths(record, _to_json)))


async def forget(records: Records, name: str) -> None:
    """There is nothing to be remembered any more."""
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
    """A path may hold bytes that are not UTF-8, which JSON cannot say: each byte becomes a character."""
    return path if path.isascii() else path.encode(errors="surrogateescape").decode("latin-1")


def _from_json(text: str) -> str:
    return text if text.isascii() else text.encode("latin-1").decode(errors="surrogateescape")
