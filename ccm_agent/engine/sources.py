"""Finds a manifest: a file, a packed directory on the web or in an object store, or a TinyCM manifest on the web."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ccm_agent.engine.request import ManifestSource
from ccm_agent.manifest.tinycm.detect import is_tinycm
from ccm_agent.model.errors import DownloadError, ManifestError
from ccm_agent.model.formats.patterns import lazy_pattern
from ccm_agent.model.formats.urls import is_web
from ccm_agent.model.ports import Objects, Transfer
from ccm_agent.model.secret import mask_url

PACKED_LIMIT_BYTES = 128 << 20
MANIFEST_NAMES = ("manifest.yaml", "manifest.json")
MANIFEST_LIMIT_BYTES = 64 << 20
"""The maximum size of a manifest that is not packed."""
_GZIP = b"\x1f\x8b"
_SHA256 = lazy_pattern(r"[0-9a-f]{64}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@asynccontextmanager
async def open_source(
    url: str,
    port: Callable[[str], Any],
    objects: Callable[[str], Awaitable[Objects]],
    module_path: str = "",
) -> AsyncIterator[ManifestSource]:
    """
    Fetch the manifest at a path, `http(s)://…` or `obj://BUCKET/KEY`.

    Args:
        url: The path or URL. `#sha256=HEX` at the end of an http(s) URL is the required digest of the content.
        port: Returns the port "download".
        objects: Opens an object store by name.
        module_path: The location of a TinyCM manifest's templates; see `ManifestSource`. "" means the manifest's folder.

    Raises:
        ManifestError: The URL is not a manifest source, or the packed directory has no manifest at its top.
        CcmError: The content cannot be fetched or unpacked.
    """
    if "://" in module_path and not is_web(module_path):
        raise ManifestError(f"the module path {mask_url(module_path)} must be a directory or an http(s) URL")
    found = _SCHEME.fullmatch(url)
    if found is None:
        yield ManifestSource(path=url, module_path=module_path)
        return
    import shutil
    import tempfile

    from ccm_agent.engine.bundle import BundleLimits, unpack_bundle

    name = mask_url(url)
    packed = await _fetch(found[1].lower(), found[2], url, name, port, objects)
    if is_web(url) and not packed.startswith(_GZIP):
        yield _unpacked(packed, url, name, module_path)
        return
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ccm-manifest-"))
    try:
        directory = folder / "unpacked"
        await asyncio.to_thread(unpack_bundle, packed, directory, BundleLimits(), name)
        manifest = await asyncio.to_thread(manifest_in, directory, name)
        yield ManifestSource(path=str(manifest), name=name, module_path=module_path)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _fetch(
    scheme: str,
    rest: str,
    url: str,
    name: str,
    port: Callable[[str], Any],
    objects: Callable[[str], Awaitable[Objects]],
) -> bytes:
    if scheme in ("http", "https"):
        address, digest = _address(url, name)
        answer = await port("download").fetch(Transfer(url=address, limit_bytes=PACKED_LIMIT_BYTES))
        content: bytes = answer.content
        if digest and hashlib.sha256(content).hexdigest() != digest:
            raise DownloadError(f"{name}: the content does not have this digest")
        return content
    if scheme == "obj":
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise ManifestError(f"{name} does not name an object: write obj://BUCKET/KEY")
        return await (await objects(bucket)).get(key, PACKED_LIMIT_BYTES)
    raise ManifestError(
        f"{name} is not a manifest: `{scheme}://` is not supported, only a path, http://, https:// and obj://"
    )


def _address(url: str, name: str) -> tuple[str, str]:
    """Return a URL without its fragment, and the digest in the fragment. The digest is "" if there is no fragment."""
    address, _, fragment = url.partition("#")
    if not fragment.startswith("sha256="):
        return url, ""
    digest = fragment.removeprefix("sha256=").lower()
    if not _SHA256.fullmatch(digest):
        raise ManifestError(f"{name}: the digest after `#sha256=` must be 64 hexadecimal digits")
    return address, digest


def _unpacked(content: bytes, url: str, name: str, module_path: str) -> ManifestSource:
    """
    Return a fetched TinyCM manifest. Its templates are fetched from the same folder.

    Raises:
        ManifestError: The content is neither a TinyCM manifest nor a packed directory.
    """
    is_text = len(content) <= MANIFEST_LIMIT_BYTES and b"\0" not in content
    if not is_text or not is_tinycm(name.partition("#")[0], content.decode("utf-8", "replace")):
        raise ManifestError(
            f"{name} is neither a packed directory nor a TinyCM manifest: pack the manifest with its files, as in "
            "`tar -czf site.tar.gz manifest.yaml templates`"
        )
    from ccm_agent.engine.tinycm.module_path import folder_of_url

    return ManifestSource(text=content, name=name, module_path=module_path or folder_of_url(url))


def manifest_in(directory: Path, name: str) -> Path:
    """
    Find the manifest at the top of an unpacked directory or at the top of its only folder. Blocking.

    Raises:
        ManifestError: There is no manifest.
    """
    tops = [directory]
    entries = list(directory.iterdir())
    if len(entries) == 1 and entries[0].is_dir() and not entries[0].is_symlink():
        tops.append(entries[0])
    for top in tops:
        for file in MANIFEST_NAMES:
            if (top / file).is_file():
                return top / file
    raise ManifestError(f"{name} has no manifest.yaml at its top")
