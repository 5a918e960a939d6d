"""Keys that a document declares secret, and what stands there."""

from __future__ import annotations

import pytest

from ccm_agent.hiera.resolve import resolve_document
from ccm_agent.hiera.secret_keys import is_secret_key, is_secret_setting, named_secrets, secret_values
from ccm_agent.model.errors import DataError

DATA = {
    "db": {"password": "p1", "port": 5432, "users": [{"name": "a", "password": "p2"}]},
    "tls": {"key": "k", "chain": ["c1", {"x": "c2"}], "on": True, "none": None},
    "a.b": "dotted",
}


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ([], []),
        (["db.password"], ["p1"]),
        (["db"], ["p1", 5432, "a", "p2"]),
        (["tls.*"], ["k", "c1", "c2", True]),
        (["*.password"], ["p1"]),
        (["**.password"], ["p1", "p2"]),
        (["db.users.*.password"], ["p2"]),
        (["db.pass*"], ["p1"]),
        (["db.p?rt"], [5432]),
        (["a.b"], ["dotted"]),
        (["db.password", "tls.key"], ["p1", "k"]),
        (["b", "password", "db.pass", "d.*"], []),
        (["**"], ["p1", 5432, "a", "p2", "k", "c1", "c2", True, "dotted"]),
    ],
)
def test_the_current_one_at_a_key_or_below_is_secret(keys: list[str], values: list[object]) -> None:
    assert list(secret_values(DATA, keys)) == values


@pytest.mark.parametrize(
    ("path", "is_secret"), [("tls", False), ("tls.key", True), ("tls.key.pem", True), ("tlsx.key", False)]
)
def test_a_path_is_secret_or_below_one(path: str, is_secret: bool) -> None:
    assert is_secret_key(path, ("tls.*",)) is is_secret


def test_a_document_declares_keys_in_its_hierarchy() -> None:
    text = "hierarchy: {order: [x], secret: [db.password, 'tls.*']}\ndata: {a: 1}\n"

    assert resolve_document(text, {}).secret == ("db.password", "tls.*")


def test_a_hierarchy_that_declares_secrets_alone_has_the_usual_order() -> None:
    text = "hierarchy: {secret: [a]}\ndata: {a: 1}\noverrides: {default: {a: 2}}\n"

    resolved = resolve_document(text, {})

    assert (resolved.data, resolved.secret) == ({"a": 2}, ("a",))


@pytest.mark.parametrize("keys", ["a", "[1]", "{a: 1}", "['']", "[.]"])
def test_an_invalid_list_of_keys_is_refused(keys: str) -> None:
    with pytest.raises(DataError, match=r"`hierarchy\.secret` must be a list of keys"):
        resolve_document(f"hierarchy: {{secret: {keys}}}\ndata: {{}}\n", {}, "d.yaml")


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param({"db_password": "hunter2"}, [("hunter2", True)], id="own key"),
        pytest.param({"pin": 4711}, [(4711, True)], id="number"),
        pytest.param({"tokens": ["none", {"id": "abcd"}]}, [("none", True), ("abcd", False)], id="below"),
        pytest.param({"credentials": {"user": "app1"}}, [("app1", False)], id="other key below"),
        pytest.param({"password_file": "/run/secrets/db"}, [], id="place of a secret"),
        pytest.param({"password": "/run/secrets/db"}, [("/run/secrets/db", True)], id="begins with a slash"),
        pytest.param({"token_ttl": 3600, "password_length": 16}, [], id="quantity"),
        pytest.param({"auth": True, "password": None, "pw": "abc"}, [], id="too short"),
        pytest.param({"port": 8080, "passenger": "bill", "author": "bill"}, [], id="other names"),
    ],
)
def test_keys_whose_names_say_it_are_secret(data: dict[str, object], found: list[object]) -> None:
    assert list(named_secrets(data)) == found


@pytest.mark.parametrize(
    ("name", "text", "is_secret"),
    [
        ("db-password", "hunter2", True),
        ("PGPASSWORD", "hunter2", True),
        ("SSH_AUTH_SOCK", "/run/user/0/agent", False),
        ("user", "hunter2", False),
    ],
)
def test_a_variable_or_an_option_is_secret_by_its_name(name: str, text: str, is_secret: bool) -> None:
    assert is_secret_setting(name, text) is is_secret
