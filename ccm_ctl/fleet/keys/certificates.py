"""
The certificate authority of one fleet and the certificate of its servers, for operators without their own authority.

    ca.pem               the authority's certificate, with which agents and operators verify the broker; not secret
    ca.key               signs certificates of servers; mode 0600
    server.pem           the certificate of the servers, with all their names
    server.key           the servers' key; mode 0600
    nats-tls.conf        the configuration that every server includes

Besides `x509.py`, no other software is needed to create them.
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
"""The validity in days. It is the longest one that browsers accept. Our programs accept more, but other tools may not."""

RENEW_DAYS = 90
"""If a certificate expires within this many days, the next call of the command creates a new one."""

CLOCK_S = 86_400
"""Certificates are valid from this many seconds before their creation, because a node's clock may be slow."""

AUTHORITY = "CCM fleet authority"

ALWAYS = ("localhost", "127.0.0.1", "::1")
"""Names that every server certificate contains, because operators also work on the broker's own host."""

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?", re.IGNORECASE)
_LONGEST_NAME = 253


class Certificates:
    """
    The TLS files in the folder of the fleet's keys. Blocking: it reads and writes a few small files.

    Attributes:
        folder: The path of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def authority(self) -> Path:
        """The certificate with which agents and operators verify the broker."""
        return self.folder / "ca.pem"

    @property
    def configuration(self) -> Path:
        """The configuration that the servers include."""
        return self.folder / CONFIGURATION

    def issue(self, names: Sequence[str]) -> bool:
        """
        Create an authority if there is none, and a certificate for servers with these names.

        An existing certificate is kept if it covers all names and is valid long enough. Otherwise, a new one gets the old and the
        new names.

        Returns:
            Whether a new certificate was created for the servers.

        Raises:
            UsageError: A name is neither a host name nor an address.
            NotFoundError: The authority's key is not in the folder.
            InputError: The folder cannot be written, or contains other content under these file names.
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
                f"{path}: not found; certificates are signed with the authority's key; "
                "name its folder with --keys"
            )
        if path.stat().st_mode & 0o077:
            raise InputError(
                f"{path}: other users can read this key; run `chmod 600` on it, or replace it if it was exposed"
            )
        return x509.read_private_key(path.read_text(encoding="ascii", errors="replace"), str(path))

    def _server(self) -> x509.Certificate | None:
        """Read the servers' certificate. Returns None if there is none."""
        path = self.folder / "server.pem"
        if not path.exists():
            return None
        return x509.read_certificate(path.read_text(encoding="ascii", errors="replace"), str(path))

    def _server_configuration(self) -> str:
        return (
            "# Made by `ccmctl init --security`. Agents and operators verify the servers with ca.pem.\n"
            "# On a server that keeps these files elsewhere: change the paths. server.key is secret.\n"
            "tls {\n"
            f"  cert_file: {_quoted(self.folder.absolute() / 'server.pem')}\n"
            f"  key_file: {_quoted(self.folder.absolute() / 'server.key')}\n"
            f"  timeout: {LOGIN_S}\n"
            "}\n"
        )


def checked_name(name: str) -> str:
    """
    Return a host name or address in the form used in a certificate. The first label may be `*`.

    Raises:
        UsageError: It is neither a host name nor an address.
    """
    if _is_address(name):
        return str(ipaddress.ip_address(name))
    labels = name.removeprefix("*.").removesuffix(".").split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) and len(label) < 64 for label in labels):
        raise UsageError(f"{name}: not a host name or address; write nats1.example.net or 192.0.2.7")
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
