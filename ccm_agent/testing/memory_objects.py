"""The object stores of the broker in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ccm_agent.bus.object_descriptions import is_digest
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.bus.subjects import encode_token, notification_subject
from ccm_agent.model.errors import NotFoundError, ProtocolError
from ccm_agent.model.ports import StoredObject
from ccm_agent.testing.memory_broker import MemoryBroker, Sent

if TYPE_CHECKING:
    from ccm_agent.bus.signatures.signatory import Signatory

Stop = Callable[[], Awaitable[None]]


class MemoryObjects:
    """Implements the `Objects` port."""

    def __init__(
        self,
        broker: MemoryBroker,
        identity: str,
        bucket: str,
        signatory: Signatory | None,
        subscribe: Callable[[str, Callable[[Sent], None]], Stop],
    ) -> None:
        """
        Open an object store of a broker.

        Args:
            broker: The broker.
            identity: The name of the client.
            bucket: The name of the store.
            signatory: Signs stored objects; None if they are not signed.
            subscribe: The client's function for subscribing to a pattern.
        """
        self.bucket = bucket
        self._broker = broker
        self._identity = identity
        self._signatory = signatory
        self._subscribe = subscribe
        self._stored = broker.objects.setdefault(bucket, {})

    async def all(self) -> list[StoredObject]:
        """See `Objects.all`."""
        self._check(f"$O.{self.bucket}.M")
        now, times = self._broker.now(), self._broker.object_times
        found = [
            StoredObject(
                name=name,
                digest=_hex(body),
                size_bytes=len(body),
                time=times.get(name, now),
                revision=self._broker.object_revisions.get(name, 0),
            )
            for name, body in self._stored.items()
        ]
        return sorted(found, key=lambda one: (one.time, one.revision))

    async def get(self, name: str, limit_bytes: int) -> bytes:
        """See `Objects.get`."""
        self._check(f"$O.{self.bucket}.M")
        content = self._stored.get(name)
        if content is None:
            raise NotFoundError(f"{name}: not in {self.bucket}; it was removed or never stored")
        if len(content) > limit_bytes:
            raise ProtocolError(
                f"{name}: too large: {len(content)} bytes; at most {limit_bytes} are accepted"
            )
        return content

    async def put(self, name: str, content: bytes) -> None:
        """See `Objects.put`."""
        self._check(f"$O.{self.bucket}.M")
        if is_digest(name) and name != _hex(content):
            raise ProtocolError(f"{name}: not stored: the name is not the digest of the content")
        self._stored[name] = content
        self._broker.object_times[name] = self._broker.now()
        revisions = self._broker.object_revisions
        revisions[name] = max(revisions.values(), default=0) + 1
        signatory = self._signatory
        signed = (
            signatory.object(self._subject(name), _hex(content), [Authored.from_files()]) if signatory else {}
        )
        self._broker.object_signatures[self._subject(name)] = signed.get(SIGNATURE_HEADER, "")
        self._broker.deliver(Sent(self._notification(name), b"", {"Nats-Sequence": "1"}))

    async def remove(self, name: str, revision: int) -> bool:
        """See `Objects.remove`."""
        self._check(f"$JS.API.STREAM.PURGE.OBJ_{self.bucket}")
        if name not in self._stored or self._broker.object_revisions.get(name, 0) != revision:
            return False
        del self._stored[name]
        return True

    async def trim(self) -> None:
        """See `Objects.trim`."""
        self._check(f"$JS.API.STREAM.PURGE.OBJ_{self.bucket}")

    async def watch_changes(self, name: str, on_change: Callable[[int], None]) -> Stop:
        """See `Objects.watch_changes`."""
        return self._subscribe(
            self._notification(name), lambda message: on_change(int(message.headers["Nats-Sequence"]))
        )

    async def signature(self, name: str) -> tuple[str, str]:
        """See `Objects.signature`."""
        subject = self._subject(name)
        self._check(subject)
        return subject, self._broker.object_signatures.get(subject, "")

    def _check(self, subject: str) -> None:
        self._broker.check(self._identity, subject)

    def _subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{encode_token(name)}"

    def _notification(self, name: str) -> str:
        return notification_subject(self.bucket, encode_token(name))

    async def digest(self, name: str, at_least: int = 0) -> str | None:
        """See `Objects.digest`."""
        self._check(f"$O.{self.bucket}.M")
        content = self._stored.get(name)
        return None if content is None else _hex(content)


def _hex(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
