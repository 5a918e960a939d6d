"""The entries of operators in the audit trail, as `ccmctl` writes them on a broker with security and with a real node."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.access.audit import AUDIT_NODES_STREAM, AUDIT_STREAM, operator_subject
from ccm_agent.bus.access.audit_entry import AuditEntry, entry_link
from ccm_agent.bus.chain import NONE
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SignatureKind, verify_content
from ccm_agent.bus.streams import Stored, read_all, store
from ccm_agent.bus.subjects import event_subject
from ccm_agent.model.wire import AGENT_DECISION
from tests.support.fleet import a_file, manifest
from tests.support.nats_server import settings
from tests.support.secured import Secured, secured_fleet

pytestmark = [pytest.mark.nats, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """The node web1 with the role web; bob and sue apply and run commands there."""
    with secured_fleet(tmp_path_factory.mktemp("fleet")) as one:
        one.give("operator", "sue", "--apply", "role=web", "--exec", "role=web", "--facts")
        one.fleet.wait_for(
            lambda: one.as_("sue", "exec", "-t", "role=web", "--yes", "true").code == 0,
            "the node to know sue",
        )
        yield one


def stored(secured: Secured, author: str) -> list[Stored]:
    """What the audit stream has of an operator."""
    return read(secured, AUDIT_STREAM, operator_subject(author))


def decisions(secured: Secured, node: str) -> list[dict[str, Any]]:
    """A node's decisions in the audit stream."""
    found = read(secured, AUDIT_NODES_STREAM, event_subject(AGENT_DECISION, node))
    return [msgspec.json.decode(each.body)["details"] for each in found]


def read(secured: Secured, stream: str, subject: str) -> list[Stored]:
    """What a stream has on a subject."""

    async def ask() -> list[Stored]:
        creds = secured.keys / "tester.creds"
        async with Connection(settings(secured.fleet.servers[0], "tester", creds=str(creds))) as connection:
            await connection.connect_now()
            return [each async for each in read_all(connection, stream, subject)]

    return asyncio.run(ask())


def entries(secured: Secured, author: str) -> list[AuditEntry]:
    """The same as entries, each with a valid signature and linked to the one before it."""
    link, number, found = NONE, 0, []
    for each in stored(secured, author):
        verify_content(each.headers[SIGNATURE_HEADER], SignatureKind.AUDIT, each.subject, each.body)
        entry = msgspec.json.decode(each.body, type=AuditEntry)
        assert (entry.author, entry.number, entry.previous) == (author, number + 1, link)
        link, number = entry_link(each.subject, each.body), entry.number
        found.append(entry)
    return found


def test_each_signed_action_has_an_entry_without_its_content(secured: Secured) -> None:
    before = len(entries(secured, "sue"))
    path = secured.fleet.write("site.yaml", manifest(a_file("audited")))

    done = [
        secured.as_("sue", "facts", "set", "web1", "color=SECRET-VALUE"),
        secured.as_("sue", "apply", path, "-t", "role=web", "--yes", "--json"),
        secured.as_("sue", "exec", "-t", "role=web", "--yes", "--json", "--", "echo", "SECRET-ARGUMENT"),
        secured.as_("sue", "ping"),
    ]

    assert [(one.code, one.err) for one in done if one.code or "audit" in one.err] == []
    found = entries(secured, "sue")[before:]
    records = [one for one in found if one.kind == "record"]
    found = [one for one in found if one.kind != "record"]
    assert [one.run for one in records] == [done[1].run, done[2].run]
    assert [(one.kind, one.subject.rpartition("io.choria.ccm.v1.")[2]) for one in found] == [
        ("document", "$KV.CCM_FACTS.web1"),
        ("request", "manifest.apply.request.fact.role.web"),
        ("request", "resource.exec.request.fact.role.web"),
    ]
    assert [one.run for one in found] == ["", done[1].run, done[2].run]
    text = b"".join(each.body for each in stored(secured, "sue"))
    assert b"SECRET" not in text
    assert b"audited" not in text


def test_a_node_says_what_it_decided_about_each_request(secured: Secured) -> None:
    words = ["exec", "-t", "role=web", "--yes", "--json", "--", "true"]
    accepted = secured.as_("sue", *words)
    assert secured.as_("tester", "disable", "-t", "node=web1", "--why", "audit", "--yes").code == 0
    refused = secured.as_("sue", *words)
    assert secured.as_("tester", "enable", "-t", "node=web1", "--why", "done", "--yes").code == 0

    wanted = {accepted.run: "accepted", refused.run: "refused"}
    secured.fleet.wait_for(
        lambda: wanted.keys() <= {one["run"] for one in decisions(secured, "web1")},
        "the node's decisions to be stored",
    )

    found = decisions(secured, "web1")
    assert [one["number"] for one in found] == list(range(1, len(found) + 1))
    mine = [one for one in found if one["run"] in wanted]
    assert [(one["state"], one["requester"], one["verified"], one["scope"]) for one in mine] == [
        ("accepted", "sue", "yes", "fact.role.web"),
        ("refused", "sue", "yes", "fact.role.web"),
    ]
    assert [one["action"] for one in found[-3:]] == ["node.disable", "resource.exec", "node.enable"]


def test_commands_at_the_same_time_share_one_chain(secured: Secured) -> None:
    before = len(entries(secured, "bob"))

    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda at: secured.as_("bob", "facts", "set", "web1", f"fact{at}=x"), range(4)))

    written = sum(one.code == 0 for one in done)
    assert written > 0
    assert len(entries(secured, "bob")) - before >= written
    assert [one.err for one in done if "audit" in one.err] == []


def test_an_entry_that_is_not_the_operators_is_no_base_of_the_next_one(secured: Secured) -> None:
    secured.give("operator", "ann", "--facts")
    secured.give("operator", "eve")
    assert secured.as_("ann", "facts", "set", "web1", "a=1").code == 0
    [first] = entries(secured, "ann")

    async def forge() -> None:
        creds = secured.directory / "ann.creds"
        async with Connection(settings(secured.fleet.servers[0], "ann", creds=str(creds))) as connection:
            await connection.connect_now()
            body = msgspec.json.encode(msgspec.structs.replace(first, number=1 << 50))
            await store(connection, operator_subject("ann"), body, {SIGNATURE_HEADER: "v1.x.y"})

    asyncio.run(forge())
    assert secured.as_("ann", "facts", "set", "web1", "a=2").code == 0

    numbers = [msgspec.json.decode(each.body, type=AuditEntry).number for each in stored(secured, "ann")]
    assert numbers == [1, 1 << 50, 1]


def test_credentials_of_before_the_audit_work_without_entries(secured: Secured, tmp_path: Path) -> None:
    from ccm_agent.bus.access.credentials import user_credentials
    from ccm_agent.bus.access.permissions import Role, operator_permissions
    from ccm_agent.model.secret import Secret
    from ccm_ctl.fleet.keys.keys import Keys

    keys, role = Keys(secured.keys), Role(facts=True)
    allowed = operator_permissions("old", role)
    subject = operator_subject("old")
    older = msgspec.structs.replace(
        allowed, publish=tuple(each for each in allowed.publish if each != subject)
    )
    assert len(older.publish) == len(allowed.publish) - 1
    made = user_credentials(Secret((secured.keys / "ops.seed").read_text().strip()), "old", older)
    text = f"{made.text.reveal()}\n{keys.signers.trust().as_block()}"
    (secured.directory / "old.creds").write_text(text)

    done = secured.as_("old", "facts", "set", "web1", "b=1")

    assert (done.code, done.err) == (0, "")
    assert stored(secured, "old") == []
