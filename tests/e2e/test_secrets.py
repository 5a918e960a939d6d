"""A secret on its way from an operator to a file of a node: nobody else sees it, on a fleet with credentials."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pyrage
import pytest
from msgspec import Struct

from ccm_agent.bus.access.accounts import Account
from ccm_agent.bus.access.credentials import user_credentials
from ccm_agent.bus.access.permissions import Permissions
from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import settings_for
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.sealing import SECRETS, encrypt, seal, unseal, value_key, wrap_key
from ccm_agent.bus.signatures.signing import SignatureKind, SigningKey, signing_key_in_credentials
from ccm_agent.bus.streams import call
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import ProtocolError
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.sealed import SealedKey, SealedValue, SealingKeys
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.secret import Secret
from ccm_agent.model.wire import NodeRecord
from tests.support.authorship import Root
from tests.support.fleet import Done
from tests.support.secret_search import CommandLines, Needle, Wire, holding
from tests.support.secured import Secured, secured_fleet

T = TypeVar("T")

pytestmark = [pytest.mark.nats, pytest.mark.timeout(240)]

VALUE = "Kf9wQ2vLx7-plain"
MARKER = "shown-on-purpose"
"""A word that is not secret: that it is found shows that the search works."""


@pytest.fixture
def at(tmp_path: Path) -> Iterator[Secured]:
    with secured_fleet(tmp_path) as one:
        assert one.as_("tester", "secret", "init").code == 0
        yield one


def apply(at: Secured, *resources: str, operator: str = "bob") -> Done:
    path = at.directory / "m.yaml"
    listed = "\n".join(f"    - {one}" for one in resources)
    path.write_text(f"ccm:\n  resources:\n{listed}\n")
    return at.as_(operator, "apply", str(path), "-t", "role=web", "--yes", "--json", "--diff")


def file_resource(path: Path, content: str) -> str:
    owner = f"owner: {path.parent.owner()}, group: {path.parent.group()}, mode: '0600'"
    return f'file: {{name: {path}, ensure: present, content: "{content}", {owner}}}'


def test_the_value_is_in_the_file_and_nowhere_else(at: Secured) -> None:
    target, copied = at.directory / "target", at.directory / "copied"
    wire, lines = Wire(at.fleet.environ["NATS_URL"], at.keys, at.directory), CommandLines()
    value, marker = Needle(VALUE), Needle(MARKER)

    with wire.listening(), lines.sampled():
        put = at.fleet.ctl("secret", "put", "db-password", "--for", "role=web", "--json", stdin=f"{VALUE}\n")
        first = apply(
            at,
            file_resource(target, "p={{ secret('db-password') }}"),
            f"exec: {{name: {MARKER}, command: \"sh -c 'printenv PW > {copied}; echo $PW; sleep 1; echo {MARKER}'\", "
            "environment: [\"PW={{ secret('db-password') }}\"]}",
        )
        again = apply(at, file_resource(target, "q={{ secret('db-password') }}"))
        shown = [
            at.as_("tester", *words)
            for words in (
                ("events", "--since", "1h", "--no-follow", "--json"),
                ("history", "web1", "--json"),
                ("state", "web1", "--json"),
                ("why", "web1", "--json"),
                ("secret", "list", "--json"),
                ("secret", "history", "db-password", "--json"),
                ("secret", "who", "db-password", "--json"),
                ("run", "list", "--json"),
            )
        ]

    outputs = "\n".join(f"{one.out}\n{one.err}" for one in (put, first, again, *shown))
    assert [one.code for one in (put, first, again, *shown)] == [0] * (3 + len(shown)), outputs
    assert (target.read_text(), copied.read_text()) == (f"q={VALUE}", f"{VALUE}\n")
    assert oct(target.stat().st_mode & 0o777) == "0o600"
    where = at.directory.name
    assert value.files(at.directory) == [f"{where}/copied", f"{where}/target"]
    assert holding(value, [*wire.messages, *lines.found, outputs]) == []
    # that the search finds what is not hidden
    assert any(name.startswith(f"{where}/nats/") for name in marker.files(at.directory))
    assert holding(marker, wire.messages)
    assert holding(marker, [*lines.found])
    assert marker.is_in(outputs)


def test_value_of_a_file_of_age_comes_to_the_node_and_a_failure_leaves_the_revision(at: Secured) -> None:
    key, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    encrypted, identity = at.directory / "secrets.age", at.directory / "key.txt"
    encrypted.write_bytes(pyrage.encrypt(f"db: {{password: {VALUE}}}".encode(), [key.to_public()]))
    identity.write_text(f"{key}\n")
    target = at.directory / "target"
    words = ("secret", "put", "db", "--for", "role=web", "--identity", str(identity), "--json")

    put = at.as_("tester", *words, "--from", f"age:{encrypted}#db.password")
    missing = at.as_("tester", *words, "--from", f"age:{encrypted}#db.user")
    identity.write_text(f"{other}\n")
    denied = at.as_("tester", *words, "--from", f"age:{encrypted}#db.password")
    done = apply(at, file_resource(target, "p={{ secret('db') }}"))

    assert (put.code, put.named("secret")[0]["revision"]) == (0, 1), put
    assert [(one.code, one.named("error")[0]["code"]) for one in (missing, denied)] == [
        (1, "secret.source_missing"),
        (1, "secret.source_denied"),
    ]
    assert (done.code, target.read_text()) == (0, f"p={VALUE}")
    assert [name for name in Holder(at).read() if name.startswith("value.db.")] == ["value.db.1"]
    assert Needle(VALUE).files(at.directory) == [f"{at.directory.name}/target"]
    assert holding(Needle(VALUE), [one.out + one.err for one in (put, missing, denied)]) == []


def test_a_secret_for_other_nodes_fails_only_its_resource_and_says_what_mends_it(at: Secured) -> None:
    target, other = at.directory / "target", at.directory / "other"
    put = at.fleet.ctl("secret", "put", "db-password", "--for", "role=db", stdin=f"{VALUE}\n")

    done = apply(at, file_resource(target, "{{ secret('db-password') }}"), file_resource(other, "plain"))

    [failed] = [
        one["event"] for one in done.named("event") if one["event"].get("code") == "secret.not_sealed"
    ]
    why = at.as_("tester", "why", "web1")
    assert (put.code, done.code) == (0, 2)
    assert not target.exists()
    assert other.read_text() == "plain"
    assert "`ccmctl secret sync db-password`" in str(failed["error"])
    assert "ccmctl secret sync db-password" in why.out


def test_a_node_that_comes_to_match_gets_it_by_sync_and_loses_it_again(at: Secured) -> None:
    target = at.directory / "target"
    resource = file_resource(target, "{{ secret('db-password') }}")
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "role=db", stdin=f"{VALUE}\n").code == 0
    assert at.as_("bob", "facts", "set", "web1", "tier=x").code == 0
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "tier=x", stdin=f"{VALUE}\n").code == 0
    assert apply(at, resource).code == 0

    assert at.as_("bob", "facts", "set", "web1", "tier=y").code == 0
    synced = at.as_("tester", "secret", "sync")
    stale = at.as_("tester", "secret", "list", "--stale", "--json")
    target.unlink()
    after = apply(at, resource)

    doctor = {one["id"]: one for one in at.as_("tester", "doctor", "--json").named("check")}
    assert (doctor["secrets.stale"]["state"], doctor["secrets.stale"]["names"]) == ("warning", ["web1"])
    assert doctor["secrets.sealed"]["state"] == "ok"
    assert "access removed from web1" in synced.out
    assert [record["stale"] for record in stale.named("secret")] == [["web1"]]
    assert after.code == 2
    assert "secret.not_sealed" in after.out
    assert not target.exists()


def test_a_rollout_server_with_the_sealing_key_seals_to_a_node_that_comes_later(at: Secured) -> None:
    target = at.directory / "target"
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "tier=x", stdin=VALUE).code == 0
    assert at.as_("bob", "facts", "set", "web1", "tier=x").code == 0
    before = {one["id"]: one["state"] for one in at.as_("tester", "doctor", "--json").named("check")}

    without = at.as_("tester", "rollout", "serve", "--once")
    unsealed = at.as_("tester", "secret", "who", "db-password", "--json").named("secret_node")
    served = at.as_("tester", "rollout", "serve", "--once", "--seal-secrets", str(at.keys))
    done = apply(at, file_resource(target, "{{ secret('db-password') }}"))

    after = {one["id"]: one["state"] for one in at.as_("tester", "doctor", "--json").named("check")}
    assert (without.code, [one["problem"] for one in unsealed]) == (0, ["the secret is not sealed to it"])
    assert (served.code, "db-password: sealed to 1 node" in served.err) == (0, True)
    assert (done.code, target.read_text()) == (0, VALUE)
    assert (before["secrets.sealed"], after["secrets.sealed"]) == ("warning", "ok")


class Holder:
    """The holder of the broker: reads and writes whatever it stores."""

    def __init__(self, at: Secured) -> None:
        seed = Secret((at.keys / "account.seed").read_text().strip())
        everything = Permissions(account=Account.CTL, publish=(">",), subscribe=(">",))
        creds = at.directory / "holder.creds"
        creds.write_text(user_credentials(seed, "holder", everything).text.reveal())
        self._settings = settings_for(
            [at.fleet.environ["NATS_URL"]],
            creds=str(creds),
            identity="holder",
            program="holder",
            insecure=True,
        )

    def read(self, bucket: str = SECRETS) -> dict[str, KeyValueEntry]:
        """All entries by key."""

        async def work(connection: Connection) -> dict[str, KeyValueEntry]:
            return {one.key: one for one in await NatsKeyValue(connection, bucket).entries()}

        return self.run(work)

    def store(self, key: str, value: bytes, signature: str, bucket: str = SECRETS) -> None:
        """Put an entry in the place of another one."""

        async def work(connection: Connection) -> None:
            stored = NatsKeyValue(connection, bucket)
            newest = await stored.newest(key)
            await stored.update(key, value, newest.revision if newest else 0, signature=signature)

        self.run(work)

    def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something with the permissions of the holder."""

        async def connected() -> T:
            async with Connection(self._settings) as connection:
                await connection.connect_now()
                return await work(connection)

        return asyncio.run(connected())


def stamped(key: str, body: Struct) -> bytes:
    number = int(time.time() * 1000)
    text = msgspec.json.encode(body).decode()
    return msgspec.json.encode(Stamped(bucket=SECRETS, key=key, number=number, body=text))


def key_in(path: Path) -> SigningKey:
    key = signing_key_in_credentials(path.read_text())
    assert key is not None
    return key


def opened_by(key: SigningKey, entries: Iterable[KeyValueEntry]) -> set[str]:
    """The data keys that a key opens, of all that are stored."""
    found = set()
    for entry in entries:
        for text in re.findall(r'"([A-Za-z0-9+/=]{40,})\\?"', entry.value.decode().replace("\\", "")):
            with contextlib.suppress(ProtocolError):
                unseal(key, text)
                found.add(entry.key)
    return found


def test_only_the_key_of_its_node_and_the_sealing_key_open_what_the_broker_stores(at: Secured) -> None:
    look, other = at.give("operator", "lou"), at.give("node", "web2")
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "role=web", stdin=VALUE).code == 0

    stored = Holder(at).read().values()

    sealing = SigningKey(Secret((at.keys / "sealing.seed").read_text().strip()))
    assert opened_by(key_in(look), stored) == set()
    assert opened_by(key_in(other), stored) == set()
    assert opened_by(key_in(at.directory / "bob.creds"), stored) == set()
    assert opened_by(key_in(at.directory / "web1.creds"), stored) == {"wrap.web1.db-password"}
    assert opened_by(sealing, stored) == {"head.db-password"}


def test_the_holder_of_the_broker_neither_brings_an_old_value_back_nor_makes_one_up(at: Secured) -> None:
    holder, target = Holder(at), at.directory / "target"
    resource = file_resource(target, "{{ secret('db-password') }}")
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "role=web", stdin="first-value").code == 0
    old = holder.read()
    assert apply(at, resource).code == 0
    assert target.read_text() == "first-value"
    assert at.fleet.ctl("secret", "put", "db-password", stdin="second-value").code == 0
    assert apply(at, resource).code == 0

    for key, entry in old.items():
        holder.store(key, entry.value, entry.signature)
    replayed = apply(at, resource)
    own = key_in(at.directory / "web1.creds").public_key
    data_key, ciphertext = encrypt("mail", 1, Secret("made-up-value"))
    made_up = {
        wrap_key("web1", "mail"): SealedKey(node="web1", revision=1, key=own, sealed=seal(data_key, own)),
        value_key("mail", 1): SealedValue(revision=1, ciphertext=ciphertext),
    }
    for key, body in made_up.items():
        holder.store(key, stamped(key, body), "")
    forged = apply(at, file_resource(at.directory / "mail", "{{ secret('mail') }}"))

    assert (replayed.code, target.read_text()) == (0, "second-value")
    assert forged.code == 2
    assert not (at.directory / "mail").exists()


def test_made_up_nodes_facts_and_sealing_keys_get_no_secret(at: Secured) -> None:
    holder, thief = Holder(at), key_in(at.give("node", "thief"))
    record = NodeRecord(node="db1", certificate=Root().certificate("db1", thief))
    body = msgspec.json.encode(record)
    subject = key_subject("CCM_NODES", "node.db1")
    signature = thief.sign(SignatureKind.STATE, subject, body, issued_ms=int(time.time() * 1000))
    holder.store("node.db1", body, signature, "CCM_NODES")
    assert at.as_("bob", "facts", "set", "db1", "role=web").code == 0

    put = at.fleet.ctl("secret", "put", "db-password", "--for", "role=web", "--json", stdin=VALUE)
    sealing = msgspec.json.encode(SealingKeys(keys=(thief.public_key,))).decode()
    forged = msgspec.json.encode(
        Stamped(bucket=SECRETS, key="sealing", number=int(time.time() * 1000), body=sealing)
    )
    bob = key_in(at.directory / "bob.creds")
    by_bob = bob.sign(
        SignatureKind.DOCUMENT, key_subject(SECRETS, "sealing"), forged, issued_ms=int(time.time() * 1000)
    )
    holder.store("sealing", forged, by_bob)
    refused = at.fleet.ctl("secret", "put", "other", "--for", "role=web", stdin=VALUE)

    assert [one["sealed"] for one in put.named("secret")] == [["web1"]]
    assert "db1: db-password is not sealed to it" in put.err
    assert refused.code == 1
    assert "bob signed it, but may not write there" in refused.err
    assert opened_by(thief, holder.read().values()) == set()


def test_facts_that_a_node_reports_itself_give_it_no_secret(at: Secured) -> None:
    agent = at.fleet.agents["web1"]
    facts = at.directory / "facts.yaml"
    facts.write_text("role: db\ntier: gold\n")
    agent.stop()
    agent.configure(
        at.fleet.environ["NATS_URL"],
        facts_file=str(facts),
        nats={"url": at.fleet.environ["NATS_URL"], "creds": str(at.directory / "web1.creds")},
    )
    agent.start()
    at.fleet.wait_present(["web1"])

    claimed = at.fleet.ctl("secret", "put", "gold", "--for", "tier=gold", "--json", stdin=VALUE)
    assigned = at.fleet.ctl("secret", "put", "web", "--for", "role=web", "--json", stdin=VALUE)

    assert [one["sealed"] for one in claimed.named("secret")] == [[]]
    assert [one["sealed"] for one in assigned.named("secret")] == [["web1"]]


def test_a_replaced_and_a_removed_value_is_gone_from_the_broker(at: Secured) -> None:
    holder, target = Holder(at), at.directory / "target"
    resource = file_resource(target, "{{ secret('db-password') }}")
    assert at.fleet.ctl("secret", "put", "db-password", "--for", "role=web", stdin="first-value").code == 0
    assert at.fleet.ctl("secret", "put", "db-password", stdin="second-value").code == 0
    replaced = set(holder.read())

    removed = at.fleet.ctl("secret", "remove", "db-password", "--yes")
    left = holder.read()
    done = apply(at, resource)

    assert replaced == {"sealing", "head.db-password", "value.db-password.2", "wrap.web1.db-password"}
    assert (removed.code, removed.out) == (0, "db-password: revision 2, removed, access removed from web1\n")
    assert set(left) == {"sealing", "wrap.web1.db-password"}
    assert opened_by(key_in(at.directory / "web1.creds"), left.values()) == set()
    assert (done.code, target.exists()) == (2, False)


def test_a_broker_of_an_earlier_version_has_no_secrets_and_all_else_works(at: Secured) -> None:
    async def delete(connection: Connection) -> object:
        return await call(connection, "STREAM.DELETE.KV_CCM_SECRETS")

    Holder(at).run(delete)
    assert at.as_("bob", "facts", "set", "web1", "role=web", "rack=7").code == 0

    listed = at.as_("tester", "secret", "list")
    renewed = at.as_("tester", "signers", "renew")
    doctor = at.as_("tester", "doctor", "--json").named("check")
    done = apply(at, file_resource(at.directory / "plain", "plain"))

    assert (listed.code, "create it with `ccmctl init`" in listed.err) == (1, True)
    assert (renewed.code, renewed.err, done.code) == (0, "", 0)
    assert [one["id"] for one in doctor if one["id"].startswith("secrets.")] == []
    assert [one["id"] for one in doctor if one["state"] == "problem"] == ["stream.CCM_SECRETS"]


@pytest.mark.parametrize(
    ("words", "value", "why"),
    [
        (["put", "Db.x", "--for", "role=web"], VALUE, "is not the name of a secret"),
        (["put", "db", "--for", "role=web"], "abc", "cannot be masked"),
        (["put", "db", "--for", "role=web"], "x" * 70_000, "at most 65,536"),
        (["put", "db"], VALUE, "--for SELECTOR"),
        (["put", "db", "--for", "role!=db"], VALUE, "a secret cannot be for nodes that lack a fact"),
        (["put", "db", "--for", "!role"], VALUE, "a secret cannot be for nodes that lack a fact"),
        (["put", "db", "--for", "role=web", "--file", "/nonexistent"], "", "/nonexistent: cannot be read"),
        (["put", "db", "--for", "role=web", "--from", "pass:db"], "", "use age:FILE#KEY"),
        (["put", "db", "--for", "role=web", "--from", "age:x#y", "--file", "x"], "", "use one of them"),
        (["put", "db", "--for", "role=web", "--identity", "x"], VALUE, "--identity requires --from"),
        (
            ["put", "db", "--for", "role=web", "--from", "age:/nonexistent#y", "--identity", "/dev/null"],
            "",
            "/dev/null: no usable key",
        ),
        (["who", "nosuch"], "", "there is no such secret"),
        (["remove", "nosuch"], "", "there is no such secret"),
        (["sync", "--keys", "/nonexistent"], "", "there is no sealing key `sealing.seed`"),
    ],
)
def test_what_cannot_be_done_is_refused_and_stores_nothing(
    once: Secured, words: list[str], value: str, why: str
) -> None:
    done = once.fleet.ctl("secret", *words, stdin=value)

    assert (done.code, done.out) == (1, "")
    assert why in done.err
    assert len(value) < 5 or value not in done.err
    assert set(Holder(once).read()) == {"sealing"}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_fleet(tmp_path_factory.mktemp("secured")) as one:
        assert one.as_("tester", "secret", "init").code == 0
        yield one
