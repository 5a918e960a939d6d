"""
A file encrypted by SOPS. It is decrypted by the `sops` program, because only that program supports all key services.

The program's errors are not shown, because they may quote secrets. Its exit codes are in cmd/sops/codes of
https://github.com/getsops/sops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

from ccm_agent.model.errors import InputError
from ccm_agent.model.secret import Secret
from ccm_ctl.secret_sources.contract import (
    SourceDeniedError,
    SourceMissingError,
    SourceRequest,
    SourceUnreachableError,
    SourceValueError,
)
from ccm_ctl.secret_sources.decrypted import DOCUMENT_LIMIT_BYTES, value_in

SOPS_S = 60.0
"""The time limit in seconds. A person may have to type a passphrase or touch a security key."""

_NO_KEY = 128
_CHANGED = (51, 52)


class SopsFile:
    """
    A value in an encrypted file.

    Raises:
        InputError: The program is not installed.
    """

    def __init__(self, request: SourceRequest) -> None:
        self._request = request
        self._program = shutil.which("sops", path=request.environ.get("PATH"))
        if self._program is None:
            raise InputError("--from sops: needs the program sops; see https://getsops.io")

    async def read(self) -> Secret:
        """See `ValueSource`."""
        place = self._request.place
        path = await asyncio.to_thread(_whole_path, place)
        if path is None:
            raise SourceMissingError(f"{place}: there is no such file")
        try:
            async with asyncio.timeout(SOPS_S):
                code, plain = await self._decrypt(path)
        except TimeoutError:
            raise SourceUnreachableError(f"{place}: sops did not end within {SOPS_S:g} s") from None
        except (OSError, ValueError) as err:
            reason = err.strerror if isinstance(err, OSError) else "its arguments cannot be used"
            raise SourceUnreachableError(f"{place}: sops cannot be started: {reason}") from None
        if code == _NO_KEY:
            raise SourceDeniedError(f"{place}: sops has no key that decrypts it")
        if code in _CHANGED:
            raise SourceValueError(f"{place}: it was changed after it was encrypted")
        if code:
            raise SourceUnreachableError(
                f"{place}: sops ended with exit code {code}; `sops decrypt {place} > /dev/null` shows why"
            )
        return value_in(plain, self._request)

    async def _decrypt(self, path: str) -> tuple[int, bytes]:
        """
        Run sops, and return its exit code and its output.

        Raises:
            SourceValueError: The output is too large.
        """
        key = {"SOPS_AGE_KEY_FILE": self._request.identity} if self._request.identity else {}
        # `--decrypt` is older than the command `decrypt`, but every version accepts it
        options = ("--decrypt", "--output-type", "json") if self._request.field else ("--decrypt",)
        assert self._program is not None
        async with _pipe() as (printed, end):
            process = await asyncio.create_subprocess_exec(
                self._program,
                *options,
                path,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=end,
                stderr=asyncio.subprocess.DEVNULL,
                env={**self._request.environ, **key},
            )
            end.close()
            plain = bytearray()
            try:
                while chunk := await printed.read(64 << 10):
                    plain += chunk
                    if len(plain) > DOCUMENT_LIMIT_BYTES:
                        raise SourceValueError(
                            f"{self._request.place}: larger than {DOCUMENT_LIMIT_BYTES >> 10} KiB"
                        )
                return await process.wait(), bytes(plain)
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await asyncio.shield(process.wait())


@contextlib.asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, IO[bytes]]]:
    """
    Yield a pipe: its reader for this process, and its writing end for a program.

    This is not asyncio's own pipe, because that stays open while a child of the program holds it, and `wait` waits for its end.
    """
    begin, end = _ends()
    with begin, end:
        printed = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(printed), begin
        )
        try:
            yield printed, end
        finally:
            transport.close()


def _ends() -> tuple[IO[bytes], IO[bytes]]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb", 0), os.fdopen(writing, "wb", 0)


def _whole_path(place: str) -> str | None:
    """Return the absolute path of a file, which cannot look like an option; None if the file does not exist. Blocking."""
    path = Path(place).absolute()
    return str(path) if path.is_file() else None
