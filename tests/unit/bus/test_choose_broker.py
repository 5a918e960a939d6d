"""Which broker a command line means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccm_agent.bus.access.credentials import new_account, user_credentials
from ccm_agent.bus.access.permissions import Role, operator_permissions
from ccm_agent.bus.connection.choose_broker import broker_name, choose_broker, named_by_credentials
from ccm_agent.bus.connection.settings import DEFAULT_SERVER
from ccm_agent.model.errors import NotFoundError


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Contexts of the `nats` program: `selected` is the selected one, CCM exists as well."""
    folder = tmp_path / "nats" / "context"
    folder.mkdir(parents=True)
    for name in ("selected", "CCM", "other"):
        (folder / f"{name}.json").write_text(json.dumps({"url": f"nats://{name.lower()}:4222"}))
    (tmp_path / "nats" / "context.txt").write_text("selected\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("given", "environ", "server"),
    [
        pytest.param({"server": "a"}, {"NATS_URL": "b"}, "nats://a:4222", id="the server that is named"),
        pytest.param(
            {"context": "other"}, {"NATS_URL": "b"}, "nats://other:4222", id="the context that is named"
        ),
        pytest.param({}, {"NATS_URL": "b", "NATS_CONTEXT": "other"}, "nats://b:4222", id="NATS_URL"),
        pytest.param(
            {}, {"NATS_URL": "b", "CCM_SERVER": "c"}, "nats://c:4222", id="CCM_SERVER before NATS_URL"
        ),
        pytest.param({}, {"NATS_CONTEXT": "other"}, "nats://other:4222", id="NATS_CONTEXT"),
        pytest.param({"usual_context": "CCM"}, {}, "nats://ccm:4222", id="the usual context"),
        pytest.param({"usual_context": "none"}, {}, "nats://selected:4222", id="the selected context"),
        pytest.param({}, {}, "nats://selected:4222", id="the selected context without a usual one"),
    ],
)
def test_the_command_line_counts_before_the_environment_and_that_before_contexts(
    contexts: Path, given: dict[str, str], environ: dict[str, str], server: str
) -> None:
    assert choose_broker(environ, **given).servers == (server,)


def test_without_anything_it_is_the_broker_on_this_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    assert choose_broker({}, usual_context="CCM").servers == (DEFAULT_SERVER,)


def test_a_context_that_is_named_must_exist(contexts: Path) -> None:
    for given, environ in (({"context": "none"}, {}), ({}, {"NATS_CONTEXT": "none"})):
        with pytest.raises(NotFoundError, match="nats context none"):
            choose_broker(environ, **given)


def test_credentials_of_the_command_line_count_before_those_of_the_environment(contexts: Path) -> None:
    environ = {"CCM_CREDS": "/c", "NATS_CREDS": "/n", "CCM_CA": "/ca.pem", "CCM_INSECURE": "1"}

    chosen = choose_broker(environ, creds="/given")
    other = choose_broker(environ)

    assert (chosen.creds, other.creds, other.ca, other.insecure) == ("/given", "/c", "/ca.pem", True)


@pytest.mark.parametrize(
    ("environ", "context", "name"),
    [
        ({}, "", "context CCM"),
        ({"NATS_URL": "nats://u:secret@b"}, "", "nats://***@b"),
        ({"NATS_URL": "b"}, "other", "context other"),
        ({"NATS_CONTEXT": "env"}, "", "context env"),
    ],
)
def test_a_broker_has_a_name_without_its_password(environ: dict[str, str], context: str, name: str) -> None:
    assert broker_name(environ, context, "CCM") == name


def test_answers_go_to_the_name_in_the_credentials(tmp_path: Path) -> None:
    account = new_account()
    creds = tmp_path / "op.creds"
    creds.write_text(user_credentials(account, "alice", operator_permissions("alice", Role())).text.reveal())

    assert named_by_credentials(choose_broker({}, server="a", creds=str(creds))).identity == "alice"
    assert named_by_credentials(choose_broker({}, server="a", creds="/none")).identity == "ccm"
