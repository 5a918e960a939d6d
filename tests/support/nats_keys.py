"""Keys and credentials of the NATS kind, made on the spot: nothing secret lies in the tree."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from typing import Any

import nkeys

_NO_STORE = {"mem_storage": 0, "disk_storage": 0, "streams": 0, "consumer": 0}


def user_seed() -> tuple[bytes, str]:
    """A new user's seed and public key."""
    pair = _pair(nkeys.PREFIX_BYTE_USER)
    return bytes(pair.seed), pair.public_key.decode()


def operator_mode() -> tuple[str, str]:
    """
    Server configuration that trusts a new operator and one account, and the credentials of a user in it.

    What `nsc` and `ccmctl node add` write. Source: NATS JWT v2, ADR-14.
    """
    operator, user = _pair(nkeys.PREFIX_BYTE_OPERATOR), _pair(nkeys.PREFIX_BYTE_USER)
    account, system = _pair(nkeys.PREFIX_BYTE_ACCOUNT), _pair(nkeys.PREFIX_BYTE_ACCOUNT)
    no_limit = {"subs": -1, "data": -1, "payload": -1}
    store = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    of_account = no_limit | store | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": -1}
    operator_jwt = _jwt(operator, operator, "operator", {})
    accounts = {
        account.public_key.decode(): _jwt(operator, account, "account", {"limits": of_account}),
        system.public_key.decode(): _jwt(operator, system, "account", {"limits": of_account | _NO_STORE}),
    }
    user_jwt = _jwt(account, user, "user", no_limit)
    preload = "\n".join(f"{public}: {jwt}" for public, jwt in accounts.items())
    extra = (
        f"operator: {operator_jwt}\nsystem_account: {system.public_key.decode()}\n"
        f"resolver: MEMORY\nresolver_preload: {{\n{preload}\n}}\n"
    )
    creds = (
        f"-----BEGIN NATS USER JWT-----\n{user_jwt}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{bytes(user.seed).decode()}\n------END USER NKEY SEED------\n"
    )
    return extra, creds


def a_seed(prefix: int) -> str:
    """A new seed."""
    return bytes(_pair(prefix).seed).decode()


def operator_jwt(operator: str) -> str:
    """What `ccmctl init --security` writes as `operator`: the same each time, for a server reloads no other."""
    pair = nkeys.from_seed(bytearray(operator.encode()))
    return _jwt(pair, pair, "operator", {}, name="ccm", issued=1)


def account_jwt(operator: str, account: str, name: str, *, stores: bool = False) -> str:
    """An account on its own, which takes nothing from others, by its public key."""
    limits = {
        "subs": -1,
        "data": -1,
        "payload": -1,
        "imports": -1,
        "exports": -1,
        "wildcards": True,
        "conn": -1,
        "leaf": 0,
    }
    store = dict.fromkeys(_NO_STORE, -1) if stores else _NO_STORE
    pair = nkeys.from_seed(bytearray(operator.encode()))
    return _jwt(pair, account, "account", {"limits": limits | store}, name=name)


def _pair(prefix: int) -> Any:
    return nkeys.from_seed(bytearray(nkeys.encode_seed(secrets.token_bytes(32), prefix)))


def _jwt(
    issuer: Any, subject: Any, kind: str, claims: dict[str, Any], *, name: str = "", issued: int | None = None
) -> str:
    body: dict[str, Any] = {
        "iat": int(time.time()) if issued is None else issued,
        "iss": issuer.public_key.decode(),
        "sub": subject if isinstance(subject, str) else subject.public_key.decode(),
        "name": name or kind,
        "nats": {**claims, "type": kind, "version": 2},
    }
    body["jti"] = (
        base64.b32encode(hashlib.sha256(json.dumps(body, separators=(",", ":")).encode()).digest())
        .decode()
        .rstrip("=")
    )
    text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
    return f"{text}.{_unpadded(issuer.sign(text.encode()))}"


def _part(value: dict[str, Any]) -> str:
    return _unpadded(json.dumps(value).encode())


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
