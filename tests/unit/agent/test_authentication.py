"""Who may command a node: signatures of requests, schedules and documents."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from ccm_agent.agent.trust.authentication import Authenticator, NotAuthorizedError, WrongClockError
from ccm_agent.agent.trust.revision_guard import RevisionGuard
from ccm_agent.bus.requests import SCHEDULES_STREAM
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureError
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET, Signer, sign_signers
from ccm_agent.bus.subjects import due_subject, request_subject
from ccm_agent.model.errors import InputError, ProtocolError
from ccm_agent.model.ports import IncomingRequest, KeyValueEntry
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import MANIFEST_APPLY, MANIFEST_CHECK, MANIFEST_PLAN, NODE_PING, RESOURCE_EXEC
from ccm_agent.policy.ruling import rule_on
from ccm_agent.testing.clock import FakeClock
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from tests.support.signing import FULL, Keyring, authenticator, now_ms, unsigned

WEB = "fact.role.web"
BODY = b'{"protocol":"x","run":"y"}'


@pytest.fixture
def keys() -> Keyring:
    return Keyring()


def incoming(protocol: str, scope: str, headers: dict[str, str], body: bytes = BODY) -> IncomingRequest:
    return IncomingRequest(
        subject=request_subject(protocol, scope), protocol=protocol, scope=scope, body=body, headers=headers
    )


def due(headers: dict[str, str], moment: datetime, sequence: int = 1, scope: str = "all") -> IncomingRequest:
    """A request as the broker sends it on time."""
    subject = request_subject(MANIFEST_APPLY, scope)
    broker = {
        "Nats-Stream": SCHEDULES_STREAM,
        "Nats-Subject": due_subject(subject),
        "Nats-Sequence": str(sequence),
        "Nats-Time-Stamp": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    return IncomingRequest(
        subject=subject,
        protocol=MANIFEST_APPLY,
        scope=scope,
        body=BODY,
        headers=headers | broker,
        scheduled=True,
    )


async def test_verified_signer_is_the_principal(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", apply=(WEB,), roles=("ops",))
    node = authenticator(tmp_path, keys.trust())
    subject = request_subject(MANIFEST_APPLY, WEB)

    found = await node.request(incoming(MANIFEST_APPLY, WEB, bob.request(subject, BODY)))

    assert (found.name, found.key, found.roles, found.is_verified) == ("bob", bob.public_key, ("ops",), True)
    assert not found.is_plan_only


async def test_node_with_keys_refuses_what_is_not_signed(tmp_path: Path, keys: Keyring) -> None:
    node = authenticator(tmp_path, keys.trust())

    with pytest.raises(SignatureError, match="not signed"):
        await node.request(incoming(NODE_PING, "all", {}))


async def test_unsigned_is_taken_only_for_as_long_as_the_list_says(tmp_path: Path, keys: Keyring) -> None:
    for until, is_taken in ((now_ms() + 60_000, True), (now_ms() - 1, False)):
        node = authenticator(tmp_path / str(is_taken), keys.trust(allow_unsigned_until=until))

        assert node.takes_unsigned is is_taken
    with pytest.raises(SignatureError):
        await node.request(incoming(NODE_PING, "all", {}))


async def test_key_that_only_the_broker_knows_commands_nothing(tmp_path: Path, keys: Keyring) -> None:
    node = authenticator(tmp_path, keys.trust())
    stranger = Keyring().operator("root", **FULL)
    subject = request_subject(MANIFEST_APPLY, "all")

    with pytest.raises(SignatureError, match="not in signers list"):
        await node.request(incoming(MANIFEST_APPLY, "all", stranger.request(subject, BODY)))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        pytest.param({"body": BODY + b" "}, "content was changed", id="another body"),
        pytest.param({"subject": request_subject(MANIFEST_APPLY, "all")}, "is for", id="another scope"),
        pytest.param({"subject": request_subject(MANIFEST_PLAN, WEB)}, "is for", id="another action"),
        pytest.param({"scheduled": True}, "is for a request", id="as if it were scheduled"),
    ],
)
async def test_signed_request_that_was_changed_on_its_way_is_refused(
    tmp_path: Path, keys: Keyring, changes: dict[str, object], why: str
) -> None:
    bob = keys.operator("bob", **FULL)
    node = authenticator(tmp_path, keys.trust())
    sent = incoming(MANIFEST_APPLY, WEB, bob.request(request_subject(MANIFEST_APPLY, WEB), BODY))

    with pytest.raises(SignatureError, match=why):
        await node.request(msgspec.structs.replace(sent, **changes))


@pytest.mark.parametrize(
    ("protocol", "scope", "role"),
    [
        pytest.param(MANIFEST_APPLY, "all", {"apply": (WEB,)}, id="beyond the scope"),
        pytest.param(MANIFEST_APPLY, WEB, {"plan": (WEB,)}, id="applies with the right to plan"),
        pytest.param(MANIFEST_PLAN, WEB, {}, id="plans with the right to look"),
        pytest.param(MANIFEST_APPLY, WEB, {"exec": (WEB,)}, id="applies with the right to run commands"),
        pytest.param(RESOURCE_EXEC, "all", {"exec": (WEB,)}, id="runs a command beyond the scope"),
        pytest.param(MANIFEST_PLAN, WEB, {"data": True}, id="plans with the right to write data"),
        pytest.param(MANIFEST_PLAN, WEB, {"facts": True}, id="plans with the right to assign facts"),
        pytest.param(
            MANIFEST_APPLY,
            WEB,
            {"admin": True, "timestamp": True},
            id="applies with the right to administrate",
        ),
    ],
)
async def test_role_in_the_signed_list_bounds_what_a_signer_may_ask(
    tmp_path: Path, keys: Keyring, protocol: str, scope: str, role: dict[str, tuple[str, ...]]
) -> None:
    bob = keys.operator("bob", **role)
    node = authenticator(tmp_path, keys.trust())

    with pytest.raises(NotAuthorizedError, match="bob may not send"):
        await node.request(incoming(protocol, scope, bob.request(request_subject(protocol, scope), BODY)))


async def test_plan_of_a_signer_who_may_not_apply_is_marked(tmp_path: Path, keys: Keyring) -> None:
    planner = keys.operator("pat", plan=(WEB,))
    node = authenticator(tmp_path, keys.trust())
    subject = request_subject(MANIFEST_PLAN, WEB)

    assert (await node.request(incoming(MANIFEST_PLAN, WEB, planner.request(subject, BODY)))).is_plan_only


@pytest.mark.parametrize("protocol", [MANIFEST_PLAN, MANIFEST_CHECK])
async def test_outdated_list_gives_no_right_to_the_commands_of_a_plan(tmp_path: Path, protocol: str) -> None:
    clock = FakeClock()
    keys = Keyring(lambda: int(clock.now().timestamp() * 1000))
    bob = keys.operator("bob", **FULL)
    node = authenticator(tmp_path, keys.trust(max_age_s=3600), clock)
    subject = request_subject(protocol, WEB)

    found = await node.request(incoming(protocol, WEB, bob.request(subject, BODY)))
    assert not found.is_plan_only  # the list is young
    await clock.advance(3601)
    found = await node.request(incoming(protocol, WEB, bob.request(subject, BODY)))

    assert found.is_plan_only
    ruling = rule_on(None, found, "plan", "plan", clock.now())
    assert ruling.is_allowed
    assert ruling.grant is not None
    assert ruling.grant.is_restricted


async def test_no_request_is_taken_while_the_clock_is_behind_the_signers_list(tmp_path: Path) -> None:
    clock = FakeClock()
    keys = Keyring(lambda: int(clock.now().timestamp() * 1000))
    bob = keys.operator("bob", **FULL)
    keys.at_ms = lambda: int(clock.now().timestamp() * 1000) + 3_600_000
    node = authenticator(tmp_path, keys.trust(), clock)
    sent = incoming(NODE_PING, "all", bob.request(request_subject(NODE_PING, "all"), BODY))

    with pytest.raises(WrongClockError, match="the clock is slow"):
        await node.request(sent)
    await clock.advance(3600)

    assert (await node.request(sent)).name == "bob"


async def test_newer_list_revokes_and_an_older_one_never_comes_back(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", **FULL)
    trust = keys.trust()
    node = authenticator(tmp_path, trust)
    broker = MemoryBroker()
    bucket = MemoryBus(broker, "op").bucket(TRUST_BUCKET)
    keys.signers.clear()
    newer = sign_signers(keys.root, keys.listed())
    older = trust.signers
    assert older is not None

    await put(bucket, newer.body, newer.signature)
    assert await node.read_list(bucket)
    await put(bucket, older.body, older.signature)
    assert not await node.read_list(bucket)

    restarted = await asyncio.to_thread(authenticator, tmp_path, trust)
    ping = incoming(NODE_PING, "all", bob.request(request_subject(NODE_PING, "all"), BODY))
    for each in (node, restarted):
        with pytest.raises(SignatureError, match="not in signers list 2"):
            await each.request(ping)


async def test_list_that_the_root_has_not_signed_is_refused(tmp_path: Path, keys: Keyring) -> None:
    node = authenticator(tmp_path, keys.trust())
    bucket = MemoryBus(MemoryBroker(), "op").bucket(TRUST_BUCKET)
    other = Keyring()
    other.number = 50
    forged = sign_signers(other.root, other.listed())
    await put(bucket, forged.body, forged.signature)

    with pytest.raises(SignatureError, match="root key"):
        await node.read_list(bucket)
    assert node.signers.number == 1


async def put(bucket: object, body: str, signature: str) -> None:
    """Store a list as it is, signature and all."""
    bucket._bus.signatory = None  # type: ignore[attr-defined]
    await bucket.put(SIGNERS_KEY, body.encode())  # type: ignore[attr-defined]
    bucket._writes[-1].signature = signature  # type: ignore[attr-defined]


def test_credentials_with_a_list_that_another_root_signed_are_an_error(tmp_path: Path, keys: Keyring) -> None:
    trust = msgspec.structs.replace(keys.trust(), root=Keyring().root.public_key)

    with pytest.raises(InputError, match="cannot be used"):
        authenticator(tmp_path, trust)


def test_node_without_keys_is_in_unsigned_operation(tmp_path: Path) -> None:
    node = unsigned(tmp_path)

    assert not node.is_demanded
    assert node.takes_unsigned


def test_signer_of_the_configuration_counts_without_a_root(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", **FULL)
    fixed = [Signer(name="bob", key=bob.public_key, facts=True)]
    node = Authenticator(None, authenticator(tmp_path, keys.trust())._clock, tmp_path / "s.json", fixed)
    entry = signed_entry(bob, "CCM_FACTS", "web1", number=1)

    assert node.is_demanded
    assert node.document("CCM_FACTS", entry).name == "bob"


# -- schedules

NOW = datetime.now(UTC).replace(microsecond=0)


def scheduled(operator, when: str, **others: object) -> dict[str, str]:
    subject = request_subject(MANIFEST_APPLY, "all")
    fields = {"name": "nightly", "when": when, "zone": "", "expires_ms": now_ms() + 10**9} | others
    return operator.schedule(subject, BODY, **fields)


@pytest.mark.parametrize(
    ("when", "off_s", "fits"),
    [
        pytest.param(f"@at {NOW:%Y-%m-%dT%H:%M:%SZ}", 0, True, id="at its time"),
        pytest.param(f"@at {NOW:%Y-%m-%dT%H:%M:%SZ}", 1800, True, id="after the broker was down"),
        pytest.param(f"@at {NOW:%Y-%m-%dT%H:%M:%SZ}", -60, False, id="before its time"),
        pytest.param(f"@at {NOW:%Y-%m-%dT%H:%M:%SZ}", 7200, False, id="hours later"),
        pytest.param("0 0 2 * * *", None, False, id="at noon instead of at night"),
        pytest.param("* * * * * *", 0, True, id="each second"),
        pytest.param("", 0, False, id="no time was signed"),
    ],
)
async def test_due_time_must_fit_the_signed_schedule(
    tmp_path: Path, keys: Keyring, when: str, off_s: int | None, fits: bool
) -> None:
    timer = keys.operator("tim", schedules=True)
    node = authenticator(tmp_path, keys.trust())
    moment = NOW.replace(hour=12) if off_s is None else NOW + timedelta(seconds=off_s)
    sent = due(scheduled(timer, when), moment)

    if fits:
        assert (await node.request(sent)).name == "tim"
    else:
        with pytest.raises(SignatureError, match="does not match"):
            await node.request(sent)


async def test_each_time_of_a_schedule_counts_once_also_after_a_restart(
    tmp_path: Path, keys: Keyring
) -> None:
    timer = keys.operator("tim", schedules=True)
    trust = keys.trust()
    node = authenticator(tmp_path, trust)
    headers = scheduled(timer, f"@at {NOW:%Y-%m-%dT%H:%M:%SZ}")
    first, again = due(headers, NOW), due(headers, NOW + timedelta(seconds=5), sequence=9)

    await node.request(first)
    await node.request(first)  # delivered twice: the ledger answers

    for each in (node, await asyncio.to_thread(authenticator, tmp_path, trust)):
        with pytest.raises(SignatureError, match="already executed for this time"):
            await each.request(again)


async def test_schedule_of_an_interval_is_not_sent_more_often(tmp_path: Path, keys: Keyring) -> None:
    timer = keys.operator("tim", schedules=True)
    node = authenticator(tmp_path, keys.trust())
    headers = scheduled(timer, "@every 3600s")

    await node.request(due(headers, NOW))
    with pytest.raises(SignatureError):
        await node.request(due(headers, NOW + timedelta(seconds=600), sequence=2))
    await node.request(due(headers, NOW + timedelta(seconds=3590), sequence=3))


async def test_schedule_ends_when_its_signature_expires(tmp_path: Path, keys: Keyring) -> None:
    timer = keys.operator("tim", schedules=True)
    node = authenticator(tmp_path, keys.trust())

    with pytest.raises(SignatureError, match="expired"):
        await node.request(due(scheduled(timer, "* * * * * *", expires_ms=now_ms() - 1000), NOW))


async def test_who_may_apply_may_not_schedule(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", apply=("all",))
    node = authenticator(tmp_path, keys.trust())

    with pytest.raises(NotAuthorizedError, match="schedule"):
        await node.request(due(scheduled(bob, "* * * * * *"), NOW))


# -- documents


def signed_entry(operator, bucket: str, key: str, number: int, body: object = None) -> KeyValueEntry:
    value = msgspec.json.encode(Stamped(bucket=bucket, key=key, number=number, body=body or {}))
    signature = operator.document(bucket, key, value)[SIGNATURE_HEADER]
    return KeyValueEntry(key=key, value=value, revision=1, created=NOW, signature=signature)


@pytest.mark.parametrize(
    ("bucket", "key", "role", "may"),
    [
        pytest.param("CCM_FACTS", "web1", {"facts": True}, True, id="facts"),
        pytest.param("CCM_FACTS", "web1", {"apply": (">",), "data": True}, False, id="facts by another role"),
        pytest.param("CCM_DATA", "common", {"data": True}, True, id="data"),
        pytest.param("CCM_DATA", "common", {"facts": True}, False, id="data by another role"),
        pytest.param("CCM_ASSIGNMENTS", f"{WEB}.site", {"apply": (WEB,)}, True, id="assignment"),
        pytest.param(
            "CCM_ASSIGNMENTS", "all.site", {"apply": (WEB,)}, False, id="assignment beyond the scope"
        ),
        *(
            pytest.param(
                "CCM_ASSIGNMENTS", f"{WEB}.site", {right: value}, False, id=f"assignment with {right}"
            )
            for right, value in {"data": True, "facts": True, "admin": True, "exec": (WEB,)}.items()
        ),
        *(
            pytest.param(bucket, key, {"admin": True}, False, id=f"{bucket} with admin")
            for bucket, key in (("CCM_FACTS", "web1"), ("CCM_DATA", "common"))
        ),
    ],
)
def test_document_counts_when_its_signer_may_write_there(
    tmp_path: Path, keys: Keyring, bucket: str, key: str, role: dict[str, object], may: bool
) -> None:
    bob = keys.operator("bob", **role)
    revision_guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, keys.trust()))
    entry = signed_entry(bob, bucket, key, number=1)

    if may:
        assert revision_guard.check(bucket, entry).number == 1
    else:
        with pytest.raises(SignatureError, match="may not write there"):
            revision_guard.check(bucket, entry)


def test_number_more_than_a_day_ahead_is_refused_and_not_remembered(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", facts=True)
    guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, keys.trust()))
    now = int(time.time() * 1000)

    with pytest.raises(ProtocolError, match="more than a day ahead"):
        guard.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=now + 90_000_000))
    frozen = KeyValueEntry(
        key="web1",
        value=b"",
        revision=2,
        created=NOW,
        signature=bob.deletion("CCM_FACTS", "web1", (1 << 53) - 2)[SIGNATURE_HEADER],
    )
    guard.numbers["CCM_FACTS/web1"] = now
    with pytest.raises(ProtocolError, match="more than a day ahead"):
        guard.check_absence("CCM_FACTS", "web1", frozen)

    assert (
        guard.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=now + 80_000_000)).body == {}
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"signature": ""}, id="without its signature"),
        pytest.param(
            {"value": b'{"bucket":"CCM_DATA","key":"common","number":9,"body":"x"}'}, id="another body"
        ),
        pytest.param({"key": "other"}, id="under another key"),
    ],
)
def test_changed_document_is_refused(tmp_path: Path, keys: Keyring, change: dict[str, object]) -> None:
    bob = keys.operator("bob", **FULL)
    revision_guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, keys.trust()))
    entry = signed_entry(bob, "CCM_DATA", "common", number=1)

    with pytest.raises(SignatureError):
        revision_guard.check("CCM_DATA", msgspec.structs.replace(entry, **change))


def test_document_older_than_the_floor_of_the_credentials_is_refused(tmp_path: Path, keys: Keyring) -> None:
    bob = keys.operator("bob", **FULL)
    trust = msgspec.structs.replace(keys.trust(), floors={"CCM_FACTS/web1": 5})
    revision_guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, trust))

    with pytest.raises(ProtocolError, match="older than 5"):
        revision_guard.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=4))
    assert revision_guard.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=5)).number == 5


def deletion(operator, number: int, note: str = "") -> KeyValueEntry:
    signature = operator.deletion("CCM_FACTS", "web1", number, note)[SIGNATURE_HEADER]
    return KeyValueEntry(key="web1", value=b"", revision=2, created=NOW, signature=signature, note=note)


async def test_document_that_vanishes_is_deleted_only_by_a_signed_deletion(
    tmp_path: Path, keys: Keyring
) -> None:
    bob = keys.operator("bob", **FULL)
    trust = keys.trust()
    revision_guard = RevisionGuard(tmp_path / "documents.json", authenticator(tmp_path, trust))
    revision_guard.check_absence("CCM_FACTS", "web1", None)  # nothing was ever there
    await revision_guard.seen(
        revision_guard.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=5))
    )

    for newest in (None, KeyValueEntry(key="web1", value=b"", revision=2, created=NOW), deletion(bob, 4)):
        with pytest.raises(ProtocolError):
            revision_guard.check_absence("CCM_FACTS", "web1", newest)
    revision_guard.check_absence("CCM_FACTS", "web1", deletion(bob, 6, note="its reason"))
    # the deletion and another number are written together
    await revision_guard.seen(Stamped(bucket="CCM_FACTS", key="web2", number=8, body={}))

    restarted = RevisionGuard(
        tmp_path / "documents.json", await asyncio.to_thread(authenticator, tmp_path, trust)
    )
    await asyncio.to_thread(restarted.open)
    assert restarted.numbers == {"CCM_FACTS/web1": 5, "CCM_FACTS/web2": 8}
    for each in (revision_guard, restarted):
        each.check_absence("CCM_FACTS", "web1", None)
        with pytest.raises(ProtocolError, match="older than 6"):
            each.check("CCM_FACTS", signed_entry(bob, "CCM_FACTS", "web1", number=5))


async def test_emptied_bucket_takes_nothing_away_without_signatures_either(tmp_path: Path) -> None:
    revision_guard = RevisionGuard(tmp_path / "documents.json", unsigned(tmp_path))
    await revision_guard.seen(Stamped(bucket="CCM_FACTS", key="web1", number=5, body={}))

    with pytest.raises(ProtocolError, match="disappeared without being deleted"):
        revision_guard.check_absence("CCM_FACTS", "web1", None)
    revision_guard.check_absence(
        "CCM_FACTS", "web1", KeyValueEntry(key="web1", value=b"", revision=2, created=NOW)
    )


async def test_while_unsigned_is_allowed_a_signature_that_does_not_count_is_worth_none(
    tmp_path: Path, keys: Keyring
) -> None:
    keys.operator("bob", **FULL)
    node = authenticator(tmp_path, keys.trust(allow_unsigned_until=now_ms() + 60_000))
    stranger = Keyring().operator("old", **FULL)
    subject = request_subject(MANIFEST_APPLY, "all")

    found = await node.request(incoming(MANIFEST_APPLY, "all", stranger.request(subject, BODY)))

    assert (found.name, found.is_verified) == ("", False)
