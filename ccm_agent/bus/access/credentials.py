"""
Identities on the broker: the keys of a fleet, the configuration of its servers, and credentials of nodes and operators.

The broker runs in the operator mode of NATS. Its configuration contains one operator and its accounts, without secrets. It
accepts each user with a JWT that one of the accounts signed. The JWT contains the user's permissions, so a new node needs no
change on any server, and no server stores a secret that can create users. Imports and exports are in the JWTs of the accounts
(`bus.access.accounts`). See docs/concepts/authorization.md.

Source: NATS JWT version 2 (ADR-14), nats-server's `jwt/v2`; nkeys (ADR-1).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.accounts import (
    CONNECTIONS,
    LOGIN_S,
    USER_LIMITS,
    WITH_STREAMS,
    Account,
    disconnect_export,
    exports_and_imports,
    settings_of_accounts,
)
from ccm_agent.bus.access.permissions import Permissions, node_template, token_permissions
from ccm_agent.bus.subjects import inbox_prefix, subject_matches
from ccm_agent.model.errors import InputError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.secret import Secret

MAX_CONTROL_LINE = 65_536
"""The longest protocol line that the server must accept: the first one contains the JWT of the user, and 4 KiB are too short."""

MAX_JWT = 48_000
"""The longest JWT that fits in that line."""

_SEED_BYTES = 36
"""Two bytes of prefix, 32 of key and two of checksum."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")
_JWT_IN_CREDS = re.compile(r"(?<!-)-{3,}+BEGIN NATS USER JWT-{3,}+\s*+(\S++)\s++-{3,}+END")
_ACCOUNT_TOKEN = re.compile(r"^[^\S\n]*+(A[A-Z2-7]{55}): (\S+)$", re.MULTILINE)
_YEAR_9999 = 253_370_764_800
_NO_LIMIT = {"subs": -1, "data": -1, "payload": -1}
_ACCOUNT_LIMITS = _NO_LIMIT | {"imports": -1, "exports": -1, "wildcards": True, "leaf": 0}
_STORAGE = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
_NO_STORAGE = dict.fromkeys(_STORAGE, 0)


class Authority(Struct, frozen=True, kw_only=True):
    """
    The broker's keys, as seeds. Their holder can create any node and any operator.

    Attributes:
        operator: Signs accounts. (The NATS term; it is not a person.)
        account: The account CTL, which has the streams; signs operators with `--admin`.
        ops: Signs all other operators.
        nodes: Signs nodes; the only key that `ccmctl node add` needs.
        audit: The account of the audit stream; signs only the user that creates the stream.
        system: The system account of the servers.
        join: The account of join tokens.
        node_signer: A signing key of the account NODES: signs nodes with the permissions of `permissions.node_template` only.
    """

    operator: Secret
    account: Secret
    ops: Secret
    nodes: Secret
    audit: Secret
    system: Secret
    join: Secret
    node_signer: Secret

    def of(self, account: Account) -> Secret:
        """Return the seed of an account."""
        return {
            Account.CTL: self.account,
            Account.OPS: self.ops,
            Account.NODES: self.nodes,
            Account.AUDIT: self.audit,
            Account.JOIN: self.join,
        }[account]


class Credentials(Struct, frozen=True, kw_only=True):
    """
    The credentials of a user of the broker.

    Attributes:
        name: The node's identity or the operator's name.
        public_key: Distinguishes these credentials from others with the same name.
        jwt: The user's JWT.
        seed: The seed of its key.
        text: The content of the credentials file: JWT and seed.
    """

    name: str
    public_key: str
    jwt: str
    seed: Secret
    text: Secret


def new_authority() -> Authority:
    """Generate new keys."""
    import nkeys

    account = nkeys.PREFIX_BYTE_ACCOUNT
    return Authority(
        operator=_new_seed(nkeys.PREFIX_BYTE_OPERATOR),
        account=_new_seed(account),
        ops=_new_seed(account),
        nodes=_new_seed(account),
        audit=_new_seed(account),
        system=_new_seed(account),
        join=_new_seed(account),
        node_signer=_new_seed(account),
    )


def new_account() -> Secret:
    """Generate the seed of a new account."""
    import nkeys

    return _new_seed(nkeys.PREFIX_BYTE_ACCOUNT)


def new_root() -> Secret:
    """
    Generate the seed of a new root key, which signs the list of operators' keys (`bus.signatures.trust`).

    No key of the broker is derived from it, and the broker never receives it.
    """
    import nkeys

    return _new_seed(nkeys.PREFIX_BYTE_OPERATOR)


def public_key(seed: Secret) -> str:
    """Return the public key of a seed."""
    return _public(key_pair(seed))


def connections_subject(account: str) -> str:
    """Return the subject in the system account for the connections of an account; `account` is its public key."""
    return f"$SYS.REQ.ACCOUNT.{account}.CONNZ"


def account_subject(account: str) -> str:
    """Return the subject in the system account for an account's data on the servers; `account` is its public key."""
    return f"$SYS.REQ.ACCOUNT.{account}.INFO"


def asker_credentials(system: Secret, name: str, subjects: Sequence[str], expires: int) -> Credentials:
    """Create short-lived credentials in the system account that may publish only on these subjects."""
    inbox = f"{inbox_prefix(name)}.>"
    # The seed determines the user's account; only the subjects given here have an effect.
    allowed = Permissions(account=Account.CTL, publish=tuple(subjects), subscribe=(inbox,))
    return user_credentials(system, name, allowed, expires=expires)


def server_configuration(
    authority: Authority,
    revoked: Mapping[Account, Mapping[str, int]] | None = None,
    *,
    moving: bool = False,
) -> str:
    """
    Return the configuration for every server of the cluster. It contains no secrets.

    Args:
        authority: The keys.
        revoked: For each account, the public keys of users, each with a time (seconds since 1970). JWTs issued up to that time
            are void. `*` means every user.
        moving: Whether credentials of the old one-account layout still work (`accounts.grants`).
    """
    operator, system = key_pair(authority.operator), _public(key_pair(authority.system))
    keys = {account: _public(key_pair(authority.of(account))) for account in Account}
    preload = {}
    for account, public in keys.items():
        claims = {
            "limits": _limits(account, moving=moving),
            **exports_and_imports(account, keys, system, moving=moving),
        }
        if account == Account.NODES:
            claims["signing_keys"] = [_scope(_public(key_pair(authority.node_signer)))]
        if gone := (revoked or {}).get(account):
            claims["revocations"] = dict(gone)
        preload[public] = signed_jwt(operator, public, "account", account.value, claims)
    offered = {"exports": [disconnect_export(keys[Account.NODES])]}
    own = offered | {"limits": _ACCOUNT_LIMITS | _NO_STORAGE | {"conn": -1}}
    preload[system] = signed_jwt(operator, system, "account", "system", own)
    # These claims are always identical, because servers do not reload a configuration with a different operator.
    itself = signed_jwt(operator, _public(operator), "operator", "ccm", {}, issued=1)
    accounts = "\n".join(f"  {public}: {token}" for public, token in preload.items())
    return (
        "# Made by `ccmctl init --security`; nothing in it is secret.\n"
        f"{table_mark(moving=moving)}\n"
        f"operator: {itself}\n"
        f"system_account: {system}\n"
        f"max_control_line: {MAX_CONTROL_LINE}\n"
        f"authorization {{ timeout: {LOGIN_S} }}\n"
        "resolver: MEMORY\n"
        f"resolver_preload: {{\n{accounts}\n}}\n"
    )


def table_mark(*, moving: bool) -> str:
    """Return a comment for the servers' configuration. It changes if accounts, permissions or limits differ between versions."""
    table = msgspec.json.encode([*settings_of_accounts(moving=moving), node_template()])
    return f"# Accounts: {hashlib.sha256(table).hexdigest()[:16]}"


def _limits(account: Account, *, moving: bool) -> dict[str, Any]:
    storage = _STORAGE if account in WITH_STREAMS else _NO_STORAGE
    # While a fleet migrates, all of its nodes may be in the account of the streams.
    connections = max(CONNECTIONS.values()) if moving else CONNECTIONS[account]
    return _ACCOUNT_LIMITS | storage | {"conn": connections}


def _scope(key: str) -> dict[str, Any]:
    """Return a scoped signing key for an account's JWT, with the permissions of every user that it signs."""
    template = node_template()
    return {
        "kind": "user_scope",
        "key": key,
        "role": "node",
        "template": _user_limits(Account.NODES, template.publish, template.subscribe),
    }


def _user_limits(account: Account, publish: Sequence[str], subscribe: Sequence[str]) -> dict[str, Any]:
    return {
        **_NO_LIMIT,
        **USER_LIMITS[account],
        "pub": {"allow": list(publish)},
        "sub": {"allow": list(subscribe)},
        # A leaf node server would forward messages of other users.
        "allowed_connection_types": ["STANDARD", "WEBSOCKET"],
    }


def user_credentials(
    account: Secret, name: str, permissions: Permissions, *, expires: int | None = None
) -> Credentials:
    """
    Create credentials of a node or an operator.

    Args:
        account: The seed of the account of the permissions.
        name: The node or operator.
        permissions: Its permissions on the broker.
        expires: The expiry in seconds since 1970; None: never.

    Raises:
        UsageError: The name is not valid, or there are too many permissions for one JWT.
    """
    claims = _user_limits(permissions.account, permissions.publish, permissions.subscribe)
    if permissions.answers:
        claims["resp"] = {"max": 1, "ttl": 60_000_000_000}
    return _credentials(account, name, claims, expires)


def token_credentials(account: Secret, name: str, expires: int, networks: Sequence[str]) -> Credentials:
    """Return the credentials for the join token `name`, valid only from these networks, or from all if there are none."""
    allowed = token_permissions(name)
    claims = _user_limits(allowed.account, allowed.publish, allowed.subscribe)
    return _credentials(account, name, claims | ({"src": list(networks)} if networks else {}), expires)


def scoped_credentials(
    signer: Secret, account: str, name: str, tags: Sequence[str], *, expires: int | None = None
) -> Credentials:
    """
    Create credentials of a node. Its permissions are in the account's JWT (`permissions.node_template`).

    Args:
        signer: The seed of the scoped signing key.
        account: The public key of the account.
        name: The node.
        tags: See `permissions.Permissions`.
        expires: The expiry in seconds since 1970; None: never.

    Raises:
        UsageError: The name is not valid.
    """
    return _credentials(signer, name, _scoped_claims(account, tags), expires)


def scoped_jwt(signer: Secret, account: str, name: str, key: str, tags: Sequence[str], expires: int) -> str:
    """Return the JWT of a node that generated its own key `key`; otherwise like `scoped_credentials`."""
    return signed_jwt(key_pair(signer), key, "user", name, _scoped_claims(account, tags), expires)


def new_user() -> Secret:
    """Generate the seed of a new user, such as a joining node."""
    import nkeys

    return _new_seed(nkeys.PREFIX_BYTE_USER)


def credentials_text(token: str, seed: Secret) -> Secret:
    """Return the credentials file for a user's JWT and seed."""
    return Secret(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        "************************* IMPORTANT *************************\n"
        "The seed below is secret: its holder acts as this user.\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed.reveal()}\n------END USER NKEY SEED------\n"
    )


def _scoped_claims(account: str, tags: Sequence[str]) -> dict[str, Any]:
    # A user of a scoped key must not have permissions or limits of its own.
    return {"issuer_account": account, "tags": list(tags)}


def _credentials(issuer: Secret, name: str, claims: dict[str, Any], expires: int | None) -> Credentials:
    if not is_name(name):
        raise UsageError(
            f"{name!r}: not a valid name; use letters, digits, `.`, `_`, `@` and `-`, and begin with a letter or digit"
        )
    seed = new_user()
    public_key = _public(key_pair(seed))
    token = signed_jwt(key_pair(issuer), public_key, "user", name, claims, expires)
    if len(token) > MAX_JWT:
        raise UsageError(f"{name}: too many scopes: its permissions do not fit in one line; name fewer")
    text = credentials_text(token, seed)
    return Credentials(name=name, public_key=public_key, jwt=token, seed=seed, text=text)


def is_name(text: str) -> bool:
    """Whether the text is a valid name of a node or operator."""
    return _NAME.fullmatch(text) is not None


def name_in_credentials(text: str) -> str:
    """Return the name in a credentials file; "" if there is none. Nothing is verified here; the broker does that."""
    return claims_in_jwt(text)[0]


def claims_in_jwt(token: str) -> tuple[str, str, int]:
    """Return name, public key and expiry (seconds since 1970; 0: none) of a user's JWT, or of its file. Nothing is verified."""
    found = _JWT_IN_CREDS.search(token)
    token = found[1] if found else token
    claims = claims_in(token)
    key, expires = claims.get("sub"), claims.get("exp")
    seconds = expires if isinstance(expires, int) and 0 < expires < _YEAR_9999 else 0
    return name_in_jwt(token), key if isinstance(key, str) else "", seconds


def name_in_jwt(token: str) -> str:
    """Return the name in a user's JWT; "" if there is none. Nothing is verified."""
    name = claims_in(token).get("name")
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def only_inboxes_in_credentials(text: str) -> list[str]:
    """
    Return the inboxes to which a credentials file limits its user, as subscriptions such as `_INBOX_ann.>`.

    Returns:
        An empty list if the credentials allow any inbox, or if they do not contain permissions. Nothing is verified.
    """
    subjects = _allowed(text, "sub")
    return [] if ">" in subjects else [subject for subject in subjects if subject.startswith("_INBOX")]


def expiry_in_credentials(text: str) -> int:
    """Return when the JWT of a credentials file expires, in seconds since 1970; 0 if it has no expiry. Nothing is verified."""
    return claims_in_jwt(text)[2]


def forbids_publishing(text: str, subject: str) -> bool:
    """Whether the permissions in a credentials file deny publishing on a subject; False if the file has no permissions."""
    allowed = _allowed(text, "pub")
    return bool(allowed) and not any(subject_matches(pattern, subject) for pattern in allowed)


def account_in_configuration(text: str, account: Account) -> tuple[str, tuple[str, ...]]:
    """
    Return the public key of an account in the servers' configuration, and those of its scoped signing keys.

    Returns:
        "" and an empty tuple if the configuration has no such account. Nothing is verified.
    """
    for key, token in _ACCOUNT_TOKEN.findall(text):
        claims = claims_in(token)
        if claims.get("name") == account.value:
            nats = claims.get("nats")
            scopes = nats.get("signing_keys") if isinstance(nats, dict) else None
            found = scopes if isinstance(scopes, list) else []
            return key, tuple(str(each["key"]) for each in found if isinstance(each, dict) and "key" in each)
    return "", ()


def account_tokens(text: str) -> dict[str, str]:
    """Return the JWTs of all accounts in the servers' configuration, by public key. Nothing is verified."""
    return dict(_ACCOUNT_TOKEN.findall(text))


def _allowed(text: str, word: str) -> list[str]:
    """Return the subjects that a credentials file allows its user to publish on (`pub`) or to subscribe to (`sub`)."""
    found = _JWT_IN_CREDS.search(text)
    user = claims_in(found[1]).get("nats") if found else None
    permission = user.get(word) if isinstance(user, dict) else None
    allowed = permission.get("allow") if isinstance(permission, dict) else None
    return [each for each in allowed if isinstance(each, str)] if isinstance(allowed, list) else []


def claims_in(token: str) -> dict[str, Any]:
    """Return the content of a JWT; {} if it cannot be read. Nothing is verified."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        body = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return decode_foreign(body, dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        return {}


def check_seed(seed: Secret, letter: str, source: str) -> Secret:
    """
    Check the kind of a seed (`O` for an operator, `A` for an account) and return it.

    Raises:
        InputError: The seed is of another kind, or damaged. The error does not show it.
    """
    text = seed.reveal()
    if not text.startswith(f"S{letter}"):
        raise InputError(
            f"{source}: no seed that begins with S{letter}; use a file that `ccmctl init --security` created"
        )
    try:
        raw = base64.b32decode(text + "=" * (-len(text) % 8))
    except ValueError:
        raw = b""
    # nkeys does not verify the checksum, and no user could connect with a damaged key.
    if len(raw) != _SEED_BYTES or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise InputError(f"{source}: the seed is damaged; restore it from a backup")
    return seed


def _new_seed(prefix: int) -> Secret:
    import nkeys

    return Secret(nkeys.encode_seed(secrets.token_bytes(32), prefix).decode())


def key_pair(seed: Secret) -> Any:
    import nkeys

    return nkeys.from_seed(bytearray(seed.reveal().encode()))


def _public(pair: Any) -> str:
    public: bytes = pair.public_key
    return public.decode()


def signed_jwt(
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
