"""Sources of values for `ccmctl secret`. Arguments are not a source, because every user of this host could read them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from ccm_agent.bus.signatures.sealing import SECRET_LIMIT_BYTES
from ccm_agent.model.codec import as_text
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.secret import Secret
from ccm_ctl.secret_sources.catalog import open_source
from ccm_ctl.secret_sources.contract import ValueSource

LIMIT_BYTES = SECRET_LIMIT_BYTES + 2
"""The maximum number of bytes to read: the largest value with its line ending, and one byte that reveals a larger value."""


def read_value(file: str | None) -> Secret:
    """
    Read the value from a file, from standard input or from a prompt.

    Raises:
        InputError: The value cannot be read, or is not text.
        UsageError: The two values that were typed at the prompt differ.
    """
    if file is None and sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, err=True)
        if click.prompt("Again", hide_input=True, err=True) != value:
            raise UsageError("the two values differ; nothing is stored")
        return Secret(value)
    try:
        if file is None:
            raw = sys.stdin.buffer.read(LIMIT_BYTES)
        else:
            with Path(file).open("rb") as opened:
                raw = opened.read(LIMIT_BYTES)
    except OSError as err:
        raise InputError(f"{file or 'standard input'}: cannot be read: {err.strerror}") from err
    text = as_text(raw, file or "standard input")
    return Secret(text if file is not None else text.removesuffix("\n"))


class GivenValue:
    """A value that was already read from a file, standard input or a prompt."""

    def __init__(self, value: Secret) -> None:
        self._value = value

    async def read(self) -> Secret:
        """See `ValueSource`."""
        return self._value


def open_value(
    file: str | None, source: str | None, identity: str, environ: Mapping[str, str]
) -> ValueSource:
    """
    Return the source of the value: the store of `--from`, which is read later, or the value from `read_value`, which is read now.

    Raises:
        InputError: The value cannot be read, or `--from` does not specify a store.
    """
    if source is not None and file is not None:
        raise UsageError("--from and --file cannot be combined; use one of them")
    if source is not None:
        return open_source(source, identity=identity, environ=environ)
    if identity:
        raise UsageError("--identity requires --from")
    return GivenValue(read_value(file))


async def make_value(command: str) -> Secret:
    """
    Run a program, and return the value that it prints, without its last newline. Its standard error is discarded.

    Args:
        command: The program and its arguments, quoted as in a shell. There is no shell, so nothing is expanded.

    Raises:
        UsageError: The quoting is not valid.
        InputError: The program cannot be started or fails, or its output is too long or is not text.
    """
    try:
        words = shlex.split(command)
    except ValueError as err:
        raise UsageError(f"--with: {err}") from err
    if not words:
        raise UsageError("--with: no program given")
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as err:
        reason = err.strerror if isinstance(err, OSError) else "the command line is not valid"
        raise InputError(f"--with: {words[0]} cannot be started: {reason}") from err
    assert process.stdout is not None
    raw = b""
    try:
        while len(raw) < LIMIT_BYTES and (piece := await process.stdout.read(LIMIT_BYTES - len(raw))):
            raw += piece
        if len(raw) < LIMIT_BYTES:
            await process.wait()
    finally:
        if process.returncode is None:
            # kill the process group, because it also contains the program's children
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            # `wait` also waits for the end of the pipe, so read it to its end
            while await process.stdout.read(LIMIT_BYTES):
                pass
            await process.wait()
    if len(raw) >= LIMIT_BYTES:
        raise InputError(
            f"--with: {words[0]} printed more than the limit of a secret, {SECRET_LIMIT_BYTES:,} bytes"
        )
    if process.returncode:
        raise InputError(
            f"--with: {words[0]} failed with exit code {process.returncode}; nothing is stored; run it by hand to see why"
        )
    return Secret(as_text(raw, f"the output of {words[0]}").removesuffix("\n"))
