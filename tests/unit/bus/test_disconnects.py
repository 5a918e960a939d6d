"""Notices of the broker that a node's connection has ended: which are read, and who receives them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.access.credentials import (
    account_tokens,
    claims_in,
    new_account,
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
)
from ccm_agent.bus.access.sites import center_configuration
from ccm_agent.bus.disconnects import MAX_NOTICE, ConnectionEnd, decode_disconnect
from ccm_agent.bus.subjects import DISCONNECTED

KEYS = new_authority()
TIME = datetime(2026, 11, 30, 0, 1, 2, 345678, UTC)


def jwt(name: str) -> str:
    return scoped_credentials(KEYS.node_signer, public_key(KEYS.nodes), name, ["token:web1"]).jwt


def notice(**changed: Any) -> bytes:
    """As nats-server 2.15.0 publishes it; `user`, `name` and `lang` are what the client said."""
    client = {
        "start": "2026-11-29T23:59:00.123456789Z", "host": "10.0.0.1", "id": 12, "acc": public_key(KEYS.nodes),
        "user": "web9", "name": "web9", "lang": "python3", "ver": "2.16.0", "rtt": 345123, "jwt": jwt("web1"),
        "issuer_key": public_key(KEYS.node_signer), "tags": ["token:web1"], "name_tag": "nodes", "kind": "Client",
        "client_type": "nats", "stop": "2026-11-30T00:01:02.345678901Z",
    } | changed  # fmt: skip
    return msgspec.json.encode(
        {
            "type": "io.nats.server.advisory.v1.client_disconnect",
            "id": "Ab1",
            "timestamp": "2026-11-30T00:01:02.345678001Z",
            "server": {"name": "n1", "host": "0.0.0.0", "id": "NB1", "ver": "2.15.0", "seq": 3},
            "client": client,
            "sent": {"msgs": 1, "bytes": 2},
            "received": {"msgs": 3, "bytes": 4},
            "reason": "Client Closed",
        }
    )


def test_the_name_is_that_of_the_verified_jwt() -> None:
    assert decode_disconnect(notice()) == ConnectionEnd(node="web1", time=TIME)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
        notice(jwt=""),
        notice(jwt="a.b.c"),
        notice(jwt=7),
        notice(jwt=jwt("all")),
        notice(jwt=jwt("Web1")),
        notice(jwt=f"a.{base64.urlsafe_b64encode(b'[' * 30_000).decode()}.c"),
        notice(jwt="a.é.c"),
        notice().replace(b"T00:01:02.345678001Z", b"T00:01:02"),
        notice().replace(b'"2026-11-30T00:01:02.345678001Z"', b"1e999"),
        notice(lang="x" * MAX_NOTICE),
    ],
)
def test_anything_else_is_ignored(body: bytes) -> None:
    assert decode_disconnect(body) is None


def test_only_accounts_of_operators_receive_notices_and_only_about_nodes() -> None:
    text = center_configuration(server_configuration(KEYS), KEYS.operator, {"shop": new_account()})
    accounts = [claims_in(token) for token in account_tokens(text).values()]
    system = public_key(KEYS.system)
    subject = f"$SYS.ACCOUNT.{public_key(KEYS.nodes)}.DISCONNECT"

    taken = {
        one["name"]: [each for each in one["nats"]["imports"] if system in each["account"]]
        for one in accounts
        if one["sub"] != system
    }

    wanted = {
        "name": DISCONNECTED, "subject": subject, "type": "stream", "account": system, "local_subject": DISCONNECTED,
    }  # fmt: skip
    assert taken == {"ctl": [wanted], "ops": [wanted], "nodes": [], "audit": [], "join": [], "site-shop": []}
    [offered] = [one["nats"]["exports"] for one in accounts if one["sub"] == system]
    assert [(one["subject"], one["type"]) for one in offered] == [(subject, "stream")]
