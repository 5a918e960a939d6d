"""
The holder of every key of the broker changes, replays, moves and makes up messages; a node with trust runs nothing of it.

The broker of these tests asks for no credentials: whatever its operator, system or account keys could do, the attacker's
connection may do here. The node's trust does not come from the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.messages import SENT
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.object_descriptions import encode_name
from ccm_agent.bus.objects import NatsObjects
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.trust import SIGNERS_SUBJECT, sign_signers
from ccm_agent.bus.streams import call, read_last, store
from ccm_agent.bus.subjects import assignment_key, due_subject, key_subject, request_subject, schedule_subject
from ccm_agent.engine.request import ApplyOptions, ManifestSource
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.ids import new_id
from ccm_agent.model.outcome import TransactionEvent
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_PLAN,
    NODE_PING,
    RESOURCE_ENSURE,
    RUN_STOP,
    Assignment,
    EnsureRequest,
    ManifestRequest,
)
from ccm_agent.system.clock import SystemClock
from ccm_agent.testing.nats_server import NatsServer
from tests.support.agent import Bus, Controller, agent_ports, agent_settings, running, until, until_asked
from tests.support.assignments import BundleEngine
from tests.support.bundles import digest_of, packed
from tests.support.nats_server import connected_plain, ports_on, prepare, recreate, running_server
from tests.support.signing import FULL, Keyring, OwnKeyValue, OwnRequests, OwnSignatory, now_ms

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

NODE = "web1.example.net"
ALL = request_subject(MANIFEST_APPLY, "all")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running_server(tmp_path_factory.mktemp("nats")) as one:
        yield one


class WatchedEngine(BundleEngine):
    """Remembers single resources, too."""

    async def ensure(
        self, type_name: str, properties: Mapping[str, Any], options: ApplyOptions
    ) -> TransactionEvent:
        self.applied.append((ManifestSource(text=f"ensure {type_name}".encode()), options))
        return await super().ensure(type_name, properties, options)


class Stage:
    """A node that trusts one operator, that operator, and an attacker who holds the broker."""

    def __init__(self, attacker: Connection, operator: Connection, keys: Keyring, bob: Signatory) -> None:
        self.attacker = attacker
        self.keys = keys
        self.bob = bob
        self.engine = WatchedEngine()
        self.requests = OwnRequests(operator, bob)
        self.objects = NatsObjects(operator, "CCM_MANIFESTS")
        self._operator = operator
        self._number = now_ms()

    def bucket(self, name: str) -> NatsKeyValue:
        return OwnKeyValue(self._operator, name, self.bob)

    def number(self) -> int:
        self._number += 1
        return self._number

    async def apply(self, text: str, scope: str = "all") -> None:
        """What the operator sends."""
        await self.requests.publish(request_subject(MANIFEST_APPLY, scope), manifest(text))

    async def forge(self, subject: str, body: bytes, headers: Mapping[str, str]) -> None:
        """What the attacker sends, as a program of ours would."""
        await self.attacker.publish(subject, body, {SENT: "1", **headers}, confirm=True)

    async def overwrite(self, bucket: str, key: str, body: bytes, headers: Mapping[str, str]) -> None:
        """What the attacker stores."""
        headers = {"Nats-Expected-Stream": f"KV_{bucket}", **headers}
        await store(self.attacker, key_subject(bucket, key), body, headers)

    async def exchange_object(self, name: str, content: bytes) -> None:
        """What the attacker stores under the name of another object, which programs of ours do not send."""
        await self.objects.put("evil", content)
        described, exchanged = (f"$O.CCM_MANIFESTS.M.{encode_name(each)}" for each in ("evil", name))
        meta = await read_last(self.attacker, "OBJ_CCM_MANIFESTS", described)
        assert meta is not None
        await store(self.attacker, exchanged, meta.body.replace(b'"evil"', f'"{name}"'.encode()))

    @property
    def ran(self) -> list[str]:
        """The manifests that the node has run, but those of `settled`."""
        return [text for text, _ in self.engine.runs if not text.startswith("stable /proof")]

    async def settled(self) -> None:
        """Return when the node has dealt with all that was sent: a signed request that comes last has run."""
        name = f"/proof/{new_id()}"
        before = len(self.engine.applied)
        await self.apply(f"stable {name}", f"node.{NODE}")
        await until(lambda: any(name in text for text, _ in self.engine.runs[before:]))


def bus_on(connection: Connection) -> Bus:
    ports = ports_on(connection)
    return Bus(ports.link, ports.requests, ports.events, ports.bucket, ports.objects)


def manifest(text: str, run: str = "", **fields: Any) -> bytes:
    request = ManifestRequest(
        protocol=MANIFEST_APPLY, run=run or new_id(), name="site", manifest=text, requester="root", **fields
    )
    return msgspec.json.encode(request)


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[Stage]:
    async with contextlib.AsyncExitStack() as stack:
        attacker, operator, node = [
            await stack.enter_async_context(connected_plain(server, name)) for name in ("evil", "bob", NODE)
        ]
        await prepare(server)
        keys = Keyring()
        bob = keys.operator("bob", **FULL)
        one = Stage(attacker, operator, keys, bob)
        made = agent_ports(bus_on(node), one.engine, SystemClock(), trust=keys.trust())
        settings = agent_settings(tmp_path, NODE, read_interval_s=0.5)
        async with running(settings, made):
            yield one
        for bucket in ("CCM_ASSIGNMENTS", "CCM_FACTS", "CCM_DATA", "CCM_TRUST"):
            await recreate(attacker, f"KV_{bucket}")
        await call(attacker, "STREAM.PURGE.CCM_SCHEDULES")


def request_bodies() -> list[Any]:
    ensure = EnsureRequest(
        protocol=RESOURCE_ENSURE, run=new_id(), type="exec", properties={"name": "/bin/id"}, requester="root"
    )
    return [
        pytest.param(MANIFEST_APPLY, manifest("changed /evil"), id="apply"),
        pytest.param(RESOURCE_ENSURE, msgspec.json.encode(ensure), id="ensure"),
        pytest.param(
            MANIFEST_PLAN,
            manifest("changed /evil").replace(b"manifest.apply", b"manifest.plan"),
            id="plan, which runs guards",
        ),
    ]


@pytest.mark.parametrize(("protocol", "body"), request_bodies())
@pytest.mark.parametrize("scope", ["all", f"node.{NODE}"])
@pytest.mark.parametrize("author", ["nobody", "a key of the broker's", "a look-only operator"])
async def test_made_up_request_runs_nothing(
    stage: Stage, protocol: str, body: bytes, scope: str, author: str
) -> None:
    subject = request_subject(protocol, scope)
    signatories = {
        "nobody": lambda: None,
        "a key of the broker's": lambda: Keyring().operator("bob", **FULL),
        "a look-only operator": lambda: stage.keys.operator("ann"),
    }
    signatory = signatories[author]()
    if author == "a look-only operator":
        listed = sign_signers(stage.keys.root, stage.keys.listed())
        await stage.overwrite(
            "CCM_TRUST", "signers", listed.body.encode(), {SIGNATURE_HEADER: listed.signature}
        )
        await asyncio.sleep(0.2)  # it does not matter whether the node has read the list: both refuse

    await stage.forge(subject, body, signatory.request(subject, body) if signatory else {})
    await stage.settled()

    assert stage.ran == []


def moved(stage: Stage, subject: str, body: bytes) -> list[tuple[str, bytes, dict[str, str]]]:
    """What can be made of one signed request."""
    headers = stage.bob.request(subject, body)
    signature = headers[SIGNATURE_HEADER]
    version, claims, signed = signature.split(".")
    other = stage.bob.request(subject, b"x")[SIGNATURE_HEADER].split(".")
    return [
        (subject, body.replace(b"/good", b"/evil"), headers),
        (subject, body, {}),
        (subject, body, {SIGNATURE_HEADER: f"{version}.{other[1]}.{signed}"}),
        (subject, body, {SIGNATURE_HEADER: f"{version}.{claims}.{other[2]}"}),
        (subject, body, {SIGNATURE_HEADER: signature[:-2]}),
        (request_subject(MANIFEST_APPLY, f"node.{NODE}"), body, headers),
        (request_subject(MANIFEST_PLAN, "all"), body, headers),
        (subject, body + b" ", headers),
    ]


async def test_signed_request_that_was_changed_or_moved_runs_nothing(stage: Stage) -> None:
    for subject, body, headers in moved(stage, ALL, manifest("changed /good")):
        await stage.forge(subject, body, headers)
    await stage.settled()

    assert stage.ran == []


async def test_signed_request_runs_once_however_often_it_is_sent(stage: Stage) -> None:
    body = manifest("changed /good")
    headers = stage.bob.request(ALL, body)

    for _ in range(5):
        await stage.forge(ALL, body, headers)
        await stage.settled()

    assert stage.ran == ["changed /good"]


async def test_saved_plan_without_its_plan_applies_nothing(stage: Stage) -> None:
    body = manifest("changed /good", plan=new_id())
    headers = stage.bob.request(ALL, body)
    without = msgspec.json.encode(
        {name: value for name, value in msgspec.json.decode(body).items() if name != "plan"}
    )

    await stage.forge(ALL, without, headers)
    await stage.forge(ALL, body, headers)
    await stage.settled()

    # the node refuses the first, and has no such plan for the second
    assert stage.ran == []


async def test_request_that_was_held_back_until_it_expired_runs_nothing(stage: Stage) -> None:
    key = stage.bob._key
    slow = OwnSignatory(key, lambda: now_ms() - 2 * 3_600_000)
    body = manifest("changed /good")

    await stage.forge(ALL, body, slow.request(ALL, body))
    await stage.settled()

    assert stage.ran == []


async def test_stop_and_ping_that_are_not_signed_do_nothing(stage: Stage) -> None:
    controller = Controller(bus_on(stage.attacker))
    await controller.listen()
    run = new_id()
    for protocol, fields in ((RUN_STOP, {"stop": run}), (NODE_PING, {})):
        body = msgspec.json.encode({"protocol": protocol, "run": new_id(), **fields})
        await stage.forge(request_subject(protocol, "all"), body, {})
    body = manifest("changed /good", run=run)
    await stage.forge(ALL, body, stage.bob.request(ALL, body))
    await stage.settled()

    assert stage.ran == ["changed /good"]
    answers = [said for subject, said in controller.heard if ".session.answer." in subject]
    assert {one["state"] for one in answers} <= {"accepted", "queued"}


# -- documents


async def assignment(stage: Stage, text: str, number: int = 0, **fields: Any) -> tuple[str, bytes]:
    content = packed(text)
    await stage.objects.put(digest_of(content), content)
    bundle = Bundle(digest=digest_of(content), size_bytes=len(content))
    key = assignment_key("all", "site")
    body = msgspec.to_builtins(Assignment(name="site", scope="all", bundle=bundle, **fields))
    stamped = Stamped(bucket="CCM_ASSIGNMENTS", key=key, number=number or stage.number(), body=body)
    return key, msgspec.json.encode(stamped)


async def test_made_up_or_changed_assignment_is_not_converged_on(stage: Stage) -> None:
    key, evil = await assignment(stage, "changed /evil")
    stranger = Keyring().operator("bob", **FULL)
    signed = stage.bob.document("CCM_ASSIGNMENTS", key, evil.replace(b"site", b"sit"))
    for headers in ({}, stranger.document("CCM_ASSIGNMENTS", key, evil), signed):
        await stage.overwrite("CCM_ASSIGNMENTS", key, evil, headers)
        await stage.settled()

    assert stage.ran == []


async def test_older_assignment_is_not_restored_and_a_purge_removes_none(stage: Stage) -> None:
    key, old = await assignment(stage, "changed /old", interval_s=0.2)
    await stage.bucket("CCM_ASSIGNMENTS").put(key, old)
    await until(lambda: "changed /old" in stage.ran)
    _, new = await assignment(stage, "changed /new", interval_s=0.2)
    await stage.bucket("CCM_ASSIGNMENTS").put(key, new)
    await until(lambda: "changed /new" in stage.ran)

    await stage.overwrite("CCM_ASSIGNMENTS", key, old, stage.bob.document("CCM_ASSIGNMENTS", key, old))
    await call(stage.attacker, "STREAM.PURGE.KV_CCM_ASSIGNMENTS")
    await stage.overwrite("CCM_ASSIGNMENTS", key, b"", {"KV-Operation": "DEL"})
    count = stage.ran.count("changed /new")

    await until(lambda: stage.ran.count("changed /new") > count + 2)
    assert "changed /old" not in stage.ran[stage.ran.index("changed /new") :]


async def test_signed_deletion_ends_an_assignment(stage: Stage) -> None:
    key, body = await assignment(stage, "changed /good", interval_s=0.2)
    await stage.bucket("CCM_ASSIGNMENTS").put(key, body)
    await until(lambda: stage.ran.count("changed /good") > 1)

    await stage.bucket("CCM_ASSIGNMENTS").delete(key, number=stage.number())
    await stage.settled()
    await asyncio.sleep(0.3)  # a convergence that was under way ends
    count = len(stage.ran)
    await stage.settled()

    assert len(stage.ran) == count


async def test_bundle_that_was_exchanged_is_not_unpacked(stage: Stage) -> None:
    # no other test stores this one, so the attacker's is the only object of the name
    wanted = f"changed /bundle-{new_id()}"
    good, evil = packed(wanted), packed("changed /evil")
    bundle = Bundle(digest=digest_of(good), size_bytes=len(good))

    async def apply() -> None:
        request = ManifestRequest(protocol=MANIFEST_APPLY, run=new_id(), name="site", bundle=bundle)
        body = msgspec.json.encode(request)
        await stage.forge(ALL, body, stage.bob.request(ALL, body))

    await stage.exchange_object(digest_of(good), evil)
    await apply()
    await stage.settled()
    assert stage.ran == []

    await stage.objects.put(digest_of(good), good)
    await apply()
    await until(lambda: stage.ran == [wanted])


async def test_facts_that_are_not_signed_move_a_node_into_no_role(stage: Stage) -> None:
    role = request_subject(MANIFEST_APPLY, "fact.role.db")
    facts = Stamped(bucket="CCM_FACTS", key=NODE, number=stage.number(), body={"role": "db"})
    await stage.overwrite("CCM_FACTS", NODE, msgspec.json.encode(facts), {})
    await asyncio.sleep(0.7)  # it is read again meanwhile
    body = manifest("changed /db")

    await stage.forge(role, body, stage.bob.request(role, body))
    await stage.settled()

    assert stage.ran == []


# -- schedules


async def wait_due(stage: Stage) -> None:
    async def is_due() -> bool:
        return await read_last(stage.attacker, "CCM_SCHEDULES", due_subject(ALL)) is not None

    await until_asked(is_due)


def schedule_headers(stage: Stage, body: bytes, when: str) -> dict[str, str]:
    return stage.bob.schedule(ALL, body, name="nightly", when=when, zone="", expires_ms=now_ms() + 10**7)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda body, headers: (body, {}), id="without a signature"),
        pytest.param(
            lambda body, headers: (body.replace(b"good", b"evil"), headers),
            id="another body under the signature",
        ),
        pytest.param(lambda body, headers: (body, headers), id="at another time than was signed"),
    ],
)
async def test_schedule_of_the_attacker_runs_nothing(
    stage: Stage, change: Callable[[bytes, dict[str, str]], tuple[bytes, dict[str, str]]]
) -> None:
    body = msgspec.json.encode(
        ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="changed /good", cause="schedule")
    )
    later = datetime.now(UTC) + timedelta(hours=5)
    sent, headers = change(body, schedule_headers(stage, body, f"@at {later:%Y-%m-%dT%H:%M:%SZ}"))
    subject = schedule_subject(MANIFEST_APPLY, "all", "nightly")
    times = {"Nats-Schedule": "@at 2026-01-01T00:00:00Z", "Nats-Schedule-Target": due_subject(ALL)}

    await store(stage.attacker, subject, sent, times | headers)
    await wait_due(stage)
    await stage.settled()

    assert stage.ran == []


async def test_signed_schedule_runs_at_its_time_and_not_again(stage: Stage) -> None:
    body = msgspec.json.encode(
        ManifestRequest(protocol=MANIFEST_APPLY, name="site", manifest="changed /good", cause="schedule")
    )
    when = f"@at {datetime.now(UTC) + timedelta(seconds=2):%Y-%m-%dT%H:%M:%SZ}"
    subject = schedule_subject(MANIFEST_APPLY, "all", "nightly")
    headers = schedule_headers(stage, body, when) | {"Nats-Schedule-Target": due_subject(ALL)}
    await store(stage.attacker, subject, body, headers | {"Nats-Schedule": when})
    await until(lambda: stage.ran == ["changed /good"])

    again = {"Nats-Schedule": "@at 2026-01-01T00:00:00Z"}
    await store(stage.attacker, subject, body, headers | again)
    await asyncio.sleep(1.5)
    await stage.settled()

    assert stage.ran == ["changed /good"]


# -- the list itself


async def test_signers_list_of_the_attacker_is_not_taken(stage: Stage) -> None:
    evil = Keyring()
    evil.number = now_ms()
    mallory = evil.operator("mallory", **FULL)
    listed = sign_signers(evil.root, evil.listed())
    for headers in ({SIGNATURE_HEADER: listed.signature}, {}):
        await store(
            stage.attacker,
            SIGNERS_SUBJECT,
            listed.body.encode(),
            {"Nats-Expected-Stream": "KV_CCM_TRUST", **headers},
        )
        await asyncio.sleep(0.7)  # it is read meanwhile
        body = manifest("changed /evil")
        await stage.forge(ALL, body, mallory.request(ALL, body))
        await stage.settled()

    assert stage.ran == []
