"""Nodes join with a token: `ccmctl token create`, `ccmctl join serve` and `ccm join`, on a real broker."""

from __future__ import annotations

import asyncio
import json
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ccm_agent.bus.access.credentials import new_root, new_user, public_key
from ccm_agent.bus.signatures.join import JoinToken, fingerprint, read_token
from ccm_agent.bus.signatures.signing import SigningKey
from ccm_agent.joining import join
from ccm_agent.joining.membership import read_membership
from ccm_agent.model.errors import BusDeniedError
from ccm_agent.model.records.join import JoinState
from ccm_agent.testing.nats_server import NatsServer, ServerSettings
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from ccm_ctl.fleet.keys.join_keys import JoinKeys
from ccm_ctl.fleet.keys.join_records import JoinedNode, JoinRecords
from ccm_ctl.fleet.keys.keys import Keys
from tests.support.fleet import a_file, manifest
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    """One fleet for all tests, which use names of their own; its join service runs."""
    with join_fleet(tmp_path_factory.mktemp("joining")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        one.serve()
        yield one


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PATIENCE_S", 5.0)
    monkeypatch.setattr(join, "ANSWER_S", 3.0)


def test_a_host_joins_with_one_line_and_obeys_the_fleet(fleet: JoinFleet) -> None:
    done = fleet.join(fleet.token("--role", "web"), "web1")
    host = fleet.host("web1")

    assert (done.code, done.err) == (0, "")
    assert json.loads(done.out)["next"] == f"ccm agent --config {host}/config.yaml"
    assert [path.name for path in sorted(host.iterdir())] == ["config.yaml", "node.creds"]
    assert stat.S_IMODE((host / "node.creds").stat().st_mode) == 0o600
    fleet.fleet.add("web1", nats={"url": fleet.fleet.environ["NATS_URL"], "creds": str(host / "node.creds")})
    site = fleet.fleet.write("site.json", manifest(a_file("made")))
    applied = fleet.as_("tester", "apply", site, "-t", "role=web", "--yes", "--json")
    assert (applied.code, applied.states) == (0, {"web1": "changed"}), applied.err
    assert "not genuine" not in applied.err
    told = [one for one in fleet.as_("tester", "audit", "--json").named("audit") if one["kind"] == "join"]
    assert [(one["author"], one["details"]["node"]) for one in told if one["details"]["node"] == "web1"] == [
        ("joiner", "web1")
    ]


def test_a_join_that_was_interrupted_at_any_step_is_repeated(fleet: JoinFleet) -> None:
    token = fleet.token("--role", "web")
    host = fleet.host("again1")
    first = fleet.join_here(token, "again1")
    credentials, config = host / "node.creds", host / "config.yaml"
    member = read_membership(credentials)
    assert member is not None

    # everything is there
    assert not fleet.join_here(token, "again1").is_new
    # the configuration was not written
    wanted = config.read_text()
    config.unlink()
    assert not fleet.join_here(token, "again1").is_new
    # the answer did not arrive
    config.unlink()
    credentials.unlink()
    (host / "join.seed").write_text(member.seed.reveal())
    assert fleet.join_here(token, "again1").is_new

    after = read_membership(credentials)
    assert after is not None
    assert (first.is_new, after.key, config.read_text()) == (True, member.key, wanted)
    assert not (host / "join.seed").exists()
    assert fleet.uses(token) == 1


@pytest.mark.parametrize("step", ["a use was counted", "the name was claimed"])
async def test_a_service_that_was_killed_at_any_step_goes_on(fleet: JoinFleet, step: str) -> None:
    token, seed = read_token(fleet.token("--role", "web")), new_user()
    name, key = f"killed{len(step)}", SigningKey(seed).public_key
    environ = fleet.fleet.environ | {"CCM_CREDS": str(fleet.directory / "joiner.creds")}
    async with connected(bus_settings(ConnectionOptions(), environ)) as broker:
        records = JoinRecords(broker.fleet)
        known = await records.find_token(token.id)
        assert known is not None
        assert known.proof is not None
        await records.count_use(known, key)
        if step == "the name was claimed":
            await records.claim(JoinedNode(name=name, key=key, token=token.id, time=1), [known.proof])

    answer = await fleet.ask(token, name, seed)

    assert answer.state is JoinState.JOINED
    assert fleet.uses(token.as_text()) == 1


async def test_nodes_that_join_at_once_all_join_and_each_is_counted_once(fleet: JoinFleet) -> None:
    count = 60
    token = read_token(await asyncio.to_thread(fleet.token, "--uses", str(count), "--role", "web"))
    seeds = [new_user() for _ in range(count)]

    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(fleet.ask(token, f"once{number}", seed)) for number, seed in enumerate(seeds)
        ]

    answers = [task.result() for task in asked]
    assert [(one.state, one.message) for one in answers] == [(JoinState.JOINED, "")] * count
    assert fleet.uses(token.as_text()) == count


def test_a_second_node_under_a_taken_name_is_refused(fleet: JoinFleet) -> None:
    token = fleet.token("--uses", "3")
    fleet.join_here(token, "taken1")
    fleet.give("node", "added1")

    assert fleet.refused(token, "taken1", "other") == "join.name_taken"
    assert fleet.refused(token, "added1", "other2") == "join.name_taken"
    assert fleet.uses(token) == 1


def test_each_limit_of_a_token_holds(fleet: JoinFleet) -> None:
    used_up, named = fleet.token(), fleet.token("--name", "db*", "--uses", "5")
    revoked, elsewhere = fleet.token(), fleet.token("--network", "10.0.0.0/8")
    fleet.join_here(used_up, "limit1")
    assert fleet.as_("tester", "token", "revoke", read_token(revoked).id).code == 0

    codes = {
        "used up": fleet.refused(used_up, "limit2"),
        "name": fleet.refused(named, "limit3"),
        "revoked": fleet.refused(revoked, "limit4"),
        "network": fleet.refused(elsewhere, "limit5"),
    }

    assert codes == {
        "used up": "join.used_up",
        "name": "join.name",
        "revoked": "join.revoked_token",
        "network": "join.broker_refused",
    }
    assert fleet.join_here(named, "db1").is_new


async def test_an_expired_token_is_refused_by_node_and_broker(fleet: JoinFleet) -> None:
    made = JoinKeys(Keys(fleet.keys)).token(read_token(fleet.token()).id, 1_700_000_000, [])
    root = read_token(fleet.token()).root
    token = JoinToken(
        servers=(fleet.fleet.environ["NATS_URL"],), ca="", root=root, jwt=made.jwt, seed=made.seed
    )

    with pytest.raises(BusDeniedError):
        async with fleet.holder(token):
            pass
    code = await asyncio.to_thread(fleet.refused, token.as_text(), "expired1")

    assert code == "join.expired_token"


def test_a_token_of_another_fleet_gives_no_credentials(fleet: JoinFleet) -> None:
    own = read_token(fleet.token("--uses", "2"))
    foreign = JoinToken(servers=own.servers, ca="", root=public_key(new_root()), jwt=own.jwt, seed=own.seed)

    assert fleet.refused(foreign.as_text(), "foreign1") == "join.untrusted_answer"
    assert not (fleet.host("foreign1") / "node.creds").exists()
    assert fleet.join_here(own.as_text(), "foreign1").is_new
    assert fleet.refused(foreign.as_text(), "foreign1") == "join.other_fleet"


async def test_a_host_with_a_wrong_clock_is_told_so(fleet: JoinFleet) -> None:
    token = read_token(fleet.token())

    late = await fleet.ask(token, "clock1", new_user(), late_ms=3_600_000)
    right = await fleet.ask(token, "clock1", new_user())

    assert (late.state, late.code) == (JoinState.REFUSED, "join.clock")
    assert re.search("clock of this host differs by 36\\d\\d s", late.message)
    assert right.state is JoinState.JOINED


def test_a_broker_that_requires_no_credentials_gets_no_request(fleet: JoinFleet, tmp_path: Path) -> None:
    own = read_token(fleet.token())
    server = NatsServer(ServerSettings(directory=tmp_path / "open"))
    server.start()
    try:
        token = JoinToken(servers=(server.url,), ca="", root=own.root, jwt=own.jwt, seed=own.seed)
        code = fleet.refused(token.as_text(), "open1")
    finally:
        server.stop()

    assert code == "bus.denied"
    assert fleet.join_here(own.as_text(), "open1").is_new


def test_a_node_waits_until_an_operator_accepts_its_fingerprint(fleet: JoinFleet) -> None:
    token = fleet.token("--approve", "--role", "web")

    code = fleet.refused(token, "waits1")
    [waiting] = fleet.as_("tester", "join", "list", "--json").named("join")
    mark = fingerprint(waiting["key"])
    wrong = fleet.as_("tester", "node", "accept", "waits1", mark[::-1])
    accepted = fleet.as_("tester", "node", "accept", "waits1", mark)

    assert (code, waiting["node"], wrong.code, accepted.code) == ("join.not_accepted", "waits1", 1, 0)
    assert "no node with this name and fingerprint waits" in wrong.err
    assert fleet.join_here(token, "waits1").is_new
    assert fleet.as_("tester", "join", "list", "--json").records == []


def test_a_host_waits_for_a_join_service_that_comes_later(
    fleet: JoinFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "PATIENCE_S", 60.0)
    token, joined = fleet.token(), list[bool]()
    fleet.service.kill()
    host = threading.Thread(target=lambda: joined.append(fleet.join_here(token, "patient1").is_new))
    host.start()
    fleet.fleet.wait_for(lambda: (fleet.host("patient1") / "join.seed").exists(), "the first request")

    fleet.serve()
    host.join(90)

    assert joined == [True]


def test_a_host_waits_for_a_broker_that_comes_back(fleet: JoinFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "PATIENCE_S", 60.0)
    token, joined = fleet.token(), list[bool]()
    fleet.fleet.broker.kill()
    host = threading.Thread(target=lambda: joined.append(fleet.join_here(token, "patient2").is_new))
    host.start()
    fleet.fleet.wait_for(lambda: (fleet.host("patient2") / "join.seed").exists(), "the first attempt")

    fleet.fleet.broker.start()
    host.join(90)

    assert joined == [True]


def test_a_revoked_node_is_refused_and_its_name_is_free(fleet: JoinFleet) -> None:
    token = fleet.token("--uses", "2")
    fleet.join_here(token, "gone1")
    before = fleet.as_("tester", "node", "revoke", "gone1")

    again = fleet.join_here(token, "gone1", "its-successor")

    assert before.code == 0, before.err
    assert again.is_new


def test_a_reset_revokes_the_key_of_the_join_service_and_makes_another(tmp_path: Path) -> None:
    with join_fleet(tmp_path) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        old = SigningKey(Keys(one.keys).seed("certifier")).public_key

        done = one.as_("tester", "join", "reset")

        assert done.code == 0, done.err
        assert Keys(one.keys).signers.read().revoked_nodes == (old,)
        one.serve()
        assert one.join_here(one.token(), "web1").is_new
