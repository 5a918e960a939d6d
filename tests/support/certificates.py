"""A certificate authority for one test, made with openssl: nothing secret lies in the tree."""

from __future__ import annotations

import subprocess
from pathlib import Path

from msgspec import Struct


class Certificates(Struct, frozen=True, kw_only=True):
    """PEM files: the authority, a server for `localhost` and 127.0.0.1, and a client."""

    ca: str
    cert: str
    key: str
    client_cert: str
    client_key: str


def make_certificates(directory: Path) -> Certificates:
    """A new authority and what it signed."""
    directory.mkdir(parents=True, exist_ok=True)
    # Python 3.13 refuses an authority without key usage, and certificates without the authority's key identifier
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    _openssl(
        directory,
        "req",
        "-x509",
        "-subj",
        "/CN=Test authority",
        *usage,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
    )
    for name, names in [("server", "DNS:localhost,IP:127.0.0.1"), ("client", "DNS:web1")]:
        _openssl(directory, "req", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
        (directory / f"{name}.ext").write_text(
            f"subjectAltName={names}\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        )
        signing = f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2"
        _run(directory, *signing.split(), "-extfile", f"{name}.ext", "-out", f"{name}.pem")

    def path(name: str) -> str:
        return str(directory / name)

    return Certificates(
        ca=path("ca.pem"),
        cert=path("server.pem"),
        key=path("server.key"),
        client_cert=path("client.pem"),
        client_key=path("client.key"),
    )


def _openssl(directory: Path, *words: str) -> None:
    curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    _run(directory, *words, *curve.split())


def _run(directory: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=directory, check=True, capture_output=True)
