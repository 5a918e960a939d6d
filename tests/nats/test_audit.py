"""`ccmctl audit` on a broker with security, also when the holder of the broker has changed the trail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence

import msgspec
import pytest

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.audit import AUDIT_NODES_STREAM, AUDIT_STREAM, operator_subject
from ccm_agent.bus.access.audit_entry import AuditEntry
from ccm_agent.bus.access.credentials import user_credentials
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.signatures.signing import (
    SIGNATURE_HEADER,
    SignatureKind,
    SigningKey,
    signing_key_in_credentials,
)
from ccm_agent.bus.streams import Stored, call, read_all, store
from ccm_agent.model.secret import Secret
from tests.support.fleet import Done, a_file, manifest
from tests.support.nats_server import recreate, settings
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]

Change = Callable[[list[Stored]], Sequence[Stored]]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The node web1 with the role web; sue applies there, and has done so; `holder` has the seed of the audit account."""
    with secured_fleet(tmp_path_factory.mktemp("fleet")) as one:
        one.give("operator", "sue", "--apply", "role=web", "--facts")
        seed = Secret((one.keys / "audit.seed").read_text().strip())
        anything = Permissions(account=Account.AUDIT, publish=(">",), subscribe=(">",))
        text = user_credentials(seed, "holder", anything).text.reveal()
        (one.directory / "holder.creds").write_text(text)
        path = one.fleet.write("site.yaml", manifest(a_file("audited")))
        words = ["apply", path, "-t", "role=web", "--yes", "--json"]
        one.fleet.wait_for(lambda: one.as_("sue", *words).code == 0, "the node to know sue")
        for number in range(3):
            assert one.as_("sue", *words).code == 0
            assert one.as_("sue", "facts", "set", "web1", f"number={number}").code == 0
        yield one


def as_holder(secured: Secured, stream: str, change: Change) -> list[Stored]:
    """Delete a stream and make it again with other messages, as only the holder of the seed can; what was in it before."""

    async def work() -> list[Stored]:
        creds = secured.directory / "holder.creds"
        async with Connection(settings(secured.fleet.servers[0], "holder", creds=str(creds))) as holder:
            await holder.connect_now()
            before = [each async for each in read_all(holder, stream, ">")]
            await recreate(holder, stream, no_ack=False)
            for each in change(before):
                own = {k: v for k, v in each.headers.items() if k.startswith("Ccm-")}
                await store(holder, each.subject, each.body, own)
            return before

    return asyncio.run(work())


def key_of(secured: Secured, name: str) -> SigningKey:
    key = signing_key_in_credentials((secured.directory / f"{name}.creds").read_text())
    assert key is not None
    return key


def sues(stored: Stored) -> bool:
    return stored.subject == operator_subject("sue")


def verify(secured: Secured) -> tuple[int, str, dict[str, object]]:
    """Exit code, notes, and the record about sue."""
    done = secured.as_("bob", "audit", "--verify", "--json")
    [found] = [one for one in done.named("audit_author") if one["author"] == "sue"]
    return done.code, done.err, found


def test_trail_shows_who_sent_a_request_and_what_the_node_decided(secured: Secured) -> None:
    path = secured.fleet.write("again.yaml", manifest(a_file("audited")))
    applied = secured.as_("sue", "apply", path, "-t", "role=web", "--yes", "--json")

    def shown() -> Done:
        words = ["audit", "--run", applied.run, "--kind", "request", "--kind", "decision", "--json"]
        return secured.as_("bob", *words)

    secured.fleet.wait_for(lambda: len(shown().named("audit")) == 2, "both entries")
    found = sorted(shown().named("audit"), key=lambda one: str(one["author_kind"]))
    assert [(one["author"], one["kind"], one["action"], one["target"], one["verdict"]) for one in found] == [
        ("web1", "decision", "manifest.apply", "fact.role.web", "verified"),
        ("sue", "request", "manifest.apply", "fact.role.web", "verified"),
    ]
    assert (found[0]["state"], found[0]["requester"]) == ("accepted", "sue")
    assert found[0]["key"] == found[1]["key"] == key_of(secured, "sue").public_key


def test_filters_select_entries(secured: Secured) -> None:
    facts = secured.as_("bob", "audit", "--by", "sue", "--kind", "document", "--json")
    node = secured.as_("bob", "audit", "--node", "web1", "--json")
    refused = secured.as_("bob", "audit", "--refused", "--json")
    table = secured.as_("bob", "audit", "--by", "sue")

    assert {one["target"] for one in facts.named("audit")} == {"CCM_FACTS web1"}
    assert {one["author"] for one in node.named("audit")} == {"web1"}
    assert [one for one in refused.named("audit") if one["state"] == "accepted"] == []
    assert table.code == 0
    assert "manifest.apply" in table.out


def test_admin_who_purges_the_events_leaves_the_trail(secured: Secured) -> None:
    before = verify(secured)

    async def purge() -> None:
        creds = secured.keys / "tester.creds"
        async with Connection(settings(secured.fleet.servers[0], "tester", creds=str(creds))) as admin:
            await admin.connect_now()
            assert (await call(admin, "STREAM.PURGE.CCM_EVENTS"))["purged"] > 0

    asyncio.run(purge())

    assert before[:2] == (0, "")
    assert verify(secured) == before


@pytest.mark.parametrize("stream", [AUDIT_STREAM, AUDIT_NODES_STREAM])
def test_entry_that_the_holder_of_the_broker_removed_is_a_gap(secured: Secured, stream: str) -> None:
    before = as_holder(secured, stream, lambda found: found)
    control = secured.as_("bob", "audit", "--verify", "--json")
    mine = [each for each in before if sues(each) or "agent.decision" in each.subject]
    removed = mine[1]

    as_holder(secured, stream, lambda found: [one for one in found if one.body != removed.body])

    broken = secured.as_("bob", "audit", "--verify", "--json")
    assert (control.code, control.err) == (0, "")
    assert broken.code == 2
    author = "sue" if stream == AUDIT_STREAM else "web1"
    assert f"{author}: 1 entry is missing: 2" in broken.err
    [bad] = [one for one in broken.named("audit_author") if not one["ok"]]
    assert (bad["author"], bad["gaps"]) == (author, [{"first": 2, "last": 2}])
    as_holder(secured, stream, lambda _: before)
    assert secured.as_("bob", "audit", "--verify").code == 0


def forged(secured: Secured, entry: Stored, how: str) -> Stored:
    """An entry of sue as an attacker makes it."""
    told = msgspec.json.decode(entry.body, type=AuditEntry)
    body = msgspec.json.encode(msgspec.structs.replace(told, number=told.number + 1, run="forged"))
    if how == "changed":
        return msgspec.structs.replace(entry, body=body)
    key = key_of(secured, "bob" if how == "another operator" else "holder")
    signature = key.sign(
        SignatureKind.AUDIT, entry.subject, body, issued_ms=int(told.time.timestamp() * 1000)
    )
    headers = {} if how == "unsigned" else {SIGNATURE_HEADER: signature}
    return msgspec.structs.replace(entry, body=body, headers=headers)


@pytest.mark.parametrize(
    ("how", "verdict", "code"),
    [
        ("changed", "forged", 2),
        ("unsigned", "forged", 2),
        ("another operator", "forged", 2),
        ("a key that nobody knows", "unknown key", 0),
    ],
)
def test_entry_that_the_operator_did_not_write_is_told_apart(
    secured: Secured, how: str, verdict: str, code: int
) -> None:
    before = as_holder(secured, AUDIT_STREAM, lambda found: found)
    control = verify(secured)
    newest = [each for each in before if sues(each)][-1]

    as_holder(secured, AUDIT_STREAM, lambda found: [*found, forged(secured, newest, how)])

    broken = verify(secured)
    as_holder(secured, AUDIT_STREAM, lambda _: before)
    assert control[:2] == (0, "")
    assert broken[0] == code
    assert broken[2]["counts"] == {**control[2]["counts"], verdict: 1}  # type: ignore[dict-item]
    assert broken[2]["last"] == control[2]["last"]


def trail_check(secured: Secured) -> tuple[object, object]:
    """What `ccmctl doctor` finds about the audit trail, and how to fix it."""
    [found] = [
        one for one in secured.as_("bob", "doctor", "--json").named("check") if one["id"] == "audit.trail"
    ]
    return found["state"], found.get("fix")


def test_a_fleet_without_the_streams_is_told_how_to_get_them(secured: Secured) -> None:
    before = as_holder(secured, AUDIT_STREAM, lambda found: found)
    assert trail_check(secured) == ("ok", None)

    async def remove() -> dict[str, object]:
        creds = secured.directory / "holder.creds"
        async with Connection(settings(secured.fleet.servers[0], "holder", creds=str(creds))) as holder:
            await holder.connect_now()
            config: dict[str, object] = (await call(holder, f"STREAM.INFO.{AUDIT_STREAM}"))["config"]
            await call(holder, f"STREAM.DELETE.{AUDIT_STREAM}")
            return config

    config = asyncio.run(remove())

    read, acted = secured.as_("bob", "audit"), secured.as_("sue", "facts", "set", "web1", "still=works")

    assert (read.code, acted.code, acted.err) == (1, 0, "")
    assert "ccmctl init --security" in read.err
    assert trail_check(secured) == ("warning", "ccmctl init --security")

    async def restore() -> None:
        creds = secured.directory / "holder.creds"
        async with Connection(settings(secured.fleet.servers[0], "holder", creds=str(creds))) as holder:
            await holder.connect_now()
            await call(holder, f"STREAM.CREATE.{AUDIT_STREAM}", config)

    asyncio.run(restore())
    as_holder(secured, AUDIT_STREAM, lambda _: before)
