"""What is refused of a user before anything is changed."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.resources.user.checks import check
from ccm_agent.resources.user.model import UserProperties
from tests.unit.resources.user.test_key_lines import A
from tests.unit.resources.user.test_passwords import HASH


def user(**properties: Any) -> UserProperties:
    return UserProperties(**{"name": "alice", "ensure": "present", **properties})


HOSTILE: list[tuple[str, Any, str]] = [
    ("name", "-r", "invalid user name '-r'"),
    ("name", "alice:x:0:0::/:/bin/sh", "invalid user name"),
    ("name", "alice\nroot2:x:0:0", "invalid user name"),
    ("name", "../alice", "invalid user name"),
    ("name", "alice\0", "invalid user name"),
    ("name", "1000", "programs would treat it as a number"),
    ("name", "a" * 100_000, "has 100000 characters"),
    ("uid", 0, "`uid: 0` is root"),
    ("group", "-g", "invalid group name"),
    ("group", "wheel,root", "invalid group name"),
    ("group", "99999999999999", "`group` is out of range"),
    ("groups", ["web", "a,b"], "invalid group name 'a,b'"),
    ("groups", ["--root=/x"], "invalid group name"),
    ("home", "home/alice", "must be an absolute path"),
    ("home", "/home/../root", "must be an absolute path"),
    ("home", "/home/alice/", "must be an absolute path"),
    ("home", "//home", "must be an absolute path"),
    ("home", "/home/a:/bin/sh", "must not contain colons"),
    ("home", "/home/a\nroot2:x:0:0::/:", "must not contain colons"),
    ("home", "/" + "h" * 5000, "`home` is too long"),
    ("shell", "bash", "must be an absolute path"),
    ("shell", "-c", "must be an absolute path"),
    ("shell", "/bin/sh\n", "must not contain colons"),
    ("comment", "a:0:0", "must not contain colons"),
    ("comment", "a\nb", "must not contain colons"),
    ("comment", "\x1b[2J", "must not contain colons"),
    ("comment", "c" * 10_000, "`comment` is too long"),
    ("expires", "tomorrow", "must be a day such as 2027-01-31"),
    ("expires", "-1", "must be a day such as 2027-01-31"),
    ("expires", "20270131", "must be a day such as 2027-01-31"),
    ("expires", "1969-12-31", "must be a day such as 2027-01-31"),
    ("password_hash", "", "allows a login without a password"),
    ("password_hash", "correct horse battery", "is not a crypt(5) hash"),
    ("password_hash", f"{HASH}\nroot:{HASH}", "is not a crypt(5) hash"),
    ("password_hash", f"{HASH}:0:0", "is not a crypt(5) hash"),
    ("password_hash", "$6$" + "h" * 1_000_000, "is not a crypt(5) hash"),
    ("authorized_keys", [f"{A}\n{A}"], "contains a line break"),
    ("authorized_keys", [A, f"{A}\r"], "contains a line break"),
    ("authorized_keys", ["-----BEGIN OPENSSH PRIVATE KEY----- x"], "is a private key"),
    ("authorized_keys", ["ssh-ed25519 alice"], "is not a public key"),
    ("authorized_keys", ["/etc/passwd"], "is not a public key"),
    ("authorized_keys", [f"{A} {'c' * 20_000}"], "at most 16384 are allowed"),
    ("authorized_keys", [f"{A} {'c' * 16_000}"] * 100, "is larger than 1 MiB"),
    ("purge_home", True, "only valid with `ensure: absent`"),
    ("groups_exclusive", True, "needs `groups`"),
    ("authorized_keys_exclusive", True, "needs `authorized_keys`"),
]


@pytest.mark.parametrize(("field", "value", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_value_is_refused_with_its_place(field: str, value: Any, message: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(user(**{field: value}))

    assert message in str(caught.value)
    assert caught.value.place is not None
    assert caught.value.place.path.partition("[")[0] == f"$.{field}"
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("field", "value"), [("password_hash", "hunter2 secret"), ("authorized_keys", ["PRIVATE KEY secret"])]
)
def test_an_error_does_not_quote_what_may_be_secret(field: str, value: Any) -> None:
    with pytest.raises(PropertyError) as caught:
        check(user(**{field: value}))

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("properties", "path"),
    [
        ({"group": "web", "gid": 5}, "$.gid"),
        ({"locked": False, "password_hash": f"!{HASH}"}, "$.locked"),
    ],
)
def test_properties_that_exclude_each_other_are_refused(properties: dict[str, Any], path: str) -> None:
    with pytest.raises(PropertyError) as caught:
        check(user(**properties))

    assert caught.value.place is not None
    assert caught.value.place.path == path


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(PropertyError) as caught:
        check(user(name="-x", uid=0, shell="x", expires="x", password_hash="x", authorized_keys=["x"]))

    places = [one.place.path for one in (caught.value, *caught.value.others) if one.place]
    assert places == ["$.name", "$.uid", "$.shell", "$.expires", "$.password_hash", "$.authorized_keys[0]"]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"name": "root", "uid": 0, "authorized_keys": [A]},
        {
            "uid": 1500,
            "gid": 1500,
            "groups": ["docker"],
            "home": "/srv/a b",
            "shell": "/bin/bash",
            "comment": "Zoë, x",
        },
        {"group": "100", "expires": "2027-01-31", "locked": True, "password_hash": f"!{HASH}"},
        {"expires": "never", "password_hash": "*", "authorized_keys": ["# by hand", f'from="::1" {A} a']},
        {"ensure": "absent", "purge_home": True},
    ],
)
def test_valid_properties_are_accepted(properties: dict[str, Any]) -> None:
    check(user(**properties))
