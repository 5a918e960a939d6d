"""
Where the manifests of the configuration come from: a file, a packed directory on the web, an object.

An origin gives the manifest to apply now. When it cannot be read, or gives what cannot be used, the last good manifest is used.
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
"""What is fetched at most; it is held in memory while its digest is checked."""

MANIFEST_LIMIT_BYTES = 16 << 20
"""Of a manifest file; as the engine takes it."""

FETCH_S = 300.0
"""A server that sends a byte now and then must not keep a node from converging for good."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class SourcePorts(Struct, frozen=True, kw_only=True):
    """
    What origins of manifests need of the world outside.

    Attributes:
        files, download: This host and the web.
        objects: Object stores by name.
        check_object: Given an object's subject, digest and signature: when it was signed. SignatureError when they do not prove
            that a trusted operator stored it. None: objects need not be signed.
    """

    files: Files
    download: Download
    objects: Callable[[str], Objects]
    check_object: Callable[[str, str, str], int] | None = None


class ManifestOrigin(Protocol):
    """
    One entry of `manifests`.

    Attributes:
        name: For operators: its URL without the secrets in it.
    """

    name: str

    async def open(self) -> None:
        """Read what an earlier process kept."""
        ...

    async def current(self) -> ManifestSource:
        """
        The manifest to apply now, with its digest; reads it from where it comes from.

        Raises:
            CcmError: It cannot be read, or cannot be used; `last_good` is still valid.
        """
        ...

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Call a function at each change, where changes are notified; calling the result ends that."""
        ...

    def last_good(self) -> ManifestSource | None:
        """The manifest that was given last; None when there was none."""
        ...


def make_origin(url: str, ports: SourcePorts, cache: Path, place: int = 0) -> ManifestOrigin:
    """
    The origin for a URL of `manifests`.

    Args:
        url: A path, `http(s)://…` or `obj://BUCKET/KEY`.
        ports: Files, the web, object stores.
        cache: A folder that all origins share.
        place: Counts URLs that are equal without the secrets in them, from 0.

    Raises:
        ManifestError: It is none of them.
    """
    found = _SCHEME.fullmatch(url)
    if found is None or found[1].lower() == "file":
        return FileOrigin(url if found is None else "/" + found[2].lstrip("/"), ports.files)
    scheme, name = found[1].lower(), mask_url(url)
    # of the name that is shown: a weak password could be guessed from a digest of the whole
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
        """Nothing is kept: the file itself is the copy."""

    async def current(self) -> ManifestSource:
        """The manifest to apply now."""
        if not self.name.startswith("/"):
            raise ManifestError(f"{self.name}: must be an absolute path in `manifests`")
        text = await self._files.read(self.name, MANIFEST_LIMIT_BYTES)
        digest = hashlib.sha256(text).hexdigest()
        return ManifestSource(
            text=text, name=self.name, directory=posixpath.dirname(self.name), digest=digest
        )

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Nothing is notified; it is read on an interval."""
        return _nothing

    def last_good(self) -> ManifestSource | None:
        """None: a manifest that was removed from this host must not be applied again."""
        return None


class _PackedOrigin:
    """The part that origins of packed directories share."""

    def __init__(self, name: str, packed: PackedManifest) -> None:
        self.name = name
        self._packed = packed

    async def open(self) -> None:
        """Make ready what an earlier process kept."""
        await self._packed.open()

    async def listen(self, on_change: Callable[[], None]) -> Callable[[], Awaitable[None]]:
        """Nothing is notified; it is read on an interval."""
        return _nothing

    def last_good(self) -> ManifestSource | None:
        """The manifest that was given last; None when there was none."""
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
    """A packed directory on a web server, asked for with the ETag of what is here."""

    def __init__(self, url: str, download: Download, packed: PackedManifest) -> None:
        super().__init__(mask_url(url), packed)
        self._url = url
        self._download = download
        self._refused: tuple[str, CcmError] | None = None

    async def current(self) -> ManifestSource:
        """The manifest to apply now."""
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
            # with its ETag the server need not send it again until it is another
            self._refused = (done.etag, err) if done.etag and _is_bad(err) else None
            raise
        self._refused = None
        return self._ready()


class ObjectOrigin(_PackedOrigin):
    """A packed directory in an object store, asked for by digest."""

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
        When what came was signed, in milliseconds since 1970; 0 where signatures are not demanded.

        Raises:
            ProtocolError: It is not signed as this node demands, or it was signed before what this node has.
        """
        if self._check is None:
            return 0
        subject, signature = await self._objects.signature(self._key)
        signed = self._check(subject, digest, signature)
        if signed < newest:
            raise ProtocolError(f"{self.name}: refused: it was signed before the one that this node has")
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
        """The manifest to apply now."""
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
        # it may have been replaced since: what came is what counts, and its digest was checked on the way
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
    """There is nothing to end."""


def _is_bad(err: CcmError) -> bool:
    """The bytes themselves are to blame, not a full disk."""
    return not err.code.startswith("host.")
