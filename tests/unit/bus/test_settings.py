"""How a broker is reached: URLs with credentials in them, contexts of the nats program."""

from __future__ import annotations

import json

import pytest

from ccm_agent.bus.connection.settings import BusSettings, replaced, settings_for, settings_from_context
from ccm_agent.model.errors import DocumentError, NotFoundError, UsageError
from ccm_agent.model.secret import Secret


@pytest.fixture
def contexts(tmp_path, monkeypatch):
    """The folder of contexts, with a way to write one."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)

    def write(name: str, **fields: object) -> str:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(fields))
        return str(path)

    return write


@pytest.mark.parametrize(
    ("given", "servers"),
    [
        pytest.param("nats://a:4222", ("nats://a:4222",), id="as it is"),
        pytest.param("a", ("nats://a:4222",), id="scheme and port are added"),
        pytest.param("a:5222", ("nats://a:5222",), id="scheme is added"),
        pytest.param("tls://a", ("tls://a:4222",), id="port is added to tls"),
        pytest.param("nats://a:1, nats://b:2", ("nats://a:1", "nats://b:2"), id="several in one text"),
        pytest.param(["a", "b"], ("nats://a:4222", "nats://b:4222"), id="several in a list"),
        pytest.param("nats://[::1]:4222", ("nats://[::1]:4222",), id="a number of six"),
        pytest.param("wss://a/path", ("wss://a/path",), id="a web socket"),
    ],
)
def test_urls_become_servers(given, servers) -> None:
    assert settings_for(given).servers == servers


def test_credentials_leave_the_url_and_are_secret() -> None:
    settings = settings_for("nats://web1:p%40ss@a,nats://web1:p%40ss@b")

    assert settings == BusSettings(
        servers=("nats://a:4222", "nats://b:4222"), user="web1", password=Secret("p@ss")
    )
    assert "p@ss" not in repr(settings)
    assert "p%40ss" not in repr(settings)


def test_a_lone_user_is_a_token() -> None:
    assert settings_for("nats://t0ken@a") == BusSettings(servers=("nats://a:4222",), token=Secret("t0ken"))


@pytest.mark.parametrize("url", ["user:secret@host:99999", "user:secret@:4222", "nats://user:se/cret@host"])
def test_an_invalid_address_is_shown_without_its_credentials(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_for(url)

    assert "cret" not in str(caught.value)
    assert str(caught.value).startswith("nats://***@")


def test_a_file_of_credentials_wins_over_the_url() -> None:
    settings = settings_for("nats://web1:pass@a", creds="/etc/web1.creds")

    assert settings == BusSettings(servers=("nats://a:4222",), creds="/etc/web1.creds")


@pytest.mark.parametrize("text", ["", "http://a", "nats://", "nats://u:hidden@", "nats://u:hidden@a:port"])
def test_an_invalid_address_is_refused_without_its_password(text) -> None:
    with pytest.raises(UsageError) as caught:
        settings_for(text)

    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "demands"),
    [
        pytest.param(settings_for("nats://a"), False, id="plain"),
        pytest.param(settings_for("tls://a"), True, id="by scheme"),
        pytest.param(settings_for("a,tls://b"), True, id="by one scheme of several"),
        pytest.param(settings_for("a", ca="ca.pem"), True, id="by an authority"),
        pytest.param(settings_for("a", cert="c.pem", key="k.pem"), True, id="by a certificate"),
        pytest.param(settings_for("a", tls_first=True), True, id="by beginning with it"),
    ],
)
def test_settings_that_demand_tls(settings, *, demands) -> None:
    assert settings.demands_tls is demands


def test_the_inbox_is_named_after_the_identity_unless_one_is_given() -> None:
    assert settings_for("a", identity="web1.example.com").inbox_prefix == "_INBOX_web1=2Eexample=2Ecom"
    assert settings_for("a", identity="web1", inbox="_INBOX_mine").inbox_prefix == "_INBOX_mine"


def test_a_named_context_is_read(contexts) -> None:
    contexts(
        "prod",
        description="ours",
        url="nats://a:4222,nats://b:4222",
        creds="/etc/op.creds",
        ca="/etc/ca.pem",
        inbox_prefix="_INBOX_op",
        color_scheme="",
        nsc="",
    )

    assert settings_from_context("prod", identity="op") == BusSettings(
        servers=("nats://a:4222", "nats://b:4222"),
        identity="op",
        creds="/etc/op.creds",
        ca="/etc/ca.pem",
        inbox="_INBOX_op",
    )


def test_the_selected_context_is_the_default(contexts, tmp_path) -> None:
    contexts("prod", url="nats://a", user="op", password="hidden")
    (tmp_path / "nats" / "context.txt").write_text("prod\n")

    assert settings_from_context() == BusSettings(
        servers=("nats://a:4222",), user="op", password=Secret("hidden")
    )


def test_paths_of_a_context_may_begin_at_home(contexts, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    contexts("prod", nkey="~/op.nk", token="t")

    settings = settings_from_context("prod")

    assert (settings.nkey, settings.token, settings.servers) == (
        "/home/op/op.nk",
        Secret("t"),
        ("nats://127.0.0.1:4222",),
    )


def test_given_settings_win_over_the_context(contexts) -> None:
    contexts("prod", url="nats://a", user="op", password="one")

    assert settings_from_context("prod", password=Secret("two")).password == Secret("two")


def test_no_selected_context_names_the_remedy(contexts) -> None:
    with pytest.raises(NotFoundError, match="nats context select"):
        settings_from_context()


@pytest.mark.parametrize("name", ["missing", "../secret", ".hidden", "a/b"])
def test_a_context_that_is_missing_is_an_error(contexts, name) -> None:
    with pytest.raises(NotFoundError):
        settings_from_context(name)


@pytest.mark.parametrize(
    "fields",
    [
        {"nsc": "nsc://x"},
        {"jetstream_domain": "hub"},
        {"socks_proxy": "socks5://x"},
        {"user_jwt": "x"},
        {"url": ["nats://a"]},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_an_unsupported_setting_of_a_context_is_an_error_with_its_file(contexts, fields) -> None:
    path = contexts("prod", **fields)

    with pytest.raises(DocumentError) as caught:
        settings_from_context("prod")
    assert path in str(caught.value)


def test_settings_can_be_replaced() -> None:
    assert replaced(settings_for("a"), insecure=True) == settings_for("a", insecure=True)
