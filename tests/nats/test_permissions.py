"""Each line of what nodes and operators may do, and what they must not, on a broker that knows them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ccm_agent.agent.trust.schedule_times import scheduled_run_id
from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import (
    new_authority,
    public_key,
    scoped_credentials,
    server_configuration,
    user_credentials,
)
from ccm_agent.bus.access.permissions import Role, node_permissions, operator_permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.events import NatsEvents
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.requests import NatsRequests
from ccm_agent.bus.streams import read_last, store
from ccm_agent.bus.subjects import (
    event_subject,
    fact_scope,
    registration_subject,
    request_subject,
    run_pattern,
    schedule_subject,
    scopes_of,
)
from ccm_agent.model.errors import BusDeniedError, BusError
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import SESSION_START
from ccm_agent.model.wire import AGENT_STARTUP, MANIFEST_APPLY, NODE_PING
from tests.support.nats_server import Heard, connected, secured_server, users_configuration
from tests.support.signing import OwnRequests

pytestmark = pytest.mark.nats

P = "io.choria.ccm.v1"
RUN = new_id()
MAINTENANCE = ("disable", "enable", "converge")
LIMITED = Role(plan=(">",), apply=("fact.role.web",), maintain=("fact.role.db",), data=True, facts=True)
USERS = {
    "web1": node_permissions("web1", ["10.0.0.1"]),
    "web2.example.com": node_permissions("web2.example.com"),
    "b": node_permissions("b"),
    "op": operator_permissions("op", LIMITED),
    "looker": operator_permissions("looker", Role()),
    "planner": operator_permissions("planner", Role(plan=(">",))),
    "timer": operator_permissions("timer", Role(schedules=True)),
    "admin": operator_permissions(
        "admin", Role(apply=(">",), data=True, facts=True, schedules=True, admin=True)
    ),
}


def credentials(directory: Path, *, is_scoped: bool) -> str:
    """
    The same users by credentials that an account signed, in files; what the broker must know of it.

    Nodes' credentials contain their permissions, as those of earlier versions, or a scoped signing key signs them.
    """
    authority = new_authority()
    for name, allowed in USERS.items():
        if is_scoped and allowed.account == Account.NODES:
            made = scoped_credentials(authority.node_signer, public_key(authority.nodes), name, allowed.tags)
        else:
            made = user_credentials(authority.of(allowed.account), name, allowed)
        (directory / f"{name}.creds").write_text(made.text.reveal())
    return server_configuration(authority)


@pytest.fixture(scope="module", params=["users", "credentials", "scoped"])
def server(request, tmp_path_factory):
    """A broker with those users and the project's streams, made by the admin."""
    directory = tmp_path_factory.mktemp("nats")
    kind = request.param
    known = (
        users_configuration(USERS) if kind == "users" else credentials(directory, is_scoped=kind == "scoped")
    )
    with secured_server(directory, known) as server:
        yield server


ROLLOUT_STARTS = ["choria.ccm.schedule.rollout.start.nightly", "choria.ccm.due.rollout.start.nightly"]
ROLLOUT_RECORDS = [
    f"$KV.CCM_RUNS.=rollout.{RUN}",
    "$KV.CCM_RUNS.=schedule.nightly.starts",
    "$KV.CCM_RUNS.=server.host",
]
NODE_MAY_PUBLISH = [
    f"{P}.session.start.{RUN}.web1",
    f"{P}.transaction.event.{RUN}.web1",
    f"{P}.session.summary.{RUN}.web1",
    f"{P}.session.progress.{RUN}.web1",
    f"{P}.session.answer.{RUN}.web1",
    f"{P}.agent.startup.web1",
    "$KV.CCM_NODES.node.web1",
    "$KV.CCM_NODES.facts.web1",
    "$KV.CCM_NODES.presence.web1",
    "choria.ccm.registration.v1.prod.http.web.10_0_0_1.abc",
    "$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.web1",
    "$JS.API.DIRECT.GET.KV_CCM_ASSIGNMENTS",
    "$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.common",
    "$JS.API.DIRECT.GET.KV_CCM_DATA",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA.web1.node=2Fweb1.0",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.wrap.web1.db-password",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.value.db-password.1",
    "$JS.API.DIRECT.GET.KV_CCM_TRUST.$KV.CCM_TRUST.signers",
    "$JS.API.DIRECT.GET.OBJ_CCM_MANIFESTS",
    "$JS.API.DIRECT.GET.OBJ_CCM_MANIFESTS.$O.CCM_MANIFESTS.M.c2l0ZQ==",
    "$JS.API.DIRECT.GET.CCM_SCHEDULES.choria.ccm.due.manifest.apply.request.all",
    "$JS.API.DIRECT.GET.CCM_SCHEDULES.choria.ccm.schedule.manifest.apply.request.all.nightly",
]
NODE_MAY_NOT_PUBLISH = [
    # others' events, also by a name that begins or ends with its own
    f"{P}.session.start.{RUN}.web2.example.com",
    f"{P}.transaction.event.{RUN}.web11",
    f"{P}.transaction.event.{RUN}.web1.example.com",
    f"{P}.session.summary.{RUN}.x.web1",
    f"{P}.session.answer.{RUN}.web2.example.com",
    f"{P}.agent.startup.web2.example.com",
    # requests of any kind, to anybody
    f"{P}.manifest.apply.request.all",
    f"{P}.manifest.plan.request.node.web1",
    f"{P}.resource.ensure.request.fact.role.web",
    f"{P}.node.ping.request.node.web2.example.com",
    f"{P}.run.stop.request.all",
    *(f"{P}.node.{word}.request.node.web1" for word in MAINTENANCE),
    # others' keys, and its own in buckets that operators write
    "$KV.CCM_NODES.node.web2.example.com",
    "$KV.CCM_NODES.presence.web11",
    "$KV.CCM_NODES.other.web1",
    "$KV.CCM_FACTS.web1",
    "$KV.CCM_DATA.common",
    "$KV.CCM_ASSIGNMENTS.node.web1.app",
    "$KV.CCM_RUNS.x.request",
    *ROLLOUT_RECORDS,
    *ROLLOUT_STARTS,
    "$KV.CCM_TRUST.signers",
    "$O.CCM_MANIFESTS.M.c2l0ZQ==",
    "$O.CCM_MANIFESTS.C.abc",
    # pokes, due messages, schedules
    "choria.ccm.poke.CCM_FACTS.web2.example.com",
    "choria.ccm.due.manifest.apply.request.all",
    "choria.ccm.schedule.manifest.apply.request.all.nightly",
    # reading what nodes wrote, or another's facts, or old revisions of its own
    "$JS.API.DIRECT.GET.CCM_EVENTS",
    f"$JS.API.DIRECT.GET.CCM_EVENTS.{P}.session.start.{RUN}.web1",
    "$JS.API.DIRECT.GET.KV_CCM_NODES",
    "$JS.API.DIRECT.GET.KV_CCM_NODES.$KV.CCM_NODES.node.web1",
    "$JS.API.DIRECT.GET.REGISTRATION",
    "$JS.API.DIRECT.GET.KV_CCM_FACTS",
    "$JS.API.DIRECT.GET.KV_CCM_FACTS.$KV.CCM_FACTS.web2.example.com",
    "$JS.API.STREAM.MSG.GET.KV_CCM_DATA",
    # documents of other nodes, and its own by a question whose body names the key
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA.b.node=2Fb.0",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA.web2=2Eexample=2Ecom.node=2Fweb2=2Eexample=2Ecom.0",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA.*.*.*",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.$KV.CCM_NODE_DATA.>",
    "$JS.API.DIRECT.GET.KV_CCM_NODE_DATA.>",
    "$KV.CCM_NODE_DATA.web1.node=2Fweb1.0",
    # data keys that are sealed to other nodes, what operators know about secrets, and questions whose body names the key
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.wrap.web2=2Eexample=2Ecom.db-password",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.wrap.>",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.head.db-password",
    "$JS.API.DIRECT.GET.KV_CCM_SECRETS.$KV.CCM_SECRETS.sealing",
    "$KV.CCM_SECRETS.wrap.web1.db-password",
    "$JS.API.DIRECT.GET.CCM_SCHEDULES",
    # the API of streams and consumers
    "$JS.API.INFO",
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.INFO.CCM_EVENTS",
    "$JS.API.STREAM.PURGE.CCM_EVENTS",
    "$JS.API.STREAM.DELETE.CCM_EVENTS",
    "$JS.API.STREAM.MSG.GET.CCM_EVENTS",
    "$JS.API.STREAM.MSG.DELETE.CCM_EVENTS",
    "$JS.API.CONSUMER.CREATE.CCM_EVENTS",
    # services elsewhere, and inboxes
    "choria.ccm.registration.v1.prod.http.web.10_0_0_2.abc",
    "_INBOX_op.x.1",
    "_INBOX_web2=2Eexample=2Ecom.x.1",
]
NODE_MAY_SUBSCRIBE = [
    f"{P}.*.*.request.all",
    f"{P}.*.*.request.node.web1",
    f"{P}.*.*.request.fact.role.web",
    "choria.ccm.poke.CCM_FACTS.web1",
    "choria.ccm.poke.CCM_DATA.>",
    "choria.ccm.poke.CCM_ASSIGNMENTS.all.*",
    "choria.ccm.poke.CCM_MANIFESTS.c2l0ZQ==",
    "choria.ccm.poke.CCM_TRUST.signers",
    "_INBOX_web1.x.*",
]
NODE_MAY_NOT_SUBSCRIBE = [
    ">",
    f"{P}.>",
    f"{P}.*.*.request.>",
    f"{P}.*.*.request.node.web2.example.com",
    f"{P}.*.*.request.node.>",
    f"{P}.transaction.event.>",
    run_pattern(RUN),
    "choria.ccm.poke.CCM_FACTS.>",
    "choria.ccm.poke.CCM_FACTS.web2.example.com",
    "choria.ccm.poke.CCM_NODES.>",
    "choria.ccm.poke.CCM_NODE_DATA.>",
    "choria.ccm.due.>",
    "$KV.CCM_NODE_DATA.>",
    "$KV.CCM_FACTS.>",
    "$KV.CCM_NODES.>",
    "choria.ccm.registration.v1.>",
    "_INBOX_op.>",
    "_INBOX_web2=2Eexample=2Ecom.>",
    "_INBOX_web1",
    "_INBOX.>",
    "$JS.>",
]
OPERATOR_MAY_PUBLISH = [
    f"{P}.manifest.plan.request.all",
    f"{P}.manifest.plan.request.node.web1",
    f"{P}.manifest.check.request.all",
    f"{P}.resource.import.request.all",
    f"{P}.manifest.apply.request.fact.role.web",
    f"{P}.resource.ensure.request.fact.role.web",
    f"{P}.run.stop.request.fact.role.web",
    *(f"{P}.node.{word}.request.fact.role.db" for word in MAINTENANCE),
    f"{P}.node.ping.request.all",
    f"{P}.node.facts.request.node.web1",
    f"{P}.node.status.request.all",
    f"$KV.CCM_RUNS.op.{RUN}.request",
    f"$KV.CCM_RUNS.op.{RUN}.targets.0",
    f"$KV.CCM_RUNS.=rollout.{RUN}",
    "$KV.CCM_RUNS.=schedule.nightly.starts",
    "$KV.CCM_RUNS.=server.op=40host",
    "$KV.CCM_ASSIGNMENTS.fact.role.web.app",
    "$KV.CCM_DATA.common",
    "$KV.CCM_NODE_DATA.web1.node=2Fweb1.0",
    "$KV.CCM_SECRETS.head.db-password",
    "$KV.CCM_SECRETS.value.db-password.1",
    "$KV.CCM_SECRETS.wrap.web1.db-password",
    "$KV.CCM_FACTS.web1",
    "$O.CCM_MANIFESTS.M.c2l0ZQ==",
    "$O.CCM_MANIFESTS.C.abc",
    "$JS.API.STREAM.INFO.CCM_EVENTS",
    "$JS.API.DIRECT.GET.CCM_EVENTS",
]
OPERATOR_MAY_NOT_PUBLISH = [
    # records of runs in no name, or in another operator's
    f"$KV.CCM_RUNS.{RUN}.request",
    f"$KV.CCM_RUNS.maria.{RUN}.request",
    f"$KV.CCM_RUNS.maria.{RUN}.state",
    "$KV.CCM_RUNS.op",
    f"{P}.manifest.apply.request.all",
    f"{P}.manifest.apply.request.node.web1",
    f"{P}.manifest.apply.request.fact.role.db",
    f"{P}.resource.ensure.request.all",
    f"{P}.run.stop.request.all",
    *(f"{P}.node.{word}.request.fact.role.web" for word in MAINTENANCE),
    f"{P}.session.summary.{RUN}.web1",
    f"{P}.session.answer.{RUN}.web1",
    f"{P}.agent.startup.web1",
    "$KV.CCM_ASSIGNMENTS.all.app",
    "$KV.CCM_ASSIGNMENTS.fact.role.db.app",
    "$KV.CCM_ASSIGNMENTS.fact.role.web",
    "$KV.CCM_NODES.node.web1",
    "$KV.CCM_TRUST.signers",
    "choria.ccm.poke.CCM_FACTS.web1",
    "choria.ccm.due.manifest.apply.request.fact.role.web",
    "choria.ccm.schedule.manifest.apply.request.fact.role.web.nightly",
    *ROLLOUT_STARTS,
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.UPDATE.CCM_EVENTS",
    "$JS.API.STREAM.DELETE.CCM_EVENTS",
    "$JS.API.STREAM.PURGE.CCM_EVENTS",
    "$JS.API.STREAM.PURGE.OBJ_CCM_MANIFESTS",
    "$JS.API.STREAM.PURGE.CCM_SCHEDULES",
    "$JS.API.STREAM.PURGE.KV_CCM_DATA",
    "$JS.API.STREAM.MSG.DELETE.CCM_EVENTS",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.INFO",
    "_INBOX_web1.x.1",
]


async def may_publish(connection: Connection, subject: str) -> bool:
    """The broker takes a message on a subject."""
    try:
        await connection.publish(subject, b"", confirm=True)
    except BusDeniedError:
        return False
    return True


async def may_subscribe(connection: Connection, subject: str) -> bool:
    """The broker takes a subscription to a subject."""
    try:
        await connection.unsubscribe(await connection.subscribe([subject], lambda _message: None))
    except BusDeniedError:
        return False
    return True


async def test_permissions_of_a_node_to_publish(server) -> None:
    async with connected(server, "web1") as node:
        assert [s for s in NODE_MAY_PUBLISH if not await may_publish(node, s)] == []
        assert [s for s in NODE_MAY_NOT_PUBLISH if await may_publish(node, s)] == []


async def test_permissions_of_a_node_to_subscribe(server) -> None:
    async with connected(server, "web1") as node:
        assert [s for s in NODE_MAY_SUBSCRIBE if not await may_subscribe(node, s)] == []
        assert [s for s in NODE_MAY_NOT_SUBSCRIBE if await may_subscribe(node, s)] == []


async def test_permissions_of_an_operator_to_publish(server) -> None:
    async with connected(server, "op") as operator:
        assert [s for s in OPERATOR_MAY_PUBLISH if not await may_publish(operator, s)] == []
        assert [s for s in OPERATOR_MAY_NOT_PUBLISH if await may_publish(operator, s)] == []


async def test_an_operator_hears_everything_but_others_inboxes(server) -> None:
    async with connected(server, "op") as operator:
        for subject in (run_pattern(RUN), f"{P}.agent.*.>", f"{P}.*.*.request.>", "choria.ccm.poke.>"):
            assert await may_subscribe(operator, subject)
        for subject in ("_INBOX_web1.>", "_INBOX.>", ">", "$KV.>"):
            assert not await may_subscribe(operator, subject)


async def test_a_planner_changes_nothing(server) -> None:
    subjects = [
        f"{P}.manifest.apply.request.all",
        f"{P}.manifest.apply.request.fact.role.web",
        f"{P}.resource.ensure.request.all",
        "$KV.CCM_ASSIGNMENTS.all.app",
        "$KV.CCM_DATA.common",
        "$KV.CCM_NODE_DATA.web1.node=2Fweb1.0",
        "$KV.CCM_SECRETS.head.db-password",
        "$KV.CCM_SECRETS.sealing",
        "$KV.CCM_FACTS.web1",
        *(f"{P}.node.{word}.request.all" for word in MAINTENANCE),
        "choria.ccm.schedule.manifest.plan.request.all.nightly",
    ]

    async with connected(server, "planner") as planner:
        assert [s for s in subjects if await may_publish(planner, s)] == []
        assert await may_publish(planner, f"{P}.manifest.plan.request.all")
        assert await may_publish(planner, f"{P}.resource.import.request.all")


async def test_operator_with_read_access_runs_nothing_on_a_node(server) -> None:
    """A plan runs a manifest's guards and a check its checks, which are commands, as root."""
    subjects = [
        f"{P}.manifest.plan.request.all",
        f"{P}.manifest.check.request.node.web1",
        f"{P}.resource.import.request.all",
        f"{P}.manifest.apply.request.all",
        f"{P}.resource.ensure.request.all",
        f"{P}.run.stop.request.all",
        *(f"{P}.node.{word}.request.all" for word in MAINTENANCE),
        "$O.CCM_MANIFESTS.M.c2l0ZQ==",
        "$JS.API.STREAM.PURGE.OBJ_CCM_MANIFESTS",
        *ROLLOUT_RECORDS,
        *ROLLOUT_STARTS,
    ]

    async with connected(server, "looker") as looker:
        assert [s for s in subjects if await may_publish(looker, s)] == []
        for question in ("ping", "facts", "status"):
            assert await may_publish(looker, f"{P}.node.{question}.request.all")


async def test_an_operator_with_schedules_adds_and_removes_them_but_cannot_purge(server) -> None:
    async with connected(server, "timer") as timer:
        subject = schedule_subject(MANIFEST_APPLY, "all", "nightly")
        headers = {
            "Nats-Schedule": "0 0 2 * * *",
            "Nats-Schedule-Target": "choria.ccm.due.manifest.apply.request.all",
        }
        await store(timer, subject, b"{}", headers)

        await store(timer, subject, b"")

        assert not await may_publish(timer, "$JS.API.STREAM.PURGE.CCM_SCHEDULES")


async def test_a_node_works_with_its_permissions(server) -> None:
    content = b"x" * 400_000
    async with connected(server, "admin") as admin, connected(server, "web2.example.com") as node:
        name = "web2.example.com"
        await NatsKeyValue(admin, "CCM_FACTS").put(name, b"facts")
        before = await NatsKeyValue(admin, "CCM_DATA").put("work", b"data before")
        await NatsKeyValue(admin, "CCM_DATA").put("work", b"data")
        await NatsKeyValue(admin, "CCM_ASSIGNMENTS").put(f"node.{name}.app", b"assigned")
        await NatsObjects(admin, "CCM_MANIFESTS").put("work", content)
        heard, poked = Heard(), Heard()

        await NatsRequests(node).subscribe(scopes_of(name, {"role": "web"}), heard)
        await NatsKeyValue(node, "CCM_FACTS").watch_changes(name, poked)
        await NatsKeyValue(node, "CCM_NODES").put(f"presence.{name}", b"here", ttl_s=60)
        published = await NatsEvents(node).publish(event_subject(AGENT_STARTUP, name), new_id(), b"up")
        await NatsEvents(node).announce(event_subject("io.choria.ccm.v1.session.answer", name, RUN), b"yes")
        facts = await NatsKeyValue(node, "CCM_FACTS").get(name)
        data = await NatsKeyValue(node, "CCM_DATA").get("work")
        pinned = await NatsKeyValue(node, "CCM_DATA").as_of("work", before)
        assigned = await NatsKeyValue(node, "CCM_ASSIGNMENTS").matching(["all.*", f"node.{name}.*"])
        bundle = await NatsObjects(node, "CCM_MANIFESTS").get("work", 1 << 20)
        await OwnRequests(admin).publish(
            request_subject(NODE_PING, fact_scope("role", "web")),
            b'{"protocol":"io.choria.ccm.v1.node.ping.request"}',
        )
        await NatsKeyValue(admin, "CCM_FACTS").put(name, b"newer")

        assert published.sequence > 0
        assert pinned.value == b"data before"
        assert (facts.value, data.value, [entry.value for entry in assigned]) == (
            b"facts",
            b"data",
            [b"assigned"],
        )
        assert bundle == content
        assert len(await heard.wait(1)) == 1
        assert [key for key, _ in await poked.wait(1)] == [name]
        assert node.denials == 0


async def copy(thief: Connection, question: str, subject: str, body: bytes = b"") -> None:
    """Ask for something stored, and have the answer sent to a subject; return when that has happened."""
    await thief.publish(question, body, reply=subject, confirm=True)
    with contextlib.suppress(BusError):
        await thief.request("$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.none")


TRAP = b'{"protocol":"io.choria.ccm.v1.node.ping.request"}'
TRAP_QUESTION = "$JS.API.DIRECT.GET.KV_CCM_DATA.$KV.CCM_DATA.trap"


async def plain(connection: Connection, key: str, value: bytes) -> None:
    """Write a key as other programs do, so that no header of ours is in the way of copying it."""
    await connection.request(f"$KV.{key}", value)


async def test_a_node_cannot_command_by_a_copied_document(server) -> None:
    async with (
        connected(server, "admin") as admin,
        connected(server, "web1") as node,
        connected(server, "b") as b,
    ):
        await plain(admin, "CCM_DATA.trap", TRAP)
        heard, refused = Heard(), Heard()
        await NatsRequests(node).subscribe(["all"], heard, refused)

        await copy(b, TRAP_QUESTION, f"{P}.node.ping.request.all")

        assert len(await refused.wait(1)) == 1
        assert heard.items == []


async def test_a_node_cannot_speak_for_another_by_a_copied_document(server) -> None:
    subject = event_subject(SESSION_START, "web1", new_id())
    async with connected(server, "op") as operator, connected(server, "b") as b:
        await plain(operator, "CCM_DATA.trap", TRAP)
        heard, events = Heard(), NatsEvents(operator)
        await events.follow(subject, heard)

        await copy(b, TRAP_QUESTION, subject)

        assert await events.read(subject) == []
        assert (heard.items, events.dropped) == ([], 0)


async def test_a_node_cannot_give_itself_facts_by_a_copied_document(server) -> None:
    async with connected(server, "op") as operator, connected(server, "b") as b:
        await plain(operator, "CCM_DATA.trap", b'{"role":"admin"}')

        await copy(b, TRAP_QUESTION, "$KV.CCM_FACTS.b")

        assert await NatsKeyValue(b, "CCM_FACTS").get("b") is None


async def test_a_node_cannot_restore_an_old_assignment(server) -> None:
    async with connected(server, "admin") as admin, connected(server, "b") as b:
        bucket = NatsKeyValue(admin, "CCM_ASSIGNMENTS")
        old = await bucket.put("all.app", b"old")
        newest = await bucket.put("all.app", b"newest")

        for body in (b'{"seq":%d}' % old, b'{"seq":%d,"no_hdr":true}' % old):
            await copy(b, "$JS.API.DIRECT.GET.KV_CCM_ASSIGNMENTS", "$KV.CCM_ASSIGNMENTS.all.app", body)

        [found] = await NatsKeyValue(b, "CCM_ASSIGNMENTS").matching(["all.*"], obeyed=True)
        assert (found.value, found.revision) == (b"newest", newest)


async def test_an_entry_that_names_another_bucket_is_a_copy(server) -> None:
    async with connected(server, "admin") as admin:
        bucket, subject = NatsKeyValue(admin, "CCM_ASSIGNMENTS"), "$KV.CCM_ASSIGNMENTS.all.named"
        found = []
        for name in ("KV_CCM_FACTS", "KV_CCM_ASSIGNMENTS"):
            await store(admin, subject, name.encode(), {"Ccm-Bucket": name})
            found.append([one.value for one in await bucket.matching(["all.named"])])

        assert found == [[], [b"KV_CCM_ASSIGNMENTS"]]


async def test_a_node_cannot_widen_a_due_request(server) -> None:
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
        await copy(b, question, f"{due}.all")
        await copy(b, question, f"{P}.manifest.apply.request.all")

        # the second reaches its neighbours, who refuse it; the first reaches nothing
        assert [subject for subject, _ in await refused.wait(1)] == [f"{P}.manifest.apply.request.all"]
        assert len(heard.items) == 1
        assert await NatsRequests(node).last_due(f"{P}.manifest.apply.request.all") is None
        found = await NatsRequests(node).last_due(f"{P}.manifest.apply.request.fact.role.web")
        assert scheduled_run_id(found) == scheduled_run_id(incoming)


async def test_one_presence_cannot_erase_all_nodes(server) -> None:
    async with (
        connected(server, "web1") as node,
        connected(server, "b") as b,
        connected(server, "op") as operator,
    ):
        await NatsKeyValue(node, "CCM_NODES").put("presence.web1", b"here", ttl_s=60)

        for rollup in ("all", "sub"):
            with pytest.raises(BusError):
                await store(b, "$KV.CCM_NODES.presence.b", b"x", {"Nats-Rollup": rollup})

        assert "presence.web1" in await NatsKeyValue(operator, "CCM_NODES").keys()


async def test_one_registration_cannot_erase_another(server) -> None:
    async with connected(server, "web1") as node:
        subject = registration_subject("prod", "http", "web", "10.0.0.1", "abc")
        await store(node, subject, b"one", {"Nats-TTL": "60"})

        with pytest.raises(BusError):
            await store(node, subject, b"two", {"Nats-Rollup": "all"})


async def test_a_node_cannot_answer_in_anothers_inbox(server) -> None:
    async with connected(server, "web1") as node, connected(server, "b") as b:
        with pytest.raises(BusDeniedError):
            await b.publish(f"{node._inbox}.1", b"forged", confirm=True)


async def test_node_b_cannot_read_the_inbox_of_b_x(server) -> None:
    assert node_permissions("b.x").subscribe[-1] == "_INBOX_b=2Ex.>"

    async with connected(server, "b") as b:
        assert not await may_subscribe(b, "_INBOX_b=2Ex.>")
        assert await may_subscribe(b, "_INBOX_b.x.>")  # nobody's: no inbox is made of a raw name


async def test_a_schedule_beyond_an_operators_role_is_refused(server) -> None:
    headers = {
        "Nats-Schedule": "@every 1h",
        "Nats-Schedule-Target": "choria.ccm.due.manifest.apply.request.all",
    }

    async with connected(server, "op") as operator:
        with pytest.raises(BusDeniedError):
            await store(operator, schedule_subject(MANIFEST_APPLY, "fact.role.web", "x"), b"{}", headers)


async def test_the_admin_may_remove_a_node(server) -> None:
    async with connected(server, "admin") as admin:
        await NatsKeyValue(admin, "CCM_NODES").put("node.gone", b"x")
        await NatsKeyValue(admin, "CCM_NODES").delete("node.gone")

        assert (await read_last(admin, "KV_CCM_NODES", "$KV.CCM_NODES.node.gone")).body == b""
