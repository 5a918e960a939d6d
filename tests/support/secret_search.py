"""Searches for a secret value in files, in messages and in the arguments of processes, also encoded or compressed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import nats

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import user_credentials
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.model.secret import Secret

SEEDS = ("account", "ops", "nodes", "audit", "join", "system")
"""The key of each account of the broker, that of the servers themselves too."""

SIZE_LIMIT = 1 << 24
_MAGICS = {b"\x1f\x8b\x08": 31, b"\x78\x9c": 15, b"\x78\xda": 15, b"\x78\x01": 15}
"""How gzip and zlib begin, and the `wbits` that reads each."""


class Needle:
    """
    A text that is looked for.

    Attributes:
        forms: The text as it is, as hexadecimal digits, and as base64 wherever it begins in what was encoded.
    """

    def __init__(self, text: str) -> None:
        raw = text.encode()
        self.forms = {raw, raw.hex().encode()}
        for before in range(3):
            encoded = base64.b64encode(bytes(before) + raw)
            # the characters at both ends also depend on what stands beside it
            whole = encoded[(0, 2, 3)[before] :].rstrip(b"=")[:-1]
            self.forms |= {whole, whole.replace(b"+", b"-").replace(b"/", b"_")}

    def is_in(self, data: bytes | str) -> bool:
        """Whether data contain the text, compressed data too."""
        data = data.encode() if isinstance(data, str) else data
        return self._is_plain(data) or any(map(self._is_plain, _unpacked(data)))

    def files(self, *folders: Path) -> list[str]:
        """The files that contain it, below these folders, with the name of the folder."""
        found = []
        for folder in folders:
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):
                    if path.is_file() and not path.is_symlink() and self.is_in(path.read_bytes()):
                        found.append(str(path.relative_to(folder.parent)))
        return sorted(found)

    def _is_plain(self, data: bytes) -> bool:
        return any(form in data for form in self.forms)


def _unpacked(data: bytes) -> Iterator[bytes]:
    for magic, bits in _MAGICS.items():
        at = data.find(magic)
        while at >= 0:
            with contextlib.suppress(zlib.error):
                yield zlib.decompressobj(bits).decompress(data[at : at + SIZE_LIMIT], SIZE_LIMIT)
            at = data.find(magic, at + 1)


class Wire:
    """
    Every message that a user who may hear everything receives, in each account.

    Args:
        url: The broker's address.
        keys: The folder with the keys of the accounts.
        directory: Where to put credentials.
        tls: How to verify the broker's certificate, and the name in it; None: it has none.
    """

    def __init__(
        self, url: str, keys: Path, directory: Path, tls: tuple[ssl.SSLContext, str] | None = None
    ) -> None:
        self._url, self._keys, self._directory, self._tls = url, keys, directory, tls
        self._end = threading.Event()
        self._ready = threading.Event()
        self.messages: list[bytes] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Receive as long as the block lasts."""
        thread = threading.Thread(target=lambda: asyncio.run(self._listen()), daemon=True)
        thread.start()
        assert self._ready.wait(30)
        try:
            yield
        finally:
            self._end.set()
            thread.join(30)

    async def _listen(self) -> None:
        connections = []
        options = {"tls": self._tls[0], "tls_hostname": self._tls[1]} if self._tls else {}
        for name in SEEDS:
            seed = Secret((self._keys / f"{name}.seed").read_text().strip())
            # the seed determines the account
            everything = Permissions(account=Account.CTL, publish=(), subscribe=(">",))
            creds = self._directory / f"wire-{name}.creds"
            creds.write_text(user_credentials(seed, f"wire-{name}", everything).text.reveal())
            connection = await nats.connect(self._url, user_credentials=str(creds), **options)
            await connection.subscribe(">", cb=self._hear)
            await connection.flush()
            connections.append(connection)
        self._ready.set()
        await asyncio.to_thread(self._end.wait)
        for connection in connections:
            await connection.flush()
            await connection.close()

    async def _hear(self, message: nats.aio.msg.Msg) -> None:
        headers = repr(message.headers).encode()
        self.messages.append(b"\0".join((message.subject.encode(), headers, message.data)))


class CommandLines:
    """The arguments of every process of this host and its containers, read again and again."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self.found: set[bytes] = set()

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        """Read as long as the block lasts."""
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(30)

    def _sample(self) -> None:
        while not self._end.is_set():
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    self.found.add(path.read_bytes())


def holding(needle: Needle, data: Sequence[bytes | str]) -> list[bytes | str]:
    """Which of these contain it."""
    return [one for one in data if needle.is_in(one)]
