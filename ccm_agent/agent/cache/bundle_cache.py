"""
Bundles on this node: bundles of requests and assignments by digest, and the last good bundle of each manifest source.

A bundle of a request is unpacked once and kept for the next run with the same bundle. For a manifest source, the packed bytes
are kept. Each process checks their digest and unpacks them again, so a power cut during unpacking cannot leave an incomplete
folder that looks complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
from pathlib import Path

from msgspec import Struct

from ccm_agent.engine.bundle import BundleLimits, unpack_bundle
from ccm_agent.engine.sources import manifest_in
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import CcmError, FileError, ProtocolError
from ccm_agent.model.ports import Objects
from ccm_agent.storage.journal import make_private_folder, replace_file
from ccm_agent.storage.state_file import StateFile

log = logging.getLogger(__name__)

PACKED_LIMIT_BYTES = 64 << 20
"""The size limit of a fetched bundle, which is in memory while its digest is checked."""

KEPT = 8
"""The number of unpacked bundles to keep on disk: the most recently used ones."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class BundleCache:
    """
    The unpacked bundles of one agent.

    Attributes:
        current: Digests of bundles that are applied repeatedly; they are not removed when others are added.
    """

    def __init__(self, objects: Objects, folder: Path, limits: BundleLimits | None = None) -> None:
        """
        Args:
            objects: `CCM_MANIFESTS`.
            folder: The folder of the bundles; it contains nothing else.
            limits: The limits of an unpacked bundle.
        """
        self.current: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()
        self._objects = objects
        self._folder = folder
        self._limits = limits or BundleLimits()

    async def unpacked(self, bundle: Bundle) -> str:
        """
        Return the folder of an unpacked bundle, which is fetched if necessary.

        Raises:
            ProtocolError: The content does not match the digest, or is not a bundle.
            BusError: The bundle cannot be fetched.
            FileError: The bundle cannot be stored.
        """
        if not _DIGEST.fullmatch(bundle.digest):
            raise ProtocolError(f"{bundle.digest!r}: not a SHA-256 digest, so the bundle cannot be fetched")
        folder = self._folder / bundle.digest
        async with self._lock:
            if not await asyncio.to_thread(_touched, folder):
                packed = await self._objects.get(bundle.digest, PACKED_LIMIT_BYTES)
                await asyncio.to_thread(self._keep, packed, bundle.digest, folder)
        return str(folder)

    def _keep(self, packed: bytes, digest: str, folder: Path) -> None:
        if hashlib.sha256(packed).hexdigest() != digest:
            raise ProtocolError(f"{digest}: the bundle on the broker does not match this digest")
        half = self._folder / f"{digest}.new"
        try:
            make_private_folder(self._folder)
            shutil.rmtree(half, ignore_errors=True)
            unpack_bundle(packed, half, self._limits, f"bundle {digest[:12]}")
            half.rename(folder)
            self._prune(folder)
        except OSError as err:
            raise FileError(f"{folder}: cannot store the bundle: {err.strerror}") from err
        finally:
            shutil.rmtree(half, ignore_errors=True)

    def _prune(self, used: Path) -> None:
        kept = sorted(
            (
                path
                for path in self._folder.iterdir()
                if path != used and path.name not in self.current and path.is_dir()
            ),
            key=lambda path: path.stat().st_mtime,
            reverse=True,
        )
        for path in kept[KEPT - 1 :]:
            shutil.rmtree(path, ignore_errors=True)


def _touched(folder: Path) -> bool:
    """Return whether a folder exists. If so, mark it as recently used."""
    try:
        folder.touch(exist_ok=True) if folder.is_dir() else None
        return folder.is_dir()
    except OSError:
        return False


class Origin(Struct, kw_only=True):
    """
    The origin of the stored bytes.

    Attributes:
        url: Their URL, with secrets removed.
        digest: Their SHA-256 (hex).
        etag, last_modified: The web server's headers.
        signed: When they were signed, in milliseconds since 1970; 0: they are not signed.
    """

    url: str
    digest: str
    etag: str = ""
    last_modified: str = ""
    signed: int = 0


class Unpacked(Struct, frozen=True, kw_only=True):
    """An unpacked manifest: the digest of the packed bytes, its folder, and the path of the manifest."""

    digest: str
    folder: str
    manifest: str


class PackedManifest:
    """
    The stored manifest of one source.

    Attributes:
        origin: The origin of the unpacked manifest; None if there is none.
        unpacked: The unpacked manifest; None if there is none.
    """

    def __init__(self, name: str, folder: Path, limits: BundleLimits | None = None) -> None:
        """
        Args:
            name: The name in error messages.
            folder: The folder of this source; it contains nothing else.
            limits: The limits of an unpacked bundle.
        """
        self.origin: Origin | None = None
        self.unpacked: Unpacked | None = None
        self._name = name
        self._folder = folder
        self._origin_file = StateFile(folder / "origin.json", Origin)
        self._limits = limits or BundleLimits()

    async def open(self) -> None:
        """Unpack the bytes that an earlier process stored. Bytes that cannot be used are skipped."""
        await asyncio.to_thread(self._open)

    async def take(self, content: bytes, origin: Origin) -> Unpacked:
        """
        Unpack new bytes and store them. The previous ones stay on disk until the next call, because a run may be using them.

        Raises:
            CcmError: The bytes are not a packed manifest, or there is not enough space; the previous ones remain.
        """
        return await asyncio.to_thread(self._take, content, origin)

    async def note(self, origin: Origin) -> None:
        """Record a new ETag for the same bytes."""
        self.origin = origin
        try:
            await asyncio.to_thread(self._origin_file.write, origin)
        except FileError as err:
            log.warning("the state of a source cannot be saved", extra={"reason": str(err)})

    def _open(self) -> None:
        origin = self._origin_file.load()
        try:
            content = (self._folder / "packed.tar.gz").read_bytes()
        except FileNotFoundError:
            return
        except OSError as err:
            log.warning("a stored manifest cannot be read", extra={"source": self._name, "reason": str(err)})
            return
        digest = hashlib.sha256(content).hexdigest()
        if origin is None or origin.digest != digest or origin.url != self._name:
            # One of the two files is older, and the bytes alone do not identify their origin.
            log.warning("a stored manifest is skipped", extra={"source": self._name})
            return
        try:
            self.unpacked = self._unpack(content, digest)
            self.origin = origin
        except CcmError as err:
            log.warning("a stored manifest cannot be used", extra={"source": self._name, "reason": str(err)})

    def _take(self, content: bytes, origin: Origin) -> Unpacked:
        before = self.unpacked
        unpacked = self._unpack(content, origin.digest)
        try:
            replace_file(self._folder / "packed.tar.gz", [content])
        except OSError as err:
            # It can still be applied, but a process that starts without a network will not have it.
            log.warning("a manifest cannot be stored", extra={"source": self._name, "reason": str(err)})
        else:
            self._store_origin(origin)
        self.origin, self.unpacked = origin, unpacked
        self._prune({unpacked.digest, before.digest if before else ""})
        return unpacked

    def _store_origin(self, origin: Origin) -> None:
        try:
            self._origin_file.write(origin)
        except FileError as err:
            log.warning("the state of a source cannot be saved", extra={"reason": str(err)})

    def _unpack(self, content: bytes, digest: str) -> Unpacked:
        folder = self._folder / digest
        try:
            make_private_folder(self._folder)
            if self.unpacked is None or self.unpacked.digest != digest:
                shutil.rmtree(folder, ignore_errors=True)
                unpack_bundle(content, folder, self._limits, self._name)
            return Unpacked(digest=digest, folder=str(folder), manifest=str(manifest_in(folder, self._name)))
        except OSError as err:
            raise FileError(f"{folder}: cannot unpack {self._name}: {err.strerror}") from err
        except CcmError:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _prune(self, used: set[str]) -> None:
        for path in self._folder.iterdir():
            if path.is_dir() and path.name not in used:
                shutil.rmtree(path, ignore_errors=True)
