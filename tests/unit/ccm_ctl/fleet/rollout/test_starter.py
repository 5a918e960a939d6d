"""Starts of scheduled rollouts: which are begun, which are skipped, which are refused, and that one server begins each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.signing import SIGNATURE_HEADER, SigningKey
from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer, SignersList, Trust, sign_signers
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import (
    encode_token,
    key_subject,
    rollout_due_subject,
    rollout_schedule_subject,
    rollout_start_subject,
    starts_key,
)
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import BusDeniedError, RunError
from ccm_agent.model.ids import derive_id, id_time, new_id, short_id
from ccm_agent.model.records.rollout_records import (
    Phase,
    RolloutPlan,
    RolloutState,
    ScheduledStart,
    ScheduleStarts,
    Wave,
)
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY, ManifestRequest
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.begun import run_of_start
from ccm_ctl.fleet.rollout.handover import hand_over
from ccm_ctl.fleet.rollout.plan import RolloutDefinition, RolloutOptions
from ccm_ctl.fleet.rollout.scheduled import DueRollout, ScheduledRollout, find_due
from ccm_ctl.fleet.rollout.starter import RolloutStarter
from ccm_ctl.fleet.rollout.starts import KEPT, StartsStore, StoredStarts, announce, place_of, read_servers
from ccm_ctl.fleet.rollout.store import RolloutStore
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_session import new_rollout
from tests.support.authorship import Root, new_seed
from tests.support.controller import NOW, FakeNode, StillClock, fleet_on
from tests.support.signing import OWN, OwnSignatory

NAME = "nightly"
ROLLOUT = ScheduledRollout(
    request=ManifestRequest(
        protocol=MANIFEST_APPLY,
        targets=["role=web"],
        name="site",
        bundle=Bundle(digest="0" * 64, size_bytes=1),
        digest="0" * 64,
    ),
    scope="fact.role.web",
    definition=RolloutDefinition(options=RolloutOptions(batch="1")),
)


class Place:
    """A broker with two nodes, and rollout servers at it."""

    def __init__(self, trust: Trust | None = None, key: SigningKey | None = None) -> None:
        self.key = key
        self.broker = MemoryBroker(now=lambda: NOW)
        self.trust = trust
        self.due: list[DueRollout] = []
        self.notes: list[str] = []
        self.now = NOW

    async def open(self) -> Place:
        for name in ("web1", "web2"):
            await FakeNode(name, {"role": "web"}).begin(self.broker)
        return self

    def fleet(self, operator: str = "server", now: datetime | None = None) -> Fleet:
        now = now or self.now
        fleet = fleet_on(MemoryBus(self.broker, operator), self.trust)
        signatory = OwnSignatory(self.key, lambda: milliseconds(now)) if self.key is not None else None
        return replace(fleet, due_rollouts=self._read_due, clock=Clock(now), signatory=signatory)

    async def _read_due(self) -> list[DueRollout]:
        return list(self.due)

    def server(self, operator: str = "server", now: datetime | None = None) -> RolloutStarter:
        return RolloutStarter(self.fleet(operator, now), self.notes.append)

    async def starts(self) -> list[ScheduledStart]:
        return list((await StartsStore(self.fleet()).look(NAME, ROLLOUT)).starts.starts)

    async def runs(self) -> list[str]:
        return [state.run for state in await RolloutStore(self.fleet()).open_rollouts()]


class Clock(StillClock):
    """A time that stands still."""

    def __init__(self, now: datetime) -> None:
        self._now = now

    def now(self) -> datetime:
        return self._now


def due_at(moment: datetime = NOW, rollout: ScheduledRollout = ROLLOUT, signature: str = "") -> DueRollout:
    return DueRollout(
        name=NAME, due=moment, body=msgspec.json.encode(rollout), signature=signature, rollout=rollout
    )


async def test_of_two_servers_one_begins_a_start() -> None:
    place = await Place().open()
    place.due = [due_at()]
    first, second = place.server("anna"), place.server("bob")

    # the second has read the starts before the first wrote them
    known = await StartsStore(place.fleet()).all({NAME: ROLLOUT})
    await first.look()
    assert known == {}
    await second._attempt(NAME, second._begin(place.due[0], StoredStarts(name=NAME)))
    await second.look()

    [run] = await place.runs()
    assert await place.starts() == [ScheduledStart(due=NOW, run=run, by=place_of(place.fleet("anna")))]
    assert place.notes == [f"schedule {NAME}: the start due 2026-11-21 12:00:00Z is run {run[:8]}"]
    # the record of the server that lost is gone
    recorded = await History(place.fleet()).newest(10)
    assert [record.run for record, *_ in recorded.runs] == [run]
    loaded = await History(place.fleet()).load(run)
    assert (loaded.cause, loaded.origin, loaded.record.requester) == ("schedule", NAME, "anna")
    assert loaded.nodes == ["web1", "web2"]


async def test_another_server_stores_the_rollout_of_a_server_that_died_after_its_claim() -> None:
    place = await Place().open()
    place.due = [due_at()]
    await place.server().look()
    [run] = await place.runs()
    state, _ = await RolloutStore(place.fleet()).need(run)
    runs = MemoryBus(place.broker, "x").bucket("CCM_RUNS")
    await runs.delete(f"=rollout.{run}")
    entry = await runs.get(starts_key(NAME))
    assert entry is not None
    starts = (await StartsStore(place.fleet()).look(NAME, ROLLOUT)).starts
    await StartsStore(place.fleet()).write(replace(starts, handover=state), entry.revision, base=OWN)

    await place.server("bob").look()

    assert await place.runs() == [run]
    assert (await StartsStore(place.fleet()).look(NAME, ROLLOUT)).starts == starts


@pytest.mark.parametrize("signer", ["server", "ann", ""])
async def test_a_claimed_rollout_is_stored_only_as_an_operator_with_the_right_handed_it_over(
    signer: str,
) -> None:
    fleetwide = Fleetwide()
    place = await Place(fleetwide.trust, fleetwide.server).open()
    place.due = [due_at(signature=fleetwide.sign())]
    await place.server().look()
    [run] = await place.runs()
    state, _ = await RolloutStore(place.fleet()).need(run)
    recorded = await History(place.fleet()).load(run)
    stored = await StartsStore(place.fleet()).look(NAME, ROLLOUT)
    await MemoryBus(place.broker, "x").bucket(RUNS).delete(f"=rollout.{run}")
    state = replace(state, signature="")
    if signer:
        place.key = fleetwide.server if signer == "server" else fleetwide.ann
        state = hand_over(place.fleet(signer), state, recorded.record, recorded.nodes, base=OWN)
        place.key = fleetwide.server
    claimed = replace(stored.starts, handover=state)
    await StartsStore(place.fleet()).write(claimed, stored.revision, base=OWN)

    await place.server(now=NOW + timedelta(minutes=1)).look()

    is_stored = signer == "server"
    assert await place.runs() == ([run] if is_stored else [])
    assert ("is not driven" in place.notes[-1]) is not is_stored


@pytest.mark.parametrize(
    ("late_s", "reason"),
    [(3600, ""), (3601, "no rollout server started it within 1h")],
    ids=["within its limit", "beyond it"],
)
async def test_a_start_that_was_missed_for_too_long_is_skipped(late_s: int, reason: str) -> None:
    place = await Place().open()
    place.due = [due_at()]

    await place.server(now=NOW + timedelta(seconds=late_s)).look()

    [start] = await place.starts()
    assert (start.reason, bool(start.run)) == (reason, not reason)


async def test_a_start_is_skipped_while_the_run_before_is_open_and_the_next_one_is_begun_after_it() -> None:
    place = await Place().open()
    place.due = [due_at()]
    server = place.server()
    await server.look()
    [run] = await place.runs()

    place.due = [due_at(NOW + timedelta(seconds=60))]
    await server.look()
    skipped = (await place.starts())[0]
    await RolloutStore(place.fleet()).change(
        run, lambda state: replace(state, phase=Phase.ABORTED, lease=None), base=OWN
    )
    place.due = [due_at(NOW + timedelta(seconds=120))]
    await server.look()

    assert skipped.reason == f"run {run[:8]} of this schedule is still open"
    [newest, *_] = await place.starts()
    assert newest.run not in ("", run)
    assert await place.runs() == [newest.run]


async def test_a_start_is_skipped_while_a_rollout_of_another_operator_is_in_progress_on_its_nodes() -> None:
    place, run = await Place().open(), new_id(NOW)
    record = RunRecord(run=run, action="exec", name="other", requester="ann", time=NOW, nodes=1)
    await History(place.fleet("ann")).begin(record, ["web2"], [], OWN)
    store = RolloutStore(place.fleet("ann"))
    plan = RolloutPlan(waves=(Wave(name="all", nodes=1, slots=1),))
    await store.write(RolloutState(run=run, plan=plan, is_detached=True), 0, base=OWN)
    place.due = [due_at()]

    await place.server().look()
    await store.change(run, lambda state: replace(state, phase=Phase.PAUSED), base=OWN)
    place.due = [due_at(NOW + timedelta(seconds=60))]
    await place.server().look()

    begun, skipped = await place.starts()
    assert skipped.reason.startswith(
        f"web2: another rollout, run {run[:8]} (exec other by ann), is in progress on this node"
    )
    assert begun.run != ""


async def test_a_start_without_a_node_is_skipped_with_the_reason() -> None:
    place = await Place().open()
    request = ManifestRequest(protocol=MANIFEST_APPLY, targets=["role=db"], name="site")
    place.due = [due_at(rollout=replace(ROLLOUT, request=request))]

    await place.server().look()

    [start] = await place.starts()
    assert (start.run, start.reason) == ("", "no node matches role=db; role is web")


async def test_waves_that_make_no_sense_for_the_nodes_of_today_are_skipped_with_the_reason() -> None:
    place = await Place().open()
    definition = RolloutDefinition(options=RolloutOptions(canary=2))
    place.due = [due_at(rollout=replace(ROLLOUT, definition=definition))]

    await place.server().look()

    [start] = await place.starts()
    assert start.reason == ("--canary 2: the rollout has 2 nodes, so nothing would be left for the next wave")


async def test_a_number_of_starts_is_remembered() -> None:
    place = await Place().open()
    server = place.server()
    for second in range(KEPT + 5):
        place.due = [due_at(NOW + timedelta(seconds=second))]
        await server.look()

    starts = await place.starts()

    assert len(starts) == KEPT
    assert starts[0].due == NOW + timedelta(seconds=KEPT + 4)


async def test_old_credentials_are_named_and_leave_nothing_on_record() -> None:
    place = await Place().open()
    place.due = [due_at()]
    server = place.server()

    async def deny(*_: object, **_options: object) -> int:
        raise BusDeniedError("CCM_RUNS: not permitted")

    server._store.write = deny  # type: ignore[method-assign]
    await server.look()
    await server.look()

    assert place.notes == [
        f"schedule {NAME}: not started: CCM_RUNS: not permitted; "
        "scheduled rollouts need credentials with --apply that were issued by this version"
    ]
    assert (await History(place.fleet()).newest(10)).runs == []


# -- who may


class Fleetwide:
    """A root key, the operator anna with and without the right to add schedules, and a rollout server."""

    def __init__(self, *, schedules: bool = True, when: str = "0 0 12 * * *", zone: str = "") -> None:
        self.root = Root()
        self.key = SigningKey(new_seed())
        signer = Signer(name="anna", key=self.key.public_key, schedules=schedules)
        self.server = SigningKey(new_seed())
        server = Signer(name="server", key=self.server.public_key, apply=(EVERYWHERE,))
        self.bob, self.ann = SigningKey(new_seed()), SigningKey(new_seed())
        bob = Signer(name="bob", key=self.bob.public_key, apply=(EVERYWHERE,))
        ann = Signer(name="ann", key=self.ann.public_key, apply=("fact.role.db",))
        signers = SignersList(number=1, issued=milliseconds(NOW), signers=(signer, server, bob, ann))
        self.trust = Trust(root=self.root.key.public_key, signers=sign_signers(self.root.key, signers))
        self.when, self.zone = when, zone

    def sign(self, key: SigningKey | None = None, subject: str = "", ends: datetime | None = None) -> str:
        headers = OwnSignatory(key or self.key, lambda: milliseconds(NOW) - 1000).schedule(
            subject or rollout_start_subject(NAME),
            msgspec.json.encode(ROLLOUT),
            name=NAME,
            when=self.when,
            zone=self.zone,
            expires_ms=milliseconds(ends or NOW + timedelta(days=365)),
        )
        return headers[SIGNATURE_HEADER]


def milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


async def test_a_start_that_an_operator_signed_for_this_time_is_begun() -> None:
    fleetwide = Fleetwide()
    place = await Place(fleetwide.trust, fleetwide.server).open()
    place.due = [due_at(NOW + timedelta(seconds=2), signature=fleetwide.sign())]

    await place.server().look()

    assert len(await place.runs()) == 1


def cases() -> list[object]:
    one, narrow = Fleetwide(), Fleetwide(schedules=False)
    other_body = replace(ROLLOUT, start_within_s=1.0)
    return [
        pytest.param("it is not signed", due_at(), one, id="not signed"),
        pytest.param(
            "which is not in the signers list",
            due_at(signature=one.sign(SigningKey(new_seed()))),
            one,
            id="a node's key, or a key that was removed",
        ),
        pytest.param(
            "anna signed it, but may not add schedules", due_at(signature=narrow.sign()), narrow, id="no right"
        ),
        pytest.param(
            "the content was changed after signing",
            due_at(rollout=other_body, signature=one.sign()),
            one,
            id="other content",
        ),
        pytest.param(
            "the signature is for",
            due_at(signature=one.sign(subject=rollout_start_subject("other"))),
            one,
            id="the start of another schedule",
        ),
        pytest.param(
            "the signature is for",
            due_at(signature=one.sign(subject="io.choria.ccm.v1.manifest.apply.request.all")),
            one,
            id="a schedule that the broker sends to nodes",
        ),
        pytest.param(
            "the signature has expired", due_at(signature=one.sign(ends=NOW - timedelta(minutes=1))), one,
            id="expired",
        ),
        pytest.param(
            "which does not fit '0 0 12 * * *'",
            due_at(NOW - timedelta(hours=2), signature=one.sign()),
            one,
            id="another time",
        ),
        pytest.param(
            "which is in the future", due_at(NOW + timedelta(days=1), signature=one.sign()), one, id="in the future"
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(("why", "due", "fleetwide"), cases())
async def test_a_start_is_refused(why: str, due: DueRollout, fleetwide: Fleetwide) -> None:
    place = await Place(fleetwide.trust, fleetwide.server).open()
    place.due = [due]
    server = place.server()

    await server.look()
    await server.look()

    [note] = place.notes
    assert note.startswith(f"schedule {NAME}: refused: ")
    assert why in note
    assert (await place.runs(), await place.starts()) == ([], [])


async def test_the_holder_of_the_broker_cannot_start_it_twice_for_one_time() -> None:
    fleetwide = Fleetwide()
    place = await Place(fleetwide.trust, fleetwide.server).open()
    place.due = [due_at(signature=fleetwide.sign())]
    server = place.server()
    await server.look()
    [run] = await place.runs()
    await RolloutStore(place.fleet()).change(run, lambda state: replace(state, phase=Phase.DONE), base=OWN)

    # the same time in another message
    place.due = [due_at(NOW + timedelta(minutes=20), signature=fleetwide.sign())]
    await place.server(now=NOW + timedelta(minutes=20)).look()
    # the same message, after the record of what was started was removed
    await MemoryBus(place.broker, "x").bucket("CCM_RUNS").delete(starts_key(NAME))
    place.due = [due_at(signature=fleetwide.sign())]
    await server.look()

    assert await place.runs() == []
    assert "a start for this time of '0 0 12 * * *' is already stored" in place.notes[-1]


def taken(fleetwide: Fleetwide, kind: str) -> tuple[bytes, str]:
    """Starts that say that another server has begun this one, and their signature."""
    start = ScheduledStart(due=NOW + timedelta(hours=1), run=new_id(NOW), by="server@host")
    body = msgspec.json.encode(ScheduleStarts(name=NAME, starts=(start,), run=start.run))
    keys = {"server": fleetwide.server, "ann": fleetwide.ann, "changed": fleetwide.server}
    if kind not in keys:
        return b"junk" if kind == "junk" else body, ""
    signatory = OwnSignatory(keys[kind], lambda: milliseconds(NOW))
    signature = signatory.record(key_subject(RUNS, starts_key(NAME)), body, OWN)
    return body + b" " if kind == "changed" else body, signature


@pytest.mark.parametrize("kind", ["unsigned", "ann", "changed", "junk", "deleted"])
async def test_starts_that_no_operator_with_the_right_signed_skip_nothing(kind: str) -> None:
    """The control is the same document with the signature of a server that may start it."""
    fleetwide = Fleetwide()
    begun = {}
    for one in (kind, "server"):
        place = await Place(fleetwide.trust, fleetwide.server).open()
        bucket = MemoryBus(place.broker, "x").bucket(RUNS)
        body, signature = taken(fleetwide, one)
        await bucket.update(starts_key(NAME), body, 0, signature=signature)
        if one == "deleted":
            await bucket.delete(starts_key(NAME))
        place.due = [due_at(signature=fleetwide.sign())]

        await place.server().look()
        begun[one] = len(await place.runs())

    assert begun == {kind: 1, "server": 0}


@pytest.mark.parametrize("operator", ["server", "bob"])
@pytest.mark.parametrize("attack", ["erase", "put back"])
async def test_a_start_that_is_on_record_is_not_begun_again_by_any_server(attack: str, operator: str) -> None:
    fleetwide, later = Fleetwide(when="0 0 * * * *"), NOW + timedelta(hours=1)
    place = await Place(fleetwide.trust, fleetwide.server).open()
    bucket = MemoryBus(place.broker, "x").bucket(RUNS)
    place.due = [due_at(signature=fleetwide.sign())]
    await place.server().look()
    before = await bucket.get(starts_key(NAME))
    [earlier] = await place.runs()
    await RolloutStore(place.fleet()).change(
        earlier, lambda state: replace(state, phase=Phase.DONE), base=OWN
    )
    place.now, place.due = later, [due_at(later, signature=fleetwide.sign())]
    await place.server().look()
    [run] = await place.runs()
    await RolloutStore(place.fleet()).change(run, lambda state: replace(state, phase=Phase.DONE), base=OWN)
    newest = await bucket.get(starts_key(NAME))
    assert before is not None
    assert newest is not None

    if attack == "erase":
        await bucket.delete(starts_key(NAME))
    else:
        await bucket.store_signed(starts_key(NAME), before.value, newest.revision, before.signature)
    place.key = fleetwide.bob if operator == "bob" else fleetwide.server
    await place.server(operator, now=later + timedelta(minutes=1)).look()

    assert await place.runs() == []
    assert (await place.starts())[0].run == run
    assert place.notes[-1].endswith(f"is not repeated: server has begun it as run {short_id(run)}")


async def test_a_start_of_which_everything_was_erased_has_the_same_run_which_nodes_apply_once() -> None:
    fleetwide = Fleetwide()
    place = await Place(fleetwide.trust, fleetwide.server).open()
    bucket = MemoryBus(place.broker, "x").bucket(RUNS)
    place.due = [due_at(signature=fleetwide.sign())]
    await place.server().look()
    [run] = await place.runs()

    for entry in await bucket.matching([">"]):
        await bucket.delete(entry.key)
    await place.server(now=NOW + timedelta(minutes=1)).look()
    place.key, same = fleetwide.bob, (await place.starts())[0].run
    derived = run_of_start(place.fleet(), NAME, NOW)

    assert same == run
    assert derived not in ("", run)  # no other operator can tell it
    assert id_time(derived) == id_time(run) == NOW


async def test_a_record_of_an_operator_who_may_not_start_it_takes_no_start() -> None:
    fleetwide = Fleetwide()
    place = await Place(fleetwide.trust, fleetwide.server).open()
    place.due = [due_at(signature=fleetwide.sign())]
    await place.server().look()
    [run] = await place.runs()
    record = (await History(place.fleet()).load(run)).record
    begun = {}

    for operator, key in (("ann", fleetwide.ann), ("bob", fleetwide.bob)):
        other = await Place(fleetwide.trust, key).open()
        forged = replace(record, run=derive_id(int(NOW.timestamp()), b"x" * 16))
        await History(other.fleet(operator)).begin(forged, ["web1"], [], OWN)
        other.key, other.due = fleetwide.server, place.due
        await other.server(now=NOW + timedelta(minutes=1)).look()
        begun[operator] = len(await other.runs())

    assert begun == {"ann": 1, "bob": 0}


async def test_a_record_that_another_operator_puts_in_place_of_a_rollouts_is_not_driven() -> None:
    place = await Place().open()
    place.due = [due_at()]
    await place.server().look()
    [run] = await place.runs()
    state, revision = await RolloutStore(place.fleet()).need(run)
    good = await History(place.fleet()).load(run)
    runs = MemoryBus(place.broker, "x").bucket("CCM_RUNS")
    # the broker removed the first record, because the bucket was full, and a look-only operator wrote one
    for kind in ("request", "state", "targets.0"):
        await runs.delete(f"{encode_token('server')}.{run}.{kind}")
    changed = good.record.request | {"digest": "1" * 64}
    await History(place.fleet("eve")).begin(
        msgspec.structs.replace(good.record, request=changed), good.nodes, [], OWN
    )
    bad = await History(place.fleet()).load(run)

    new_rollout(place.fleet(), good, state, revision, ROLLOUT.request, base=OWN)
    with pytest.raises(RunError) as caught:
        new_rollout(place.fleet(), bad, state, revision, ROLLOUT.request, base=OWN)

    assert bad.record.requester == "eve"
    assert str(caught.value) == (
        f"{run[:8]}: its record was replaced after the start; `ccmctl run abort {run[:8]}` ends it"
    )


# -- what the broker holds


def stored(subject: str, body: bytes, second: int, **headers: str) -> Stored:
    return Stored(
        subject=subject, body=body, sequence=second, time=NOW + timedelta(seconds=second), headers=headers
    )


BODY = msgspec.json.encode(ROLLOUT)
SCHEDULER = {"Nats-Scheduler": rollout_schedule_subject(NAME)}
DUE = stored(rollout_due_subject(NAME), BODY, 10, **SCHEDULER)


@pytest.mark.parametrize(
    ("messages", "is_due"),
    [
        pytest.param([stored(rollout_schedule_subject(NAME), BODY, 1), DUE], True, id="it is due"),
        pytest.param([DUE], True, id="it was due once, and the broker removed the schedule"),
        pytest.param([stored(rollout_schedule_subject(NAME), BODY, 1)], False, id="it was not due yet"),
        pytest.param([stored(rollout_schedule_subject(NAME), b"", 11), DUE], False, id="it was removed"),
        pytest.param(
            [stored(rollout_schedule_subject(NAME), b"", 10), DUE], False, id="it was removed in the same moment"
        ),
        pytest.param(
            [stored(rollout_schedule_subject(NAME), BODY.replace(b'"1"', b'"2"'), 11), DUE], False,
            id="it was replaced",
        ),
        pytest.param(
            [stored(rollout_schedule_subject(NAME), BODY, 11), DUE], False, id="it was stored again since"
        ),
        pytest.param(
            [stored(rollout_due_subject(NAME), BODY, 10)], False, id="the broker's scheduler did not make it"
        ),
        pytest.param(
            [stored(rollout_due_subject(NAME), BODY, 10, **{"Nats-Scheduler": rollout_schedule_subject("x")})],
            False,
            id="another schedule made it",
        ),
        pytest.param([replace(DUE, copied=True)], False, id="a copy of another message"),
        pytest.param([stored(rollout_due_subject(NAME), b"{", 10, **SCHEDULER)], False, id="unreadable"),
    ],
)  # fmt: skip
def test_what_is_due_is_what_the_broker_stored_of_a_schedule_that_is_unchanged(
    messages: Sequence[Stored], is_due: bool
) -> None:
    found = find_due(messages)

    assert found == ([due_at(NOW + timedelta(seconds=10))] if is_due else [])


async def test_servers_are_known_while_they_say_that_they_are_there() -> None:
    place = await Place().open()
    await announce(place.fleet("anna"))
    await announce(place.fleet("bob"))
    await announce(place.fleet("bob"), is_leaving=True)
    await announce(place.fleet("eve", NOW + timedelta(days=1)))

    assert [server.operator for server in await read_servers(place.fleet())] == ["anna"]
    assert await read_servers(place.fleet(now=NOW + timedelta(seconds=31))) == []
