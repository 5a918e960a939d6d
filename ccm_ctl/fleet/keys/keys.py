"""
The folder with a fleet's keys. `ccmctl init --security` creates it, and `ccmctl node add` uses it.

    nats-security.conf   the configuration that every server includes; not secret
    operator.seed  account.seed  ops.seed  nodes.seed  audit.seed  join.seed  system.seed   secret; mode 0600
    node_signer.seed     signs nodes with the permissions that the servers have for all nodes; secret
    root.seed            signs the signers list; secret, and independent of the broker's keys
    sealing.seed         opens the data keys of secrets, to seal them to more nodes; secret
    trust.json           the signers list, signed by the root key; not secret
    users.jsonl          the users that received credentials, and when; no secrets
    moving.json          start and end of a migration from one account to several
    site-NAME.seed       the account of a site; secret. The folder site-NAME is for the site's broker

Seeds that other users can read are refused. An existing seed is never overwritten.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import (
    Authority,
    Credentials,
    account_in_configuration,
    account_tokens,
    asker_credentials,
    check_seed,
    connections_subject,
    name_in_jwt,
    new_account,
    new_authority,
    new_root,
    public_key,
    scoped_credentials,
    server_configuration,
    table_mark,
    user_credentials,
)
from ccm_agent.bus.access.permissions import Permissions, Role, audit_permissions, operator_permissions
from ccm_agent.bus.access.sites import has_mark, sites_mark
from ccm_agent.bus.signatures.trust import Trust
from ccm_agent.model.errors import InputError, NotFoundError, UsageError
from ccm_agent.model.formats.untrusted_json import decode_foreign
from ccm_agent.model.secret import Secret
from ccm_ctl.fleet.keys.signers import Signers, build_signer
from ccm_ctl.fleet.keys.sites import SITE_PREFIX, sites_in, with_sites
from ccm_ctl.fleet.whole_file import PUBLIC, create_file, write_whole

CONFIGURATION = "nats-security.conf"
USERS = "users.jsonl"
_MOVING = "moving.json"
_NODE_SIGNER = "node_signer"
_KINDS = {
    "operator": "O",
    "account": "A",
    "ops": "A",
    "nodes": "A",
    "audit": "A",
    "system": "A",
    "join": "A",
    _NODE_SIGNER: "A",
}
_SEEDS = {Account.CTL: "account", Account.OPS: "ops", Account.NODES: "nodes"}
_EVERYBODY = "*"
"""Used instead of a public key for all users whose JWT was issued up to a given time."""


class User(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A node or operator that received credentials.

    Attributes:
        kind: "node" or "operator".
        name, public_key: The user and its key.
        time: When the credentials were issued or revoked, in seconds since 1970.
        revoked: Whether they are void.
        account: The account of the credentials. "": the only account of the old layout, which is now CTL.
    """

    kind: str
    name: str
    public_key: str
    time: int
    revoked: bool = False
    account: str = ""


class Moving(Struct, frozen=True, kw_only=True):
    """
    A migration from one account to several. Times are in seconds since 1970.

    Attributes:
        began: Credentials issued before this time belong to the one-account layout.
        until: The latest time at which these credentials expire.
    """

    began: int
    until: int


def keys_folder(chosen: str, environ: Mapping[str, str]) -> Path:
    """Return the chosen folder, or the one in the environment, or the user's default."""
    if named := chosen or environ.get("CCM_KEYS"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".config")
    return Path(home) / "ccm" / "keys"


class Keys:
    """The folder with the keys. Blocking: it reads and writes a few small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def configuration(self) -> Path:
        """The configuration that the servers include."""
        return self.folder / CONFIGURATION

    def exist(self) -> bool:
        """Whether the folder has keys."""
        return (self.folder / "account.seed").exists()

    def make(self) -> None:
        """
        Create keys, and the configuration for the servers.

        Raises:
            InputError: The folder cannot be written, or contains keys already.
        """
        authority = new_authority()
        for name in _KINDS:
            self.write_seed(name, getattr(authority, name))
        self.configure()

    @property
    def signers(self) -> Signers:
        """Return the signers list, signed by the root key of this folder."""
        return Signers(self.folder, lambda: self.seed("root"))

    def make_root(self) -> None:
        """
        Create a root key, independent of the broker's keys. It may be in another folder or on another machine.

        Raises:
            InputError: The folder cannot be written, or contains a root key already.
        """
        self.write_seed("root", new_root())

    @property
    def has_root(self) -> bool:
        """Whether the root key is in this folder."""
        return (self.folder / "root.seed").exists()

    @property
    def has_one_account(self) -> bool:
        """Whether the keys have the old layout, with nodes and operators in the account of the streams."""
        return self.exist() and not (self.folder / "ops.seed").exists()

    @property
    def moving(self) -> Moving | None:
        """Return the migration from one account to several, or None."""
        path = self.folder / _MOVING
        try:
            return decode_foreign(path.read_bytes(), Moving)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as err:
            raise InputError(f"{path}: cannot be read: {err}") from err

    def begin_moving(self, seconds: int) -> None:
        """
        Create the missing accounts. Existing credentials stay valid until `end_moving`, or for `seconds`.

        Raises:
            InputError: The folder cannot be written.
        """
        now = int(time.time())
        write_whole(self.folder / _MOVING, msgspec.json.encode(Moving(began=now, until=now + seconds)))
        for name in ("nodes", "ops"):
            if not (self.folder / f"{name}.seed").exists():
                self.write_seed(name, new_account())
        self.configure()

    @property
    def is_configuration_current(self) -> bool:
        """Whether the configuration for the servers has the accounts that this version writes."""
        try:
            text = self.configuration.read_text(encoding="utf-8")
        except OSError:
            text = ""
        is_current = table_mark(moving=self.moving is not None) in text.splitlines()
        return is_current and has_mark(text, sites_mark(sites_in(self.folder)))

    def refresh(self) -> bool:
        """
        Write the configuration for the servers again if an earlier version wrote it. Returns whether it was written.

        Raises:
            InputError: A required seed is not in the folder.
        """
        if self.is_configuration_current:
            return False
        self.configure()
        return True

    def end_moving(self) -> None:
        """Revoke all credentials of the one-account layout in the configuration for the servers."""
        moving = self.moving
        if moving is None:
            return
        for user in self.of_one_account():
            # The entry for all users covers earlier ones. It must not cover the second `began`, in which new credentials may have
            # been issued.
            if user.time >= moving.began:
                self._note(msgspec.structs.replace(user, time=int(time.time()), revoked=True))
        everybody = User(kind="", name=_EVERYBODY, public_key=_EVERYBODY, time=moving.began - 1, revoked=True)
        self._note(everybody)
        (self.folder / _MOVING).unlink()
        self.configure()

    def moved(self) -> list[User]:
        """Return the users with valid credentials of separate accounts."""
        return [user for user in self._valid().values() if user.account]

    def of_one_account(self) -> list[User]:
        """Return the users with valid credentials of the one-account layout."""
        return [user for user in self._valid().values() if not user.account]

    def add_operator(self, name: str, role: Role, *, expires: int | None = None) -> Credentials:
        """
        Issue credentials to an operator, and add the operator's key to the signers list.

        Raises:
            NotFoundError, UsageError: See `add`.
        """
        made = self.add("operator", name, operator_permissions(name, role), expires=expires)
        if not self.has_root:
            return made
        self.signers.add(build_signer(name, made.public_key, role, expires))
        return _with_trust(made, self.signers.trust())

    def add_node(
        self,
        name: str,
        permissions: Permissions,
        *,
        expires: int | None = None,
        floors: Mapping[str, int] | None = None,
    ) -> Credentials:
        """
        Issue credentials to a node, with the root's certificate of its key.

        If the servers have the scoped signing key, the node's permissions are stored there. Otherwise, the credentials contain
        them.

        Args:
            name: Its identity.
            permissions: Its permissions on the broker.
            expires: When they expire, in seconds since 1970. None: never.
            floors: For each `bucket/key`, the lowest number of a document that this node accepts.

        Raises:
            NotFoundError, UsageError: See `add`.
        """
        if account := self.account_of_signer():
            self._require_own_name("node", name)
            made = scoped_credentials(
                self.seed(_NODE_SIGNER), account, name, permissions.tags, expires=expires
            )
            self._note_user("node", made.name, made.public_key, Account.NODES)
        else:
            made = self.add("node", name, permissions, expires=expires)
        if not self.has_root or not self.signers.exist():
            return made
        return _with_trust(made, self.signers.for_node(name, made.public_key, expires, floors or {}))

    def account_of_signer(self) -> str:
        """Return the public key of the nodes' account, or "" if the servers do not have the scoped signing key."""
        if not (self.folder / f"{_NODE_SIGNER}.seed").exists():
            return ""
        account, signing_keys = account_in_configuration(self._configuration_text(), Account.NODES)
        return account if public_key(self.seed(_NODE_SIGNER)) in signing_keys else ""

    def add(
        self, kind: str, name: str, permissions: Permissions, *, expires: int | None = None
    ) -> Credentials:
        """
        Issue credentials to a node or operator, for the broker only.

        Raises:
            NotFoundError: The folder has no keys.
            UsageError: The name belongs to a user of the other kind. The new user could read that user's replies.
        """
        self._require_accounts()
        seed = self.seed(_SEEDS[permissions.account])
        self._require_own_name(kind, name)
        made = user_credentials(seed, name, permissions, expires=expires)
        self._note_user(kind, made.name, made.public_key, permissions.account)
        return made

    def _require_own_name(self, kind: str, name: str) -> None:
        others = [user for user in self.users() if user.name == name and user.kind not in (kind, "")]
        if others:
            raise UsageError(f"{name}: already the name of {_a(others[0].kind)}; choose another name")

    def note_joined(self, name: str, key: str) -> None:
        """Record a node that joined with a token, if it is not recorded yet, so that its key can be revoked."""
        if key not in {user.public_key for user in self.users()}:
            self._note_user("node", name, key, Account.NODES)

    def _note_user(self, kind: str, name: str, key: str, account: Account) -> None:
        now = int(time.time())
        self._note(User(kind=kind, name=name, public_key=key, time=now, account=account.value))

    def account_tokens(self) -> dict[str, str]:
        """Return the JWTs of the accounts in the servers' configuration, by public key, except the system account."""
        system = public_key(self.seed("system"))
        found = account_tokens(self._configuration_text())
        return {key: token for key, token in found.items() if key != system}

    def _configuration_text(self) -> str:
        try:
            return self.configuration.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as err:
            raise InputError(f"{self.configuration}: cannot be read: {err}") from err

    @property
    def connections_subject(self) -> str:
        """Return the subject for querying the servers about connections to the account of the streams."""
        return connections_subject(public_key(self.seed("account")))

    def asker(self, name: str, subjects: Sequence[str], expires: int) -> Credentials:
        """Return credentials in the system account for queries on these subjects only. They expire soon and are not listed."""
        return asker_credentials(self.seed("system"), name, subjects, expires)

    def audit_maker(self, name: str, expires: int) -> Credentials:
        """Return credentials that may only create the audit stream. They expire soon, so no list contains them."""
        return user_credentials(self.seed("audit"), name, audit_permissions(name), expires=expires)

    def revoke(self, kind: str, name: str) -> list[User]:
        """
        Revoke all credentials of a name, and return those that were valid. Servers apply the change when they get the account's
        new JWT.

        Raises:
            NotFoundError: No credentials were issued under this name, or there are no keys.
        """
        self._require_accounts()
        self._authority()
        found = [user for user in self._valid().values() if (user.kind, user.name) == (kind, name)]
        if not found:
            raise NotFoundError(f"{name}: no {kind} of that name has credentials from {self.folder}")
        for user in found:
            self._note(msgspec.structs.replace(user, time=int(time.time()), revoked=True))
        self.configure()
        if self.has_root and self.signers.exist():
            change = self.signers.remove if kind == "operator" else self.signers.revoke_nodes
            change([user.public_key for user in found])
        return found

    def users(self) -> list[User]:
        """Return every user that received or lost credentials, ordered by time."""
        try:
            lines = (self.folder / USERS).read_bytes().splitlines()
            return [decode_foreign(line, User) for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as err:
            raise InputError(f"{self.folder / USERS}: cannot be read: {err}") from err

    def certified(self, kind: str) -> set[str]:
        """Return the names of a kind with valid credentials from this folder. Empty for a folder without keys."""
        return {user.name for user in self._valid().values() if user.kind == kind}

    def _valid(self) -> dict[str, User]:
        users = self.users()
        gone = {user.public_key: user.time for user in users if user.revoked}
        before = gone.get(_EVERYBODY, -1)
        return {
            user.public_key: user
            for user in users
            if user.public_key not in gone and (user.account or user.time > before)
        }

    def _note(self, user: User) -> None:
        path = self.folder / USERS
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            with os.fdopen(number, "ab") as file:
                file.write(msgspec.json.encode(user) + b"\n")
        except OSError as err:
            raise InputError(f"{path}: cannot be written: {err.strerror}") from err

    def configure(self) -> None:
        """Write the configuration for the servers from the current content of the folder."""
        moving = self.moving
        if moving is not None and moving.until < time.time():
            self.end_moving()
            return
        revoked: dict[Account, dict[str, int]] = {}
        for user in self.users():
            if user.revoked:
                account = Account(user.account) if user.account else Account.CTL
                revoked.setdefault(account, {})[user.public_key] = user.time
        text = server_configuration(self._authority(), revoked, moving=moving is not None)
        text = with_sites(self.folder, text, self.seed)
        write_whole(self.folder / CONFIGURATION, text.encode(), mode=PUBLIC)

    def _authority(self) -> Authority:
        self._add_account(Account.AUDIT, "its stream would become unreadable")
        self._add_account(Account.JOIN, "all join tokens would become invalid")
        self._add_node_signer()
        return Authority(**{name: self.seed(name) for name in _KINDS})

    def _add_account(self, account: Account, effect: str) -> None:
        """
        Create an account that is missing in a folder of an earlier version.

        Raises:
            InputError: The servers already have this account. The error message contains `effect`, the effect of a different key.
        """
        path = self.folder / f"{account}.seed"
        if path.exists():
            return
        if self.configuration.exists() and account in map(name_in_jwt, self.account_tokens().values()):
            raise InputError(
                f"{path}: not found, but {self.configuration} already has its account; with another key, {effect}; "
                "copy the file from where it was created"
            )
        self.write_seed(account, new_account())

    def _add_node_signer(self) -> None:
        """
        Create the scoped signing key in a folder of an earlier version.

        Raises:
            InputError: The servers already have another such key. A new one would void all credentials that the old one signed.
        """
        path = self.folder / f"{_NODE_SIGNER}.seed"
        if path.exists():
            return
        if (
            self.configuration.exists()
            and account_in_configuration(self._configuration_text(), Account.NODES)[1]
        ):
            raise InputError(
                f"{path}: not found, but {self.configuration} already contains its key; copy it from where it was created"
            )
        self.write_seed(_NODE_SIGNER, new_account())

    def _require_accounts(self) -> None:
        if self.has_one_account:
            raise UsageError(
                f"{self.folder}: its keys are from a version with a single account; "
                "`ccmctl init --security --migrate` creates the others and keeps these"
            )

    def write_seed(self, name: str, seed: Secret) -> None:
        """Create the file of a seed. Raises InputError if it exists or cannot be written."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            create_file(self.folder / f"{name}.seed", f"{seed.reveal()}\n".encode())
        except OSError as err:
            raise InputError(f"{err.filename}: keys cannot be written: {err.strerror}") from err

    def seed(self, name: str) -> Secret:
        """Read a seed by file name. Raises NotFoundError, or InputError if it is damaged or others can read it."""
        path = self.folder / f"{name}.seed"
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(1000)
        except FileNotFoundError as err:
            raise NotFoundError(
                f"{path}: not found; create the keys with `ccmctl init --security`, or name their directory with --keys"
            ) from err
        except OSError as err:
            raise InputError(f"{path}: cannot be read: {err.strerror}") from err
        if mode & 0o077:
            raise InputError(
                f"{path}: other users can read this seed; run `chmod 600` on it, or replace it if it was exposed"
            )
        letter = _KINDS.get(name, "A" if name.startswith(SITE_PREFIX) else "O")
        return check_seed(Secret(text.decode("ascii", "replace").strip()), letter, str(path))


def _with_trust(made: Credentials, trust: Trust) -> Credentials:
    return msgspec.structs.replace(made, text=Secret(f"{made.text.reveal()}\n{trust.as_block()}"))


def _a(kind: str) -> str:
    return "an operator" if kind == "operator" else "a node"
