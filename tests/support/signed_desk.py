"""A desk of an operator who signs: each signature is recorded. And forgeries of what the broker stores."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind, SigningKey
from ccm_agent.bus.signatures.snapshot import digest_of, piece_key, split
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY
from ccm_agent.bus.signatures.trust import TRUST_BUCKET, Signer
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_broker import StoredWrite
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus, MemoryKeyValue
from ccm_ctl.app import Broker
from tests.support.authorship import Root
from tests.support.controller import NOW, Desk, FakeNode, fleet_on
from tests.support.signing import OWN, Keyring, OwnSignatory, new_key

NOW_MS = int(NOW.timestamp() * 1000)

FORGERIES = (
    "unsigned",
    "a stranger",
    "a revoked signer",
    "a signer without the right",
    "changed after signing",
    "an older revision",
    "a made-up revision in between",
    "another key's bytes",
    "newer revisions withheld",
    "an erased history",
)

OLD, NEW, FORGED = "marker-old", "marker-new", "marker-forged"
"""In the two genuine revisions, and in what is forged."""


class RecordingSignatory(Signatory):
    """
    Signs, and records what.

    Attributes:
        signed: What it signed, each with its subject.
    """

    def __init__(self, key: SigningKey, now_ms: Callable[[], int]) -> None:
        super().__init__(key, now_ms)
        self.signed: list[tuple[str, bytes]] = []

    def _sign(
        self, kind: SignatureKind, subject: str, body: bytes, base: Sequence[Any], **others: Any
    ) -> str:
        signature = super()._sign(kind, subject, body, base, **others)
        self.signed.append((subject, body))
        return signature


class _Bus(MemoryBus):
    """A connection whose buckets sign nothing by themselves, like those of a real broker."""

    def bucket(self, name: str) -> MemoryKeyValue:
        """See `MemoryBus.bucket`."""
        return MemoryKeyValue(MemoryBus(self.broker, self.identity), name)


class Crew:
    """
    The operators of a fleet: anna has every right, and lou may only plan.

    Attributes:
        keys: The fleet's root, and its operators.
        key: Anna's key.
        root: The fleet's root key, which certifies nodes.
        trust: What anna's credentials say about trust.
    """

    def __init__(self, now_ms: Callable[[], int] = lambda: NOW_MS) -> None:
        """`now_ms` is the time at which they sign."""
        keys = Keyring(now_ms)
        self.keys, self.key, self.root = keys, new_key(), Root()
        self.root.key = keys.root
        everywhere = dict.fromkeys(("plan", "apply", "exec", "maintain"), (">",))
        may = dict.fromkeys(("data", "facts", "schedules", "admin", "timestamp"), True)
        keys.signers.append(Signer(name="anna", key=self.key.public_key, **everywhere, **may))  # type: ignore[arg-type]
        lou = keys.operator("lou", plan=(">",))
        revoked = keys.operator("old", **everywhere, **may)
        keys.signers.pop()
        self.trust = keys.trust(max_age_s=3600)
        self._others = {
            "a stranger": OwnSignatory(new_key(), now_ms),
            "a revoked signer": revoked,
            "a signer without the right": lou,
        }

    def of(self, kind: str) -> Signatory:
        """Whose key signs a forgery of a kind."""
        return self._others.get(kind) or Signatory(self.key, self.keys.at_ms)


class SignedDesk(Desk):
    """
    A desk of anna.

    Attributes:
        signatory: Anna's signatures.
    """

    def __init__(self, crew: Crew, *nodes: FakeNode) -> None:
        super().__init__(*nodes, operator="anna", trust=crew.trust)
        self.crew = crew
        self.signatory = RecordingSignatory(crew.key, crew.keys.at_ms)

    @contextlib.asynccontextmanager
    async def _connect(self, settings: BusSettings) -> AsyncIterator[Broker]:
        async with super()._connect(settings) as broker:
            fleet = fleet_on(_Bus(self.broker, settings.identity, self.signatory), self.trust)
            others = {"schedules": broker.fleet.schedules, "services": broker.fleet.services}
            yield Broker(replace(fleet, **others))

    def confirm(self) -> None:
        """Anna signs a timestamp, with a snapshot of the numbers of all documents."""
        numbers = {}
        for bucket in ("CCM_FACTS", "CCM_DATA", "CCM_ASSIGNMENTS", TRUST_BUCKET):
            for one in self.broker.buckets[bucket]:
                numbers[f"{bucket}/{one.subject}"] = msgspec.json.decode(one.body, type=Stamped).number
        pieces = split(numbers)
        digests = tuple(map(digest_of, pieces))
        by = OwnSignatory(self.crew.key, lambda: NOW_MS)
        signed = self.crew.keys.timestamp(by, self.crew.keys.number, pieces=digests)
        for place, piece in enumerate(pieces):
            self._store(TRUST_BUCKET, piece_key(place), piece, "")
        self._store(TRUST_BUCKET, TIMESTAMP_KEY, signed.body.encode(), signed.signature)

    def writes(self, bucket: str, key: str) -> list[StoredWrite]:
        """What the broker stores of a key, oldest first."""
        return [one for one in self.broker.buckets.get(bucket, []) if one.subject == key]

    def forge(self, bucket: str, key: str, kind: str) -> None:
        """The holder of the broker stores a document, or shows less than is stored."""
        if kind in ("newer revisions withheld", "an erased history"):
            kept = self.writes(bucket, key)[: kind == "newer revisions withheld"]
            others = [one for one in self.broker.buckets[bucket] if one.subject != key]
            self.broker.buckets[bucket][:] = [*others, *kept]
            return
        first, last = self.writes(bucket, key)[0], self.writes(bucket, key)[-1]
        old = msgspec.json.decode(last.body, type=Stamped)
        other = f"{key}x" if kind == "another key's bytes" else key
        number = old.number if kind == "a made-up revision in between" else old.number + 50
        body = msgspec.json.encode(replace(old, key=other, number=number, count=old.count + 1))
        body = body.replace(NEW.encode(), FORGED.encode())
        signature = self.crew.of(kind).document(bucket, other, body, OWN)[SIGNATURE_HEADER]
        if kind in ("unsigned", "a made-up revision in between"):
            signature = ""
        if kind == "changed after signing":
            signature = last.signature
        if kind == "an older revision":
            body, signature = first.body, first.signature
        self._store(bucket, key, body, signature, is_before_last=kind == "a made-up revision in between")

    def forge_record(self, run: str, kind: str) -> None:
        """The holder of the broker replaces the record of a run, which is written once."""
        (key,) = {
            one.subject for one in self.broker.buckets["CCM_RUNS"] if one.subject.endswith(f"{run}.request")
        }
        last = self.writes("CCM_RUNS", key)[-1]
        body = last.body.replace(NEW.encode(), FORGED.encode())
        other = f"{key}x" if kind == "another key's bytes" else key
        signature = self.crew.of(kind).record(key_subject("CCM_RUNS", other), body, OWN)
        signature = {"unsigned": "", "changed after signing": last.signature}.get(kind, signature)
        self._store("CCM_RUNS", key, body, signature)

    def forged_revision(self, bucket: str, key: str, kind: str) -> dict[str, int]:
        """The revision of what was forged in the bucket, and the one for people in the document."""
        place = -2 if kind == "a made-up revision in between" else -1
        forged = self.writes(bucket, key)[place]
        return {"revision": forged.sequence, "count": msgspec.json.decode(forged.body, type=Stamped).count}

    def _store(
        self, bucket: str, key: str, body: bytes, signature: str, *, is_before_last: bool = False
    ) -> None:
        async def store() -> None:
            stored = MemoryBus(self.broker, "broker").bucket(bucket)
            newest = await stored.newest(key)
            await stored.store_signed(key, body, newest.revision if newest else 0, signature)

        asyncio.run(store())
        if is_before_last:
            forged, last = self.writes(bucket, key)[-1], self.writes(bucket, key)[-2]
            forged.sequence, last.sequence = last.sequence, forged.sequence
            self.broker.buckets[bucket].sort(key=lambda one: one.sequence)


def copy_broker(broker: MemoryBroker) -> MemoryBroker:
    """Another broker that stores the same."""
    made = MemoryBroker(broker.now)
    made.buckets = {name: [replace(one) for one in writes] for name, writes in broker.buckets.items()}
    made.events = list(broker.events)
    for name in ("objects", "object_signatures", "object_times", "object_revisions", "_sequences"):
        kept = getattr(broker, name)
        setattr(made, name, {key: dict(one) if isinstance(one, dict) else one for key, one in kept.items()})
    return made
