"""Nodes leave the fleet with `ccm leave`: what goes, what stays, and what an attacker cannot do with it, on a real broker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator

import msgspec
import pytest

from ccm_agent.agent.state.state_folder import StateLock
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.join import sign_request, verify_answer
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.joining import leave
from ccm_agent.joining.leave import LeftHost, leave_fleet
from ccm_agent.joining.membership import JoinPlaces, Membership, read_membership
from ccm_agent.model.errors import BusDeniedError, CcmError, LockError
from ccm_agent.model.records.join import JOIN_RENEWAL, JoinAnswer, JoinState
from tests.support import processes
from tests.support.ccm_json import checked
from tests.support.fleet import TOP, Done
from tests.support.joining import JoinFleet, join_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinFleet]:
    """One fleet for all tests, which use names of their own; its join service runs."""
    with join_fleet(tmp_path_factory.mktemp("leaving")) as one:
        one.fleet.environ["CCM_CREDS"] = str(one.keys / "tester.creds")
        one.token()
        one.serve()
        assert one.as_("tester", "secret", "init").code == 0
        yield one


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave, "ANSWER_S", 3.0)


def leave_here(fleet: JoinFleet, name: str, wait_s: float = 30) -> LeftHost:
    """`ccm leave` in this process."""
    return leave_fleet(JoinPlaces.below(str(fleet.host(name))), wait_s=wait_s)


def refused(fleet: JoinFleet, name: str) -> str:
    """The code of the error with which a host cannot leave."""
    try:
        leave_here(fleet, name)
    except CcmError as err:
        return err.code
    raise AssertionError(f"{name} left")


def ccm(fleet: JoinFleet, *words: str) -> Done:
    """Run `ccm` to its end."""
    done = processes.run(
        [sys.executable, "-m", "ccm_agent", *words], cwd=TOP, env=fleet.fleet.environ, timeout=120
    )
    return Done(done.returncode, done.stdout, done.stderr)


def member_of(fleet: JoinFleet, name: str) -> Membership:
    found = read_membership(fleet.host(name) / "node.creds")
    assert found is not None
    return found


def start(fleet: JoinFleet, name: str) -> None:
    """Run the agent of a host that joined, until it is present."""
    creds = str(fleet.host(name) / "node.creds")
    fleet.fleet.add(name, nats={"url": fleet.fleet.environ["NATS_URL"], "creds": creds})


@contextlib.asynccontextmanager
async def as_node(fleet: JoinFleet, name: str) -> AsyncIterator[Connection]:
    """A connection with the credentials of a host that joined."""
    settings = settings_for(
        fleet.fleet.environ["NATS_URL"], identity=name, creds=str(fleet.host(name) / "node.creds")
    )
    async with Connection(settings) as connection:
        await connection.connect_now()
        yield connection


async def ask(
    fleet: JoinFleet, sender: str, member: Membership, *, named: str = "", is_leaving: bool = True
) -> JoinAnswer:
    """The answer to one request that a node sends on its own subject, for a member whose key signs it."""
    key, name = SigningKey(member.seed), named or member.name
    request = sign_request(
        key, name, int(time.time() * 1000), "1.0.0", certificate=member.certificate, is_leaving=is_leaving
    )
    async with as_node(fleet, sender) as connection:
        message = await connection.request(
            f"{JOIN_RENEWAL}.{sender}", request.body, request.headers, within_s=20
        )
    header = message.headers[SIGNATURE_HEADER]
    on = msgspec.structs.replace(request, subject=f"{JOIN_RENEWAL}.{sender}")
    return verify_answer(
        message.body, header, on, name, key.public_key, member.root, now_ms=int(time.time() * 1000)
    )


def stored_of(fleet: JoinFleet, name: str) -> set[str]:
    """What the fleet stores of a node."""
    shown = fleet.as_("tester", "node", "list", "--json").named("node")
    facts = fleet.as_("tester", "facts", "show", name, "--assigned", "--json").named("facts")
    secrets = fleet.as_("tester", "secret", "who", "db", "--json").named("secret_node")
    slots = fleet.as_("tester", "slots", "--json").named("slot")
    return {
        *("record" for one in shown if one["node"] == name),
        *("facts" for one in facts if one.get("facts")),
        *("secret" for one in secrets if one["node"] == name and one.get("revision")),
        *("slot" for one in slots if one["node"] == name),
    }


ALL = {"record", "facts", "secret", "slot"}


async def take_slot(fleet: JoinFleet, name: str) -> None:
    async with as_node(fleet, name) as connection:
        await NatsKeyValue(connection, "CCM_SLOTS").put(f"pg.{name}", b'{"is_held": true, "count": 9}')


async def joined_with_everything(fleet: JoinFleet, *names: str) -> None:
    """Nodes that joined, ran, hold a slot and can open a secret."""
    token = fleet.token("--role", "web", "--uses", str(len(names)))
    for name in names:
        await asyncio.to_thread(fleet.join_here, token, name)
        await asyncio.to_thread(start, fleet, name)
    put = await asyncio.to_thread(
        fleet.fleet.ctl, "secret", "put", "db", "--for", "role=web", stdin="first-value"
    )
    assert put.code == 0, put.err
    for name in names:
        await asyncio.to_thread(fleet.fleet.agents[name].stop)
        await take_slot(fleet, name)


async def test_a_node_that_leaves_takes_all_of_it_along_and_nothing_of_others(fleet: JoinFleet) -> None:
    await joined_with_everything(fleet, "web1", "web2")
    host, member = fleet.host("web1"), member_of(fleet, "web1")
    (host / "state").mkdir(exist_ok=True, mode=0o700)
    (host / "state" / "kept").touch()
    assert (stored_of(fleet, "web1"), stored_of(fleet, "web2")) == (ALL, ALL)

    done = await asyncio.to_thread(ccm, fleet, "leave", "--state", str(host), "--json")

    assert (done.code, done.err) == (0, "")
    assert checked("ccm_leave", done.out) == {
        "node": "web1",
        "left": True,
        "told": True,
        "reason": None,
        "removed": [str(host / "node.creds"), str(host / "config.yaml")],
        "kept": [str(host / "state")],
        "next": [],
    }
    assert [one.name for one in host.iterdir()] == ["state"]
    assert (stored_of(fleet, "web1"), stored_of(fleet, "web2")) == (set(), ALL)
    told = fleet.as_("tester", "audit", "--json").named("audit")
    assert [one["details"]["node"] for one in told if one["kind"] == "leave"] == ["web1"]
    (fleet.host("web1")).mkdir(exist_ok=True)
    again = await asyncio.to_thread(ccm, fleet, "leave", "--state", str(host))
    assert (again.code, "nothing was changed" in again.out) == (0, True)
    # the name is free, and a copy of the old credentials does nothing to the node that has it now
    await asyncio.to_thread(fleet.join_here, fleet.token("--role", "web"), "web1")
    new = member_of(fleet, "web1")
    assert new.key != member.key
    assert (await ask(fleet, "web1", member)).state is JoinState.LEFT
    assert stored_of(fleet, "web1") == {"record", "facts"}


async def test_credentials_of_a_node_that_left_are_not_renewed_and_get_no_secret(fleet: JoinFleet) -> None:
    await joined_with_everything(fleet, "void1")
    copy = (fleet.host("void1") / "node.creds").read_bytes()
    before = await ask(fleet, "void1", member_of(fleet, "void1"), is_leaving=False)
    await asyncio.to_thread(leave_here, fleet, "void1")
    (fleet.host("void1") / "node.creds").write_bytes(copy)
    (fleet.host("void1") / "node.creds").chmod(0o600)

    after = await ask(fleet, "void1", member_of(fleet, "void1"), is_leaving=False)
    await asyncio.to_thread(fleet.fleet.agents["void1"].start)
    await asyncio.to_thread(fleet.fleet.wait_present, ["void1"])
    put = await asyncio.to_thread(
        fleet.fleet.ctl, "secret", "put", "own", "--for", "node=void1", "--json", stdin="first-value"
    )
    await asyncio.to_thread(fleet.fleet.agents["void1"].stop)

    assert (before.state, after.state, after.code) == (JoinState.JOINED, JoinState.REFUSED, "join.left")
    assert "has left the fleet" in put.out + put.err
    assert [
        one
        for one in fleet.as_("tester", "secret", "who", "own", "--json").named("secret_node")
        if one.get("revision")
    ] == []
    # it is void for the broker and for readers, too, when an operator revokes it
    revoked = fleet.as_("tester", "node", "revoke", "void1")
    assert "1 credentials file revoked" in revoked.out, revoked.err


async def test_a_node_makes_no_other_node_leave(fleet: JoinFleet) -> None:
    token = fleet.token("--uses", "2", "--role", "web")
    for name in ("attacker1", "victim1"):
        await asyncio.to_thread(fleet.join_here, token, name)
    attacker, victim = member_of(fleet, "attacker1"), member_of(fleet, "victim1")
    own = SigningKey(attacker.seed)

    # on its subject, with the name of the victim
    codes = [(await ask(fleet, "attacker1", attacker, named="victim1")).code]
    # with the victim's certificate, under its own name
    stolen = msgspec.structs.replace(attacker, certificate=victim.certificate)
    codes.append((await ask(fleet, "attacker1", stolen)).code)
    # on the victim's subject
    request = sign_request(
        own, "victim1", int(time.time() * 1000), "1", certificate=attacker.certificate, is_leaving=True
    )
    async with as_node(fleet, "attacker1") as connection:
        with pytest.raises(BusDeniedError):
            await connection.publish(request.subject, request.body, request.headers, confirm=True)
    # what was recorded of another node, sent again by the holder of the broker, is of that node
    assert codes == ["join.malformed", "join.certificate"]
    assert stored_of(fleet, "victim1") == {"record", "facts"}
    assert (await ask(fleet, "victim1", victim)).state is JoinState.LEFT
    assert stored_of(fleet, "victim1") == set()


def test_a_host_whose_agent_runs_does_not_leave(fleet: JoinFleet) -> None:
    fleet.join_here(fleet.token(), "runs1")
    agent = StateLock(fleet.host("runs1") / "state")
    agent.take()

    with pytest.raises(LockError, match="stop the agent first"):
        leave_here(fleet, "runs1")
    agent.release()

    assert leave_here(fleet, "runs1").is_told


def test_a_host_leaves_without_a_broker_and_says_what_is_left_to_do(fleet: JoinFleet) -> None:
    asyncio.run(joined_with_everything(fleet, "alone1"))
    assert stored_of(fleet, "alone1") == ALL
    host = fleet.host("alone1")
    fleet.fleet.broker.kill()
    try:
        done = ccm(fleet, "leave", "--state", str(host), "--wait", "1s")
    finally:
        fleet.fleet.broker.start()

    assert done.code == 0, done.err
    assert list(host.iterdir()) == []
    assert done.out.splitlines()[-2:] == [
        "next, an operator runs: ccmctl node rm alone1",
        "next, an operator runs: ccmctl node revoke alone1",
    ]
    removed = fleet.as_("tester", "node", "rm", "alone1", "--yes")
    assert removed.code == 0, removed.err
    assert stored_of(fleet, "alone1") <= {"slot"}  # it ends by itself
    assert fleet.as_("tester", "node", "revoke", "alone1").code == 0
    assert fleet.join_here(fleet.token(), "alone1").is_new


def test_a_host_leaves_when_no_join_service_runs(fleet: JoinFleet) -> None:
    fleet.join_here(fleet.token(), "unheard1")
    fleet.service.kill()
    try:
        left = leave_here(fleet, "unheard1", wait_s=1)
    finally:
        fleet.serve()

    assert (left.is_told, left.was_member) == (False, True)
    assert not fleet.host("unheard1").joinpath("node.creds").exists()


def test_a_host_with_a_wrong_clock_keeps_its_files(fleet: JoinFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.join_here(fleet.token(), "late1")
    right = time.time

    with monkeypatch.context() as patch:
        patch.setattr("ccm_agent.joining.leave.time.time", lambda: right() - 3600)
        code = refused(fleet, "late1")

    assert code == "join.clock"
    assert sorted(one.name for one in fleet.host("late1").iterdir()) == ["config.yaml", "node.creds"]
    assert leave_here(fleet, "late1").is_told


def test_a_configuration_that_a_person_wrote_stays(fleet: JoinFleet) -> None:
    config = fleet.host("mixed1") / "config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("# ours\nheartbeat: 30s\n")
    fleet.join_here(fleet.token(), "mixed1")
    config.write_text(config.read_text() + "interval: 10m\n")

    left = leave_here(fleet, "mixed1")

    assert config.read_text() == "# ours\nheartbeat: 30s\ninterval: 10m\n"
    assert str(config) in left.kept


def test_a_node_whose_credentials_an_operator_issued_leaves(fleet: JoinFleet) -> None:
    creds = fleet.give("node", "given1")
    host = fleet.host("given1")
    host.mkdir(parents=True)
    creds.rename(host / "node.creds")
    (host / "config.yaml").write_text(
        json.dumps(
            {
                "identity": "given1",
                "state_dir": str(host / "state"),
                "nats": {"url": fleet.fleet.environ["NATS_URL"], "creds": str(host / "node.creds")},
            }
        )
    )
    assert fleet.as_("tester", "facts", "set", "given1", "role=web", "--new").code == 0

    left = leave_here(fleet, "given1")

    assert left.is_told
    assert stored_of(fleet, "given1") == set()
    assert [one.name for one in host.iterdir()] == ["config.yaml"]


def test_a_host_that_is_leaving_does_not_join(fleet: JoinFleet) -> None:
    token = fleet.token()
    fleet.join_here(token, "torn1")
    (fleet.host("torn1") / "leave.json").write_text('{"name": "torn1"}')

    assert fleet.refused(token, "torn1") == "join.leaving"
    assert leave_here(fleet, "torn1").is_told
    assert fleet.join_here(fleet.token(), "torn1").is_new
