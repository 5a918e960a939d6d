"""
What the broker answers goes wherever its asker says: as a request, as an event, onto a key. None of it is obeyed (ADR 12).

All users of this broker live in one account, as they did before `ccmctl init --security --migrate`, so the answers arrive and
only our own programs refuse them. What a broker with several accounts does about it is in test_permissions.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest

from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.streams import store
from ccm_agent.bus.subjects import event_subject, schedule_subject
from ccm_agent.model.errors import BusError, ProtocolError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.wire import AGENT_STARTUP, MANIFEST_APPLY
from ccm_agent.testing.nats_server import NatsServer
from tests.support.nats_server import Heard, connected, one_account_configuration, secured_server

pytestmark = pytest.mark.nats

P = "io.choria.ccm.v1"
PING = b'{"protocol":"io.choria.ccm.v1.node.ping.request"}'
USERS = {
    "web1": node_permissions("web1"),
    "b": node_permissions("b"),
    "op": operator_permissions("op", Role(plan=(">",), apply=("fact.role.web",), data=True, facts=True)),
    "planner": operator_permissions("planner", Role(plan=(">",))),
    "timer": operator_permissions("timer", Role(schedules=True)),
    "admin": operator_permissions("admin", Role(apply=(">",), data=True, facts=True, admin=True)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A broker with those users and the project's streams, made by the admin."""
    with secured_server(tmp_path_factory.mktemp("nats"), one_account_configuration(USERS)) as server:
        yield server


async def unmarked_copy(operator: Connection, stored: str, subject: str) -> None:
    """Have a stored message sent to a subject without any header, as `no_hdr` does."""
    bucket = stored.split(".")[1]
    question = json.dumps({"last_by_subj": stored, "no_hdr": True}).encode()
    await operator.publish(f"$JS.API.DIRECT.GET.KV_{bucket}", question, reply=subject, confirm=True)
    await answered(operator)


async def nothing(node: Connection, subject: str) -> None:
    """Have the answer that there is no such thing, which is empty, sent to a subject: any node may ask for its own facts."""
    question = f"$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.{node.settings.identity}"
    await node.publish(question, b"", reply=subject, confirm=True)
    await answered(node)


async def acknowledgement(node: Connection, subject: str) -> None:
    """Have the acknowledgement of an event of its own sent to a subject."""
    own = event_subject(AGENT_STARTUP, node.settings.identity)
    await node.publish(own, b"{}", reply=subject, confirm=True)
    await answered(node)


async def answered(connection: Connection) -> None:
    """Return when what was asked before is answered, most likely."""
    for _ in range(3):
        with contextlib.suppress(BusError):
            await connection.request("$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.none")


WAYS = [pytest.param(nothing, id="there is none"), pytest.param(acknowledgement, id="acknowledged")]


async def test_node_that_may_only_plan_cannot_command_through_stored_messages(server: NatsServer) -> None:
    async with connected(server, "planner") as thief, connected(server, "web1") as node:
        await thief.request("$KV.CCM_RUNS.planner.x.request", PING)
        heard, refused = Heard(), Heard()
        await NatsRequests(node).subscribe(["all"], heard, refused)

        await unmarked_copy(thief, "$KV.CCM_RUNS.planner.x.request", f"{P}.node.ping.request.all")

        [(_, why)] = await refused.wait(1)
        assert "not a request but a reply of the broker" in str(why)
        assert heard.items == []


async def test_node_cannot_publish_as_another_node(server: NatsServer) -> None:
    subject = event_subject(SESSION_START, "web1", new_id())
    async with connected(server, "planner") as thief, connected(server, "admin") as reader:
        await thief.request("$KV.CCM_RUNS.planner.x.event", b'{"protocol":"io.choria.ccm.v1.session.start"}')
        heard, events = Heard(), NatsEvents(reader)
        await events.follow(subject, heard)

        await unmarked_copy(thief, "$KV.CCM_RUNS.planner.x.event", subject)

        assert await events.read(subject) == []
        assert heard.items == []
        assert events.dropped == 2


async def test_node_cannot_assign(server: NatsServer) -> None:
    async with connected(server, "planner") as thief, connected(server, "admin") as admin:
        bucket = NatsKeyValue(admin, "CCM_ASSIGNMENTS")
        await thief.request("$KV.CCM_RUNS.planner.x.assignment", b"theirs")

        await unmarked_copy(thief, "$KV.CCM_RUNS.planner.x.assignment", "$KV.CCM_ASSIGNMENTS.all.app")

        assert await bucket.matching(["all.*"]) == []
        with pytest.raises(ProtocolError, match="copied"):
            await bucket.matching(["all.*"], obeyed=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["CCM_FACTS", "CCM_ASSIGNMENTS", "CCM_RUNS", "CCM_NODES"])
async def test_a_node_cannot_overwrite_or_remove_a_key(server: NatsServer, name: str, way) -> None:  # type: ignore[no-untyped-def]
    # in CCM_RUNS an operator writes below his own name
    key = f"{'admin' if name == 'CCM_RUNS' else 'node'}.{new_id().lower()}"
    async with connected(server, "b") as thief, connected(server, "admin") as admin:
        bucket = NatsKeyValue(admin, name)
        await bucket.put(key, b"right")

        await way(thief, f"$KV.{name}.{key}")

        with pytest.raises(ProtocolError, match="refused"):
            await bucket.get(key)
        with pytest.raises(ProtocolError, match="refused"):
            await bucket.matching([key], obeyed=True)
        await bucket.delete(key)
        assert await bucket.get(key) is None
        await bucket.put(key, b"again")
        found = await bucket.get(key)
        assert found is not None
        assert found.value == b"again"


async def test_a_node_cannot_remove_data_that_another_program_put(server: NatsServer) -> None:
    async with connected(server, "b") as thief, connected(server, "admin") as admin:
        bucket = NatsKeyValue(admin, "CCM_DATA")
        await admin.request("$KV.CCM_DATA.common", b"data: {}")  # as the `nats` program does, without headers
        before = await bucket.get("common")

        await nothing(thief, "$KV.CCM_DATA.common")

        assert before is not None
        assert before.value == b"data: {}"
        with pytest.raises(ProtocolError, match="refused"):
            await bucket.get("common")


async def test_a_key_removed_by_another_program_is_removed(server: NatsServer) -> None:
    async with connected(server, "admin") as admin:
        bucket = NatsKeyValue(admin, "CCM_DATA")
        await bucket.put("gone", b"data: {}")

        await admin.request("$KV.CCM_DATA.gone", b"", {"KV-Operation": "DEL"})

        assert await bucket.get("gone") is None


async def copy(thief: Connection, question: str, subject: str, body: bytes = b"") -> None:
    """Ask for something stored, and have the answer sent to a subject, with the broker's mark."""
    await thief.publish(question, body, reply=subject, confirm=True)
    await answered(thief)


TRAP_QUESTION = "$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.trap"


async def plain(connection: Connection, key: str, value: bytes) -> None:
    """Write a key as other programs do, so that no header of ours is in the way of copying it."""
    await connection.request(f"$KV.{key}", value)


async def test_a_node_cannot_speak_for_another_by_a_copied_document(server: NatsServer) -> None:
    subject = event_subject(SESSION_START, "web1", new_id())
    async with connected(server, "op") as operator, connected(server, "b") as b:
        await plain(operator, "CCM_DATA.trap", PING)
        heard, events = Heard(), NatsEvents(operator)
        await events.follow(subject, heard)

        await copy(b, TRAP_QUESTION, subject)

        assert await events.read(subject) == []
        assert events.dropped == 2
        assert heard.items == []


async def test_a_node_cannot_give_itself_facts_by_a_copied_document(server: NatsServer) -> None:
    async with connected(server, "op") as operator, connected(server, "b") as b:
        await plain(operator, "CCM_DATA.trap", b'{"role":"admin"}')

        await copy(b, TRAP_QUESTION, "$KV.CCM_FACTS.b")

        with pytest.raises(ProtocolError, match="copied"):
            await NatsKeyValue(b, "CCM_FACTS").get("b")


async def test_a_node_cannot_restore_an_old_assignment(server: NatsServer) -> None:
    async with connected(server, "admin") as admin, connected(server, "b") as b:
        bucket = NatsKeyValue(admin, "CCM_ASSIGNMENTS")
        old = await bucket.put("all.app", b"old")
        new = await bucket.update("all.app", b"new", old)
        newest = await bucket.update("all.app", b"newest", new)
        question = "$JS.API.DIRECT.GET.KV_CCM_ASSIGNMENTS"

        # What was written as an update names the revision that it followed, so the broker refuses its copy.
        await copy(b, question, "$KV.CCM_ASSIGNMENTS.all.app", b'{"seq":%d}' % new)
        unharmed = await bucket.get("all.app")
        await copy(b, question, "$KV.CCM_ASSIGNMENTS.all.app", b'{"seq":%d}' % old)

        assert (unharmed.value, unharmed.revision) == (b"newest", newest)
        with pytest.raises(ProtocolError, match="copied"):
            await NatsKeyValue(b, "CCM_ASSIGNMENTS").matching(["all.*"], obeyed=True)


async def test_a_node_cannot_widen_a_due_request(server: NatsServer) -> None:
    protocol = b'{"protocol":"io.choria.ccm.v1.manifest.apply.request"}'
    due = "choria.ccm.due.manifest.apply.request"
    async with (
        connected(server, "timer") as timer,
        connected(server, "web1") as node,
        connected(server, "b") as b,
    ):
        headers = {
            "Nats-Schedule": "@at 2020-01-01T00:00:00Z",
            "Nats-Schedule-Target": f"{due}.fact.role.web",
        }
        heard, refused = Heard(), Heard()
        await NatsRequests(node).subscribe(["all", "fact.role.web"], heard, refused)
        await store(timer, schedule_subject(MANIFEST_APPLY, "fact.role.web", "once"), protocol, headers)
        [incoming] = await heard.wait(1)
        assert (incoming.scope, incoming.scheduled, incoming.body) == ("fact.role.web", True, protocol)

        question = f"$JS.API.DIRECT.GET.CCM_SCHEDULES.{due}.fact.role.web"
        await copy(b, question, f"{P}.manifest.apply.request.all")
        await copy(b, question, f"{due}.all")

        assert [subject for subject, _ in await refused.wait(2)] == [f"{P}.manifest.apply.request.all"] * 2
        assert len(heard.items) == 1
        # nor does a node that was away take it from what was due
        with pytest.raises(ProtocolError, match="a copy of a message in copied"):
            await NatsRequests(node).last_due(f"{P}.manifest.apply.request.all")
        found = await NatsRequests(node).last_due(f"{P}.manifest.apply.request.fact.role.web")
        assert scheduled_run_id(found) == scheduled_run_id(incoming)
