"""
Bundles on this node: fetched by digest, unpacked, kept for the next run of the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import shutil
from pathlib import Path

from ccm_agent.engine.bundle import BundleLimits, unpack_bundle
from ccm_agent.model.errors import FileError, ProtocolError
from ccm_agent.model.ports import Objects
from ccm_agent.model.wire import Bundle

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
        standing: Digests of what is applied again and again: those stay, however many others come.
    """

    def __init__(self, objects: Objects, folder: Path, limits: BundleLimits | None = None) -> None:
        """
        Nothing is touched yet.

        Args:
            objects: `CCM_MANIFESTS`.
            folder: A folder of the bundles' own.
            limits: How much a bundle may unpack to.
        """
        self.standing: frozenset[str] = frozenset()
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
            raise ProtocolError(
                f"{bundle.digest!r}: no SHA-256; the request names no bundle that could be fetched"
            )
        folder = self._folder / bundle.digest
        async with self._lock:
            if not await asyncio.to_thread(_touched, folder):
                packed = await self._objects.get(bundle.digest, PACKED_LIMIT_BYTES)
                await asyncio.to_thread(self._keep, packed, bundle.digest, folder)
        return str(folder)

    def _keep(self, packed: bytes, digest: str, folder: Path) -> None:
        if hashlib.sha256(packed).hexdigest() != digest:
            raise ProtocolError(f"{digest}: what the broker holds under this digest has another one")
        half = self._folder / f"{digest}.new"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            shutil.rmtree(half, ignore_errors=True)
            unpack_bundle(packed, half, self._limits, f"bundle {digest[:12]}")
            half.rename(folder)
            self._prune(folder)
        except OSError as err:
            raise FileError(f"{folder}: cannot keep the bundle: {err.strerror}") from err
        finally:
            shutil.rmtree(half, ignore_errors=True)

    def _prune(self, used: Path) -> None:
        kept = sorted(
            (
                path
                for path in self._folder.iterdir()
                if path != used and path.name not in self.standing and path.is_dir()
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
