"""
The descriptions of objects in an object store (ADR-20), and the selection of the valid one if several have the same name.

If the name is a SHA-256, only content with this digest is valid, regardless of the number of descriptions under the name. Any
client with permission to upload can store another description, earlier or later. For other names, the newest description is
valid.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ccm_agent.bus.streams import Stored

COPIES_LIMIT = 10_000
"""The maximum number of descriptions of one name that a reader tries: half of them the oldest, half the newest."""

_DIGEST = "SHA-256="
_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")


class ObjectInfo(Struct, omit_defaults=True):
    """The meta message of an object; fields as in NATS ADR-20."""

    name: str = ""
    bucket: str = ""
    nuid: str = ""
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    options: dict[str, Any] = {}

    @property
    def hex_digest(self) -> str:
        """Return the digest in hex; "" if the field does not contain a digest."""
        try:
            return base64.urlsafe_b64decode(self.digest.removeprefix(_DIGEST)).hex()
        except ValueError:
            return ""


class ObjectCandidates:
    """The different descriptions that are stored under one digest. A reader tries them until it finds the genuine content."""

    def __init__(self, name: str, limit_bytes: int) -> None:
        """
        Create an empty collection.

        Args:
            name: The digest, which is the name of the object.
            limit_bytes: Larger contents are omitted.
        """
        self._name = name
        self._limit_bytes = limit_bytes
        self._oldest: dict[tuple[str, int], ObjectInfo] = {}
        self._newest: deque[ObjectInfo] = deque(maxlen=COPIES_LIMIT // 2)

    def add(self, meta: ObjectInfo | None) -> None:
        """Add a description, in the order in which they are stored. None and descriptions of other content are ignored."""
        if meta is None or meta.hex_digest != self._name or meta.size > self._limit_bytes:
            return
        if len(self._oldest) < COPIES_LIMIT // 2:
            self._oldest.setdefault((meta.nuid, meta.size), meta)
        else:
            self._newest.append(meta)

    def __iter__(self) -> Iterator[ObjectInfo]:
        """Iterate from both ends, so that descriptions stored first or last cannot hide the others from a reader."""
        every = [*self._oldest.values(), *self._newest]
        half = (len(every) + 1) // 2
        tried: set[tuple[str, int]] = set()
        for pair in zip_longest(every[:half], reversed(every[half:])):
            for meta in pair:
                if meta is not None and (meta.nuid, meta.size) not in tried:
                    tried.add((meta.nuid, meta.size))
                    yield meta


def is_digest(name: str) -> bool:
    """Whether the name of an object has the form of a SHA-256 in hex."""
    return _DIGEST_NAME.fullmatch(name) is not None


def digest_field(digest: bytes) -> str:
    """Return the digest in the form of a description."""
    return _DIGEST + base64.urlsafe_b64encode(digest).decode()


def decode_meta(name: str, bucket: str, stored: Stored) -> ObjectInfo | None:
    """
    Decode the description of an object; None if the object no longer exists.

    Raises:
        ProtocolError: The message is not the description of a plain object.
    """
    if not stored.body or stored.copied:
        return None  # a copied meta message is not valid: `put` writes a new one
    try:
        meta = decode_foreign(stored.body, ObjectInfo)
    except msgspec.MsgspecError as err:
        raise ProtocolError(f"{name}: its description in {bucket} cannot be read: {err}") from err
    if meta.deleted:
        return None
    if not meta.nuid.isalnum() or meta.size < 0 or "link" in meta.options:
        raise ProtocolError(f"{name}: its description in {bucket} does not describe a plain object")
    return meta


def readable_meta(name: str, bucket: str, stored: Stored) -> ObjectInfo | None:
    """Like `decode_meta`, but also returns None if the message is not the description of a plain object."""
    try:
        return decode_meta(name, bucket, stored)
    except ProtocolError:
        return None


def encode_name(name: str) -> str:
    """Return the token of a name in a subject."""
    return base64.urlsafe_b64encode(name.encode()).decode()


def decode_name(token: str) -> str:
    """Return the name of an object for its token in a subject; the token itself if it is not an encoded name."""
    try:
        return base64.urlsafe_b64decode(token).decode()
    except ValueError:
        return token
