"""
The signing commands that need a real broker or the fleet's keys: what they read, forged in every way.

The other ones, and the proof that these are all, are in tests/unit/ccm_ctl/commands/test_signing_matrix.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.connection.connection import Connection
from ccm_agent.bus.connection.settings import BusSettings
from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER
from ccm_agent.bus.signatures.snapshot import piece_key
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, TIMESTAMP_SUBJECT, Timestamp
from ccm_agent.bus.signatures.trust import (
    SIGNERS_KEY,
    TRUST_BUCKET,
    SignedText,
    Trust,
    sign_signers,
    trust_in_credentials,
)
from ccm_agent.bus.streams import Stored, read_newest, store
from ccm_agent.bus.subjects import SCHEDULE_PREFIX, key_subject
from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import NodeRecord
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.app import Broker, fleet_over
from ccm_ctl.fleet.keys.keys import Keys
from ccm_ctl.fleet.schedules.stored_schedule import read_schedule
from tests.support.controller import Said
from tests.support.fleet import a_file, manifest
from tests.support.nats_server import connected_plain, prepare, running_server
from tests.support.signed_desk import FORGED, Crew, SignedDesk
from tests.support.signing import OWN, Keyring, new_key, now_ms

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

T = TypeVar("T")
SIGNERS = (
    "unsigned",
    "a stranger",
    "a revoked signer",
    "a signer without the right",
    "changed after signing",
)
FACTS = "CCM_FACTS"


class RealDesk(SignedDesk):
    """A desk of anna at a real broker, and what its holder does there."""

    def __init__(self, crew: Crew, server: NatsServer) -> None:
        super().__init__(crew)
        self.server = server

    @contextlib.asynccontextmanager
    async def _connect(self, settings: BusSettings) -> AsyncIterator[Broker]:
        async with connected_plain(self.server, "anna") as connection:
            yield Broker(fleet_over(connection, "anna", self.signatory, self.trust), connection)

    def succeed(self, *words: str) -> Said:
        """Run a command that must succeed."""
        said = self.ccmctl(*words)
        assert said.code == 0, said.err
        return said

    def hold(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do something as the holder of the broker."""

        async def connect() -> T:
            async with connected_plain(self.server, "evil") as connection:
                return await work(connection)

        return asyncio.run(connect())

    def put(self, subject: str, body: bytes, signature: str, **headers: str) -> None:
        """Store a message as a client stores it, with a signature; "" stores it without one."""
        stream = f"KV_{subject.split('.')[1]}" if subject.startswith("$KV.") else "CCM_SCHEDULES"
        headers |= {"Nats-Expected-Stream": stream} | ({SIGNATURE_HEADER: signature} if signature else {})
        self.hold(lambda connection: store(connection, subject, body, headers))

    def entry(self, bucket: str, key: str) -> SignedText:
        """What a bucket holds."""
        found = self.hold(lambda connection: NatsKeyValue(connection, bucket).get(key))
        assert found is not None
        return SignedText(body=found.value.decode(), signature=found.signature)

    def schedule(self, name: str) -> Stored:
        """A schedule as it is stored."""
        stored = self.hold(
            lambda connection: read_newest(connection, "CCM_SCHEDULES", [f"{SCHEDULE_PREFIX}.>"])
        )
        [found] = [one for one in stored if one.subject.endswith(f".{name}")]
        return found

    def snapshot(self) -> dict[str, int]:
        """The numbers in the stored snapshot."""
        text = self.entry(TRUST_BUCKET, piece_key(0)).body
        return msgspec.json.decode(text, type=dict[str, int])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealDesk]:
    """Anna, at a broker with her signers list and the record of web1."""
    folder, patch = tmp_path_factory.mktemp("matrix"), pytest.MonkeyPatch()
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    patch.setattr("ccm_ctl.fleet.data.fact_edits.TAKEN_WITHIN_S", 0.05)
    with running_server(folder / "nats") as server:
        asyncio.run(prepare(server))
        one = RealDesk(Crew(now_ms), server)
        assert one.trust is not None
        assert one.trust.signers is not None
        listed = one.trust.signers
        one.put(key_subject(TRUST_BUCKET, SIGNERS_KEY), listed.body.encode(), listed.signature)
        record = NodeRecord(node="web1", version="1.2.3", facts={"role": "web"}, machine="m", undo=True)
        one.hold(lambda by: NatsKeyValue(by, "CCM_NODES").put("node.web1", msgspec.json.encode(record)))
        yield one
    patch.undo()


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "genuine.yaml"
    path.write_text(manifest(a_file("genuine")))
    return str(path)


def signed_by(desk: RealDesk) -> list[bytes]:
    """What anna has signed since the last look."""
    found = [body for _, body in desk.signatory.signed]
    desk.signatory.signed.clear()
    return found


@pytest.mark.parametrize("kind", [*SIGNERS, "another schedule's bytes"])
def test_a_forged_schedule_is_not_run_and_not_in_what_replaces_it(
    desk: RealDesk, site: str, kind: str
) -> None:
    name = f"nightly-{'-'.join(kind.split()[:3])}".replace("'", "")
    for one in (name, f"{name}-other"):
        desk.succeed("schedule", "add", one, site, "-t", "node=web1", "--every", "100h", "--yes")
    genuine, other = desk.schedule(name), desk.schedule(f"{name}-other")
    headers = {key: genuine.headers[key] for key in ("Nats-Schedule", "Nats-Schedule-Target")}
    stored = read_schedule(genuine, {})
    assert stored is not None
    body = genuine.body.replace(b"genuine", FORGED.encode())
    by = desk.crew.of(kind).schedule(
        stored.target, body, OWN,
        name=name, when=headers["Nats-Schedule"], zone="", expires_ms=now_ms() + 3_600_000,
    )[SIGNATURE_HEADER]  # fmt: skip
    signature = {"unsigned": "", "changed after signing": genuine.headers[SIGNATURE_HEADER]}.get(kind, by)
    if kind == "another schedule's bytes":
        body, signature = other.body, other.headers[SIGNATURE_HEADER]
    signed_by(desk)

    desk.put(genuine.subject, body, signature, **headers)
    attacked = desk.ccmctl("schedule", "run", name, "--yes")
    signed = signed_by(desk)
    replaced = desk.ccmctl("schedule", "add", name, site, "-t", "node=web1", "--every", "100h", "--yes")
    anew = signed_by(desk)
    control = desk.ccmctl("schedule", "run", name, "--yes")

    assert (attacked.code != 0, signed) == (True, []), attacked.err
    assert "the schedule is not verified" in attacked.err
    assert replaced.code == 0, replaced.err
    assert [FORGED.encode() in one for one in anew] == [False]
    assert any(b"genuine" in one for one in signed_by(desk)), control.err


def test_a_schedule_is_added_for_no_group_that_was_forged(desk: RealDesk, site: str) -> None:
    words = ["schedule", "add", "grouped", site, "-t", "@edge", "--every", "100h", "--yes"]
    desk.succeed("group", "set", "edge", "-t", "node=web1")
    genuine = desk.entry(TRUST_BUCKET, "group.edge")
    changed = genuine.body.replace("node=web1", f"node=web1,{FORGED}=")
    signed_by(desk)

    desk.put(key_subject(TRUST_BUCKET, "group.edge"), changed.encode(), genuine.signature)
    attacked = desk.ccmctl(*words)
    signed = signed_by(desk)
    desk.succeed("group", "set", "edge", "-t", "node=web1")
    control = desk.ccmctl(*words)

    assert (attacked.code != 0, signed) == (True, [])
    assert "verified" in attacked.err
    assert control.code == 0, control.err


def forge_facts(desk: RealDesk, kind: str) -> tuple[int, int]:
    """Give web1 facts, and put forged ones with a higher number over them; the two numbers."""
    desk.succeed("facts", "set", "web1", "rack=1", "--replace")
    genuine = desk.entry(FACTS, "web1")
    old = msgspec.json.decode(genuine.body, type=Stamped)
    key = "web2" if kind == "another key's bytes" else "web1"
    body = msgspec.json.encode(replace(old, key=key, number=old.number + 50, body={"rack": FORGED}))
    by = desk.crew.of(kind).document(FACTS, key, body, OWN)[SIGNATURE_HEADER]
    signature = {"unsigned": "", "changed after signing": genuine.signature}.get(kind, by)
    desk.put(key_subject(FACTS, "web1"), body, signature)
    return old.number, old.number + 50


@pytest.mark.parametrize("kind", [*SIGNERS, "another key's bytes"])
def test_no_number_of_a_forged_document_is_in_a_snapshot_or_in_credentials_of_a_node(
    desk: RealDesk, tmp_path: Path, kind: str
) -> None:
    keys = Keys(tmp_path)
    keys.make()
    keys.make_root()
    keys.signers.limit_age(3600)
    _, forged = forge_facts(desk, kind)
    adds = ["node", "add", "web1", "--keys", str(tmp_path)]

    desk.succeed("signers", "renew", "--force")
    attacked = desk.snapshot()
    floors = credentials(desk.succeed(*adds)).floors
    desk.succeed("facts", "set", "web1", "rack=2", "--replace")
    number = msgspec.json.decode(desk.entry(FACTS, "web1").body, type=Stamped).number
    desk.succeed("signers", "renew")

    assert forged not in {*attacked.values(), *floors.values()}
    assert desk.snapshot()[f"{FACTS}/web1"] == number
    assert credentials(desk.succeed(*adds)).floors[f"{FACTS}/web1"] == number


def credentials(said: Said) -> Trust:
    """The trust block of the credentials that were printed."""
    found = trust_in_credentials(said.out)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "kind", ["unsigned", "another root", "an operator", "changed after signing", "an older list"]
)
def test_no_list_that_the_root_did_not_sign_is_confirmed(desk: RealDesk, kind: str) -> None:
    genuine = desk.entry(TRUST_BUCKET, SIGNERS_KEY)
    newer = Keyring(now_ms).listed(max_age_s=7200)
    newer = replace(newer, number=desk.crew.keys.number + (-1 if kind == "an older list" else 5))
    roots = {"another root": new_key(), "an operator": desk.crew.key}
    forged = sign_signers(roots.get(kind, desk.crew.keys.root), newer)
    signature = {"unsigned": "", "changed after signing": genuine.signature}.get(kind, forged.signature)
    place = key_subject(TRUST_BUCKET, SIGNERS_KEY)
    signed_by(desk)

    desk.put(place, forged.body.encode(), signature)
    attacked = desk.ccmctl("signers", "renew")
    signed = signed_by(desk)
    desk.put(place, genuine.body.encode(), genuine.signature)
    control = desk.ccmctl("signers", "renew")

    assert (attacked.code != 0, signed) == (True, []), attacked.out
    assert control.code == 0, control.err
    assert signed_by(desk)


@pytest.mark.parametrize("kind", SIGNERS)
def test_a_timestamp_that_no_administrator_signed_is_not_the_base_of_the_next_one(
    desk: RealDesk, kind: str
) -> None:
    desk.succeed("signers", "renew")
    genuine = desk.entry(TRUST_BUCKET, TIMESTAMP_KEY)
    before = msgspec.json.decode(genuine.body, type=Timestamp)
    forged = replace(before, issued=before.issued + 5, pieces=("e" * 64,))
    body = msgspec.json.encode(forged)
    by = desk.crew.of(kind).timestamp(TIMESTAMP_SUBJECT, body, OWN, issued_ms=forged.issued)
    signature = {"unsigned": "", "changed after signing": genuine.signature}.get(kind, by)
    signed_by(desk)

    desk.put(TIMESTAMP_SUBJECT, body, signature)
    attacked = desk.succeed("signers", "renew")
    signed = [msgspec.json.decode(one, type=Timestamp) for one in signed_by(desk)]
    forged = replace(forged, issued=now_ms() + 1000)
    body = msgspec.json.encode(forged)
    own = desk.crew.of("anna").timestamp(TIMESTAMP_SUBJECT, body, OWN, issued_ms=forged.issued)
    desk.put(TIMESTAMP_SUBJECT, body, own)
    control = desk.ccmctl("signers", "renew")
    desk.succeed("signers", "renew", "--force")

    assert attacked.out == "signers list: confirmed\n"
    assert [one.pieces for one in signed] == [before.pieces]
    assert control.code != 0  # an administrator's own one is the base: its pieces are not there
    assert "no longer has the part of the snapshot" in control.err


def test_an_earlier_form_of_a_schedule_that_was_put_back_is_run(desk: RealDesk, site: str) -> None:
    """What the threat model says is not defended: schedules have no revisions."""
    words = ["-t", "node=web1", "--every", "100h", "--yes"]
    desk.succeed("schedule", "add", "restored", site, *words)
    earlier = desk.schedule("restored")
    other = Path(site).with_name("newer.yaml")
    other.write_text(manifest(a_file("newer")))
    desk.succeed("schedule", "add", "restored", str(other), *words)
    kept = ("Nats-Schedule", "Nats-Schedule-Target")
    signed_by(desk)

    headers = {name: earlier.headers[name] for name in kept}
    desk.put(earlier.subject, earlier.body, earlier.headers[SIGNATURE_HEADER], **headers)
    desk.ccmctl("schedule", "run", "restored", "--yes")

    signed = signed_by(desk)
    assert any(b"genuine" in one for one in signed)
    assert not any(b"newer" in one for one in signed)
