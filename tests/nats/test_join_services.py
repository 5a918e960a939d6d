"""Joins with several services, with TLS and with bad input, and what the audit trail says of them, on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ccm_agent.bus.access.credentials import new_user
from ccm_agent.bus.signatures.join import JoinToken, read_token
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.joining import join
from ccm_agent.model.errors import CcmError
from ccm_agent.model.records.join import JoinState
from tests.support.certificates import make_certificates
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    """One fleet for all tests, which use names of their own; its join service runs."""
    with join_fleet(tmp_path_factory.mktemp("services")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        one.serve()
        yield one


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PATIENCE_S", 5.0)
    monkeypatch.setattr(join, "ANSWER_S", 3.0)


async def codes(fleet: JoinFleet, *hosts: tuple[str, str, str]) -> Counter[str]:
    """How joins at once end, each as token, name and host: their codes, "" for one that joined."""

    def one(token: str, name: str, host: str) -> str:
        try:
            fleet.join_here(token, name, host)
        except CcmError as err:
            return err.code
        return ""

    return Counter(await asyncio.gather(*(asyncio.to_thread(one, *host) for host in hosts)))


async def test_two_services_count_each_use_once_and_give_a_name_to_one_key(fleet: JoinFleet) -> None:
    token, named = fleet.token("--uses", "4", "--role", "web"), fleet.token("--uses", "9")
    async with fleet.serving(3600) as outcomes:
        many = await codes(fleet, *((token, f"many{number}", f"many{number}") for number in range(7)))
        same = await codes(fleet, *((named, "same1", f"same-{number}") for number in range(4)))
        # both get each request; the slower one may still be at work
        names = {f"many{number}" for number in range(7)}
        for _ in range(100):
            ours = names & {one.node for one in outcomes}
            theirs = names & {str(one["node"]) for one in fleet.outcomes}
            if ours and theirs:
                break
            await asyncio.sleep(0.1)

    assert many == {"": 4, "join.used_up": 3}
    assert same == {"": 1, "join.name_taken": 3}
    assert fleet.uses(token) == 4
    assert ours
    assert theirs


async def test_joins_refusals_and_reuses_are_entries_of_the_audit_trail(fleet: JoinFleet) -> None:
    token, seed = read_token(fleet.token()), new_user()
    answers = [await fleet.ask(token, "audited1", seed) for _ in range(2)]
    answers.append(await fleet.ask(token, "audited2", new_user()))

    told = fleet.as_("tester", "audit", "--json").named("audit")

    assert [(one.state, one.code) for one in answers] == [
        (JoinState.JOINED, ""),
        (JoinState.JOINED, ""),
        (JoinState.REFUSED, "join.used_up"),
    ]
    entries = [
        one["details"] for one in told if one["kind"] == "join" and one["details"]["token"] == token.id
    ]
    key = SigningKey(seed).public_key
    found = sorted((one["node"], one["state"], one.get("code", ""), one["key"] == key) for one in entries)
    assert found == [
        ("audited1", "joined", "", True),
        ("audited1", "joined", "", True),
        ("audited2", "refused", "join.used_up", False),
    ]


async def test_a_name_that_is_not_allowed_is_refused_by_host_and_service(fleet: JoinFleet) -> None:
    token = fleet.token()

    answer = await fleet.ask(read_token(token), "Not.Allowed!", new_user())
    code = await asyncio.to_thread(fleet.refused, token, "Not.Allowed!")

    assert (answer.state, answer.code, code) == (JoinState.REFUSED, "join.bad_name", "input.usage")
    assert fleet.uses(token) == 0


@pytest.mark.parametrize("text", ["", "ccm1-", "ccm1-AAAA", "ccm2-AA", "half"])
def test_a_text_that_is_no_token_reaches_no_broker(fleet: JoinFleet, text: str) -> None:
    token, name = fleet.token(), f"damaged{len(text)}"

    assert fleet.refused(token[: len(token) // 2] if text == "half" else text, name) == "input.invalid"
    assert not fleet.host(name).exists()
    assert fleet.join_here(token, name).is_new


@pytest.mark.parametrize("late_s", [3600, -3600])
def test_a_host_with_a_wrong_clock_is_told_so(
    fleet: JoinFleet, monkeypatch: pytest.MonkeyPatch, late_s: int
) -> None:
    token, right, name = fleet.token("--expires", "1d"), time.time, f"clock{late_s}".replace("-", "x")

    with monkeypatch.context() as patch:
        patch.setattr("ccm_agent.joining.join.time.time", lambda: right() - late_s)
        code = fleet.refused(token, name)

    assert code == "join.clock"
    assert fleet.join_here(token, name).is_new


def test_a_token_has_the_authority_that_a_host_trusts(tmp_path: Path) -> None:
    good, other = make_certificates(tmp_path / "good"), make_certificates(tmp_path / "other")
    with join_fleet(tmp_path / "fleet") as fleet:
        broker = fleet.fleet.broker
        tls = f'\ntls {{ cert_file: "{good.cert}", key_file: "{good.key}" }}\n'
        broker.stop()
        broker.settings = msgspec.structs.replace(broker.settings, extra=broker.settings.extra + tls)
        broker.start()
        fleet.fleet.environ |= {"CCM_CREDS": str(fleet.keys / "tester.creds"), "CCM_CA": good.ca}
        fleet.token()
        fleet.serve()
        token = read_token(fleet.token("--uses", "2"))
        wrong = JoinToken(
            servers=token.servers,
            ca=Path(other.ca).read_text(),
            root=token.root,
            jwt=token.jwt,
            seed=token.seed,
        )

        code = fleet.refused(wrong.as_text(), "tls1")

        assert token.ca == Path(good.ca).read_text()
        assert code == "bus.denied"
        assert not (fleet.host("tls1") / "node.creds").exists()
        assert fleet.join_here(token.as_text(), "tls1").is_new
        assert (fleet.host("tls1") / "ca.pem").read_text() == token.ca
        assert f'ca: "{fleet.host("tls1")}/ca.pem"' in (fleet.host("tls1") / "config.yaml").read_text()
