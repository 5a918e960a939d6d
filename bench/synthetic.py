"""The entries of a synthetic fleet, with the signatures of agents and operators."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import ip_address
from itertools import islice
from pathlib import Path

import msgspec
import nkeys
from msgspec import Struct

from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.layout import FACTS, NODES
from ccm_agent.bus.signatures.signing import CERTIFICATE_HEADER, SIGNATURE_HEADER, SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import certify_node
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.records.registration import RegistrationEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import Secret
from ccm_agent.model.wire import FactsRecord, NodeRecord, Presence

AT_ONCE = 500
"""The number of entries that are written before the first of them is acknowledged."""

OFFLINE = 10
"""One of this many nodes is offline, and one of this many has assigned facts."""

ROLES, SITES = 20, 7
"""The number of values of the facts `role` and `site`."""


class FleetKeys(Struct, frozen=True):
    """The keys that sign for the fleet: the root's, and that of an operator who may assign facts."""

    root: SigningKey
    operator: SigningKey


class SignedEntry(Struct, frozen=True):
    """A bucket entry, as signed by its author."""

    bucket: str
    key: str
    value: bytes
    signature: str


def node_name(number: int) -> str:
    """Return the name of a synthetic node."""
    return f"node{number:06}"


def read_keys() -> FleetKeys:
    """Return the keys of the fleet in this environment."""
    from ccm_agent.bus.signatures.signing import signing_key_in_credentials

    root = SigningKey(Secret(Path(os.environ["CCM_KEYS"], "root.seed").read_text().strip()))
    operator = signing_key_in_credentials(Path(os.environ["CCM_CREDS"]).read_text())
    assert operator is not None
    return FleetKeys(root, operator)


async def fill(settings: BusSettings, keys: FleetKeys, count: int, first: int = 0) -> None:
    """
    Write the entries of the nodes from `first` up to but not including `count`, as agents and operators do. They do not expire.
    """
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.bus.kv import NatsKeyValue

    async with Connection(settings) as connection:
        await connection.connect_now()
        buckets = {name: NatsKeyValue(connection, name) for name in (NODES, FACTS)}
        entries = (entry for number in range(first, count) for entry in make_entries(keys, number))
        while some := list(islice(entries, AT_ONCE)):
            await asyncio.gather(
                *(buckets[one.bucket].store_signed(one.key, one.value, 0, one.signature) for one in some)
            )


async def register(settings: BusSettings, keys: FleetKeys, number: int) -> None:
    """Register a service of a node for a day."""
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.registration.publish import Publisher

    key, now_ms = _new_key(), int(datetime.now(UTC).timestamp() * 1000)
    certificate = certify_node(keys.root, node_name(number), key.public_key, issued_ms=now_ms)

    def sign(subject: str, body: bytes, _ttl_s: float | None) -> dict[str, str]:
        signature = key.sign(SignatureKind.STATE, subject, body, issued_ms=now_ms)
        return {SIGNATURE_HEADER: signature, CERTIFICATE_HEADER: certificate}

    entry = RegistrationEntry(
        cluster="bench",
        service="web",
        protocol="http",
        address=_address(number),
        port=80,
        priority=1,
        ttl="24h",
    )
    async with Connection(settings) as connection:
        await connection.connect_now()
        await Publisher(connection, "jetstream", sign=sign).publish(entry)


def _address(number: int) -> str:
    return str(ip_address("10.0.0.1") + number)


def _new_key() -> SigningKey:
    return SigningKey(Secret(nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()))


def make_entries(keys: FleetKeys, number: int) -> Iterator[SignedEntry]:
    """Return the entries of a node: record, facts, presence and assigned facts, if it has them."""
    node, now = node_name(number), datetime.now(UTC)
    now_ms = int(now.timestamp() * 1000)
    key = _new_key()
    routed = {"role": f"role{number % ROLES}", "site": f"site{number % SITES}"}
    record = NodeRecord(
        node=node, machine=secrets.token_hex(16), started=now, version="1.0", facts=routed, signatures=True,
        selector_patterns=True, key=key.public_key,
        certificate=certify_node(keys.root, node, key.public_key, issued_ms=now_ms),
    )  # fmt: skip
    gathered = {"host": {"text": "gathered " * 100}, "network": {"address": _address(number)}}
    facts = FactsRecord(node=node, time=now, facts=routed | gathered)
    parts: dict[str, Struct] = {"node": record, "facts": facts}
    if number % OFFLINE:
        parts["presence"] = Presence(node=node, machine=record.machine, started=now, time=now)
    for kind, content in parts.items():
        value, subject = msgspec.json.encode(content), key_subject(NODES, f"{kind}.{node}")
        signature = key.sign(SignatureKind.STATE, subject, value, issued_ms=now_ms)
        yield SignedEntry(NODES, f"{kind}.{node}", value, signature)
    if number % OFFLINE == 1:
        assigned = Stamped(
            bucket=FACTS, key=node, number=now_ms, count=1, body={"env": "prod"}, written_by="bench", time=now
        )
        value = msgspec.json.encode(assigned)
        signature = keys.operator.sign(
            SignatureKind.DOCUMENT, key_subject(FACTS, node), value, issued_ms=now_ms
        )
        yield SignedEntry(FACTS, node, value, signature)
