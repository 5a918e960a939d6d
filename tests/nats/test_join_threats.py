"""What attackers with a token, an operator's credentials or the broker's keys can do to joins, each with a positive control."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ccm_agent.bus.access.credentials import new_user
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.signatures.join import JoinToken, read_token
from ccm_agent.model.errors import BusDeniedError, BusUnavailableError
from ccm_agent.model.records.join import JOIN_REQUEST, JoinState
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]

FLOOD = 3_000


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    """One fleet for all tests, which use names of their own; its join service runs."""
    with join_fleet(tmp_path_factory.mktemp("joining")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        one.serve()
        one.give("operator", "looks")
        yield one


def own(fleet: JoinFleet, *words: str) -> JoinToken:
    return read_token(fleet.token(*words))


@pytest.mark.parametrize(
    "subject",
    [
        "io.choria.ccm.v1.join.request.join-aaaaaaaaaaaaaaaa",
        "io.choria.ccm.v1.join.renewal.web1",
        "io.choria.ccm.v1.manifest.apply.request.all",
        "io.choria.ccm.v1.agent.startup.web1",
        "$KV.CCM_JOINS.token.mine",
        "$KV.CCM_FACTS.web1",
        "$JS.API.INFO",
        "$JS.API.STREAM.LIST",
        "choria.ccm.audit.operator.tester",
    ],
)
async def test_the_holder_of_a_token_publishes_on_no_other_subject(fleet: JoinFleet, subject: str) -> None:
    token = own(fleet)

    async with fleet.holder(token) as connection:
        with pytest.raises(BusDeniedError):
            await connection.publish(subject, b"{}", confirm=True)
        await connection.publish(f"{JOIN_REQUEST}.{token.id}", b"{}", confirm=True)


@pytest.mark.parametrize("subject", [">", "io.choria.ccm.v1.>", "_INBOX_join-aaaaaaaaaaaaaaaa.>", "$KV.>"])
async def test_the_holder_of_a_token_hears_no_other_subject(fleet: JoinFleet, subject: str) -> None:
    token = own(fleet)

    async with fleet.holder(token) as connection:
        with pytest.raises(BusDeniedError):
            await connection.subscribe([subject], lambda _: None)
        assert await connection.subscribe([f"_INBOX_{token.id}.mine"], lambda _: None)


async def test_the_holder_of_the_broker_joins_no_node_without_the_token(fleet: JoinFleet) -> None:
    """With `join.seed` it can make credentials for the id of a token, which is not secret."""
    genuine = own(fleet)
    made = JoinKeys(Keys(fleet.keys)).token(genuine.id, int(time.time()) + 600, [])
    forged = JoinToken(servers=genuine.servers, ca="", root=genuine.root, jwt=made.jwt, seed=made.seed)

    refused = await fleet.ask(forged, "broker1", new_user())
    joined = await fleet.ask(genuine, "broker1", new_user())

    assert (refused.state, refused.code) == (JoinState.REFUSED, "join.signature")
    assert joined.state is JoinState.JOINED


async def test_an_operator_who_may_only_look_neither_creates_a_token_nor_answers(fleet: JoinFleet) -> None:
    url = fleet.fleet.environ["NATS_URL"]
    created = fleet.as_("looks", "token", "create")
    served = fleet.as_("looks", "join", "serve")

    assert (created.code, served.code) == (1, 1)
    assert "grant it with `ccmctl operator add --join`" in created.err
    assert "looks may not answer nodes that join" in served.err
    settings = settings_for(url, identity="looks", creds=str(fleet.directory / "looks.creds"))
    async with Connection(settings) as connection:
        await connection.connect_now()
        for subject in (f"{JOIN_REQUEST}.*", "io.choria.ccm.v1.join.request.>"):
            with pytest.raises(BusDeniedError):
                await connection.subscribe([subject], lambda _: None)
        with pytest.raises(BusDeniedError):
            await connection.publish("$KV.CCM_JOINS.token.mine", b"{}", confirm=True)
    assert fleet.as_("tester", "token", "create").code == 0


HOSTILE = [
    b"",
    b"\x00" * 2000,
    b"x" * 4000,
    b"[" * 2000,
    b'{"protocol": 1}',
    b'{"protocol":"io.choria.ccm.v1.join.request","name":"a","key":"U","nonce":"","time":99999999999999999999}',
    b'{"protocol":"io.choria.ccm.v1.join.request","name":"'
    + b"../" * 300
    + b'","key":"U","nonce":"","time":-1}',
]


async def test_hostile_requests_of_a_token_holder_end_in_few_reports(fleet: JoinFleet) -> None:
    token, other, before = own(fleet), own(fleet), len(fleet.outcomes)
    headers = {"Ccm-Signature": "v1." + "A" * 3000, "Ccm-Token-Signature": "\u00e4" * 20}

    async with fleet.holder(token) as connection:
        for number in range(FLOOD):
            body = HOSTILE[number % len(HOSTILE)]
            await connection.publish(
                f"{JOIN_REQUEST}.{token.id}", body, headers if number % 2 and len(body) < 100 else None
            )
        with pytest.raises(BusUnavailableError):
            await connection.request(f"{JOIN_REQUEST}.{token.id}", b"{}", within_s=5)

    answer = await fleet.ask(other, "after-flood1", new_user())

    assert answer.state is JoinState.JOINED
    reports = [one for one in fleet.outcomes[before:] if str(one["node"]) != "after-flood1"]
    assert 0 < len(reports) <= 10
    assert "Traceback" not in fleet.service.so_far.err


async def test_one_key_gets_a_bounded_number_of_answers(fleet: JoinFleet) -> None:
    token, seed = own(fleet), new_user()
    states: list[JoinState] = []

    async def ask_often() -> None:
        for _ in range(100):
            states.append((await fleet.ask(token, "often1", seed, within_s=3)).state)

    with pytest.raises(BusUnavailableError):
        await ask_often()

    assert set(states) == {JoinState.JOINED}
    assert len(states) == 40
    assert fleet.uses(token.as_text()) == 1
