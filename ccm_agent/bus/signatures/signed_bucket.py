"""An operator's access to a bucket of signed documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ccm_agent.bus.forwarding_bucket import ForwardingReader
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.model.ports import KeyHistory, SignedStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ccm_agent.bus.signatures.signatory import Signatory
    from ccm_agent.bus.signatures.verified import Base
    from ccm_agent.model.ports import KeyValueEntry


class SignableBucket(SignedStore, KeyHistory, Protocol):
    """A bucket that stores signatures, with its history."""


class SignedBucket(ForwardingReader):
    """Reads a bucket and writes signed documents; each signature requires the bases of the document."""

    def __init__(self, inner: SignableBucket, bucket: str, signatory: Signatory | None) -> None:
        """
        Wrap a bucket.

        Args:
            inner: The underlying bucket.
            bucket: The name of the bucket.
            signatory: Signs written documents; None writes without a signature.
        """
        super().__init__(inner)
        self._stored = inner
        self._bucket = bucket
        self._signatory = signatory

    async def write(self, key: str, value: bytes, revision: int, base: Sequence[Base]) -> int:
        """Sign and write a key. `revision` is that of `KeyValue.update`. Returns the new revision."""
        return await self._stored.update(key, value, revision, signature=self.signature(key, value, base))

    async def remove(self, key: str, base: Sequence[Base], *, number: int = 0, note: str = "") -> None:
        """Sign and write a deletion; see `KeyValue.delete`."""
        signed = (
            self._signatory.deletion(self._bucket, key, base, number, note)[SIGNATURE_HEADER]
            if self._signatory is not None
            else ""
        )
        await self._stored.delete(key, number=number, note=note, signature=signed)

    def signature(self, key: str, value: bytes, base: Sequence[Base]) -> str:
        """Return the signature of a document of this bucket; "" without a signing key."""
        if self._signatory is None:
            return ""
        return self._signatory.document(self._bucket, key, value, base)[SIGNATURE_HEADER]

    async def keys(self, prefix: str = "") -> list[str]:
        """See `KeyHistory.keys`."""
        return await self._stored.keys(prefix)

    async def entries(self, prefix: str = "") -> list[KeyValueEntry]:
        """See `KeyHistory.entries`."""
        return await self._stored.entries(prefix)

    async def history(self, key: str) -> list[KeyValueEntry]:
        """See `KeyHistory.history`."""
        return await self._stored.history(key)

    async def revision(self) -> int:
        """See `KeyHistory.revision`."""
        return await self._stored.revision()

    async def now(self) -> datetime:
        """See `KeyHistory.now`."""
        return await self._stored.now()
