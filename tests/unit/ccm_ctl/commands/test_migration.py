"""`ccmctl init --security --migrate` before there is a broker: what becomes of the keys."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from ccm_ctl.fleet.keys.keys import Keys, User
from ccm_ctl.fleet.keys.moving import Left, who_is_left
from tests.support.controller import Desk, Said
from tests.support.one_account import OneAccount


@pytest.fixture
def old(tmp_path: Path) -> OneAccount:
    one = OneAccount(tmp_path / "keys")
    for name in ("tester", "bob", "web1"):
        one.give(name)
    return one


def ccmctl(old: OneAccount, *words: str) -> Said:
    return Desk().ccmctl(*words, environ={"CCM_KEYS": str(old.folder), "CCM_OPERATOR": "tester"})


def migrate(old: OneAccount, *words: str) -> Said:
    return ccmctl(old, "init", "--security", "--migrate", *words)


def test_migration_adds_accounts_and_a_root_key_and_keeps_existing_keys(old: OneAccount) -> None:
    before = {path.name: path.read_bytes() for path in old.folder.glob("*.seed")}

    said = migrate(old)

    assert said.code == 0
    after = {path.name: path.read_bytes() for path in old.folder.glob("*.seed")}
    assert set(after) - set(before) == {
        "audit.seed",
        "join.seed",
        "node_signer.seed",
        "nodes.seed",
        "ops.seed",
        "root.seed",
    }
    assert {name: after[name] for name in before} == before
    assert [seed for seed in after.values() if seed.decode().strip() in said.out + said.err] == []


def test_the_migrating_operator_gets_new_credentials_and_keeps_the_old_ones_beside_them(
    old: OneAccount,
) -> None:
    before = (old.folder / "tester.creds").read_text()

    migrate(old)

    assert (old.folder / "tester.old.creds").read_text() == before
    assert (old.folder / "tester.creds").read_text() != before


def test_until_it_has_begun_no_credentials_are_given_out(old: OneAccount) -> None:
    refused = ccmctl(old, "node", "add", "web2")

    assert (refused.code, refused.out) == (1, "")
    assert "`ccmctl init --security --migrate` creates the others" in refused.err
    migrate(old)
    assert ccmctl(old, "node", "add", "web2").code == 0


def test_migration_lists_users_with_old_credentials(old: OneAccount) -> None:
    migrate(old)
    ccmctl(old, "node", "add", "web1")

    keys = Keys(old.folder)
    assert who_is_left(keys.of_one_account(), keys.moved(), {}) == [Left(kind="operator", name="bob")]


def test_a_client_connected_with_old_credentials_is_listed_even_if_new_ones_exist() -> None:
    users = [User(kind="node", name="web1", public_key="U1", time=1)]
    moved = [
        User(kind="node", name="web1", public_key="U2", time=2, account="nodes"),
        User(kind="operator", name="ann", public_key="U3", time=2, account="ctl"),
    ]

    assert who_is_left(users, moved, {"U1": "web1", "U3": "ann", "U9": "stranger"}) == [
        Left(kind="", name="stranger", connected=True),
        Left(kind="node", name="web1", has_new=True, connected=True),
    ]


def test_finishing_revokes_only_older_credentials(old: OneAccount) -> None:
    migrate(old)
    ccmctl(old, "node", "add", "web1")
    keys = Keys(old.folder)

    keys.end_moving()

    assert keys.moving is None
    assert {user.name for user in keys.users() if user.public_key == "*"} == {"*"}
    assert keys.of_one_account() == []
    assert {user.name for user in keys.moved()} == {"tester", "web1"}
    assert keys.certified("node") == {"web1"}


def test_its_time_over_the_next_change_ends_it(old: OneAccount) -> None:
    migrate(old)
    moving = old.folder / "moving.json"
    began = msgspec.json.decode(moving.read_bytes())["began"]
    moving.write_bytes(msgspec.json.encode({"began": began, "until": int(time.time()) - 1}))
    ccmctl(old, "node", "add", "web2")

    assert ccmctl(old, "node", "revoke", "web2").code == 0

    assert Keys(old.folder).of_one_account() == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--migrate"], "--migrate requires --security, and --finish requires --migrate"),
        (["--security", "--finish"], "--migrate requires --security, and --finish requires --migrate"),
    ],
)
def test_options_that_belong_together(tmp_path: Path, words: list[str], said: str) -> None:
    done = Desk().ccmctl("init", *words, "--keys", str(tmp_path / "none"))

    assert (done.code, done.err) == (1, f"ccmctl: {said}\n")


def test_without_keys_there_is_nothing_to_migrate(tmp_path: Path) -> None:
    done = Desk().ccmctl("init", "--security", "--migrate", "--keys", str(tmp_path / "none"))

    assert "no keys to migrate" in done.err
