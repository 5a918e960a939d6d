"""
Runs commands on rendered files.

The commands run on a copy before anything is written, so a failing command leaves all files unchanged. The copy is in a directory
that only the user of this process can enter. A command can change the file, remove it, or create other files next to it. All
regular files that are in the directory afterwards belong to the scaffold.
"""

from __future__ import annotations

import asyncio
import os
import posixpath
import re
import secrets
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ccm_agent.model.errors import CommandError, FileError, PropertyError
from ccm_agent.model.formats.durations import format_duration
from ccm_agent.model.formats.shellwords import split_words
from ccm_agent.model.ports import Command, Completed, Files, Runner, TreeEntry, Trees
from ccm_agent.model.secret import Masker
from ccm_agent.resources.globs import compile_glob

PLACEHOLDER = "{}"
OUTPUT_BYTES = 16 * 1024
RESULT_BYTES = 256 << 20
"""The maximum total size of the files that commands create from one rendered file."""


class PostCommands:
    """
    The commands of a scaffold.

    Args:
        rules: Command lines by glob, as in the manifest.

    Raises:
        PropertyError: A glob is invalid, or a command has an unclosed quote.
    """

    def __init__(self, rules: list[dict[str, str]]) -> None:
        self._rules: list[tuple[re.Pattern[str], tuple[str, ...]]] = [
            (compile_glob(glob, "post"), _split_command(line))
            for rule in rules
            for glob, line in rule.items()
        ]

    def commands(self, path: str) -> list[tuple[str, ...]]:
        """Return the commands for a file in order, each split into words."""
        name = posixpath.basename(path)
        return [words for pattern, words in self._rules if pattern.fullmatch(name)]


_OURS = ("CCM_", "NATS_", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "CREDENTIALS_DIRECTORY")
"""
Prefixes of environment variables that are not passed to commands. They contain passwords, paths of credentials, and the agent's
connection to systemd.
"""


class PostCommandDir:
    """
    A directory in which commands run on copies of files. It is removed at the end of the `async with` block.

    Args:
        trees, files, runner: The ports with these names.
        environ: The environment of the commands.
        data: The data of the templates. Its values are removed when errors quote the output of commands.
        limit_s: The time limit of each command, in seconds.
    """

    def __init__(
        self,
        trees: Trees,
        files: Files,
        runner: Runner,
        environ: Mapping[str, str],
        data: Mapping[str, Any],
        limit_s: float,
    ) -> None:
        self._trees = trees
        self._files = files
        self._runner = runner
        self._environ = {name: value for name, value in environ.items() if not name.startswith(_OURS)}
        self._data = data
        self._limit_s = limit_s
        temporary = environ.get("TMPDIR", "")
        self._path = posixpath.join(
            temporary if temporary.startswith("/") else "/tmp", f"ccm-{secrets.token_hex(16)}"
        )
        self._boxes = 0
        self._cwd = ""

    async def __aenter__(self) -> PostCommandDir:
        self._cwd = await asyncio.to_thread(os.getcwd)
        await self._refuse_shared(posixpath.dirname(self._path))
        await self._files.set_attributes(self._path, mode=0o700, directory=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._files.remove(self._path, recursive=True)

    async def _refuse_shared(self, directory: str) -> None:
        """
        Refuse a temporary directory that other users can replace, because they could insert their own content into the result.
        """
        (seen,) = await self._files.inspect([directory], digest=False)
        is_shared = seen.mode & 0o022 and not seen.mode & 0o1000
        if seen.kind == "directory" and (is_shared or seen.uid not in (0, os.geteuid())):
            raise FileError(
                f"TMPDIR {directory}: other users can move its content; use a directory such as /tmp"
            )

    async def work(self, path: str, content: bytes, commands: list[tuple[str, ...]]) -> list[TreeEntry]:
        """
        Run commands on a file. Return the files that exist afterwards: the file itself, unless it was removed, and other files.

        Raises:
            CommandError: A command cannot be started, exceeds the time limit, or exits with a code other than 0.
        """
        self._boxes += 1
        box = f"{self._path}/{self._boxes}"
        above = [part[0] for part in _prefixes(path)]
        await self._trees.write(box, above, [TreeEntry(path=path, content=content)])
        for words in commands:
            await self._run(words, f"{box}/{path}", path, content)
        tree = await self._trees.read(box, RESULT_BYTES)
        return [_made(entry) for entry in tree.entries if entry.kind == "file"]

    async def _run(self, words: tuple[str, ...], full: str, path: str, content: bytes) -> None:
        command = Command(
            argv=_argv(words, full),
            search_path=self._environ.get("PATH", ""),
            # clear LC_ALL, because the runner sets it and it would override LANG
            env={"LC_ALL": "", **self._environ},
            cwd=self._cwd,
            output_limit_bytes=OUTPUT_BYTES,
            merge_stderr=True,
            time_limit_s=self._limit_s,
        )
        line = " ".join(words)
        try:
            done = await self._runner.run(command)
        except CommandError as err:
            raise CommandError(f"{path}: the post command `{line}` cannot be run: {err.message}") from err
        if done.timed_out or done.code:
            output = self._without_content(done.stdout.decode(errors="replace"), content)
            raise CommandError(f"{path}: the post command `{line}` {self._end_of(done)}", output=output)

    def _end_of(self, done: Completed) -> str:
        if done.timed_out:
            return f"took longer than {format_duration(self._limit_s)} and was killed"
        if done.code < 0:
            return f"was killed by signal {-done.code}"
        return f"ended with exit status {done.code}"

    def _without_content(self, output: str, content: bytes) -> str:
        """Return a command's output without lines that quote the rendered content, because the content may be secret."""
        masker = Masker(
            [content.decode(errors="replace"), *map(str.strip, content.decode(errors="replace").splitlines())]
        )
        for text in _texts(self._data):
            masker.learn(text)
        return masker.text(output)


def _split_command(line: str) -> tuple[str, ...]:
    words = tuple(split_words(line))
    if not words:
        raise PropertyError("a command in `post` is blank")
    return words


def _argv(words: tuple[str, ...], full: str) -> tuple[str, ...]:
    program, *arguments = words
    if any(PLACEHOLDER in one for one in arguments):
        return program, *(one.replace(PLACEHOLDER, full) for one in arguments)
    return program, *arguments, full


def _prefixes(path: str) -> list[tuple[str, str]]:
    """Return the parent directories of a path, outermost first."""
    parts = path.split("/")[:-1]
    return [("/".join(parts[: n + 1]), parts[n]) for n in range(len(parts))]


def _made(entry: TreeEntry) -> TreeEntry:
    """Return an entry to write. The owner is set only if a command changed it. The setuid bit is always removed."""
    return replace(
        entry,
        mode=entry.mode & 0o777,
        uid=-1 if entry.uid == os.geteuid() else entry.uid,
        gid=-1 if entry.gid == os.getegid() else entry.gid,
    )


def _texts(value: Any) -> list[str]:
    """Return all strings in a nested value."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in _texts(one)]
    if isinstance(value, list):
        return [text for one in value for text in _texts(one)]
    return []
