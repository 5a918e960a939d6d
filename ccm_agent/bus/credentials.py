"""
Who is who on the broker: keys of a fleet, what a server must know of them, and credentials of nodes and operators.

The broker runs in what NATS calls operator mode: its configuration names one authority and one account, both public, and
trusts every user whose JWT the account has signed. What a user may do stands in that JWT, so a new node needs no change on
any server, and no server holds a secret that could make one. See docs/concepts/security.md.

Source: NATS JWT version 2 (ADR-14), nats-server's `jwt/v2`; nkeys (ADR-1).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_agent.bus.permissions import Permissions

MAX_CONTROL_LINE = 65_536
"""What the server must take as one line: a user's JWT travels in the first one, and 4 KiB, as usual, are too few for it."""

MAX_JWT = 48_000
"""A JWT beyond this would not fit in that line."""

_SEED_BYTES = 36
"""Two of prefix, 32 of key, two of checksum."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_JWT_IN_CREDS = re.compile(r"-{3,}BEGIN NATS USER JWT-{3,}\s*(\S+)\s*-{3,}END")
_NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT_LIMITS = _NO_LIMIT | {"imports": -1, "exports": -1, "wildcards": True, "conn": -1, "leaf": 0}
_STORAGE = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
_NO_STORAGE = dict.fromkeys(_STORAGE, 0)


class Authority(Struct, frozen=True, kw_only=True):
    """
    The keys of a fleet, as seeds: who has them makes any node and any operator.

    Attributes:
        operator: Signs accounts. (NATS' word; no person is meant.)
        account: Signs nodes and operators; all that `ccmctl node add` needs.
        system: The account in which the servers themselves speak.
    """

    operator: Secret
    account: Secret
    system: Secret


class Credentials(Struct, frozen=True, kw_only=True):
    """
    What a user of the broker connects with.

    Attributes:
        name: The node's identity or the operator's name.
        public_key: Tells these credentials from others of the same name.
        text: The file that `creds` names: a JWT and its seed.
    """

    name: str
    public_key: str
    text: Secret


def new_authority() -> Authority:
    """New keys."""
    import nkeys

    prefixes = (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_ACCOUNT)
    operator, account, system = (_new_seed(prefix) for prefix in prefixes)
    return Authority(operator=operator, account=account, system=system)


def server_configuration(authority: Authority, revoked: Mapping[str, int] | None = None) -> str:
    """
    What every server of the cluster must have in its configuration; nothing in it is secret.

    Args:
        authority: The keys.
        revoked: Public keys of users, each with the time (seconds since 1970) up to which what was signed for it is void.
    """
    operator, account, system = map(_pair, (authority.operator, authority.account, authority.system))
    claims: dict[str, Any] = {"limits": _ACCOUNT_LIMITS | _STORAGE}
    if revoked:
        claims["revocations"] = dict(revoked)
    ours = _jwt(operator, _public(account), "account", "ccm", claims)
    servers = _jwt(operator, _public(system), "account", "system", {"limits": _ACCOUNT_LIMITS | _NO_STORAGE})
    # Always the same: servers do not reload a configuration in which this one differs.
    itself = _jwt(operator, _public(operator), "operator", "ccm", {}, issued=1)
    return (
        "# Made by `ccmctl init --security`; nothing in it is secret.\n"
        f"operator: {itself}\n"
        f"system_account: {_public(system)}\n"
        f"max_control_line: {MAX_CONTROL_LINE}\n"
        "resolver: MEMORY\n"
        f"resolver_preload: {{\n  {_public(account)}: {ours}\n  {_public(system)}: {servers}\n}}\n"
    )


def user_credentials(
    account: Secret, name: str, permissions: Permissions, *, expires: int | None = None
) -> Credentials:
    """
    New credentials of a node or an operator.

    Args:
        account: The account's seed.
        name: Of the node or operator.
        permissions: What the broker lets it do.
        expires: When they end, in seconds since 1970; None: never.

    Raises:
        UsageError: The name is none, or what it may do is too much to say.
    """
    import nkeys

    if not is_name(name):
        raise UsageError(
            f"{name!r}: no name: letters, digits, `.`, `_`, `@` and `-`, the first a letter or a digit"
        )
    seed = _new_seed(nkeys.PREFIX_BYTE_USER)
    public_key = _public(_pair(seed))
    claims = {
        **_NO_LIMIT,
        "pub": {"allow": list(permissions.publish)},
        "sub": {"allow": list(permissions.subscribe)},
        # A server that came as a leaf would bring others' messages with it.
        "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
    }
    token = _jwt(_pair(account), public_key, "user", name, claims, expires)
    if len(token) > MAX_JWT:
        raise UsageError(f"{name}: too many scopes: what it may do does not fit in one line; name fewer")
    text = (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "The seed below is secret: who has it is this user.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.reveal()}\n------END USER NKEY SEED------\n"
    )
    return Credentials(name=name, public_key=public_key, text=Secret(text))


def is_name(text: str) -> bool:
    """A node or an operator may be called that."""
    return _NAME.fullmatch(text) is not None


def name_in_credentials(text: str) -> str:
    """The name that a credentials file was made for; "" when it says none. Nothing is verified: the broker does that."""
    found = _JWT_IN_CREDS.search(text)
    parts = found[1].split(".") if found else []
    if len(parts) != 3:
        return ""
    try:
        claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, msgspec.MsgspecError):
        return ""
    name = claims.get("name") if isinstance(claims, dict) else None
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def check_seed(seed: Secret, letter: str, source: str) -> Secret:
    """
    The seed, which is one of its kind: `O` of an operator, `A` of an account.

    Raises:
        InputError: It is not; the error does not show it.
    """
    text = seed.reveal()
    if not text.startswith(f"S{letter}"):
        raise InputError(
            f"{source}: no seed that begins with S{letter}; was it made by `ccmctl init --security`?"
        )
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raw = b""
    # nkeys itself does not look at the checksum; with another key than was meant nobody could connect.
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise InputError(f"{source}: the seed is damaged; restore it from where it was kept")
    return seed


def _new_seed(prefix: int) -> Secret:
    import nkeys

    return Secret(nkeys.encode_seed(secrets.token_bytes(32), prefix).decode())


def _pair(seed: Secret) -> Any:
    import nkeys

    return nkeys.from_seed(bytearray(seed.reveal().encode()))


def _public(pair: Any) -> str:
    public: bytes = pair.public_key
    return public.decode()


def _jwt(
    issuer: Any,
    subject: str,
    kind: str,
    name: str,
    claims: dict[str, Any],
    expires: int | None = None,
    issued: int | None = None,
) -> str:
    body: dict[str, Any] = {
        "iat": int(time.time()) if issued is None else issued,
        "iss": _public(issuer),
        "sub": subject,
        "name": name,
        "nats": {**claims, "type": kind, "version": 2},
    }
    if expires is not None:
        body["exp"] = expires
    body["jti"] = base64.b32encode(hashlib.sha256(msgspec.json.encode(body)).digest()).decode().rstrip("=")
    text = f"{_part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_part(body)}"
    return f"{text}.{_unpadded(issuer.sign(text.encode()))}"


def _part(value: dict[str, Any]) -> str:
    return _unpadded(msgspec.json.encode(value))


def _unpadded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
