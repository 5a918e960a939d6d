"""Signatures of nodes: listing 10,000 nodes with and without signatures, and the cost of one signature."""

from __future__ import annotations

import asyncio
import secrets
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import nkeys

from bench.measure import ROUNDS, Line, ratio, side_by_side
from ccm_agent.bus.layout import NODES
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey
from ccm_agent.bus.signatures.trust import SignersList, Trust, certify_node, sign_signers
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.secret import Secret
from ccm_agent.model.wire import NodeRecord, Presence
from ccm_ctl.fleet.nodes.inventory import read_inventory
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.node_state import mark_unverified

COUNT = 10_000
SIGNATURES = 1_000


class _Bucket:
    """A bucket with entries in memory, because the cost of the broker is the same for both."""

    def __init__(self, entries: list[KeyValueEntry]) -> None:
        self._entries = entries

    async def matching(self, _patterns: list[str]) -> list[KeyValueEntry]:
        return self._entries

    async def get(self, _key: str) -> None:
        return None


def measure() -> list[Line]:
    """Measure the budget of a list, and the additional cost of a heartbeat."""
    root, now_ms = _new_key(), int(time.time() * 1000)
    listed = sign_signers(root, SignersList(number=1, issued=now_ms, signed_state=True))
    plain = _fleet(_entries(None, now_ms), None)
    signed = _fleet(_entries(root, now_ms), Trust(root=root.public_key, signers=listed))
    ours, theirs, signing = side_by_side(ROUNDS, lambda: _list(signed), lambda: _list(plain), _sign)
    each_us = signing / SIGNATURES * 1_000_000
    return [
        ratio(f"listing {COUNT} nodes that sign", ours, theirs, 1.5, "as many that do not"),
        Line("the signature of a heartbeat", each_us, "µs", 1_000),
    ]


def _list(fleet: Fleet) -> float:
    async def work() -> None:
        inventory = await read_inventory(fleet)
        await mark_unverified(fleet, list(inventory.nodes.values()))

    begin = time.process_time()
    asyncio.run(work())
    return time.process_time() - begin


def _sign() -> float:
    key, body = _new_key(), b"x" * 220
    begin = time.process_time()
    for number in range(SIGNATURES):
        key.sign(SignatureKind.STATE, key_subject(NODES, "presence.web1"), body, issued_ms=number)
    return time.process_time() - begin


def _entries(root: SigningKey | None, now_ms: int) -> list[KeyValueEntry]:
    """Return record and presence of each node, signed if there is a root key."""
    now, found = datetime.now(UTC), []
    for number in range(COUNT):
        node, key = f"n{number}", _new_key() if root is not None else None
        record = NodeRecord(node=node, machine="m" * 32, started=now, version="1.0", facts={"role": "web"})
        if root is not None and key is not None:
            record.key = key.public_key
            record.certificate = certify_node(root, node, key.public_key, issued_ms=now_ms)
        presence = Presence(node=node, machine="m" * 32, started=now, time=now)
        for kind, content in (("node", record), ("presence", presence)):
            body, subject = msgspec.json.encode(content), key_subject(NODES, f"{kind}.{node}")
            signature = key.sign(SignatureKind.STATE, subject, body, issued_ms=now_ms) if key else ""
            found.append(
                KeyValueEntry(key=f"{kind}.{node}", value=body, revision=1, created=now, signature=signature)
            )
    return found


def _fleet(entries: list[KeyValueEntry], trust: Trust | None) -> Fleet:
    parts: dict[str, Any] = {"nodes": _Bucket(entries), "facts": _Bucket([]), "signers": _Bucket([])}
    return cast("Fleet", SimpleNamespace(**parts, trust=trust))


def _new_key() -> SigningKey:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return SigningKey(Secret(seed.decode()))
