"""Secrets: sealing a data key to nodes, opening it, and the size of each sealed key."""

from __future__ import annotations

import base64
import secrets
import time

import nkeys

from bench.measure import Line
from ccm_agent.bus.signatures.sealing import decrypt, encrypt, seal, unseal
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.model.secret import Secret

NODES = 1_000
VALUE = Secret("x" * 48)


def measure() -> list[Line]:
    """Measure the budgets of one node, in CPU time."""
    keys = [_new_key() for _ in range(NODES)]
    data_key, ciphertext = encrypt("db", 1, VALUE)
    begun = time.process_time()
    sealed = [seal(data_key, key.public_key) for key in keys]
    sealing = time.process_time() - begun
    begun = time.process_time()
    for key, one in zip(keys, sealed, strict=True):
        decrypt("db", 1, unseal(key, one), ciphertext)
    opening = time.process_time() - begun
    size = len(base64.b64decode(sealed[0]))
    return [
        Line("sealing a data key to one node", sealing / NODES * 1_000_000, "µs", 1_000),
        Line("opening a secret on its node", opening / NODES * 1_000_000, "µs", 1_000),
        Line("a sealed data key", size, "bytes", 80),
    ]


def _new_key() -> SigningKey:
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return SigningKey(Secret(seed.decode()))
