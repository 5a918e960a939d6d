"""
A certificate authority for one fleet and the certificate of its servers, for operators without their own.

    ca.pem               the authority's certificate: agents and operators know the broker by it; not secret
    ca.key               signs certificates of servers; mode 0600
    server.pem           the servers' certificate, for all their names
    server.key           its key; mode 0600
    nats-tls.conf        what every server includes

Nothing but `x509.py` is needed to make them.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ccm_agent.bus.access.accounts import LOGIN_S
from ccm_agent.bus.signatures.ed25519 import Ed25519Key
from ccm_agent.model.errors import InputError, NotFoundError, UsageError
from ccm_ctl.fleet.keys import x509
from ccm_ctl.fleet.whole_file import PUBLIC, write_whole

CONFIGURATION = "nats-tls.conf"
AUTHORITY_DAYS = 3650
SERVER_DAYS = 825
"""The longest validity that browsers accept; our programs accept more, other tools may not."""

RENEW_DAYS = 90
"""A certificate that ends sooner is made again when the command is run again."""

CLOCK_S = 86_400
"""A certificate is valid from a day before its creation, because a node's clock may be behind."""

AUTHORITY = "CCM fleet authority"

ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Names that each server has: operators work on the broker's own host, too."""

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_LONGEST_NAME = 253


class Certificates:
    """
    The folder of the fleet's keys, as far as TLS goes. Blocking: it reads and writes a few small files.

    Attributes:
        folder: Where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def authority(self) -> Path:
        """The certificate by which agents and operators know the broker."""
        return self.folder / "ca.pem"

    @property
    def configuration(self) -> Path:
        """What the servers include."""
        return self.folder / CONFIGURATION

    def issue(self, names: Sequence[str]) -> bool:
        """
        An authority, unless there is one, and a certificate for servers of these names.

        A certificate that is good for all of them for a while is kept. One that is not keeps its names and gets the new ones.

        Returns:
            Whether the servers' certificate is new.

        Raises:
            UsageError: A name is neither a host nor an address.
            NotFoundError: The authority's key is elsewhere.
            InputError: The folder cannot be written, or holds something else under these names.
        """
        asked = [checked_name(name) for name in names]
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.authority.exists():
                self._make_authority()
            known = self._server()
            wanted = list(dict.fromkeys([*(known.names if known else ()), *asked, *ALWAYS]))
            is_new = known is None or wanted != list(known.names) or _ends_soon(known)
            if is_new:
                self._make_server(wanted)
            if not self.configuration.exists():
                write_whole(self.configuration, self._server_configuration().encode(), mode=PUBLIC)
        except OSError as err:
            raise InputError(f"{err.filename}: certificates cannot be written: {err.strerror}") from err
        return is_new

    def _make_authority(self) -> None:
        key, now = Ed25519Key(), datetime.now(UTC)
        write_whole(self.folder / "ca.key", x509.private_key(key).encode())
        begins, ends = now - timedelta(seconds=CLOCK_S), now + timedelta(days=AUTHORITY_DAYS)
        write_whole(self.authority, x509.authority(key, AUTHORITY, begins, ends).encode(), mode=PUBLIC)

    def _make_server(self, names: Sequence[str]) -> None:
        signer, key, now = self._signer(), Ed25519Key(), datetime.now(UTC)
        begins, ends = now - timedelta(seconds=CLOCK_S), now + timedelta(days=SERVER_DAYS)
        made = x509.server(signer, AUTHORITY, key.public, names, begins, ends)
        write_whole(self.folder / "server.key", x509.private_key(key).encode())
        write_whole(self.folder / "server.pem", made.encode(), mode=PUBLIC)

    def _signer(self) -> Ed25519Key:
        path = self.folder / "ca.key"
        if not path.exists():
            raise NotFoundError(
                f"{path}: the authority's key is not here, and only it makes certificates; "
                "name the folder that holds it with --keys"
            )
        if path.stat().st_mode & 0o077:
            raise InputError(
                f"{path}: other users can read this key; run `chmod 600` on it, or replace it if it was exposed"
            )
        return x509.read_private_key(path.read_text(encoding="ascii", errors="replace"), str(path))

    def _server(self) -> x509.Certificate | None:
        """Read the servers' certificate; None when there is none."""
        path = self.folder / "server.pem"
        if not path.exists():
            return None
        return x509.read_certificate(path.read_text(encoding="ascii", errors="replace"), str(path))

    def _server_configuration(self) -> str:
        return (
            "# Made by `ccmctl init --security`. Agents and operators know the servers by ca.pem.\n"
            "# On a server that keeps these files elsewhere: change the paths. server.key is secret.\n"
            "tls {\n"
            f"  cert_file: {_quoted(self.folder.absolute() / 'server.pem')}\n"
            f"  key_file: {_quoted(self.folder.absolute() / 'server.key')}\n"
            f"  timeout: {LOGIN_S}\n"
            "}\n"
        )


def checked_name(name: str) -> str:
    """
    A host's name or address as a certificate holds it; the first label may be `*`.

    Raises:
        UsageError: It is neither.
    """
    if _is_address(name):
        return str(ipaddress.ip_address(name))
    labels = name.removeprefix("*.").removesuffix(".").split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) and len(label) < 64 for label in labels):
        raise UsageError(f"{name}: not a host's name or address; write nats1.example.net or 192.0.2.7")
    return name.removesuffix(".").lower()


def _is_address(name: str) -> bool:
    try:
        return not getattr(ipaddress.ip_address(name), "scope_id", None)
    except ValueError:
        return False


def _ends_soon(certificate: x509.Certificate) -> bool:
    return certificate.ends < datetime.now(UTC) + timedelta(days=RENEW_DAYS)


def _quoted(path: Path) -> str:
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'
