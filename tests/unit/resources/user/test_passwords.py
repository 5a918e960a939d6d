"""Password fields of /etc/shadow."""

from __future__ import annotations

import pytest

from ccm_agent.resources.user import passwords

HASH = "$6$saltsalt$" + "h" * 86
YESCRYPT = "$y$j9T$abcdefghijklmnopqrstuv$" + "y" * 43


@pytest.mark.parametrize(
    "field",
    [
        HASH,
        YESCRYPT,
        "$2b$12$" + "b" * 53,
        "$6$rounds=5000$s$" + "h" * 86,
        f"!{HASH}",
        f"!!{HASH}",
        "*",
        "!",
        "!!",
        "!*",
    ],
)
def test_forms_of_hashes_are_known(field: str) -> None:
    assert passwords.is_hash(field)


@pytest.mark.parametrize(
    "field",
    [
        "",
        "secret",
        "correct horse",
        "$6$short",
        "$6$salt$hash with blank",
        f"{HASH}:",
        f"{HASH}\n",
        "$" * 2000,
        "abJnggxhB/yWI",
    ],
)
def test_passwords_and_what_breaks_the_file_are_no_hashes(field: str) -> None:
    assert not passwords.is_hash(field)


@pytest.mark.parametrize(
    ("wanted", "found", "is_same"),
    [
        (HASH, HASH, True),
        (HASH, f"!{HASH}", True),
        (f"!{HASH}", f"!{HASH}", True),
        (f"!{HASH}", HASH, False),
        (HASH, YESCRYPT, False),
        (HASH, "!", False),
        (HASH, "", False),
        ("*", "!", True),
        ("!", "!!", True),
        ("*", HASH, False),
        ("*", f"!{HASH}", False),
        ("*", "", False),
    ],
)
def test_fields_are_compared(wanted: str, found: str, is_same: bool) -> None:
    assert passwords.is_same(wanted, found) is is_same


@pytest.mark.parametrize(
    ("field", "locks"),
    [(HASH, 0), (f"!{HASH}", 1), (f"!!{HASH}", 2), ("!", 0), ("!!", 0), ("*", 0), ("", 0), ("!*", 0)],
)
def test_only_a_hash_is_locked(field: str, locks: int) -> None:
    assert passwords.locks_of(field) == locks


@pytest.mark.parametrize(
    ("field", "day", "is_lock"),
    [
        ("", "never", False), ("0", "1970-01-01", True), ("1", "1970-01-02", True), ("21945", "2030-01-31", False),
        ("-1", "never", False), ("x", "never", False), ("99999999999999999999", "never", False),
    ],
)  # fmt: skip
def test_the_day_of_expiry(field: str, day: str, is_lock: bool) -> None:
    assert passwords.day_of(field) == day
    assert passwords.is_expired_by_lock(day) is is_lock
