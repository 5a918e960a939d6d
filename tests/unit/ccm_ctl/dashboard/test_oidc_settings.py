"""The file of `--oidc`: what it contains, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccm_agent.model.errors import CcmError, InputError
from ccm_agent.model.formats.safe_urls import is_safe_url
from ccm_ctl.dashboard.access import Right
from ccm_ctl.dashboard.oidc_settings import OidcSettings, read_settings

WHOLE = """\
issuer: https://login.example.net/realms/ops
client_id: dashboard
client_secret_file: secret
scopes: [openid, groups]
rights_claim: realm_access.roles
rights:
  act: [admins]
  read: [staff]
name_claim: email
session: 1h
ca_file: ca.pem
"""
LEAST = "issuer: https://login.example.net\nclient_id: dashboard\nrights: {read: [staff]}\n"


def written(
    folder: Path, text: str, mode: int = 0o644, secret: str = "s3cret-s3cret\n", secret_mode: int = 0o600
) -> Path:
    path, beside = folder / "oidc.yaml", folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    beside.write_text(secret)
    beside.chmod(secret_mode)
    return path


def test_the_settings_and_the_secret_are_read(tmp_path: Path) -> None:
    settings, secret = read_settings(written(tmp_path, WHOLE))

    assert settings == OidcSettings(
        issuer="https://login.example.net/realms/ops",
        client_id="dashboard",
        client_secret_file="secret",
        scopes=("openid", "groups"),
        rights_claim="realm_access.roles",
        rights={Right.ACT: ["admins"], Right.READ: ["staff"]},
        name_claim="email",
        session="1h",
        ca_file=str(tmp_path / "ca.pem"),
    )
    assert (settings.session_s, settings.host) == (3600, "login.example.net")
    assert (secret.reveal(), repr(secret)) == ("s3cret-s3cret", "***")


def test_most_settings_have_a_default(tmp_path: Path) -> None:
    settings, secret = read_settings(written(tmp_path, LEAST))

    assert (settings.scopes, settings.rights_claim) == (("openid", "profile", "email"), "groups")
    assert (settings.session_s, secret.reveal()) == (8 * 3600, "")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param("https:", "http:", "issuer: must be an https:// URL", id="without TLS"),
        pytest.param("example.net", "example.net?a=b", "issuer: must be", id="with a query"),
        pytest.param("example.net", "x" * 300 + ".net", "issuer: must be", id="a long issuer"),
        pytest.param("client_id: dashboard", "client_id: ''", "client_id: must not be empty", id="no client"),
        pytest.param("[openid, groups]", "[groups]", "`openid` must be one", id="without openid"),
        pytest.param("[openid, groups]", "['openid groups']", "scopes: must be words", id="two in one"),
        pytest.param(
            "act: [admins]\n  read: [staff]", "act: []", "rights: must give a right", id="no rights"
        ),
        pytest.param(
            "act: [admins]",
            "admin: [admins]",
            "oidc.yaml:6:1: `admin` is not allowed here: use `read` or `act`",
            id="an unknown right",
        ),
        pytest.param("1h", "13h", "session: must be between 1m and 12h", id="a long session"),
        pytest.param("1h", "1s", "session: must be between 1m and 12h", id="a short session"),
        pytest.param("1h", "soon", "session: ", id="no time"),
        pytest.param("issuer:", "isuer:", "issuer", id="a mistyped key"),
        pytest.param("secret\n", "nosecret\n", "nosecret: cannot be read", id="no secret"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    with pytest.raises(CcmError) as caught:
        read_settings(written(tmp_path, WHOLE.replace(old, new, 1)))

    assert problem in str(caught.value)


def test_a_secret_that_others_can_read_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="chmod 600") as caught:
        read_settings(written(tmp_path, WHOLE, secret_mode=0o640))

    assert "s3cret" not in str(caught.value)


def test_an_empty_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must contain the client secret"):
        read_settings(written(tmp_path, WHOLE, secret="\n"))


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_settings_that_others_can_write_are_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(InputError, match="chmod go-w"):
        read_settings(written(tmp_path, WHOLE, mode))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"x" * (257 << 10)], ids=["no text", "huge"])
def test_what_is_no_file_of_settings_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "oidc.yaml"
    path.write_bytes(content)
    path.chmod(0o600)

    with pytest.raises(InputError, match=r"not a text file|larger than 256 KiB"):
        read_settings(path)


def test_sessions_of_other_rights_have_another_digest(tmp_path: Path) -> None:
    def digest(text: str) -> str:
        return read_settings(written(tmp_path, text))[0].digest

    assert digest(WHOLE) == digest(WHOLE.replace("session: 1h", "session: 2h"))
    assert len({digest(WHOLE), digest(WHOLE.replace("admins", "others")), digest(LEAST)}) == 3


@pytest.mark.parametrize(
    ("url", "is_safe"),
    [
        ("https://a.example/x", True),
        ("http://127.0.0.1:5556/dex", True),
        ("http://[::1]:5556", True),
        ("http://localhost:1", True),
        ("http://localhost.example", False),
        ("http://127.0.0.1.example", False),
        ("https://user@a.example", False),
        ("https://a.example\\@b.example", False),
        ("https://a.example#x", False),
        ("https://a.example:x", False),
        ("https://", False),
        ("https://[", False),
        ("https://a.example/ x", False),
        ("ftp://a.example", False),
        (7, False),
    ],
)
def test_an_address_is_encrypted_or_of_this_host(url: object, is_safe: bool) -> None:
    assert is_safe_url(url) is is_safe
