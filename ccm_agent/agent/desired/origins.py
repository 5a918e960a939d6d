"""
The origins of configured manifests: a file, a packed directory on the web, or an object.

An origin returns the manifest to apply now. If the manifest cannot be read or used, the last good one is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import posixpath
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from ccm_agent.agent.cache.bundle_cache import Origin, PackedManifest
from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import (
    BusError,
    BusUnavailableError,
    CcmError,
    DownloadError,
    ManifestError,
    NotFoundError,
    ProtocolError,
)
from ccm_agent.model.ports import Download, Files, Objects, Transfer
from ccm_agent.model.secret import mask_url

log = logging.getLogger(__name__)

PACKED_LIMIT_BYTES = 64 << 20
"""The size limit of a fetched directory, which is in memory while its digest is checked."""

MANIFEST_LIMIT_BYTES = 16 << 20
"""The size limit of a manifest file, as in the engine."""

FETCH_S = 300.0
"""The time limit of a fetch. A server that sends a byte from time to time must not prevent a node from converging."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class SourcePorts(Struct, frozen=True, kw_only=True):
    """
    The external access that origins of manifests need.

    Attributes:
        files, download: Access to this host's files and to the web.
        objects: Returns an object store, given its name.
        check_object: Returns when an object was signed, given its subject, digest and signature. Raises SignatureError if
            they do not prove that a trusted operator stored it. None: objects need not be signed.
    """

    files: Files
    download: Download
    objects: Callable[[str], Objects]
    check_object: Callable[[str, str, str], int] | None = None


class ManifestOrigin(Protocol):
    """
    One entry of `manifests`.

    Attributes:
        name: The name for operators: its URL with secrets removed.
    """

    name: str

    async def open(self) -> None:
        """Read the stored manifest of an earlier process."""
        ...

    async def current(self) -> ManifestSource:
        """
        Read the manifest to apply now, with its digest.

        Raises:
            CcmError: The manifest cannot be read or used; `last_good` is still valid.
        """
        ...

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function at each change, if the origin notifies of changes, until the returned function is called."""
        ...

    def last_good(self) -> ManifestSource | None:
        """Return the last manifest that was read successfully; None if there was none."""
        ...


def make_origin(url: str, ports: SourcePorts, cache: Path, place: int = 0) -> ManifestOrigin:
    """
    Return the origin for a URL of `manifests`.

    Args:
        url: A path, `http(s)://…` or `obj://BUCKET/KEY`.
        ports: Access to files, the web and object stores.
        cache: The folder that all origins share.
        place: Distinguishes URLs that are equal after secrets are removed; counted from 0.

    Raises:
        ManifestError: The URL is of none of these kinds.
    """
    found = _SCHEME.fullmatch(url)
    if found is None or found[1].lower() == "file":
        return FileOrigin(url if found is None else "/" + found[2].lstrip("/"), ports.files)
    scheme, name = found[1].lower(), mask_url(url)
    # The digest covers the name without secrets, because a weak password could be guessed from a digest of the whole URL.
    packed = PackedManifest(name, cache / hashlib.sha256(f"{name}#{place}".encode()).hexdigest()[:32])
    if scheme in ("http", "https"):
        return WebOrigin(url, ports.download, packed)
    bucket, _, key = found[2].partition("/")
    if scheme == "obj" and bucket and key:
        return ObjectOrigin(name, ports.objects(bucket), key, packed, ports.check_object)
    raise ManifestError(
        f"{name} is not a valid source; set `manifests` to a path, http://…, https://… or obj://BUCKET/KEY"
    )


class FileOrigin:
    """A manifest on this host; it is its own last good copy."""

    def __init__(self, path: str, files: Files) -> None:
        self.name = path
        self._files = files

    async def open(self) -> None:
        """Do nothing: the file itself is the copy."""

    async def current(self) -> ManifestSource:
        """Return the manifest to apply now."""
        if not self.name.startswith("/"):
            raise ManifestError(f"{self.name}: must be an absolute path in `manifests`")
        text = await self._files.read(self.name, MANIFEST_LIMIT_BYTES)
        digest = hashlib.sha256(text).hexdigest()
        return ManifestSource(
            text=text, name=self.name, directory=posixpath.dirname(self.name), digest=digest
        )

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Do nothing: there are no notifications, and the file is read at regular intervals."""
        return _nothing

    def last_good(self) -> ManifestSource | None:
        """Return None: a manifest that was removed from this host must not be applied again."""
        return None


class _PackedOrigin:
    """The common part of origins of packed directories."""

    def __init__(self, name: str, packed: PackedManifest) -> None:
        self.name = name
        self._packed = packed

    async def open(self) -> None:
        """Unpack the stored manifest of an earlier process."""
        await self._packed.open()

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Do nothing: there are no notifications, and the origin is read at regular intervals."""
        return _nothing

    def last_good(self) -> ManifestSource | None:
        """Return the last manifest that was fetched successfully; None if there was none."""
        ready = self._packed.unpacked
        if ready is None:
            return None
        return ManifestSource(
            path=ready.manifest,
            directory=posixpath.dirname(ready.manifest),
            name=self.name,
            digest=ready.digest,
        )

    def _ready(self) -> ManifestSource:
        source = self.last_good()
        if source is None:
            raise ManifestError(f"{self.name}: no manifest has been fetched yet")
        return source


class WebOrigin(_PackedOrigin):
    """A packed directory on a web server, requested with the ETag of the stored copy."""

    def __init__(self, url: str, download: Download, packed: PackedManifest) -> None:
        super().__init__(mask_url(url), packed)
        self._url = url
        self._download = download
        self._refused: tuple[str, CcmError] | None = None

    async def current(self) -> ManifestSource:
        """Return the manifest to apply now."""
        known = self._packed.origin
        etag = self._refused[0] if self._refused else known.etag if known else ""
        last_modified = known.last_modified if known and not self._refused else ""
        transfer = Transfer(
            url=self._url, etag=etag, last_modified=last_modified, limit_bytes=PACKED_LIMIT_BYTES
        )
        try:
            async with asyncio.timeout(FETCH_S):
                done = await self._download.fetch(transfer)
        except TimeoutError:
            raise DownloadError(
                f"{self.name}: not fetched in {FETCH_S:g} s; check the server and the network"
            ) from None
        if done.is_unchanged:
            if self._refused:
                raise self._refused[1]
            return self._ready()
        origin = Origin(url=self.name, digest=done.sha256, etag=done.etag, last_modified=done.last_modified)
        if known and known.digest == origin.digest and self._packed.unpacked:
            self._refused = None
            if known != origin:
                await self._packed.note(origin)
            return self._ready()
        try:
            await self._packed.take(done.content, origin)
        except CcmError as err:
            # With its ETag, the server does not send the same content again.
            self._refused = (done.etag, err) if done.etag and _is_bad(err) else None
            raise
        self._refused = None
        return self._ready()


class ObjectOrigin(_PackedOrigin):
    """A packed directory in an object store, requested by digest."""

    def __init__(
        self,
        name: str,
        objects: Objects,
        key: str,
        packed: PackedManifest,
        check: Callable[[str, str, str], int] | None = None,
    ) -> None:
        super().__init__(name, packed)
        self._objects = objects
        self._check = check
        self._key = key
        self._refused: tuple[str, CcmError] | None = None
        self._at_least = 0

    async def _signed(self, digest: str, newest: int) -> int:
        """
        Return when the fetched content was signed, in milliseconds since 1970; 0 if signatures are not required.

        Raises:
            ProtocolError: The content is not signed as this node requires, or its signature is older than that of the stored
                manifest.
        """
        if self._check is None:
            return 0
        subject, signature = await self._objects.signature(self._key)
        signed = self._check(subject, digest, signature)
        if signed < newest:
            raise ProtocolError(f"{self.name}: refused: it was signed before the manifest that this node has")
        return signed

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function at each change of the object."""

        def notified(revision: int) -> None:
            self._at_least = max(self._at_least, revision)
            on_change()

        try:
            return await self._objects.watch_changes(self._key, notified)
        except BusError as err:
            log.info(
                "changes of an object cannot be watched", extra={"source": self.name, "reason": str(err)}
            )
            return _nothing

    async def current(self) -> ManifestSource:
        """Return the manifest to apply now."""
        try:
            async with asyncio.timeout(FETCH_S):
                return await self._current()
        except TimeoutError:
            raise BusUnavailableError(f"{self.name}: not fetched in {FETCH_S:g} s") from None

    async def _current(self) -> ManifestSource:
        at_least, self._at_least = self._at_least, 0
        digest = await self._objects.digest(self._key, at_least)
        if digest is None:
            raise NotFoundError(f"{self.name}: not found; put it into the object store")
        known = self._packed.origin
        if known and known.digest == digest and self._packed.unpacked:
            return self._ready()
        if self._refused and self._refused[0] == digest:
            raise self._refused[1]
        content = await self._objects.get(self._key, PACKED_LIMIT_BYTES)
        # The object may have been replaced since. Use the digest of the received content; it was checked during the transfer.
        came = await asyncio.to_thread(lambda: hashlib.sha256(content).hexdigest())
        signed = await self._signed(came, known.signed if known else 0)
        try:
            await self._packed.take(content, Origin(url=self.name, digest=came, signed=signed))
        except CcmError as err:
            self._refused = (came, err) if _is_bad(err) else None
            raise
        self._refused = None
        return self._ready()


async def _nothing() -> None:
    """Do nothing: there is nothing to end."""


def _is_bad(err: CcmError) -> bool:
    """Whether the content itself is invalid, as opposed to a local problem such as a full disk."""
    return not err.code.startswith("host.")
