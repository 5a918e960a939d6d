"""Certificates, judged by programs that others wrote."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ccm_agent.bus.signatures.ed25519 import Ed25519Key
from ccm_agent.model.errors import InputError
from ccm_ctl.fleet.keys import x509

BEGINS = datetime(2026, 11, 21, 12, 0, 1, tzinfo=UTC)
NAMES = ["nats1.example.net", "*.example.net", "192.0.2.7", "2001:db8::7", "localhost"]


class Pair:
    """An authority and what it signed, in files."""

    def __init__(self, folder: Path, years: int = 1) -> None:
        self.folder = folder
        ends = BEGINS + timedelta(days=366 * years)
        signer, key = Ed25519Key(), Ed25519Key()
        self.write("ca.pem", x509.authority(signer, "An authority", BEGINS, ends))
        self.write("server.pem", x509.server(signer, "An authority", key.public, NAMES, BEGINS, ends))
        self.write("server.key", x509.private_key(key))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def openssl(self, *words: str) -> str:
        done = subprocess.run(
            ["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def test_openssl_verifies_a_server_by_its_authority_with_its_strictest_rules(pair: Pair) -> None:
    at = str(int(BEGINS.timestamp()) + 60)

    said = pair.openssl(
        *["verify", "-x509_strict", "-check_ss_sig", "-attime", at, "-purpose", "sslserver"],
        *["-verify_hostname", "nats1.example.net", "-CAfile", "ca.pem", "server.pem"],
    )

    assert said == "server.pem: OK\n"


def test_openssl_reads_the_created_certificates(pair: Pair) -> None:
    text = pair.openssl("x509", "-in", "server.pem", "-noout", "-text")
    authority = pair.openssl("x509", "-in", "ca.pem", "-noout", "-text")

    assert "Not Before: Nov 21 12:00:01 2026 GMT" in text
    assert "Issuer: CN = An authority" in text
    assert "Subject: CN = nats1.example.net" in text
    listed = "DNS:nats1.example.net, DNS:*.example.net, IP Address:192.0.2.7, IP Address:2001:DB8:0:0:0:0:0:7, DNS:localhost"
    assert listed in text
    assert "CA:FALSE" in text
    assert "TLS Web Server Authentication, TLS Web Client Authentication" in text
    assert "Digital Signature" in text
    assert "CA:TRUE, pathlen:0" in authority
    assert "Certificate Sign, CRL Sign" in authority


def test_the_servers_key_is_the_one_in_its_certificate(pair: Pair) -> None:
    from_key = pair.openssl("pkey", "-in", "server.key", "-pubout")

    assert pair.openssl("x509", "-in", "server.pem", "-noout", "-pubkey") == from_key


@pytest.mark.parametrize("years", [1, 30])
def test_the_fields_of_a_certificate_are_read_back(tmp_path: Path, years: int) -> None:
    pair = Pair(tmp_path, years)

    found = x509.read_certificate((tmp_path / "server.pem").read_text(), "server.pem")

    ends = BEGINS + timedelta(days=366 * years)
    assert found == x509.Certificate(names=tuple(NAMES), ends=ends)
    assert f"Not After : {ends:%b %e %H:%M:%S %Y} GMT" in pair.openssl(
        "x509", "-in", "server.pem", "-noout", "-text"
    )


def test_a_private_key_is_read_back_and_signs_alike() -> None:
    key = Ed25519Key()

    again = x509.read_private_key(x509.private_key(key), "k")

    assert (again.public, again.sign(b"x")) == (key.public, key.sign(b"x"))
    assert repr(key) == "SigningKey(***)"


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"])
def test_a_file_without_a_certificate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="contains no certificate, or it is damaged"):
        x509.read_certificate(text, "f")


def test_a_certificate_that_was_cut_anywhere_is_refused(pair: Pair) -> None:
    import base64

    text = (pair.folder / "server.pem").read_text()
    raw = base64.b64decode("".join(text.splitlines()[1:-1]))

    for at in range(len(raw)):
        cut = base64.b64encode(raw[:at]).decode()
        with pytest.raises(InputError):
            x509.read_certificate(f"-----BEGIN CERTIFICATE-----\n{cut}\n-----END CERTIFICATE-----\n", "f")


def test_a_key_of_another_kind_is_refused(pair: Pair) -> None:
    other = pair.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")

    with pytest.raises(InputError, match="not an ed25519 key"):
        x509.read_private_key(other, "f")
