"""Packed manifests."""

from __future__ import annotations

import hashlib
import io
import tarfile


def packed(text: str, name: str = "manifest.yaml") -> bytes:
    """A gzipped tar of one file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text.encode()))
    return stream.getvalue()


def digest_of(content: bytes) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(content).hexdigest()
