"""Reads files and writes them with a changed part, for the types of `edited_files.py`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import posixpath
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from ccm_agent.model.errors import CcmError, CommandError, FileError
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.outcome import OUTPUT_TAIL
from ccm_agent.model.ports import Command, FileInfo, Files, Runner
from ccm_agent.model.resource import ABSENT, PRESENT
from ccm_agent.model.resource_diff import ContentInfo
from ccm_agent.resources.changes import COMPARED_BYTES, FileChange, private_paths
from ccm_agent.resources.contract import ResourceContext
from ccm_agent.resources.edited_files import (
    NEW_MODE,
    NEW_SECRET_MODE,
    PLACEHOLDER,
    EditedFile,
    EditedProperties,
    EditedState,
)
from ccm_agent.resources.secret_signs import PRIVATE_BITS

VALIDATION_LIMIT_S = 60.0
"""The time limit of a program that checks a file. A program that takes longer probably hangs."""
CONTRADICTION = "its changes contradict each other: a second run would change the file again"

P = TypeVar("P", bound=EditedProperties)
Change = Callable[[P, bytes], bytes]
"""Returns the content of a file after a resource's change. Has no side effects. Raises CcmError if the change is not possible."""


class FileEditor(Generic[P]):
    """
    The provider of a type that changes a part of a file.

    Args:
        files, runner: The ports.
        kind: The name of the type.
        change: Makes the change.
        limit_bytes: The maximum size of a file.
    """

    def __init__(self, files: Files, runner: Runner, kind: str, change: Change[P], limit_bytes: int) -> None:
        self._files = files
        self._runner = runner
        self._kind = kind
        self._change = change
        self._limit_bytes = limit_bytes

    async def status(self, wanted: P) -> EditedState:
        """See `contract.Provider`."""
        return (await self.look_ahead([wanted]))[0]

    async def look_ahead(self, wanted: Sequence[P]) -> list[EditedState]:
        """Return the result of `status` for each resource. Each file is read once."""
        by_file: dict[str, list[int]] = {}
        for number, one in enumerate(wanted):
            by_file.setdefault(one.file, []).append(number)
        states: dict[int, EditedState] = {}
        for look in await self._files.inspect(list(by_file), digest=False):
            found = by_file[look.path]
            content, error = await self._content(look)
            files = await asyncio.to_thread(
                self._compared, [wanted[number] for number in found], look, content, error
            )
            for number, file in zip(found, files, strict=True):
                states[number] = self._state(wanted[number], file)
        return [states[number] for number in range(len(wanted))]

    async def compare(self, wanted: P, file: EditedFile) -> list[FileChange]:
        """Return the content before and after the change, for a diff."""
        content = None if file.is_missing else await self._files.read(file.path, self._limit_bytes)
        after = await asyncio.to_thread(self._change, wanted, content or b"")
        is_large = max(file.size, len(after)) > COMPARED_BYTES
        mode = _new_mode(wanted) if file.is_missing else None
        return [
            FileChange(
                path=file.path,
                before=None if is_large else content,
                after=None if is_large else after,
                is_private=(await private_paths(self._files, [file.path], mode))[file.path],
                why=f"contents larger than {COMPARED_BYTES >> 20} MiB are not compared line by line"
                if is_large
                else "",
                was_there=not file.is_missing,
                old=None if file.is_missing else ContentInfo(size_bytes=file.size, sha256=file.checksum),
                new=ContentInfo(size_bytes=file.desired_size, sha256=file.desired_checksum),
            )
        ]

    async def store(self, wanted: P, file: EditedFile) -> None:
        """
        Write the changed file with its owner and mode, after the `validate` program has accepted it.

        Raises:
            FileError: The file has changed since it was read, or cannot be written.
            CommandError: The new content is invalid. The file was not changed.
        """
        look, content = await self._unchanged(file)
        after = await asyncio.to_thread(self._change, wanted, content)
        is_new = look.kind == "absent"
        owner, group = ("", "") if is_new else (str(look.uid), str(look.gid))
        mode = _new_mode(wanted) if is_new else look.mode
        if not wanted.validate:
            await self._files.write(file.path, after, owner=owner, group=group, mode=mode)
            return
        staged = posixpath.join(posixpath.dirname(file.path), f".ccm-{os.urandom(8).hex()}.part")
        try:
            await self._files.write(staged, after, mode=NEW_SECRET_MODE)
            await self._validate(wanted.validate, staged)
            if (await self._files.inspect([staged]))[0].sha256 != _digest(after):
                raise FileError(f"{file.path}: the `validate` command changed the file that it checks")
            await self._unchanged(file)
            await self._files.replace(staged, file.path, owner=owner, group=group, mode=mode)
        except BaseException:
            await self._files.remove(staged)
            raise

    # ---- internal ----

    async def _content(self, look: FileInfo) -> tuple[bytes, str]:
        """Return the content of a file, or the reason why it cannot be changed."""
        if look.kind == "absent":
            return b"", ""
        if look.kind != "file":
            what = {"directory": "a directory", "unreadable": f"not readable: {look.error}"}
            return (
                b"",
                f"it is {what.get(look.kind, 'a FIFO, socket or device')}; only files can be edited",
            )
        try:
            return await self._files.read(look.path, self._limit_bytes), ""
        except FileError as err:
            return b"", err.message.removeprefix(f"{look.path}: ")

    def _compared(self, wanted: Sequence[P], look: FileInfo, content: bytes, error: str) -> list[EditedFile]:
        """Compare a file with the desired state of each resource. Blocking."""
        is_missing = look.kind == "absent"
        found = EditedFile(
            path=look.path,
            owner=look.owner,
            group=look.group,
            mode="" if is_missing else f"{look.mode & 0o777:04o}",
            uid=look.uid,
            gid=look.gid,
            link=look.link,
            checksum="" if is_missing or error else _digest(content),
            size=len(content),
            is_missing=is_missing,
            error=error,
        )
        return [found if error else self._with_change(one, found, content) for one in wanted]

    def _with_change(self, wanted: P, found: EditedFile, content: bytes) -> EditedFile:
        if found.is_missing and wanted.ensure == ABSENT:
            return found
        if found.is_missing and not wanted.create:
            return replace(found, error="there is no such file; set `create: true` to create it")
        try:
            after = self._change(wanted, content)
            if after != content and self._change(wanted, after) != after:
                return replace(found, error=CONTRADICTION)
        except CcmError as err:
            return replace(found, error=err.message)
        return replace(found, desired_checksum=_digest(after), desired_size=len(after))

    def _state(self, wanted: P, file: EditedFile) -> EditedState:
        is_done = not file.error and file.checksum == file.desired_checksum
        desired = wanted.ensure or PRESENT
        other = ABSENT if desired == PRESENT else PRESENT
        return EditedState(
            protocol=f"io.choria.ccm.v1.resource.{self._kind}.state",
            type=self._kind,
            name=wanted.name,
            ensure=desired if is_done else other,
            file=file,
        )

    async def _unchanged(self, file: EditedFile) -> tuple[FileInfo, bytes]:
        """Read the file again. Raises FileError if another process has changed it since then."""
        look = (await self._files.inspect([file.path]))[0]
        content, error = await self._content(look)
        checksum = "" if look.kind == "absent" else _digest(content)
        # Owner and mode must belong to the content, because the directory's owner can rename files while they are read.
        if error or not checksum == look.sha256 == file.checksum or look.link != file.link:
            raise FileError(
                f"{file.path}: another process changed the file during the edit; nothing was written"
            )
        return look, content

    async def _validate(self, line: str, staged: str) -> None:
        argv = tuple(word.replace(PLACEHOLDER, staged) for word in split_words(line))
        command = Command(
            argv=argv, output_limit_bytes=OUTPUT_TAIL, merge_stderr=True, time_limit_s=VALIDATION_LIMIT_S
        )
        try:
            done = await self._runner.run(command)
        except CommandError as err:
            raise CommandError(f"the `validate` command cannot be run: {err.message}") from err
        output = done.stdout.decode(errors="replace")
        if done.timed_out:
            raise CommandError(
                f"the `validate` command took longer than {VALIDATION_LIMIT_S:g} seconds; nothing was written",
                output=output,
            )
        if done.code != 0:
            how = (
                f"ended with exit code {done.code}" if done.code > 0 else f"was killed by signal {-done.code}"
            )
            raise CommandError(
                f"the new content is not valid, so nothing was written: `{argv[0]}` {how}",
                output=output,
            )


async def read_existing(context: ResourceContext, path: str, limit_bytes: int) -> tuple[bytes, str]:
    """
    Return the content of a file for an import, and the reason why the file is left out, or "".

    A file that not every user can read, and a path with a symlink that another user can replace, are left out.

    Raises:
        FileError: The file does not exist.
    """
    from ccm_agent.resources.container.source_links import find_unsafe_link
    from ccm_agent.resources.packaged import find_unchanged

    files = context.files
    if not path.isprintable():
        return b"", "its name is not printable text"
    (look,) = await files.inspect([path], digest=False, follow=False)
    if look.kind == "absent":
        raise FileError(f"{path}: does not exist")
    if look.kind != "file":
        what = {"symlink": f"a symlink; name its target {look.link}", "directory": "a directory"}
        return b"", f"is {what.get(look.kind, 'a FIFO, socket or device')}"
    if link := await find_unsafe_link(files, [path]):
        return b"", f"{link} is a symlink that another user can replace"
    try:
        content = await files.read(path, limit_bytes)
    except FileError as err:
        return b"", err.message.removeprefix(f"{path}: ")
    # Another user may replace a file after it was read. The digest shows that the mode belongs to the content that was read.
    (look,) = await files.inspect([path], digest={path: [len(content)]}, follow=False)
    if look.kind != "file" or look.sha256 != _digest(content):
        return b"", look.undigested or "changed while it was read"
    if not look.mode & PRIVATE_BITS:
        return b"", f"is private (mode {look.mode:04o})"
    if path in await find_unchanged(context, {path: content}):
        return b"", "is as its package installed it"
    return content, ""


def _new_mode(wanted: EditedProperties) -> int:
    return NEW_SECRET_MODE if wanted.sensitive else NEW_MODE


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
