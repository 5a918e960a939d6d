"""Finds a manifest: a file, or a packed directory on the web or in an object store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ccm_agent.engine.request import ManifestSource
from ccm_agent.model.errors import ManifestError
from ccm_agent.model.ports import Objects, Transfer
from ccm_agent.model.secret import mask_url

if TYPE_CHECKING:
    from pathlib import Path

PACKED_LIMIT_BYTES = 128 << 20
MANIFEST_NAMES = ("manifest.yaml", "manifest.json")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@asynccontextmanager
async def open_source(
    url: str, port: Callable[[str], Any], objects: Callable[[str], Awaitable[Objects]]
) -> AsyncIterator[ManifestSource]:
    """
    Fetch the manifest at a path, `http(s)://…` or `obj://BUCKET/KEY`.

    Args:
        url: The path or URL.
        port: Returns the port "download".
        objects: Opens an object store by name.

    Raises:
        ManifestError: The URL is not a source, or the packed directory has no manifest at its top.
        CcmError: It cannot be fetched or unpacked.
    """
    found = _SCHEME.fullmatch(url)
    if found is None:
        yield ManifestSource(path=url)
        return
    import shutil
    import tempfile
    from pathlib import Path

    from ccm_agent.engine.bundle import BundleLimits, unpack_bundle

    name = mask_url(url)
    packed = await _fetch(found[1].lower(), found[2], url, name, port, objects)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="ccm-manifest-"))
    try:
        directory = folder / "unpacked"
        await asyncio.to_thread(unpack_bundle, packed, directory, BundleLimits(), name)
        manifest = await asyncio.to_thread(manifest_in, directory, name)
        yield ManifestSource(path=str(manifest), name=name)
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
        answer = await port("download").fetch(Transfer(url=url, limit_bytes=PACKED_LIMIT_BYTES))
        content: bytes = answer.content
        return content
    if scheme == "obj":
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise ManifestError(f"{name} does not name an object: write obj://BUCKET/KEY")
        return await (await objects(bucket)).get(key, PACKED_LIMIT_BYTES)
    raise ManifestError(
        f"{name} is not a manifest: `{scheme}://` is not supported, only a path, http://, https:// and obj://"
    )


def manifest_in(directory: Path, name: str) -> Path:
    """
    Find the manifest at the top of an unpacked directory, or in its only folder. Blocking.

    Raises:
        ManifestError: There is none.
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
