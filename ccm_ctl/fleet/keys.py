"""
The folder with a fleet's keys, which `ccmctl init --security` makes and `ccmctl node add` uses.

    nats-security.conf   what every server includes; not secret
    operator.seed  account.seed  system.seed   secret; mode 0600
    users.jsonl          who was given credentials, and when; no secrets

Seeds that others can read are refused, and nothing is ever written over.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ccm_agent.bus.credentials import (
    Authority,
    Credentials,
    check_seed,
    new_authority,
    server_configuration,
    user_credentials,
)
from ccm_agent.model.errors import InputError, NotFoundError, UsageError
from ccm_agent.model.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ccm_agent.bus.permissions import Permissions

CONFIGURATION = "nats-security.conf"
_USERS = "users.jsonl"
_KINDS = {"operator": "O", "account": "A", "system": "A"}


class User(Struct, frozen=True, kw_only=True):
    """
    Somebody who was given credentials.

    Attributes:
        kind: "node" or "operator".
        name, public_key: Who.
        time: When, in seconds since 1970; or when they were revoked.
        revoked: They are void.
    """

    kind: str
    name: str
    public_key: str
    time: int
    revoked: bool = False


def keys_folder(chosen: str, environ: Mapping[str, str]) -> Path:
    """The folder that was chosen, else the environment's, else the usual one of the caller."""
    if named := chosen or environ.get("CCM_KEYS"):
        return Path(named)
    home = environ.get("XDG_CONFIG_HOME") or str(Path(environ.get("HOME") or Path.home()) / ".config")
    return Path(home) / "ccm" / "keys"


class Keys:
    """The folder. Blocking: it reads and writes a few small files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def configuration(self) -> Path:
        """What the servers include."""
        return self.folder / CONFIGURATION

    def exist(self) -> bool:
        """There are keys here already."""
        return (self.folder / "account.seed").exists()

    def make(self) -> None:
        """
        New keys, and what the servers must know of them.

        Raises:
            InputError: The folder cannot be written, or holds keys already.
        """
        authority = new_authority()
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in _KINDS:
                seed: Secret = getattr(authority, name)
                write_private(self.folder / f"{name}.seed", f"{seed.reveal()}\n")
            self._configure(server_configuration(authority))
        except OSError as err:
            raise InputError(f"{err.filename}: keys cannot be written: {err.strerror}") from err

    def add(
        self, kind: str, name: str, permissions: Permissions, *, expires: int | None = None
    ) -> Credentials:
        """
        Credentials of a node or operator.

        Raises:
            NotFoundError: There are no keys.
            UsageError: The name is one of the other kind, whose answers it could then read.
        """
        account = self._seed("account")
        others = [user for user in self.users() if user.name == name and user.kind != kind]
        if others:
            raise UsageError(f"{name}: is the name of {_a(others[0].kind)} already; {_a(kind)} needs another")
        made = user_credentials(account, name, permissions, expires=expires)
        self._note(User(kind=kind, name=name, public_key=made.public_key, time=int(time.time())))
        return made

    def revoke(self, kind: str, name: str) -> int:
        """
        Make all credentials of a name void; how many they were. The servers learn it from the configuration, when it is reloaded.

        Raises:
            NotFoundError: None were given under that name, or there are no keys.
        """
        authority = Authority(**{each: self._seed(each) for each in _KINDS})
        found = [user for user in self._valid().values() if (user.kind, user.name) == (kind, name)]
        if not found:
            raise NotFoundError(f"{name}: no {kind} was given credentials under that name from {self.folder}")
        now = int(time.time())
        revoked = {user.public_key: user.time for user in self.users() if user.revoked}
        revoked |= {user.public_key: now for user in found}
        self._configure(server_configuration(authority, revoked))
        for user in found:
            self._note(msgspec.structs.replace(user, time=now, revoked=True))
        return len(found)

    def users(self) -> list[User]:
        """Everybody who was given credentials, and everybody who lost them, in order of time."""
        try:
            lines = (self.folder / _USERS).read_bytes().splitlines()
            return [msgspec.json.decode(line, type=User) for line in lines]
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as err:
            raise InputError(f"{self.folder / _USERS}: cannot be read: {err}") from err

    def certified(self, kind: str) -> set[str]:
        """The names of a kind whose credentials are good, as far as this folder knows; a folder without keys knows of none."""
        return {user.name for user in self._valid().values() if user.kind == kind}

    def _valid(self) -> dict[str, User]:
        users = self.users()
        gone = {user.public_key for user in users if user.revoked}
        return {user.public_key: user for user in users if user.public_key not in gone}

    def _note(self, user: User) -> None:
        path = self.folder / _USERS
        try:
            number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
            with os.fdopen(number, "ab") as file:
                file.write(msgspec.json.encode(user) + b"\n")
        except OSError as err:
            raise InputError(f"{path}: cannot be written: {err.strerror}") from err

    def _configure(self, text: str) -> None:
        fresh = self.configuration.with_suffix(".new")
        try:
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.configuration)
        except OSError as err:
            raise InputError(f"{self.configuration}: cannot be written: {err.strerror}") from err

    def _seed(self, name: str) -> Secret:
        path = self.folder / f"{name}.seed"
        try:
            with path.open("rb") as file:
                mode = os.fstat(file.fileno()).st_mode
                text = file.read(1000)
        except FileNotFoundError as err:
            raise NotFoundError(
                f"{path}: there are no keys; `ccmctl init --security` makes them, --keys names another folder"
            ) from err
        except OSError as err:
            raise InputError(f"{path}: cannot be read: {err.strerror}") from err
        if mode & 0o077:
            raise InputError(f"{path}: others can read this seed; `chmod 600` it, if nobody has")
        return check_seed(Secret(text.decode("ascii", "replace").strip()), _KINDS[name], str(path))


def write_private(path: Path, text: str) -> None:
    """A new file that only its owner can read, also while it is written; FileExistsError when there is one."""
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _a(kind: str) -> str:
    return "an operator" if kind == "operator" else "a node"
