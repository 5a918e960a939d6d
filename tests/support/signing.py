"""Keys and signers for tests: nothing secret lies in the tree."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import nkeys

from ccm_agent.agent.trust.authentication import Authenticator
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_SUBJECT, Timestamp
from ccm_agent.bus.signatures.trust import EVERYWHERE, SignedText, Signer, SignersList, Trust, sign_signers
from ccm_agent.bus.signatures.verified import Authored
from ccm_agent.model.ports import Clock
from ccm_agent.model.secret import Secret
from ccm_agent.testing.clock import FakeClock

OWN = (Authored.from_arguments(),)
"""The base of what an operator wrote."""

FULL = {"apply": (EVERYWHERE,), "maintain": (EVERYWHERE,), "data": True, "facts": True, "schedules": True}


def new_key() -> SigningKey:
    """A key that signs."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return SigningKey(Secret(seed.decode()))


def now_ms() -> int:
    """The time."""
    return int(time.time() * 1000)


OWN = (Authored.from_arguments(),)
"""What a test signs is its own."""


class OwnSignatory(Signatory):
    """An operator of a test, who signs what the test wrote."""

    def request(self, subject, body, base=OWN):
        """See `Signatory.request`."""
        return super().request(subject, body, base)

    def schedule(self, subject, body, base=OWN, **others):
        """See `Signatory.schedule`."""
        return super().schedule(subject, body, base, **others)

    def document(self, bucket, key, body, base=OWN):
        """See `Signatory.document`."""
        return super().document(bucket, key, body, base)

    def rollout(self, subject, body, base=OWN, **others):
        """See `Signatory.rollout`."""
        return super().rollout(subject, body, base, **others)

    def timestamp(self, subject, body, base=OWN, **others):
        """See `Signatory.timestamp`."""
        return super().timestamp(subject, body, base, **others)

    def object(self, subject, digest, base=OWN):
        """See `Signatory.object`."""
        return super().object(subject, digest, base)

    def deletion(self, bucket, key, number=0, note="", base=OWN):
        """The headers of a deletion; `base` comes last here."""
        return super().deletion(bucket, key, base, number, note)


class OwnRequests(NatsRequests):
    """Requests of a test, which are its own."""

    async def publish(self, subject, body, headers=None, *, base=OWN):
        """See `NatsRequests.publish`."""
        await super().publish(subject, body, headers, base=base)


class OwnKeyValue(NatsKeyValue):
    """A bucket that a test writes as an operator who signs."""

    def __init__(self, connection, bucket, signatory) -> None:
        super().__init__(connection, bucket)
        self.signatory = signatory

    async def put(self, key, value, *, ttl_s=None):
        """See `KeyValue.put`."""
        signature = self.signatory.document(self.bucket, key, value)[SIGNATURE_HEADER]
        newest = await self.newest(key)
        return await self.store_signed(key, value, newest.revision if newest else 0, signature)

    async def delete(self, key, *, number=0, note="", signature=""):
        """See `KeyValue.delete`."""
        signed = self.signatory.deletion(self.bucket, key, number, note)[SIGNATURE_HEADER]
        await super().delete(key, note=note, signature=signature or signed)


class Keyring:
    """A fleet's root and its operators, at the time that `at_ms` returns."""

    def __init__(self, at_ms: Callable[[], int] = now_ms) -> None:
        self.at_ms = at_ms
        self.root = new_key()
        self.signers: list[Signer] = []
        self.number = 0

    def operator(self, name: str, **role: object) -> OwnSignatory:
        """A new operator, who is in the list from now on."""
        key = new_key()
        self.signers.append(Signer(name=name, key=key.public_key, **role))  # type: ignore[arg-type]
        return OwnSignatory(key, self.at_ms)

    def listed(self, **others: object) -> SignersList:
        """The list as it is now, under a new number."""
        self.number += 1
        return SignersList(number=self.number, issued=self.at_ms(), signers=tuple(self.signers), **others)  # type: ignore[arg-type]

    def timestamp(
        self, by: Signatory, signers: int, issued_ms: int = 0, pieces: tuple[str, ...] = ()
    ) -> SignedText:
        """One signer's confirmation that a list is the newest."""
        issued_ms = issued_ms or self.at_ms()
        body = msgspec.json.encode(Timestamp(issued=issued_ms, signers=signers, pieces=pieces))
        signature = by.timestamp(TIMESTAMP_SUBJECT, body, issued_ms=issued_ms)
        return SignedText(body=body.decode(), signature=signature)

    def trust(self, **others: object) -> Trust:
        """What credentials that are made now say."""
        return Trust(root=self.root.public_key, signers=sign_signers(self.root, self.listed(**others)))


def unsigned(folder: Path) -> Authenticator:
    """An authenticator of a node without keys."""
    return Authenticator(None, FakeClock(), folder / "signers.json")


def authenticator(folder: Path, trust: Trust, clock: Clock | None = None) -> Authenticator:
    """An authenticator of a node with credentials, open."""
    made = Authenticator(trust, clock or _Now(), folder / "signers.json")
    made.open()
    return made


def unsigned_stamps(path: Path) -> RevisionGuard:
    """Numbers of documents of a node without keys."""
    return RevisionGuard(path, unsigned(path.parent))


class _Now(FakeClock):
    """A clock that begins now."""

    def __init__(self) -> None:
        from datetime import UTC, datetime

        super().__init__(datetime.now(UTC))
