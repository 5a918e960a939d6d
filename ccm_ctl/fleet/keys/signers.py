"""
The signers list of a fleet, in the folder with its keys. It contains the operators whose signatures agents accept.

    trust.json   the root's public key and the newest signers list, signed; not secret

The list is changed on the machine with the root key. It takes effect on nodes when it is published to the bucket CCM_TRUST.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.trust import (
    SIGNERS_KEY,
    SIGNERS_SUBJECT,
    TRUST_BUCKET,
    SignedText,
    Signer,
    SignersList,
    Trust,
    certify_node,
    read_signers,
    sign_signers,
)
from ccm_agent.bus.streams import store
from ccm_agent.model.errors import InputError, NotFoundError, ProtocolError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_ctl.fleet.whole_file import PUBLIC, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from ccm_agent.bus.access.permissions import Role
    from ccm_agent.bus.connection.connection import Connection
    from ccm_agent.model.ports import KeyReader
    from ccm_agent.model.secret import Secret

FILE = "trust.json"

MAX_AGE_S = 3 * 86_400
"""
The maximum age for lists of new fleets: the seconds for which nodes rely on a list after the last timestamp. It covers a weekend.
"""


class Signers:
    """The list in one folder. Blocking: it reads and writes one small file."""

    def __init__(self, folder: Path, root: Callable[[], Secret]) -> None:
        """
        Store the folder.

        Args:
            folder: The folder with the fleet's keys.
            root: Reads the root's seed. Raises NotFoundError if it is not in the folder.
        """
        self._path = folder / FILE
        self._root = root

    def exist(self) -> bool:
        """Whether there is a list."""
        return self._path.exists()

    def trust(self) -> Trust:
        """
        Return the trust block of credentials: the root's public key and the newest list.

        Raises:
            NotFoundError: There is no list.
            InputError: The list is not usable.
        """
        try:
            trust = decode_foreign(self._path.read_bytes(), Trust)
        except FileNotFoundError as err:
            raise NotFoundError(
                f"{self._path}: there is no signers list; `ccmctl init --security` creates one"
            ) from err
        except (OSError, msgspec.MsgspecError) as err:
            raise InputError(f"{self._path}: the signers list cannot be read: {err}") from err
        if trust.signers is None:
            raise InputError(f"{self._path}: it contains a root key but no signers list")
        return trust

    def read(self) -> SignersList:
        """
        Return the list.

        Raises:
            NotFoundError, InputError: See `trust`.
        """
        trust = self.trust()
        assert trust.signers is not None
        signed = trust.signers
        try:
            return read_signers(signed.body.encode(), signed.signature, trust.root, now_ms=_now_ms())
        except ProtocolError as err:
            raise InputError(f"{self._path}: the signers list cannot be used: {err}") from err

    def add(self, signer: Signer) -> SignersList:
        """Add an operator's key to the list. Other keys of the same operator are kept."""
        return self._change(lambda old: {"signers": (*old.signers, signer)})

    def remove(self, keys: Sequence[str]) -> SignersList:
        """Remove operators' keys from the list."""
        gone = set(keys)
        return self._change(lambda old: {"signers": tuple(one for one in old.signers if one.key not in gone)})

    def revoke_nodes(self, keys: Sequence[str]) -> SignersList:
        """Revoke certificates of nodes, by their public keys."""
        return self._change(lambda old: {"revoked_nodes": tuple(sorted({*old.revoked_nodes, *keys}))})

    def allow_unsigned(self, seconds: int) -> SignersList:
        """
        Let agents and controllers accept unsigned messages for this many seconds.

        With 0, they are refused from now on, and decisions also ignore unsigned data that nodes store about themselves.
        """
        until = _now_ms() + seconds * 1000 if seconds else 0
        signed_state = {"signed_state": True} if not seconds else {}
        return self._change(lambda _old: {"allow_unsigned_until": until, **signed_state})

    def limit_age(self, seconds: int) -> SignersList:
        """
        Let nodes rely on the list for this many seconds after the last timestamp. 0 removes the limit.

        From now on, all administrators may sign timestamps, including those whose entries were written by an earlier version.
        """
        return self._change(
            lambda old: {
                "max_age_s": seconds,
                "signers": tuple(
                    msgspec.structs.replace(one, timestamp=one.timestamp or one.admin) for one in old.signers
                ),
            }
        )

    def for_node(self, node: str, key: str, expires: int | None, floors: Mapping[str, int]) -> Trust:
        """
        Return the trust block of a node's credentials: a certificate of its key, and the lowest accepted numbers of its
        documents.
        """
        trust = self.trust()
        certificate = certify_node(
            self._key(), node, key, issued_ms=_now_ms(), expires_ms=(expires or 0) * 1000
        )
        return msgspec.structs.replace(trust, certificate=certificate, floors=dict(floors))

    def _change(self, change: Callable[[SignersList], dict[str, object]]) -> SignersList:
        key = self._key()
        now = _now_ms()
        first = SignersList(number=0, issued=now, max_age_s=MAX_AGE_S, signed_state=True)
        old = self.read() if self.exist() else first
        fields = {"number": max(old.number + 1, now), "issued": now} | change(old)
        new: SignersList = msgspec.structs.replace(old, **fields)
        trust = Trust(root=key.public_key, signers=sign_signers(key, new))
        write_whole(self._path, msgspec.json.encode(trust), mode=PUBLIC)
        return new

    def _key(self) -> SigningKey:
        key = SigningKey(self._root())
        if self.exist() and self.trust().root != key.public_key:
            raise InputError(
                f"{self._path}: the list was not signed with the root.seed next to it, so nodes would refuse a new list"
            )
        return key


def build_signer(name: str, key: str, role: Role, expires: int | None = None) -> Signer:
    """Return an operator's entry in the list, with the same role as on the broker."""
    return Signer(
        name=name,
        key=key,
        plan=role.plan,
        apply=role.apply,
        exec=role.exec,
        maintain=role.maintain,
        data=role.data,
        facts=role.facts,
        schedules=role.schedules,
        join=role.join,
        admin=role.admin,
        timestamp=role.admin,
        expires=expires or 0,
    )


async def published(bucket: KeyReader, at_least: int = 0) -> SignedText | None:
    """Return the list that nodes read, or None if none was published. `at_least` is a revision that has been stored."""
    entry = await bucket.get(SIGNERS_KEY, at_least)
    if entry is None:
        return None
    return SignedText(body=entry.value.decode("utf-8", "replace"), signature=entry.signature)


async def publish(connection: Connection, trust: Trust) -> int:
    """
    Write the list to the bucket, so that nodes can read it. Returns its revision.

    Raises:
        BusDeniedError: The operator lacks `--admin`.
        BusSetupError: The bucket is missing.
    """
    assert trust.signers is not None
    headers = {
        SIGNATURE_HEADER: trust.signers.signature,
        "Nats-Expected-Stream": f"KV_{TRUST_BUCKET}",
    }
    return (await store(connection, SIGNERS_SUBJECT, trust.signers.body.encode(), headers)).sequence


def _now_ms() -> int:
    return int(time.time() * 1000)
