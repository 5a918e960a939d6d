"""
Bundles on this node: those of requests and assignments by digest, and the last good one of each manifest source.

A bundle of a request is unpacked once and kept for the next run of the same. Of a manifest source, the packed bytes are what is
kept: they are checked against their digest and unpacked again by each process, so a power cut in the middle of unpacking leaves
nothing that looks whole.
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
"""What is fetched at most; it is held in memory while its digest is checked."""

KEPT = 8
"""So many unpacked bundles stay on disk, the last used."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


class BundleCache:
    """
    The unpacked bundles of one agent.

    Attributes:
        current: Digests of what is applied again and again: those stay, however many others come.
    """

    def __init__(self, objects: Objects, folder: Path, limits: BundleLimits | None = None) -> None:
        """
        Args:
            objects: `CCM_MANIFESTS`.
            folder: A folder of the bundles' own.
            limits: How much a bundle may unpack to.
        """
        self.current: frozenset[str] = frozenset()
        self._lock = asyncio.Lock()
        self._objects = objects
        self._folder = folder
        self._limits = limits or BundleLimits()

    async def unpacked(self, bundle: Bundle) -> str:
        """
        The folder that holds a bundle, fetched if it is not here.

        Raises:
            ProtocolError: What came is not what the digest says, or is not a bundle.
            BusError: It cannot be fetched.
            FileError: It cannot be kept.
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
    """Whether a folder is there; it counts as used now."""
    try:
        folder.touch(exist_ok=True) if folder.is_dir() else None
        return folder.is_dir()
    except OSError:
        return False


class Origin(Struct, kw_only=True):
    """
    What is known of the bytes that are kept.

    Attributes:
        url: Where they came from, without what is secret in it.
        digest: SHA-256 (hex) of them.
        etag, last_modified: What the web server said with them.
        signed: When they were signed, in milliseconds since 1970; 0: they were not.
    """

    url: str
    digest: str
    etag: str = ""
    last_modified: str = ""
    signed: int = 0


class Unpacked(Struct, frozen=True, kw_only=True):
    """A packed manifest that lies ready: digest of the packed bytes, its folder, the manifest's path."""

    digest: str
    folder: str
    manifest: str


class PackedManifest:
    """
    The kept manifest of one source.

    Attributes:
        origin: Of what lies ready; None when nothing does.
        unpacked: What lies ready.
    """

    def __init__(self, name: str, folder: Path, limits: BundleLimits | None = None) -> None:
        """
        Args:
            name: What errors call it.
            folder: A folder of this source's own.
            limits: How much it may unpack to.
        """
        self.origin: Origin | None = None
        self.unpacked: Unpacked | None = None
        self._name = name
        self._folder = folder
        self._origin_file = StateFile(folder / "origin.json", Origin)
        self._limits = limits or BundleLimits()

    async def open(self) -> None:
        """Make ready what an earlier process kept; what cannot be used is passed over."""
        await asyncio.to_thread(self._open)

    async def take(self, content: bytes, origin: Origin) -> Unpacked:
        """
        Unpack new bytes and keep them. What was there before stays on disk until the next call, for a run may use it.

        Raises:
            CcmError: They are not a packed manifest, or there is no room; what was there before stays.
        """
        return await asyncio.to_thread(self._take, content, origin)

    async def note(self, origin: Origin) -> None:
        """The same bytes have another ETag now."""
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
            # one of the two files is older: the bytes alone do not say where they came from
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
            # it can be applied all the same; a process that starts without a network will not have it
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
