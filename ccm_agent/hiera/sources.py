"""
The sources of documents: files, http and https, and keys of a bucket.

All are read through ports, so this package accesses neither host nor broker directly. The document of a key may
be stamped: wrapped in a record with its bucket, its key and an increasing number. An attacker could copy a
record from one key to another, or restore an old record. A record with a different key or with a lower number
than a previous record is therefore refused.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import unquote

import msgspec

from ccm_agent.hiera.resolve import TextRenderer, resolve_document
from ccm_agent.model.data import Resolved
from ccm_agent.model.errors import DataError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.ports import Download, Files, KeyReader, Transfer
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import mask_url

DOCUMENT_LIMIT_BYTES = 16 << 20
"""The maximum size of a document. Messages of a broker and hand-written files are far smaller."""

THREAD_FROM_BYTES = 64 << 10
"""A smaller document is decoded on the event loop, because that takes less time than a thread hop."""

MARKERS = (b"{{", b"${")
"""
The delimiters that start an expression. Evaluation may take time, so a document with expressions is not
resolved on the event loop.
"""

OpenBucket = Callable[[str], Awaitable[KeyReader]]


class FetchedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """
    A document as fetched.

    Attributes:
        content: The bytes of the document, without its stamp.
        name: The name in errors and logs: the URL without its secrets.
        revision: The revision in the bucket; 0 for other sources.
    """

    content: bytes
    name: str
    revision: int = 0


class Sources:
    """
    Fetches hiera documents by URL.

    Args:
        files: Reads files.
        download: Fetches http and https URLs; None refuses them.
        open_bucket: Opens a bucket by name; None refuses `kv://`.
        directory: The base of relative paths; absolute.
        numbers: The highest number of each stamped document that was seen, by `bucket/key`. It is changed in
            place, and the caller stores it.
        demand_stamps: Whether to refuse a document of a key that is not stamped.
        pins: Buckets that are read as of a revision, with the revision. Older numbers are accepted there.
    """

    def __init__(
        self,
        files: Files,
        *,
        download: Download | None = None,
        open_bucket: OpenBucket | None = None,
        directory: str = "/",
        numbers: MutableMapping[str, int] | None = None,
        demand_stamps: bool = False,
        pins: Mapping[str, int] | None = None,
    ) -> None:
        self._pins = {} if pins is None else pins
        self._files = files
        self._download = download
        self._open_bucket = open_bucket
        self._directory = directory
        self._numbers = {} if numbers is None else numbers
        self._demand_stamps = demand_stamps

    def pinned(self, pins: Mapping[str, int]) -> Sources:
        """Return the same sources, with buckets read as of a revision."""
        return Sources(
            self._files,
            download=self._download,
            open_bucket=self._open_bucket,
            directory=self._directory,
            numbers=self._numbers,
            demand_stamps=self._demand_stamps,
            pins=pins,
        )

    async def fetch(self, url: str) -> FetchedDocument:
        """
        Fetch the document at a URL: a path, `file:///path`, `http(s)://…` or `kv://BUCKET/KEY`.

        Raises:
            DataError: The URL is not a source, or the document is empty.
            FileError: A file does not exist (`errno.ENOENT`) or cannot be read.
            DownloadError: A URL cannot be fetched.
            BusError: The bucket cannot be read, or a stamp is wrong.
        """
        scheme, mark, rest = url.partition("://")
        if not url:
            raise DataError("a hiera source is empty: name a file, or a URL with kv://, http:// or https://")
        if not mark or "/" in scheme:
            fetched = await self._file(url)
        elif scheme == "file":
            fetched = await self._file(_file_path(url))
        elif scheme in ("http", "https"):
            fetched = await self._http(url)
        elif scheme == "kv":
            fetched = await self._key(url, rest)
        else:
            known = "a path, file://, kv://, http:// or https://"
            raise DataError(f"{mask_url(url)} is not a hiera source; use {known}")
        if not fetched.content:
            raise DataError(f"{fetched.name} is empty; it must be a hiera document")
        return fetched

    async def resolve(
        self, url: str, facts: Mapping[str, Any], *, expressions: TextRenderer | None = None
    ) -> tuple[Resolved, FetchedDocument]:
        """
        Fetch a document and resolve it, without checking its rules.

        Raises:
            CcmError: See `fetch` and `resolve_document`.
        """
        fetched = await self.fetch(url)
        if len(fetched.content) < THREAD_FROM_BYTES and not any(mark in fetched.content for mark in MARKERS):
            return resolve_document(fetched.content, facts, fetched.name, expressions=expressions), fetched
        resolved = await asyncio.to_thread(
            resolve_document, fetched.content, facts, fetched.name, expressions=expressions
        )
        return resolved, fetched

    async def _file(self, path: str) -> FetchedDocument:
        absolute = posixpath.normpath(posixpath.join(self._directory, path))
        return FetchedDocument(content=await self._files.read(absolute, DOCUMENT_LIMIT_BYTES), name=path)

    async def _http(self, url: str) -> FetchedDocument:
        if self._download is None:
            raise DataError(f"{mask_url(url)} cannot be fetched: this program does not support downloads")
        answer = await self._download.fetch(Transfer(url=url, limit_bytes=DOCUMENT_LIMIT_BYTES))
        return FetchedDocument(content=answer.content, name=mask_url(url))

    async def _key(self, url: str, rest: str) -> FetchedDocument:
        bucket, _, key = rest.partition("/")
        if not bucket or not key:
            raise DataError(f"{url} has no key; write kv://BUCKET/KEY")
        if self._open_bucket is None:
            raise DataError(f"{url} cannot be read without a connection to a broker")
        opened = await self._open_bucket(bucket)
        pin = self._pins.get(bucket, 0)
        entry = await (opened.as_of(key, pin) if pin else opened.get(key))
        if entry is None and pin:
            raise DataError(
                f"{url}: the bucket {bucket} had no key {key} at revision {pin}; store the document there, then assign again"
            )
        if entry is None:
            raise DataError(f"{url}: the bucket {bucket} has no key {key}; store the document there first")
        return FetchedDocument(
            content=self._unstamped(entry.value, bucket, key), name=url, revision=entry.revision
        )

    def _unstamped(self, value: bytes, bucket: str, key: str) -> bytes:
        stamped, name = read_stamp(value), f"{bucket}/{key}"
        if stamped is None:
            if self._demand_stamps:
                raise plain_refused(bucket, key, "this node accepts only documents from `ccmctl`")
            return value
        if (stamped.bucket, stamped.key) != (bucket, key):
            where = f"kv://{stamped.bucket}/{stamped.key}"
            raise ProtocolError(
                f"kv://{name} was refused: it contains a document that was written for {where}"
            )
        if self._pins.get(bucket):
            return str(stamped.body).encode()
        seen = self._numbers.get(name, 0)
        if stamped.number < seen:
            raise ProtocolError(
                f"kv://{name} was refused: its number {stamped.number} is lower than {seen}, which was seen before"
            )
        self._numbers[name] = stamped.number
        return str(stamped.body).encode()


def plain_refused(bucket: str, key: str, why: str) -> ProtocolError:
    """Return the error for a document that was written by another program, with a fix for the operator."""
    return ProtocolError(
        f"kv://{bucket}/{key} was not written by `ccmctl`, and {why}: write it with `ccmctl data put {key}`, or set "
        "`stamped_data: false` in the node's configuration"
    )


def read_stamp(value: bytes) -> Stamped | None:
    """Return the record that wraps a document; None for a plain document, as stored by the `nats` tool."""
    if not value.lstrip().startswith(b"{"):
        return None
    try:
        stamped = decode_foreign(value, Stamped)
    except msgspec.MsgspecError:
        return None
    return stamped if isinstance(stamped.body, str) else None


def _file_path(url: str) -> str:
    host, slash, path = url.removeprefix("file://").partition("/")
    if host not in ("", "localhost") or not slash:
        raise DataError(f"{mask_url(url)} is on another host; write file:///path for a file of this host")
    return "/" + unquote(path)
