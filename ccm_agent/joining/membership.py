"""
The files of a node that belongs to a fleet: its key, credentials, the broker's authority, and the agent's configuration.

`ccm join` writes them, and `ccm leave` removes them. Each file is replaced atomically, in an order that allows an interrupted
join to be repeated:

    join.seed      the node's new key, before the request is sent
    ca.pem         the broker's authority
    node.creds     the credentials, which contain the key
    config.yaml    refers to both; then `join.seed` is removed
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from msgspec import Struct

from ccm_agent.agent.state.settings import Settings, parse_config, read_config
from ccm_agent.agent.state.state_folder import fully_qualified, saved_identity
from ccm_agent.bus.access.credentials import claims_in_jwt, new_user
from ccm_agent.bus.signatures.join import JoinError
from ccm_agent.bus.signatures.signing import SigningKey, seed_in_credentials
from ccm_agent.bus.signatures.trust import trust_in_credentials
from ccm_agent.bus.subjects import check_node
from ccm_agent.model.errors import FileError, InputError
from ccm_agent.model.secret import Secret
from ccm_agent.storage.journal import replace_file

DIRECTORY = "/etc/choria/ccm"
STATE_DIRECTORY = "/var/lib/ccm"

MARK = "# Written by `ccm join`."
"""The comment line before the lines that `ccm join` adds to a configuration."""

_OURS = ("identity:", "state_dir:", "nats:", " ")
"""The prefixes of the lines that `ccm join` adds."""

SPARE_S = 60
"""Credentials that expire within this time are treated as expired."""


class JoinPlaces(Struct, frozen=True, kw_only=True):
    """
    The paths of the files.

    Attributes:
        directory: The directory of the configuration, credentials and authority.
        state: The agent's state directory.
        is_own: Whether both are below a directory that the user chose. If so, the configuration must contain the state directory.
    """

    directory: Path = Path(DIRECTORY)
    state: Path = Path(STATE_DIRECTORY)
    is_own: bool = False

    @classmethod
    def below(cls, directory: str) -> JoinPlaces:
        """Return paths for all files below a directory."""
        top = Path(directory).absolute()
        return cls(directory=top, state=top / "state", is_own=True)

    @property
    def config(self) -> Path:
        """The agent's configuration."""
        return self.directory / "config.yaml"

    @property
    def credentials(self) -> Path:
        """The node's credentials."""
        return self.directory / "node.creds"

    @property
    def authority(self) -> Path:
        """The certificate of the broker's authority."""
        return self.directory / "ca.pem"

    @property
    def seed(self) -> Path:
        """The key of a join in progress."""
        return self.directory / "join.seed"

    @property
    def leaving(self) -> Path:
        """The state of a leave in progress."""
        return self.directory / "leave.json"


class Membership(Struct, frozen=True, kw_only=True):
    """
    The content of a node's credentials.

    Attributes:
        name, key: The node and its public key.
        seed: Its private key.
        root: The fleet's root public key.
        certificate: The certificate of the key.
        expires: When the credentials expire, in seconds since 1970; 0: never.
    """

    name: str
    key: str
    seed: Secret
    root: str
    certificate: str
    expires: int

    def is_expired(self, now_s: float) -> bool:
        """Whether the broker refuses the credentials now or within a minute."""
        return bool(self.expires) and self.expires < now_s + SPARE_S


def read_membership(path: Path) -> Membership | None:
    """
    Return the membership in a credentials file; None if there is no file. Blocking.

    Raises:
        FileError: The file cannot be read.
        InputError: The file is damaged, or has no key or no root key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(f"{path}: the credentials cannot be read: {err}") from err
    trust, seed = trust_in_credentials(text, str(path)), seed_in_credentials(text)
    name, key, expires = claims_in_jwt(text)
    if trust is None or seed is None or not name or not key:
        raise InputError(
            f"{path}: these are not the credentials of a joined node; move the file away to join the token's fleet"
        )
    return Membership(
        name=name, key=key, seed=seed, root=trust.root, certificate=trust.certificate, expires=expires
    )


def choose_name(places: JoinPlaces, given: str) -> str:
    """
    Return the node's name: the given or configured name, the agent's stored name, or this host's name. Blocking.

    Raises:
        UsageError: The name is not valid.
        JoinError: The configuration has another name.
        DocumentError, FileError: The configuration cannot be used.
    """
    settings = read_settings(places)
    configured = settings.identity if settings is not None else ""
    if given and configured and given != configured:
        raise JoinError(
            f"{places.config}: `identity` is {configured}, not {given}; change it there, or leave out --name",
            code="join.configured",
        )
    return check_node(given or configured or saved_identity(places.state) or fully_qualified())


def check_configuration(places: JoinPlaces) -> None:
    """
    Check that the configuration does not name another broker. Blocking.

    Raises:
        JoinError: It names another broker.
        DocumentError, FileError: The configuration cannot be used.
    """
    settings = read_settings(places)
    if settings is None or _is_ours(places, settings):
        return
    broker = settings.broker
    if broker.servers or (broker.context and not broker.is_default_context):
        raise JoinError(
            f"{places.config}: it already names a broker; remove `nats` and `nats_context` there, then repeat the command",
            code="join.configured",
        )


def node_seed(places: JoinPlaces) -> Secret:
    """
    Return the key for a join: that of an interrupted attempt, or a new key. The key is on disk when this returns. Blocking.

    Raises:
        FileError: The directory cannot be used.
        InputError: The key of the interrupted attempt is damaged.
    """
    try:
        places.directory.mkdir(mode=0o700 if places.is_own else 0o755, parents=True, exist_ok=True)
        if places.seed.exists():
            seed = Secret(places.seed.read_text(encoding="ascii", errors="replace").strip())
            SigningKey(seed)
            return seed
        seed = new_user()
        replace_file(places.seed, [f"{seed.reveal()}\n".encode()])
    except InputError as err:
        raise InputError(
            f"{places.seed}: the key is damaged; remove the file, then repeat the command"
        ) from err
    except OSError as err:
        raise _unwritable(places, err) from err
    return seed


def write_membership(places: JoinPlaces, credentials: bytes, authority: str) -> None:
    """
    Write the authority and the credentials. Blocking.

    Raises:
        FileError: A file cannot be written.
    """
    try:
        if authority:
            replace_file(places.authority, [authority.encode()])
        replace_file(places.credentials, [credentials])
    except OSError as err:
        raise _unwritable(places, err) from err


def write_configuration(places: JoinPlaces, name: str, servers: tuple[str, ...], *, insecure: bool) -> bool:
    """
    Write the broker and the credentials into the agent's configuration, then delete `join.seed`. Returns whether it was changed.
    Blocking.

    Raises:
        FileError: The configuration cannot be written.
        DocumentError: The result would not be valid.
    """
    settings = read_settings(places)
    is_new = settings is None or not _is_ours(places, settings)
    try:
        if is_new:
            before = places.config.read_text(encoding="utf-8") if places.config.exists() else ""
            has_identity = settings is not None and bool(settings.identity)
            text = before + _block(places, "" if has_identity else name, servers, insecure=insecure)
            parse_config(text, str(places.config))
            replace_file(places.config, [text.encode()])
        places.seed.unlink(missing_ok=True)
    except OSError as err:
        raise _unwritable(places, err) from err
    return is_new


def forget_configuration(places: JoinPlaces) -> bool:
    """
    Remove the lines of `ccm join` from the configuration, and the file if it is then empty. Returns whether it was changed.
    Blocking.

    Raises:
        FileError: The configuration cannot be written.
    """
    try:
        lines = places.config.read_text(encoding="utf-8").splitlines(keepends=True)
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(f"{places.config}: cannot be read: {err}") from err
    begin = next((at for at, line in enumerate(lines) if line.rstrip() == MARK), None)
    if begin is None:
        return False
    end = begin + 1
    while end < len(lines) and lines[end].startswith(_OURS):
        end += 1
    if begin and not lines[begin - 1].strip():
        begin -= 1
    left = "".join([*lines[:begin], *lines[end:]])
    try:
        if left.strip():
            replace_file(places.config, [left.encode()])
        else:
            places.config.unlink()
    except OSError as err:
        raise _unwritable(places, err) from err
    return True


def forget_files(places: JoinPlaces) -> list[Path]:
    """
    Remove the node's credentials, its key and the authority, and return the removed files. Blocking.

    Raises:
        FileError: A file cannot be removed.
    """
    removed = []
    try:
        for path in (places.credentials, places.seed, places.authority):
            if path.exists():
                path.unlink()
                removed.append(path)
    except OSError as err:
        raise _unwritable(places, err) from err
    return removed


def _block(places: JoinPlaces, name: str, servers: tuple[str, ...], *, insecure: bool) -> str:
    """Return the lines to add to the configuration; JSON texts are valid YAML."""
    lines = ["", MARK]
    if name:
        lines.append(f"identity: {json.dumps(name)}")
    if places.is_own:
        lines.append(f"state_dir: {json.dumps(str(places.state))}")
    lines += [
        "nats:",
        f"  url: {json.dumps(','.join(servers))}",
        f"  creds: {json.dumps(str(places.credentials))}",
    ]
    if places.authority.exists():
        lines += ["  tls:", f"    ca: {json.dumps(str(places.authority))}"]
    if insecure:
        lines.append("  insecure: true")
    return "\n".join(lines) + "\n"


def read_settings(places: JoinPlaces) -> Settings | None:
    """
    Return the agent's configuration; None if there is none, or if it has only comments, as a package installs it. Blocking.

    Raises:
        DocumentError, FileError: The configuration cannot be used.
    """
    try:
        text = places.config.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as err:
        raise FileError(f"{places.config}: cannot be read: {err}") from err
    if all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines()):
        return None
    return read_config(places.config)


def _is_ours(places: JoinPlaces, settings: Settings) -> bool:
    return settings.broker.creds == str(places.credentials)


def _unwritable(places: JoinPlaces, err: OSError) -> FileError:
    name = err.filename or places.directory
    return FileError(
        f"{name}: cannot be written: {err.strerror or err}; run this as root, or name a directory with --state",
        errno=err.errno or 0,
    )


def is_root() -> bool:
    """Whether this user can write to the system's directories."""
    return os.geteuid() == 0
