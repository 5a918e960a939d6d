"""
An attacker who holds the broker puts made-up documents in front of `ccmctl`, which must not sign what it makes of them.

The attacker writes messages with the rights of an administrator on the broker, and has no operator's key. Each attack has a
control: the same command on genuine documents succeeds, and the node obeys.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, read_claims
from ccm_agent.bus.streams import read_newest, store
from ccm_agent.bus.subjects import SCHEDULE_PREFIX, key_subject
from ccm_agent.model.ports import KeyValueEntry
from ccm_ctl.app import ConnectionOptions, bus_settings, connected
from tests.support.fleet import a_file, manifest
from tests.support.secured import Secured, secured_fleet

pytestmark = pytest.mark.nats
DAY_MS = 86_400_000


@pytest.fixture
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_fleet(tmp_path_factory.mktemp("fleet")) as one:
        yield one


class Attacker:
    """Writes to the broker what no operator signed."""

    def __init__(self, secured: Secured) -> None:
        self._environ = {**secured.fleet.environ, "CCM_CREDS": str(secured.keys / "tester.creds")}

    def do(self, work: Callable[[Connection], Awaitable[object]]) -> object:
        async def connect() -> object:
            async with connected(bus_settings(ConnectionOptions(), self._environ)) as broker:
                assert broker.connection is not None
                return await work(broker.connection)

        return asyncio.run(connect())

    def history(self, bucket: str, key: str) -> list[KeyValueEntry]:
        return self.do(lambda connection: NatsKeyValue(connection, bucket).history(key))  # type: ignore[return-value]

    def write(self, bucket: str, key: str, body: bytes, signature: str = "") -> None:
        """Put a message into a bucket, with the signature of another one."""
        headers = {
            "Nats-Expected-Stream": f"KV_{bucket}",
            **({SIGNATURE_HEADER: signature} if signature else {}),
        }
        self.do(lambda connection: store(connection, key_subject(bucket, key), body, headers))

    def change(self, bucket: str, key: str, **fields: object) -> KeyValueEntry:
        """Replace fields of the newest document, and keep its signature; returns the genuine one."""
        genuine = self.history(bucket, key)[-1]
        document = json.loads(genuine.value) | fields
        self.write(bucket, key, json.dumps(document).encode(), genuine.signature)
        return genuine

    def put_back(self, bucket: str, entry: KeyValueEntry) -> None:
        self.write(bucket, entry.key, entry.value, entry.signature)


def newest(attacker: Attacker, bucket: str, key: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(attacker.history(bucket, key)[-1].value)
    return found


def test_made_up_facts_are_not_signed(secured: Secured) -> None:
    attacker = Attacker(secured)
    genuine = attacker.change("CCM_FACTS", "web1", body={"role": "payments-db", "admin": True})

    attacked = secured.as_("bob", "facts", "set", "web1", "rack=7")
    shown = secured.as_("bob", "facts", "history", "web1", "--json")
    replaced = secured.as_("bob", "facts", "set", "web1", "role=web", "--replace")
    attacker.put_back("CCM_FACTS", attacker.history("CCM_FACTS", "web1")[-1])
    control = secured.as_("bob", "facts", "set", "web1", "rack=7")

    assert attacked.code != 0
    assert "web1: revision" in attacked.err
    assert "is not verified: the content was changed after signing" in attacked.err
    assert "unverified" in json.loads(shown.out.splitlines()[0])
    assert (replaced.code, control.code) == (0, 0), replaced.err + control.err
    assert newest(attacker, "CCM_FACTS", "web1")["body"] == {"role": "web", "rack": 7}
    assert genuine.signature


def test_made_up_data_is_neither_edited_nor_restored(secured: Secured) -> None:
    attacker = Attacker(secured)
    one, two, evil = (
        secured.fleet.write(f"{name}.yaml", f"data: {{word: {name}}}\n") for name in ("one", "two", "evil")
    )
    for path in (one, two):
        assert secured.as_("bob", "data", "put", "common", path, "--yes").code == 0
    first, second = attacker.history("CCM_DATA", "common")
    body = json.loads(second.value) | {"body": "data: {word: evil}\n"}
    attacker.write("CCM_DATA", "common", json.dumps(body).encode(), second.signature)
    made_up = attacker.history("CCM_DATA", "common")[-1].revision
    secured.fleet.environ["EDITOR"] = f"cp {evil}"

    edited = secured.as_("bob", "data", "edit", "common", "--yes")
    got = secured.as_("bob", "data", "get", "common", "--json")
    picked = secured.as_("bob", "data", "rollback", "common", str(made_up), "--yes")
    replaced = secured.as_("bob", "data", "put", "common", two, "--yes")
    restored = secured.as_("bob", "data", "rollback", "common", str(first.revision), "--yes")
    last = newest(attacker, "CCM_DATA", "common")
    control = secured.as_("bob", "data", "edit", "common", "--yes")

    assert (edited.code != 0, picked.code != 0) == (True, True)
    assert "is not verified" in edited.err
    assert "is not verified" in picked.err
    assert "changed after signing" in json.loads(got.out)["unverified"]
    assert (replaced.code, restored.code, control.code) == (0, 0, 0), (
        replaced.err + restored.err + control.err
    )
    assert last["body"] == "data: {word: one}\n"
    assert "evil" in str(newest(attacker, "CCM_DATA", "common")["body"])


def test_made_up_revision_is_not_restored(secured: Secured) -> None:
    attacker = Attacker(secured)
    for name in ("one", "two"):
        path = secured.fleet.write(f"{name}.yaml", manifest(a_file(name)))
        done = secured.as_("bob", "assign", "site", path, "-t", "role=web", "--yes")
        assert done.code == 0, done.err
    key = "fact.role.web.site"
    first, second = attacker.history("CCM_ASSIGNMENTS", key)
    evil = json.loads(first.value)
    evil["body"]["bundle"]["digest"] = "e" * 64
    attacker.write("CCM_ASSIGNMENTS", key, json.dumps(evil).encode(), first.signature)
    attacker.put_back("CCM_ASSIGNMENTS", second)

    shown = secured.as_("bob", "assignment", "history", "site", "--json")
    attacked = secured.as_("bob", "rollback", "site", "--yes")
    stored = newest(attacker, "CCM_ASSIGNMENTS", key)

    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert ["unverified" in line for line in lines] == [False, True, False, False]
    assert attacked.code == 0, attacked.err
    digest = stored["body"]["bundle"]["digest"]  # type: ignore[index]
    assert digest == json.loads(first.value)["body"]["bundle"]["digest"]  # the genuine first one


def test_changed_schedule_is_not_run_again(secured: Secured) -> None:
    attacker = Attacker(secured)
    made = secured.give("operator", "anna", "--apply", "role=web", "--schedules")
    path = secured.fleet.write("word.yaml", manifest(a_file("word")))
    added = secured.as_(
        "anna", "schedule", "add", "nightly", path, "-t", "role=web", "--every", "100h", "--yes"
    )
    control = secured.as_("anna", "schedule", "run", "nightly", "--yes")

    async def change(connection: Connection) -> None:
        [stored] = [
            one
            for one in await read_newest(connection, "CCM_SCHEDULES", [f"{SCHEDULE_PREFIX}.>"])
            if b"word" in one.body
        ]
        kept = ("nats-schedule", "nats-schedule-target", SIGNATURE_HEADER.lower())
        headers = {name: value for name, value in stored.headers.items() if name.lower() in kept}
        await store(connection, stored.subject, stored.body.replace(b"word", b"evil"), headers)

    files = secured.fleet.agents["web1"].files
    attacker.do(change)
    listed = secured.as_("anna", "schedule", "list", "--json")
    attacked = secured.as_("anna", "schedule", "run", "nightly", "--yes")

    assert made.exists()
    assert (added.code, control.code) == (0, 0), added.err + control.err
    assert "changed after signing" in json.loads(listed.out.splitlines()[0])["unverified"]
    assert attacked.code != 0
    assert "the schedule is not verified" in attacked.err
    assert ((files / "word").exists(), (files / "evil").exists()) == (True, False)


def test_made_up_number_freezes_no_key(secured: Secured) -> None:
    attacker = Attacker(secured)
    path = secured.fleet.write("one.yaml", "data: {word: one}\n")
    assert secured.as_("bob", "data", "put", "common", path, "--yes").code == 0
    genuine = attacker.change("CCM_DATA", "common", number=(1 << 53) - 2)

    again = secured.fleet.write("two.yaml", "data: {word: two}\n")
    stored = secured.as_("bob", "data", "put", "common", again, "--yes")
    attacker.change("CCM_FACTS", "web1", number=(1 << 53) - 2)
    given = secured.fleet.ctl("node", "add", "web2")

    last = attacker.history("CCM_DATA", "common")[-1]
    number = json.loads(last.value)["number"]
    assert stored.code == 0, stored.err
    assert read_claims(last.signature).subject == key_subject("CCM_DATA", "common")
    assert json.loads(genuine.value)["number"] < number < time.time() * 1000 + DAY_MS
    assert given.code == 0
    assert str((1 << 53) - 2) not in given.out
    assert floors(given.out)["CCM_DATA/common"] == number  # a verified number is taken


def test_assignment_pins_no_made_up_data(secured: Secured) -> None:
    attacker = Attacker(secured)
    data = secured.fleet.write("data.yaml", "data: {word: one}\n")
    assert secured.as_("bob", "data", "put", "role/web", data, "--yes").code == 0
    path = secured.fleet.write("site.yaml", manifest(a_file("site")))
    words = ["-t", "role=web", "--data", "kv://CCM_DATA/role/web", "--yes"]
    assigned = secured.as_("bob", "assign", "site", path, *words)
    genuine = attacker.change("CCM_DATA", "role/web", body="data: {word: evil}\n")

    attacked = secured.as_("bob", "assign", "site", "--refresh", "--yes")
    anew = secured.as_("bob", "assign", "other", path, *words)
    attacker.put_back("CCM_DATA", genuine)
    control = secured.as_("bob", "assign", "site", "--refresh", "--yes")

    assert (assigned.code, control.code) == (0, 0), assigned.err + control.err
    for refused in (attacked, anew):
        assert refused.code != 0
        assert "kv://CCM_DATA/role/web: revision" in refused.err
        assert "is not verified: the content was changed after signing" in refused.err


def test_earlier_revision_that_was_put_back_is_not_signed_anew(secured: Secured) -> None:
    attacker = Attacker(secured)
    data = secured.fleet.write("data.yaml", "data: {word: one}\n")
    assert secured.as_("bob", "data", "put", "role/web", data, "--yes").code == 0
    for name in ("one", "two"):
        path = secured.fleet.write(f"{name}.yaml", manifest(a_file(name)))
        words = ["-t", "role=web", "--data", "kv://CCM_DATA/role/web", "--yes"]
        done = secured.as_("bob", "assign", "again", path, *words)
        assert done.code == 0, done.err
    key = "fact.role.web.again"
    first, second = attacker.history("CCM_ASSIGNMENTS", key)
    attacker.put_back("CCM_ASSIGNMENTS", first)

    attacked = secured.as_("bob", "assign", "again", "--refresh", "--yes")
    stored = attacker.history("CCM_ASSIGNMENTS", key)[-1]
    attacker.put_back("CCM_ASSIGNMENTS", second)
    control = secured.as_("bob", "assign", "again", "--refresh", "--yes")

    assert attacked.code != 0
    assert "is not verified: an older revision that was written again" in attacked.err
    assert stored.value == first.value
    assert control.code == 0, control.err


def floors(credentials: str) -> dict[str, int]:
    from ccm_agent.bus.signatures.trust import trust_in_credentials

    trust = trust_in_credentials(credentials)
    assert trust is not None
    return msgspec.to_builtins(trust.floors)  # type: ignore[no-any-return]
