"""Nodes renew their credentials before they expire, and are told how to join again after that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import read_token
from ccm_agent.joining.membership import Membership, read_membership
from ccm_agent.joining.renewal import CredentialRenewal
from ccm_agent.model.records.join import JoinState
from ccm_ctl.fleet.keys import join_service
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

SHORT_S = 12
"""Credentials are renewed after eight seconds."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    with join_fleet(tmp_path_factory.mktemp("renewal")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        yield one


def member_of(fleet: JoinFleet, name: str) -> Membership:
    found = read_membership(fleet.host(name) / "node.creds")
    assert found is not None
    return found


async def test_an_agent_renews_its_credentials_and_stays_in_the_fleet(fleet: JoinFleet) -> None:
    async with fleet.serving(SHORT_S) as outcomes:
        token = await asyncio.to_thread(fleet.token, "--role", "web")
        await asyncio.to_thread(fleet.join_here, token, "renew1")
        first = member_of(fleet, "renew1")
        broker = {"url": fleet.fleet.environ["NATS_URL"], "creds": str(fleet.host("renew1") / "node.creds")}
        await asyncio.to_thread(fleet.fleet.add, "renew1", nats=broker)

        await asyncio.to_thread(
            fleet.fleet.wait_for, lambda: time.time() > first.expires + 3, "the first credentials to expire"
        )
        pinged = await asyncio.to_thread(fleet.as_, "tester", "ping", "-t", "role=web", "--json")
        await asyncio.to_thread(fleet.fleet.agents["renew1"].stop)

    second = member_of(fleet, "renew1")
    assert (second.key, second.name) == (first.key, first.name)
    assert second.expires > first.expires
    assert second.certificate != first.certificate
    assert pinged.code == 0, pinged.err
    assert [one.state for one in outcomes if one.is_renewal][:1] == [JoinState.JOINED]
    assert "the credentials were renewed" in fleet.fleet.agents["renew1"].log


async def renewed(fleet: JoinFleet, name: str) -> tuple[list[str], int]:
    """Run the renewal of a node whose clock says that it is due; what was reported, and how often the file was renewed."""
    path, count = fleet.host(name) / "node.creds", list[int]()
    settings = settings_for(fleet.fleet.environ["NATS_URL"], identity=name, creds=str(path))
    async with Connection(settings) as connection:
        await connection.connect_now()
        renewal = CredentialRenewal(connection, path, lambda: member_of(fleet, name).expires - 5)
        task = asyncio.create_task(renewal.run(lambda: count.append(1)))
        await asyncio.to_thread(fleet.fleet.wait_for, lambda: bool(renewal.told or count), "an answer")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return [renewal.told], len(count)


async def test_a_node_that_was_revoked_renews_nothing(
    fleet: JoinFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join_service, "REFRESH_MS", 0)
    async with fleet.serving(63) as outcomes:
        token = await asyncio.to_thread(fleet.token, "--uses", "2")
        await asyncio.to_thread(fleet.join_here, token, "kept1")
        await asyncio.to_thread(fleet.join_here, token, "revoked1")
        assert await renewed(fleet, "kept1") == ([""], 1)
        Keys(fleet.keys).signers.revoke_nodes([member_of(fleet, "revoked1").key])
        assert fleet.as_("tester", "signers", "publish").code == 0
        assert await renewed(fleet, "revoked1") == (["join.revoked"], 0)

    assert [one.code for one in outcomes if one.is_renewal] == ["", "join.revoked"]


async def test_a_node_that_was_off_too_long_joins_again_with_its_key(fleet: JoinFleet) -> None:
    async with fleet.serving(2):
        token = await asyncio.to_thread(fleet.token, "--uses", "2")
        await asyncio.to_thread(fleet.join_here, token, "off1")
    before = member_of(fleet, "off1")

    async with fleet.serving(3600):
        again = await asyncio.to_thread(fleet.join_here, token, "off1")

    after = member_of(fleet, "off1")
    assert (again.is_new, after.key, after.name) == (True, before.key, "off1")
    assert after.expires > before.expires
    assert fleet.uses(read_token(token).as_text()) == 1


async def test_an_agent_with_expired_credentials_says_how_to_join_again(
    fleet: JoinFleet, caplog: pytest.LogCaptureFixture
) -> None:
    async with fleet.serving(2):
        token = await asyncio.to_thread(fleet.token)
        await asyncio.to_thread(fleet.join_here, token, "expired2")
    path = fleet.host("expired2") / "node.creds"
    connection = Connection(
        settings_for(fleet.fleet.environ["NATS_URL"], identity="expired2", creds=str(path))
    )
    renewal = CredentialRenewal(connection, path)

    task = asyncio.create_task(renewal.run(lambda: None))
    await asyncio.to_thread(fleet.fleet.wait_for, lambda: bool(renewal.told), "the reason")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert renewal.told == "join.expired"
    [record] = [one for one in caplog.records if one.message == "the credentials cannot be renewed"]
    assert "run `ccm join` with a token" in str(record.__dict__["reason"])


async def test_credentials_with_an_end_that_an_operator_issued_are_renewed(fleet: JoinFleet) -> None:
    issued = await asyncio.to_thread(fleet.give, "node", "issued1", "--expires", "63s")
    fleet.host("issued1").mkdir(parents=True)
    issued.rename(fleet.host("issued1") / "node.creds")

    async with fleet.serving(3600):
        assert await renewed(fleet, "issued1") == ([""], 1)


async def test_credentials_without_an_end_are_left_alone(fleet: JoinFleet) -> None:
    path = await asyncio.to_thread(fleet.give, "node", "forever1")
    connection = Connection(
        settings_for(fleet.fleet.environ["NATS_URL"], identity="forever1", creds=str(path))
    )

    async with asyncio.timeout(5):
        await CredentialRenewal(connection, Path(path)).run(lambda: None)
