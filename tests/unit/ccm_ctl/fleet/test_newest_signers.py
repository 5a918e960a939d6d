"""A controller signs nothing with a signers list that may not be the newest one."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, SignedText, sign_signers
from ccm_agent.bus.signatures.verified import Unverified, Verified
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.trust.newest_signers import keys_of
from ccm_ctl.fleet.trust.seen_signers import SeenSigners
from ccm_ctl.fleet.trust.verified_reader import open_reader
from tests.support.controller import NOW, StillClock, fleet_on
from tests.support.signing import OWN, Keyring, OwnSignatory, new_key

DAY_S = 86_400


class MovingClock(StillClock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        """See `Clock.now`."""
        return NOW + self.ahead


class Scene:
    """A fleet with an administrator, and with mallory, whose key is revoked later."""

    def __init__(self, max_age_s: int = 3 * DAY_S) -> None:
        self.clock, self.max_age_s = MovingClock(), max_age_s
        self.keys = Keyring(lambda: int(self.clock.now().timestamp() * 1000))
        self.anna = self.keys.operator("anna", facts=True, timestamp=True)
        self.server = self.keys.operator("server", facts=True)
        self.mallory = self.keys.operator("mallory", facts=True)
        self.old = self.keys.trust(max_age_s=max_age_s)
        self.broker = MemoryBroker(self.clock.now)

    def fleet(self, by: OwnSignatory, seen: SeenSigners | None = None) -> Fleet:
        fleet = fleet_on(MemoryBus(self.broker, "operator", by), self.old)
        return replace(fleet, clock=self.clock, seen=seen)

    def revoke_mallory(self) -> SignedText:
        self.keys.signers.pop()
        return sign_signers(self.keys.root, self.keys.listed(max_age_s=self.max_age_s))

    async def store(self, key: str, signed: SignedText) -> None:
        bucket = MemoryBus(self.broker, "broker").bucket("CCM_TRUST")
        newest = await bucket.newest(key)
        await bucket.store_signed(
            key, signed.body.encode(), newest.revision if newest else 0, signed.signature
        )

    async def confirm(self) -> None:
        await self.store(TIMESTAMP_KEY, self.keys.timestamp(self.anna, self.keys.number))


async def set_role(fleet: Fleet, role: str) -> None:
    await Documents(fleet, fleet.facts, "CCM_FACTS").change("web1", lambda _: {"role": role})


async def add_rack(fleet: Fleet) -> dict[str, object]:
    _, new = await Documents(fleet, fleet.facts, "CCM_FACTS").change("web1", lambda old: {**old, "rack": 7})
    body: dict[str, object] = new.body
    return body


async def test_list_that_nobody_has_confirmed_verifies_nothing_until_an_administrator_does() -> None:
    scene = Scene()
    await set_role(scene.fleet(scene.mallory), "payments-db")

    # the broker withholds the list without mallory
    scene.clock.ahead = timedelta(days=20)
    with pytest.raises(SignatureError, match="the signers list is 20d old and was not confirmed within"):
        await add_rack(scene.fleet(scene.server))
    await scene.confirm()

    assert await add_rack(scene.fleet(scene.server)) == {"role": "payments-db", "rack": 7}


async def test_timestamp_that_names_a_newer_list_shows_that_it_is_withheld() -> None:
    scene = Scene()
    await set_role(scene.fleet(scene.mallory), "payments-db")
    new = scene.revoke_mallory()
    await scene.confirm()

    with pytest.raises(SignatureError, match="signers list 2 exists, but the broker delivers list 1"):
        await add_rack(scene.fleet(scene.server))
    await scene.store(SIGNERS_KEY, new)

    with pytest.raises(SignatureError, match="not in the signers list"):
        await add_rack(scene.fleet(scene.server))
    await Documents(scene.fleet(scene.server), scene.fleet(scene.server).facts, "CCM_FACTS").change(
        "web1", lambda _: {"role": "web"}, base=OWN
    )
    assert await add_rack(scene.fleet(scene.server)) == {"role": "web", "rack": 7}


@pytest.mark.parametrize("max_age_s", [0, 3 * DAY_S])
async def test_list_that_was_seen_counts_when_the_broker_delivers_an_earlier_one(
    tmp_path: Path, max_age_s: int
) -> None:
    scene, seen = Scene(max_age_s), SeenSigners(tmp_path / "seen.json")
    await set_role(scene.fleet(scene.mallory), "payments-db")
    assert scene.old.signers is not None
    await scene.store(SIGNERS_KEY, scene.old.signers)
    assert await add_rack(scene.fleet(scene.server, seen)) == {"role": "payments-db", "rack": 7}
    await set_role(scene.fleet(scene.mallory), "payments-db")
    await scene.store(SIGNERS_KEY, scene.revoke_mallory())
    await open_reader(scene.fleet(scene.server, seen))

    await scene.store(SIGNERS_KEY, scene.old.signers)
    with pytest.raises(SignatureError, match="not in the signers list"):
        await add_rack(scene.fleet(scene.server, seen))


async def test_number_of_a_list_that_was_seen_is_enough_to_doubt_an_earlier_one(tmp_path: Path) -> None:
    scene, seen = Scene(0), SeenSigners(tmp_path / "seen.json")
    await set_role(scene.fleet(scene.server), "web")
    assert await add_rack(scene.fleet(scene.server, seen)) == {"role": "web", "rack": 7}
    await asyncio.to_thread(seen.note, scene.keys.root.public_key, 5, 0)

    with pytest.raises(SignatureError, match="signers list 5 exists, but the broker delivers list 1"):
        await set_role(scene.fleet(scene.server, seen), "db")


async def test_command_of_an_administrator_confirms_the_list_before_it_reads() -> None:
    scene = Scene()
    await set_role(scene.fleet(scene.mallory), "web")
    scene.clock.ahead = timedelta(days=20)

    with pytest.raises(SignatureError, match="20d old"):
        await add_rack(replace(scene.fleet(scene.server), confirm=scene.confirm))
    assert await add_rack(replace(scene.fleet(scene.anna), confirm=scene.confirm)) == {
        "role": "web",
        "rack": 7,
    }


async def test_list_without_a_maximum_age_needs_no_timestamp() -> None:
    scene = Scene(0)
    await set_role(scene.fleet(scene.anna), "web")
    scene.clock.ahead = timedelta(days=200)

    assert await add_rack(scene.fleet(scene.server)) == {"role": "web", "rack": 7}


async def test_unsigned_requests_are_not_allowed_by_a_list_that_is_too_old() -> None:
    scene = Scene()
    until = scene.keys.at_ms() + 90 * DAY_S * 1000
    scene.old = scene.keys.trust(max_age_s=3 * DAY_S, allow_unsigned_until=until)
    assert (await open_reader(scene.fleet(scene.server))).verifier.accepts_unsigned

    scene.clock.ahead = timedelta(days=20)
    assert not (await open_reader(scene.fleet(scene.server))).verifier.accepts_unsigned


async def test_credentials_that_sign_and_cannot_verify_sign_nothing_that_was_read() -> None:
    scene = Scene()
    await set_role(scene.fleet(scene.mallory), "payments-db")
    bare = replace(scene.fleet(scene.anna), trust=None)
    assert await add_rack(bare) == {"role": "payments-db", "rack": 7}  # a fleet without a signers list

    assert scene.old.signers is not None
    await scene.store(SIGNERS_KEY, scene.old.signers)
    with pytest.raises(SignatureError, match="these credentials have no trust block"):
        await set_role(bare, "db")
    entry = await bare.facts.get("web1")
    assert entry is not None
    assert isinstance((await open_reader(bare)).document("CCM_FACTS", entry), Unverified)

    # credentials with a trust block, and those whose key nobody relies on
    assert isinstance((await open_reader(scene.fleet(scene.anna))).document("CCM_FACTS", entry), Verified)
    unlisted = replace(bare, signatory=OwnSignatory(Keyring().root, scene.keys.at_ms))
    assert (await open_reader(unlisted)).verifier.accepts_unsigned


async def test_credentials_without_a_list_verify_nothing_until_one_is_published() -> None:
    scene = Scene()
    listed = scene.old.signers
    assert listed is not None
    await set_role(scene.fleet(scene.anna), "web")
    scene.old = msgspec.structs.replace(scene.old, signers=None)
    fleet = scene.fleet(scene.anna)
    entry = await fleet.facts.get("web1")
    assert entry is not None

    assert "not in the signers list" in (await open_reader(fleet)).document("CCM_FACTS", entry).reason
    await scene.store(SIGNERS_KEY, listed)
    assert isinstance((await open_reader(fleet)).document("CCM_FACTS", entry), Verified)


async def test_only_a_listed_administrator_confirms_a_list_that_is_too_old() -> None:
    scene, asked = Scene(), []

    async def confirm() -> None:
        asked.append(True)
        await scene.confirm()

    stranger = OwnSignatory(Keyring().root, scene.keys.at_ms)
    scene.clock.ahead = timedelta(days=4)
    for by in (scene.server, stranger, None):
        fleet = replace(scene.fleet(scene.anna), signatory=by, confirm=confirm)
        assert not (await open_reader(fleet)).verifier.accepts_unsigned
        assert asked == []

    entry = await _stored_facts(scene)
    anna = replace(scene.fleet(scene.anna), confirm=confirm)
    assert isinstance((await open_reader(anna)).document("CCM_FACTS", entry), Verified)
    assert asked == [True]


async def _stored_facts(scene: Scene) -> KeyValueEntry:
    """Facts that an operator assigned while the list was young."""
    ahead, scene.clock.ahead = scene.clock.ahead, timedelta()
    await set_role(scene.fleet(scene.anna), "web")
    scene.clock.ahead = ahead
    entry = await scene.fleet(scene.anna).facts.get("web1")
    assert entry is not None
    return entry


def test_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_bytes(msgspec.json.encode({"ROOT": {"signers": 4, "looked": 5.0}}))

    assert SeenSigners(path).of("ROOT").signers == 4


def test_keys_of_an_operator_are_those_in_the_list_of_the_credentials() -> None:
    scene = Scene()

    assert keys_of(scene.old, "anna") == {scene.anna.public_key}
    assert keys_of(scene.old, "nobody") == set()
    assert keys_of(replace(scene.old, root=new_key().public_key), "anna") == set()
