"""
The keys of the join service, in the folder with the fleet's keys.

    certifier.seed       certifies keys of nodes and signs the answers to joining nodes; secret
    certifier.json       the root key's time-limited permission for the certifying key; not secret
    node_signer.seed     signs the JWTs of nodes for the broker (`keys`)
    join.seed            the key of the account for join tokens (`keys`); signs the tokens

The service needs `certifier.seed`, `certifier.json`, `node_signer.seed`, `nats-security.conf` and `trust.json`. The keys of the
accounts and the root key stay offline.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.credentials import Credentials, new_root, scoped_jwt, token_credentials
from ccm_agent.bus.access.permissions import node_permissions
from ccm_agent.bus.signatures.join import sign_answer
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.bus.signatures.trust import allow_certifier, certify_node
from ccm_agent.model.errors import InputError, NotFoundError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.records.join import JoinAnswer
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.keys.keys import USERS, Keys
from ccm_ctl.fleet.whole_file import PUBLIC, write_whole

CERTIFIER = "certifier"
_PERMISSION = "certifier.json"

PERMISSION_S = 2 * 365 * 86_400
"""The validity, in seconds, of the root key's permission for the join service's key to certify nodes."""

RENEW_S = 180 * 86_400
"""If a permission expires within this many seconds, it is renewed on the machine with the root key."""


class CertifierPermission(Struct, frozen=True, kw_only=True):
    """
    The root key's permission for a key to certify nodes.

    Attributes:
        key: The public key.
        signature: A signature header of kind `certifier`.
        expires: When it expires, in seconds since 1970.
    """

    key: str
    signature: str
    expires: int


class Issuer:
    """
    Issues credentials to nodes.

    Attributes:
        root: The fleet's root public key.
        certifier: The public key that certifies nodes.
    """

    def __init__(
        self, root: str, signer: Secret, account: str, certifier: SigningKey, permission: CertifierPermission
    ) -> None:
        self.root = root
        self.certifier = certifier.public_key
        self._signer = signer
        self._account = account
        self._key = certifier
        self._permission = permission

    def issue(self, name: str, key: str, now_ms: int, valid_s: int) -> tuple[str, str, int]:
        """
        Return a JWT and a certificate for a node's key, and their time of expiry in seconds since 1970.

        Raises:
            InputError: The root key's permission has expired.
        """
        expires = min(now_ms // 1000 + valid_s, self._permission.expires)
        if expires * 1000 <= now_ms:
            raise InputError(
                "the permission of the join service's key has expired; run `ccmctl token create` where root.seed is, "
                f"and copy {_PERMISSION}"
            )
        jwt = scoped_jwt(self._signer, self._account, name, key, node_permissions(name).tags, expires)
        certificate = certify_node(
            self._key, name, key, issued_ms=now_ms, expires_ms=expires * 1000, by=self._permission.signature
        )
        return jwt, certificate, expires

    def seal(self, subject: str, answer: JoinAnswer, now_ms: int) -> tuple[bytes, dict[str, str]]:
        """Return the body and the headers of an answer."""
        return sign_answer(self._key, self._permission.signature, subject, answer, now_ms)


class JoinKeys:
    """The keys in one folder. Blocking: it reads and writes a few small files."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._path = keys.folder / _PERMISSION
        self._added: tuple[int, frozenset[str]] = 0, frozenset()

    def prepare(self) -> None:
        """
        Create the certifying key, or renew the root key's permission for it if that is due and the root key is in the folder.

        Raises:
            InputError: The folder cannot be written.
        """
        permission = self._permission() if self._path.exists() else None
        if permission is not None and permission.expires > time.time() + RENEW_S:
            return
        if not self._keys.has_root:
            return
        if not (self._keys.folder / f"{CERTIFIER}.seed").exists():
            self._keys.write_seed(CERTIFIER, new_root())
        now = int(time.time())
        key, expires = SigningKey(self._keys.seed(CERTIFIER)).public_key, now + PERMISSION_S
        signature = allow_certifier(
            SigningKey(self._keys.seed("root")), key, issued_ms=now * 1000, expires_ms=expires * 1000
        )
        made = CertifierPermission(key=key, signature=signature, expires=expires)
        write_whole(self._path, msgspec.json.encode(made), mode=PUBLIC)

    def reset(self) -> str:
        """
        Revoke the certifying key, replace it, and rename the old file. Returns the old public key.

        Raises:
            NotFoundError: The certifying key or the root key is not in the folder.
            InputError: The signers list is not signed by the root key, or the folder cannot be written.
        """
        old, path = SigningKey(self._keys.seed(CERTIFIER)).public_key, self._keys.folder / f"{CERTIFIER}.seed"
        # revoke first: if the process is killed after this line, the next reset revokes the key again and replaces it
        self._keys.signers.revoke_nodes([old])
        try:
            path.rename(path.with_name(f"{path.name}.{old[:8]}"))
            self._path.unlink(missing_ok=True)
        except OSError as err:
            raise InputError(f"{path}: cannot be renamed: {err.strerror}") from err
        self.prepare()
        return old

    def token(self, name: str, expires: int, networks: Sequence[str]) -> Credentials:
        """
        Return the credentials of a join token. See `credentials.token_credentials`.

        Raises:
            NotFoundError: The folder has no `join.seed`.
        """
        return token_credentials(self._keys.seed("join"), name, expires, networks)

    def added(self) -> frozenset[str]:
        """Return the nodes that were added with `ccmctl node add`. The list is read again only if it has grown."""
        path = self._keys.folder / USERS
        size = path.stat().st_size if path.exists() else 0
        if size != self._added[0]:
            self._added = size, frozenset(self._keys.certified("node"))
        return self._added[1]

    def issuer(self, root: str) -> Issuer:
        """
        Return an issuer that uses the keys of the join service.

        Args:
            root: The fleet's root public key.

        Raises:
            NotFoundError, InputError: A key is missing or damaged.
        """
        account = self._keys.account_of_signer()
        if not account:
            raise NotFoundError(
                f"{self._keys.folder}: the join service needs node_signer.seed and the nats-security.conf that names it; "
                "run `ccmctl init --security` where all seeds are, and copy both"
            )
        certifier, permission = SigningKey(self._keys.seed(CERTIFIER)), self._permission()
        if permission.key != certifier.public_key:
            raise InputError(f"{self._path}: does not match {CERTIFIER}.seed; copy both again")
        return Issuer(root, self._keys.seed("node_signer"), account, certifier, permission)

    def _permission(self) -> CertifierPermission:
        try:
            return decode_foreign(self._path.read_bytes(), CertifierPermission)
        except FileNotFoundError as err:
            raise NotFoundError(
                f"{self._path}: not found; run `ccmctl token create` where root.seed is, and copy it with {CERTIFIER}.seed"
            ) from err
        except (OSError, msgspec.MsgspecError) as err:
            raise InputError(f"{self._path}: cannot be read: {err}") from err
