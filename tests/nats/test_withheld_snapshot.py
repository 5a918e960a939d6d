"""
The holder of the broker withholds parts of the snapshot, or the broker was put back to a backup, and an administrator renews.

A snapshot must never name lower numbers than the one before: nodes without state would take earlier documents. Each attack has a
control: with what was withheld, or with `--force`, the renewal succeeds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ccm_agent.bus.kv import NatsKeyValue
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.snapshot import piece_key
from ccm_agent.bus.signatures.timestamp import TIMESTAMP_KEY, Timestamp
from ccm_agent.bus.signatures.trust import SIGNERS_KEY, TRUST_BUCKET, sign_signers
from ccm_agent.bus.streams import Stored
from ccm_agent.bus.subjects import key_subject
from ccm_agent.model.errors import NoTargetError, ProtocolError
from ccm_agent.testing.nats_server import NatsServer
from ccm_ctl.fleet.data.document_history import before_newest, read_facts_history
from ccm_ctl.fleet.data.documents import Documents
from ccm_ctl.fleet.keys.signers_timestamp import RenewalState, renew, renewing
from ccm_ctl.fleet.nodes.groups import expand_groups, write_group
from ccm_ctl.fleet.trust.seen_signers import SeenSigners
from tests.support.agent import until
from tests.support.nats_server import running_server
from tests.support.signed_node import NODE, SignedNode, signed_node
from tests.support.signing import FULL, OWN

pytestmark = [pytest.mark.nats, pytest.mark.timeout(120)]

FACTS, ADMIN = "CCM_FACTS", FULL | {"admin": True, "timestamp": True}
NAME = f"{FACTS}/{NODE}"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with running_server(tmp_path / "nats") as one:
        yield one


@pytest.fixture
async def stage(tmp_path: Path, server: NatsServer) -> AsyncIterator[SignedNode]:
    async with signed_node(tmp_path, server) as one:
        yield one


class Administrator:
    """An administrator at a machine of their own."""

    def __init__(self, stage: SignedNode, signatory: Signatory, folder: Path) -> None:
        self.signatory = signatory
        self.seen = SeenSigners(folder / "seen.json")
        self._stage = stage

    async def renew(self, **how: Any) -> RenewalState:
        """What `ccmctl signers renew` does; a minute has passed."""
        self._stage.clock.ahead_s += 60
        fleet = self._stage.fleet(self.signatory, self.seen)
        return await renew(fleet, self._stage.attacker, self.seen, is_forced=True, **how)

    async def set_facts(self, **facts: object) -> dict[str, object]:
        """What `ccmctl facts set` does: compute the new facts from the stored ones."""
        self._stage.clock.ahead_s += 1
        fleet = self._stage.fleet(self.signatory, self.seen)
        documents = Documents(fleet, fleet.facts, FACTS)
        # as numbers are the broker's times, and this test moves only its own clock
        documents._now_ms = self._stage.clock.now_ms()
        _, new = await documents.change(NODE, lambda old: (old or {}) | facts)
        body: dict[str, object] = new.body
        return body


async def begin(stage: SignedNode, folder: Path, *names: str) -> list[Administrator]:
    """The administrators, and the list that names them; others get credentials with it."""
    found = [Administrator(stage, stage.keys.operator(name, **ADMIN), folder / name) for name in names]
    stage.trust = stage.keys.trust(max_age_s=3600)
    assert stage.trust.signers is not None
    await stage.put(SIGNERS_KEY, stage.trust.signers)
    return found


async def numbers(stage: SignedNode) -> dict[str, int]:
    """What the snapshot names that nodes read; it is the one of the timestamp."""
    bucket = NatsKeyValue(stage.attacker, TRUST_BUCKET)
    piece = await bucket.get(piece_key(0))
    assert piece is not None
    found: dict[str, int] = msgspec.json.decode(piece.value)
    return found


async def timestamp(stage: SignedNode) -> Timestamp:
    entry = await NatsKeyValue(stage.attacker, TRUST_BUCKET).get(TIMESTAMP_KEY)
    assert entry is not None
    return msgspec.json.decode(entry.value, type=Timestamp)


def without(stored: list[Stored], key: str) -> list[Stored]:
    return [one for one in stored if one.subject != key_subject(TRUST_BUCKET, key)]


async def test_renewal_refuses_when_a_part_of_the_snapshot_is_withheld(
    stage: SignedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [ann] = await begin(stage, tmp_path, "ann")
    await ann.set_facts(role="web")
    fleet = stage.fleet(ann.signatory, ann.seen)
    await Documents(fleet, fleet.data, "CCM_DATA").change(f"node/{NODE}", lambda _: "data: {}\n", base=OWN)
    assert await ann.renew() == RenewalState.RENEWED
    assert list(await numbers(stage)) == [f"CCM_DATA/node/{NODE}", NAME]
    before, high = await timestamp(stage), (await numbers(stage))[NAME]
    whole = await stage.stored(TRUST_BUCKET)
    # the document is gone, so only the snapshot has its number
    await stage.restore(FACTS, [])
    await stage.restore(TRUST_BUCKET, without(whole, piece_key(0)))

    with pytest.raises(
        ProtocolError, match=r"no longer has the part of the snapshot .* signers renew --force"
    ):
        await ann.renew()
    stage.clock.ahead_s += 1900
    async with renewing(stage.fleet(ann.signatory, ann.seen), stage.attacker):
        pass  # any command
    assert await timestamp(stage) == before

    await stage.restore(TRUST_BUCKET, whole)
    assert await ann.renew() == RenewalState.RENEWED
    assert (await numbers(stage))[NAME] == high
    # an administrator can do without
    await stage.restore(TRUST_BUCKET, without(whole, piece_key(0)))
    assert await ann.renew(begins_anew=True) == RenewalState.RENEWED
    assert NAME not in await numbers(stage)


async def test_part_that_was_put_back_is_replaced_by_the_one_that_the_timestamp_names(
    stage: SignedNode, tmp_path: Path
) -> None:
    [ann] = await begin(stage, tmp_path, "ann")
    await ann.set_facts(role="web")
    assert await ann.renew() == RenewalState.RENEWED
    old = [one for one in await stage.stored(TRUST_BUCKET) if one.subject.endswith(piece_key(0))]
    await ann.set_facts(role="db")
    assert await ann.renew() == RenewalState.RENEWED
    high = (await numbers(stage))[NAME]
    await stage.restore(FACTS, [])

    whole = await stage.stored(TRUST_BUCKET)
    await stage.restore(TRUST_BUCKET, [*whole, *old])
    assert (await numbers(stage))[NAME] < high
    assert await ann.renew() == RenewalState.RENEWED

    assert (await numbers(stage))[NAME] == high


async def test_renewal_refuses_a_broker_that_was_put_back_to_a_backup(
    stage: SignedNode, tmp_path: Path
) -> None:
    ann, bob = await begin(stage, tmp_path, "ann", "bob")
    await ann.set_facts(role="old")
    assert await ann.renew() == RenewalState.RENEWED
    backup = {name: await stage.stored(name) for name in (FACTS, TRUST_BUCKET)}
    await ann.set_facts(role="new")
    assert await ann.renew() == RenewalState.RENEWED
    assert await bob.renew() == RenewalState.RENEWED
    high = (await numbers(stage))[NAME]

    for name, stored in backup.items():
        await stage.restore(name, stored)
    put_back = await timestamp(stage)
    with pytest.raises(ProtocolError, match=r"was seen before; .* `ccmctl signers renew --force`"):
        await ann.renew()
    with pytest.raises(SignatureError, match=r"was seen before; .* `ccmctl signers renew --force`"):
        await ann.set_facts(rack=7)
    assert await timestamp(stage) == put_back
    # nor with the timestamp withheld
    await stage.restore(TRUST_BUCKET, without(backup[TRUST_BUCKET], TIMESTAMP_KEY))
    with pytest.raises(
        ProtocolError, match=r"the broker has no timestamp, but a newer one, of .* was seen before"
    ):
        await ann.renew()

    # what one administrator accepts, others accept, too
    await stage.restore(TRUST_BUCKET, backup[TRUST_BUCKET])
    assert await ann.renew(begins_anew=True) == RenewalState.RENEWED
    assert (await numbers(stage))[NAME] < high
    assert await bob.renew() == RenewalState.RENEWED
    assert await ann.set_facts(rack=7) == {"role": "old", "rack": 7}
    async with stage.agent() as agent:
        await until(lambda: agent.agent._context.assigned.facts == {"role": "old", "rack": 7})


async def test_snapshot_of_an_administrator_who_was_shown_a_backup_is_not_signed_again(
    stage: SignedNode, tmp_path: Path
) -> None:
    ann, bob = await begin(stage, tmp_path, "ann", "bob")
    await ann.set_facts(role="old")
    assert await ann.renew() == RenewalState.RENEWED
    backup = {name: await stage.stored(name) for name in (FACTS, TRUST_BUCKET)}
    await ann.set_facts(role="new")
    assert await ann.renew() == RenewalState.RENEWED
    genuine = {name: await stage.stored(name) for name in backup}
    high = (await numbers(stage))[NAME]

    # bob's machine has seen nothing of it
    for name, stored in backup.items():
        await stage.restore(name, stored)
    assert await bob.renew() == RenewalState.RENEWED
    assert (await numbers(stage))[NAME] < high
    with pytest.raises(ProtocolError, match=f"lower numbers for 1 documents .*, such as {NAME}"):
        await ann.renew()

    await stage.restore(FACTS, genuine[FACTS])
    assert await ann.renew() == RenewalState.RENEWED
    assert (await numbers(stage))[NAME] == high


@pytest.mark.parametrize("has_seen", [True, False], ids=["ann has seen it", "ann has not seen it"])
async def test_timestamp_of_an_administrator_who_was_removed_since_is_no_obstacle(
    stage: SignedNode, tmp_path: Path, has_seen: bool
) -> None:
    ann, bob = await begin(stage, tmp_path, "ann", "bob")
    await ann.set_facts(role="web")
    assert await ann.renew() == RenewalState.RENEWED
    high = (await numbers(stage))[NAME]
    await stage.restore(FACTS, [])
    assert await bob.renew() == RenewalState.RENEWED
    if has_seen:
        assert await ann.renew() == RenewalState.RENEWED
        assert await bob.renew() == RenewalState.RENEWED
    stage.keys.signers.pop()
    await stage.put(SIGNERS_KEY, sign_signers(stage.keys.root, stage.keys.listed(max_age_s=3600)))

    assert await ann.renew() == RenewalState.RENEWED

    assert (await numbers(stage))[NAME] == high


async def test_facts_are_not_computed_from_a_shortened_history(stage: SignedNode, tmp_path: Path) -> None:
    [ann] = await begin(stage, tmp_path, "ann")
    await ann.set_facts(role="old")
    old = await stage.stored(FACTS)
    await ann.set_facts(role="new")
    whole = await stage.stored(FACTS)
    assert await ann.renew() == RenewalState.RENEWED
    fresh = Administrator(stage, ann.signatory, tmp_path / "fresh")

    for administrator in (ann, fresh):
        await stage.restore(FACTS, old)
        with pytest.raises(SignatureError, match=f"{NODE}: .* the fleet's snapshot lists number"):
            await administrator.set_facts(rack=7)
        await stage.restore(FACTS, [])
        with pytest.raises(SignatureError, match=f"{NODE}: .* but no revision is stored; .*--replace"):
            await administrator.set_facts(rack=7)
        assert await stage.stored(FACTS) == []

    await stage.restore(FACTS, whole)
    assert await fresh.set_facts(rack=7) == {"role": "new", "rack": 7}
    # what the operator writes needs no base
    await stage.restore(FACTS, old)
    fleet = stage.fleet(ann.signatory, ann.seen)
    _, new = await Documents(fleet, fleet.facts, FACTS).change(NODE, lambda _: {"role": "own"}, base=OWN)
    assert new.body == {"role": "own"}


async def test_revision_before_that_of_a_removed_operator_can_be_restored(
    stage: SignedNode, tmp_path: Path
) -> None:
    ann, bob = await begin(stage, tmp_path, "ann", "bob")
    await ann.set_facts(role="one")
    await bob.set_facts(role="two")
    whole = await stage.stored(FACTS)
    assert await ann.renew() == RenewalState.RENEWED
    stage.keys.signers.pop()
    await stage.put(SIGNERS_KEY, sign_signers(stage.keys.root, stage.keys.listed(max_age_s=3600)))
    assert await ann.renew() == RenewalState.RENEWED
    fleet = stage.fleet(ann.signatory, ann.seen)

    assert before_newest(await read_facts_history(fleet, NODE)).body == {"role": "one"}
    with pytest.raises(SignatureError, match="which is not in the signers list"):
        await ann.set_facts(rack=7)
    # without bob's revision it is not known which one is the newest
    await stage.restore(FACTS, whole[:1])
    with pytest.raises(SignatureError, match="the fleet's snapshot lists number"):
        before_newest(await read_facts_history(fleet, NODE))


async def test_group_that_was_put_back_selects_no_nodes(stage: SignedNode, tmp_path: Path) -> None:
    [ann] = await begin(stage, tmp_path, "ann")
    fleet = stage.fleet(ann.signatory, ann.seen)
    for target in ("role=old", "role=new"):
        await write_group(fleet, "edge", [target], "")
    key = key_subject(TRUST_BUCKET, "group.edge")
    assert await ann.renew() == RenewalState.RENEWED
    whole = await stage.stored(TRUST_BUCKET)
    others, [old, new] = without(whole, "group.edge"), [one for one in whole if one.subject == key]

    await stage.restore(TRUST_BUCKET, [*others, old, new, old])
    with pytest.raises(SignatureError, match=r"@edge: .* an older revision that was written again"):
        await expand_groups(fleet, ["@edge"])
    await stage.restore(TRUST_BUCKET, [*others, old])
    with pytest.raises(SignatureError, match=r"@edge: .* the fleet's snapshot lists number"):
        await expand_groups(fleet, ["@edge"])
    await stage.restore(TRUST_BUCKET, others)
    with pytest.raises(NoTargetError):
        await expand_groups(fleet, ["@edge"])

    await stage.restore(TRUST_BUCKET, [*others, old, new])
    assert await expand_groups(fleet, ["@edge"]) == ("role=new",)
