"""What `ccmctl doctor` says about the signers list."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Any, cast

import msgspec
import pytest

from ccm_agent.bus.access.permissions import Role
from ccm_agent.bus.signatures.timestamp import Timestamp
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, Signer, SignersList
from ccm_agent.bus.subjects import format_scope
from ccm_agent.model.ports import KeyValue, KeyValueEntry
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.doctor.results import CheckResult, MissingError
from ccm_ctl.fleet.doctor.signer_checks import (
    check_signers,
    judge_expiry,
    judge_own_key,
    judge_published,
    judge_timestamp,
    judge_unsigned,
)
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.controller import NOW, fleet_on
from tests.support.doctor import SECURED, context, states
from tests.support.signing import OwnSignatory, new_key

NOW_MS = int(NOW.timestamp() * 1000)


def a_list(*signers: Signer, number: int = 7, until: int = 0) -> SignersList:
    return SignersList(number=number, issued=NOW_MS, signers=signers, allow_unsigned_until=until)


class TrustBucket:
    """CCM_TRUST with the signers list of a folder, or empty."""

    def __init__(self, keys: Keys | None) -> None:
        self._signed = keys.signers.trust().signers if keys is not None else None

    async def get(self, key: str, at_least: int = 0) -> KeyValueEntry | None:
        """See `KeyValue.get`."""
        if self._signed is None or key != SIGNERS_KEY:
            return None
        body, signature = self._signed.body.encode(), self._signed.signature
        return KeyValueEntry(key=key, value=body, revision=1, created=NOW, signature=signature)


def check(folder: Path, published: Keys | None, **fields: Any) -> list[CheckResult]:
    """The results where this list is published; the list is signed with the time of this host."""
    bus = MemoryBus(MemoryBroker(now=lambda: NOW), "ann")
    fields = {"fleet": fleet_on(bus), "now": datetime.now(UTC)} | fields
    bucket = cast("KeyValue", TrustBucket(published))
    return list(asyncio.run(check_signers(context(folder, trust_bucket=bucket, **fields))))


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """Keys with one operator, ann, whose key expires."""
    made = Keys(tmp_path / "keys")
    made.make()
    made.make_root()
    made.add_operator("ann", Role(), expires=4_000_000_000)
    return made


def test_published_list_that_is_the_newest_passes(tmp_path: Path, keys: Keys) -> None:
    assert states(check(tmp_path, keys)) == {
        "signers.list": "ok",
        "signers.published": "ok",
        "signers.timestamp": "ok",
        "signers.unsigned": "ok",
        "signers.expiry": "ok",
    }


def test_fleet_without_a_root_key_is_a_problem(tmp_path: Path) -> None:
    server = msgspec.structs.replace(SECURED, asks_credentials=False)

    assert states(check(tmp_path, None, server=server)) == {"signers.list": "problem"}


def test_without_the_root_key_the_list_cannot_be_judged(tmp_path: Path, keys: Keys) -> None:
    with pytest.raises(MissingError, match="the root key is unknown"):
        check(tmp_path / "elsewhere", keys)


def test_list_that_was_never_published_is_a_problem(tmp_path: Path, keys: Keys) -> None:
    [result] = check(tmp_path, None)

    assert (result.id, result.state, result.fix) == ("signers.list", "problem", "ccmctl signers publish")


def test_published_list_of_another_root_is_a_problem(tmp_path: Path, keys: Keys) -> None:
    other = Keys(tmp_path / "other")
    other.make_root()
    other.signers.allow_unsigned(0)

    assert states(check(tmp_path, other)) == {"signers.list": "problem"}


def test_without_the_folder_the_newest_list_is_unknown(tmp_path: Path, keys: Keys) -> None:
    results = check(tmp_path / "elsewhere", keys, trust=keys.signers.trust())

    assert states(results)["signers.list"] == "ok"
    assert states(results)["signers.published"] == "unknown"


def test_key_of_the_operator_is_looked_up_in_the_list(tmp_path: Path, keys: Keys) -> None:
    bus = MemoryBus(MemoryBroker(now=lambda: NOW), "eve")
    stranger = OwnSignatory(new_key(), lambda: NOW_MS)
    fleet = msgspec.structs.replace(fleet_on(bus), signatory=stranger)

    assert states(check(tmp_path, keys, fleet=fleet))["credentials.signer"] == "problem"


@pytest.mark.parametrize(("number", "state"), [(7, "ok"), (6, "problem"), (8, "warning")])
def test_published_list_is_compared_with_the_folder(number: int, state: str) -> None:
    assert judge_published(a_list(number=number), a_list(number=7), "fix").state == state


def test_open_window_for_unsigned_messages_is_a_warning(tmp_path: Path) -> None:
    found = context(tmp_path, keys_option=" --keys /k")

    result = judge_unsigned(a_list(until=NOW_MS + 60_000), found)

    assert result.state == "warning"
    assert result.fix == "ccmctl signers allow-unsigned --end --keys /k && ccmctl signers publish --keys /k"
    assert judge_unsigned(a_list(until=NOW_MS - 1), found).state == "ok"


def test_key_that_never_expires_is_a_warning_with_the_role_in_its_fix(tmp_path: Path) -> None:
    key = new_key().public_key
    bob = Signer(name="bob", key=key, plan=("all",), apply=("fact.cm9sZQ.d2Vi", ">"), facts=True)
    role = f"--plan all --apply {quote(format_scope(bob.apply[0]))} --apply all --facts"

    result = judge_expiry(a_list(bob), context(tmp_path))

    assert (result.state, result.names) == ("warning", ("bob",))
    assert (
        result.fix
        == f"ccmctl operator revoke bob && ccmctl operator add bob {role} --expires 90d > bob.creds"
    )


def test_expired_entry_of_the_own_key_is_a_problem(tmp_path: Path) -> None:
    found, key = context(tmp_path), new_key().public_key
    expired = Signer(name="ann", key=key, expires=NOW_MS // 1000 - 1)

    assert judge_own_key(a_list(Signer(name="ann", key=key)), key, found).state == "ok"
    assert judge_own_key(a_list(expired), key, found).state == "problem"


@pytest.mark.parametrize(
    ("list_age_s", "confirmed_age_s", "number", "state"),
    [
        pytest.param(10, None, 7, "ok", id="a new list"),
        pytest.param(9000, 10, 7, "ok", id="confirmed"),
        pytest.param(9000, 2800, 7, "warning", id="confirmed some time ago"),
        pytest.param(9000, 3700, 7, "problem", id="confirmed too long ago"),
        pytest.param(9000, 10, 6, "problem", id="an earlier list was confirmed"),
        pytest.param(9000, None, 7, "problem", id="never confirmed"),
    ],
)
def test_age_of_the_confirmation_is_judged_by_the_maximum_age(
    list_age_s: int, confirmed_age_s: int | None, number: int, state: str
) -> None:
    newest = SignersList(number=7, issued=NOW_MS - list_age_s * 1000, max_age_s=3600)
    found = None
    if confirmed_age_s is not None:
        found = Timestamp(issued=NOW_MS - confirmed_age_s * 1000, signers=number)

    assert judge_timestamp(newest, found, NOW_MS).state == state
