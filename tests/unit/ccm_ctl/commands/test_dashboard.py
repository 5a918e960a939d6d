"""`ccmctl dashboard`: what it refuses to serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.controller import Desk

TLS = ("--tls-cert", "c.pem", "--tls-key", "k.pem")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(
            ("--listen", "0.0.0.0"), "requires --tls-cert, --tls-key and --tokens or --oidc", id="nothing"
        ),
        pytest.param(("--listen", "192.0.2.1", "--tokens", "t"), "requires --tls-cert", id="without TLS"),
        pytest.param(("--listen", "::", *TLS), "and --tokens", id="without tokens"),
        pytest.param(("--listen", "::", "--oidc", "o"), "requires --tls-cert", id="a provider without TLS"),
        pytest.param(("--oidc", "nofile"), "nofile: cannot be read: No such file", id="no settings"),
        pytest.param(("--listen", "ops.example.net"), "requires --tls-cert", id="a name"),
        pytest.param(("--listen", "127.0.0.1:7480"), "use --port for the port", id="a port"),
        pytest.param(("--tls-cert", "c.pem"), "must be used together", id="half a certificate"),
        pytest.param(
            TLS, "c.pem: cannot be read: No such file or directory\n", id="files that are not there"
        ),
        pytest.param(
            ("--tls-cert", "/dev/null", "--tls-key", "/dev/null"),
            "not a certificate and its key in PEM; `ccmctl init --security",
            id="files that are something else",
        ),
        pytest.param(
            ("--tokens", "nofile"), "nofile: cannot be read: No such file or directory\n", id="no tokens"
        ),
    ],
)
def test_other_hosts_need_tls_and_tokens(words: tuple[str, ...], problem: str) -> None:
    said = Desk().ccmctl("dashboard", *words)

    assert said.code == 1
    assert problem in said.err
    assert said.out == ""


def test_a_file_of_tokens_that_others_can_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    tokens = tmp_path / "tokens"
    tokens.write_text("ann act 0123456789abcdef0123456789abcdef\n")
    tokens.chmod(0o644)

    said = Desk().ccmctl("dashboard", "--port", "0", "--tokens", str(tokens))

    assert said.code == 1
    assert f"chmod 600 {tokens}" in said.err
