"""The authority and certificates of a fleet that had none."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from ccm_agent.model.errors import InputError, NotFoundError, UsageError
from ccm_ctl.fleet.keys import certificates as module
from ccm_ctl.fleet.keys.certificates import Certificates, checked_name


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    certificates = Certificates(tmp_path / "keys")
    assert certificates.issue(["nats1.example.net"])
    return certificates


def hellos(made: Certificates, name: str) -> str:
    """What a client that knows the authority makes of the server under a name; "" when all is well. No socket is involved."""
    server_side, client_side = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.create_default_context(cafile=str(made.authority)),
    )
    server_side.load_cert_chain(made.folder / "server.pem", made.folder / "server.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_side.wrap_bio(to_server, to_client, server_side=True)
    client = client_side.wrap_bio(to_client, to_server, server_hostname=name)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for one in (client, server):
            try:
                one.do_handshake()
                done.add(one)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as err:
                return err.verify_message
    return ""


@pytest.mark.parametrize("name", ["nats1.example.net", "localhost", "127.0.0.1", "::1"])
def test_a_client_that_knows_the_authority_takes_the_server_by_each_of_its_names(
    made: Certificates, name: str
) -> None:
    assert hellos(made, name) == ""


def test_a_server_of_another_name_is_refused(made: Certificates) -> None:
    assert "nats2.example.net" in hellos(made, "nats2.example.net")


def test_keys_are_their_owners_alone_and_the_authority_is_not_secret(made: Certificates) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) & 0o077 for path in made.folder.iterdir()}

    assert {name for name, others in modes.items() if others == 0} == {"ca.key", "server.key"}
    assert set(modes) == {"ca.key", "ca.pem", "server.key", "server.pem", "nats-tls.conf"}
    assert stat.S_IMODE(made.folder.stat().st_mode) == 0o700


def test_a_certificate_that_is_good_is_kept_and_one_that_lacks_a_name_gets_it(made: Certificates) -> None:
    authority, first = made.authority.read_text(), (made.folder / "server.pem").read_text()

    assert not made.issue(["nats1.example.net"])
    assert (made.folder / "server.pem").read_text() == first
    assert made.issue(["NATS2.example.net.", "192.0.2.7"])

    assert made.authority.read_text() == authority
    names = ["nats1.example.net", "nats2.example.net", "192.0.2.7", "localhost"]
    assert [hellos(made, name) for name in names] == [""] * 4


def test_a_certificate_that_ends_soon_is_made_again(
    made: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = (made.folder / "server.pem").read_text()
    monkeypatch.setattr(module, "RENEW_DAYS", module.SERVER_DAYS + 1)

    assert made.issue(["nats1.example.net"])

    assert (made.folder / "server.pem").read_text() != first
    assert hellos(made, "nats1.example.net") == ""


def test_corrected_paths_stay(made: Certificates) -> None:
    made.configuration.write_text("tls {}\n")

    made.issue(["nats2.example.net"])

    assert made.configuration.read_text() == "tls {}\n"


def test_without_the_authoritys_key_nothing_is_made(made: Certificates) -> None:
    (made.folder / "ca.key").unlink()

    with pytest.raises(NotFoundError, match=r"ca\.key.*--keys"):
        made.issue(["nats2.example.net"])


def test_an_authoritys_key_that_others_can_read_is_refused(made: Certificates) -> None:
    (made.folder / "ca.key").chmod(0o640)

    with pytest.raises(InputError, match="other users can read"):
        made.issue(["nats2.example.net"])


@pytest.mark.parametrize(
    ("name", "checked"),
    [("A.example.net.", "a.example.net"), ("*.example.net", "*.example.net"), ("::0001", "::1"), ("nats_1", "nats_1")],
)  # fmt: skip
def test_names_are_written_as_certificates_hold_them(name: str, checked: str) -> None:
    assert checked_name(name) == checked


@pytest.mark.parametrize(
    "name", ["", ".", "a b", "a,DNS:evil", "a\nb", "x" * 64 + ".net", "-a", "a..b", "fe80::1%eth0", "*", "ä"]
)
def test_an_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a host name or address"):
        checked_name(name)
