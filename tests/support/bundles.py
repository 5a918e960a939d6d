"""Packed manifests."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile


def packed(text: str, name: str = "manifest.yaml") -> bytes:
    """A gzipped tar of one file: the same bytes in whichever second it is packed."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(stream.getvalue(), mtime=0)


def digest_of(content: bytes) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(content).hexdigest()
