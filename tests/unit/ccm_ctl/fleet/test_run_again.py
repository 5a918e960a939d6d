"""What an operator sends who continues or repeats the run of another one: nothing that the author could not have sent."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.trust import EVERYWHERE, Signer, SignersList
from ccm_agent.bus.signatures.verified import Verifier
from ccm_agent.bus.subjects import encode_token, request_subject, scopes_of
from ccm_agent.model.bundle import Bundle
from ccm_agent.model.errors import RunError
from ccm_agent.model.ports import IncomingRequest
from ccm_agent.model.records.rollout_records import RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import NodeEnd, RunEnds, RunRecord, RunTargets, SecretStage
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    MANIFEST_CHECK,
    MANIFEST_PLAN,
    NODE_CONVERGE,
    ManifestRequest,
    Presence,
)
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.nodes.nodes import TargetSet
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.handover import check_handover, hand_over
from ccm_ctl.fleet.runs.find_run import find_run
from ccm_ctl.fleet.runs.history import History
from ccm_ctl.fleet.runs.run_again import (
    RETRIED_ENDS,
    base_of,
    build_request,
    check_undoable,
    find_author,
    known_ends,
    prepare_retry,
)
from ccm_ctl.fleet.runs.run_request import Launch, digest_record, prepare, put_on_record
from ccm_ctl.fleet.runs.run_session import new_rollout, record_rollout
from ccm_ctl.fleet.runs.run_signatures import read_verifier, refuse_request, require_author, verify_nodes
from tests.support.controller import NOW, fleet_on
from tests.support.signing import OWN, Keyring

DB, WEB = "fact.role.db", "fact.role.web"
ONE_WAVE = RolloutPlan(waves=(Wave(name="w", nodes=1, slots=1),))


class Fleets:
    """Operators on one broker, each with own rights, and what the node db1 hears."""

    def __init__(self) -> None:
        keys = Keyring(lambda: int(NOW.timestamp() * 1000))
        self._operators = {
            "lou": keys.operator("lou", plan=(DB,)),
            "dan": keys.operator("dan", apply=(DB,), plan=(DB,)),
            "eve": keys.operator("eve", apply=(WEB,)),
            "sue": keys.operator("sue", apply=(EVERYWHERE,)),
            "admin": keys.operator("admin", apply=(EVERYWHERE,), plan=(EVERYWHERE,)),
        }
        self._trust = keys.trust(signed_state=True)
        self._broker = MemoryBroker()
        self.heard: list[IncomingRequest] = []

    async def __aenter__(self) -> Fleets:
        await MemoryBus(self._broker, "db1").requests.subscribe(
            scopes_of("db1", {"role": "db"}), self.heard.append
        )
        await self.of("admin").nodes.put("presence.db1", msgspec.json.encode(Presence(node="db1")))
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def of(self, name: str) -> Fleet:
        signatory = self._operators[name]
        return replace(fleet_on(MemoryBus(self._broker, name, signatory), self._trust), signatory=signatory)

    def launch(self, author: str, protocol: str, scope: str) -> Launch:
        """A request of an operator to db1, as the author lists it."""
        request = ManifestRequest(
            protocol=protocol, name="site", digest="a" * 64, bundle=Bundle(digest="a" * 64, size_bytes=1)
        )
        resolved = TargetSet(nodes=["db1"], offline=[], scopes=[scope], targets=[], where="")
        return prepare(self.of(author), request, resolved, protocol.split(".")[-2], "site", base=OWN)

    async def end(self, author: str, run: str) -> None:
        """The author records that db1 was not reached."""
        ends = RunEnds(run=run, nodes={"db1": NodeEnd(state="unreachable")})
        await self.of(author).runs.put(f"{encode_token(author)}.{run}.ends.0", msgspec.json.encode(ends))

    async def retry(self, sender: str, run: str) -> Launch:
        fleet = self.of(sender)
        found = await find_run(fleet, run)
        ends = await known_ends(fleet, found)
        return await prepare_retry(fleet, found, RETRIED_ENDS, NOW + timedelta(hours=1), None, ends)

    async def drive(self, sender: str, launch: Launch) -> None:
        """Start a rollout of a prepared run, and ask its first node."""
        fleet = self.of(sender)
        state = RolloutState(run=launch.record.run, plan=ONE_WAVE)
        revision = await record_rollout(fleet, launch, state)
        recorded = await History(fleet).load(state.run)
        _, driver = new_rollout(fleet, recorded, state, revision, launch.request, base=launch.base)
        await driver.begin()
        await driver.turn()


@pytest.mark.parametrize("protocol", [MANIFEST_PLAN, MANIFEST_CHECK])
async def test_plan_of_an_operator_who_may_not_apply_is_not_sent_by_another(protocol: str) -> None:
    async with Fleets() as fleets:
        for author in ("lou", "dan"):
            launch = fleets.launch(author, protocol, DB)
            await put_on_record(fleets.of(author), launch)
            await fleets.end(author, launch.record.run)
            if author == "lou":
                why = (
                    "lou wrote its record, but may only plan on fact.role.db, where a plan that admin sends also runs "
                    "commands, so it is not sent again; start a new run from your own files"
                )
                with pytest.raises(RunError, match=why):
                    await fleets.retry("admin", launch.record.run)
                recorded = await find_run(fleets.of("admin"), launch.record.run)
                with pytest.raises(RunError, match=why):  # a resume
                    await find_author(fleets.of("admin"), recorded)
                assert (await fleets.retry("lou", launch.record.run)).resolved.nodes == ["db1"]
            else:
                assert (await fleets.retry("admin", launch.record.run)).resolved.nodes == ["db1"]


async def test_server_does_not_drive_the_plan_of_an_operator_who_may_not_apply() -> None:
    async with Fleets() as fleets:
        for author in ("lou", "dan"):
            fleet, server = fleets.of(author), fleets.of("sue")
            launch = fleets.launch(author, MANIFEST_PLAN, DB)
            await put_on_record(fleet, launch)
            recorded = await History(server).load(launch.record.run)
            state = RolloutState(run=launch.record.run, plan=ONE_WAVE)
            state = hand_over(fleet, state, launch.record, ["db1"], base=OWN)
            request = build_request(server, recorded)
            if author == "lou":
                with pytest.raises(SignatureError, match="lou handed it over, but may only plan on"):
                    await check_handover(server, state, recorded, request)
            else:
                assert await check_handover(server, state, recorded, request) is False


async def test_retry_of_a_rollout_reaches_no_node_beyond_the_scopes_of_its_author() -> None:
    async with Fleets() as fleets:
        made_up = fleets.launch("eve", MANIFEST_APPLY, WEB)
        await put_on_record(fleets.of("eve"), made_up)
        await fleets.end("eve", made_up.record.run)
        retry = await fleets.retry("admin", made_up.record.run)
        await fleets.drive("admin", retry)
        assert fleets.heard == []

        # the record of the retry says so, too: for its resume, for a rollout server and for its own retry
        assert (await find_run(fleets.of("sue"), retry.record.run)).record.is_sent_to_scopes
        await fleets.end("admin", retry.record.run)
        await fleets.drive("sue", await fleets.retry("sue", retry.record.run))
        assert fleets.heard == []

        # the author may request every node
        launch = fleets.launch("sue", MANIFEST_APPLY, WEB)
        await put_on_record(fleets.of("sue"), launch)
        await fleets.end("sue", launch.record.run)
        await fleets.drive("admin", await fleets.retry("admin", launch.record.run))
        assert [one.subject for one in fleets.heard] == [request_subject(MANIFEST_APPLY, "node.db1")]


async def test_only_a_record_whose_author_could_change_the_nodes_is_undone() -> None:
    async with Fleets() as fleets:
        for author, is_allowed in (("dan", True), ("lou", False), ("eve", False)):
            launch = fleets.launch(author, MANIFEST_APPLY, DB)
            await put_on_record(fleets.of(author), launch)
            recorded = await History(fleets.of("admin")).load(launch.record.run)

            if is_allowed:
                await check_undoable(fleets.of("admin"), recorded)
            else:
                with pytest.raises(RunError, match=f"{author} wrote its record, but may not apply"):
                    await check_undoable(fleets.of("admin"), recorded)


async def test_a_record_counts_with_the_nodes_that_were_signed_and_a_listed_author() -> None:
    async with Fleets() as fleets:
        launch = fleets.launch("dan", MANIFEST_APPLY, DB)
        await put_on_record(fleets.of("dan"), launch)
        recorded = await History(fleets.of("admin")).load(launch.record.run)
        verifier, judged = await read_verifier(fleets.of("admin")), recorded.judged
        assert judged is not None

        genuine = verify_nodes(judged, [RunTargets(run=launch.record.run, nodes=["db1"])])
        changed = verify_nodes(judged, [RunTargets(run=launch.record.run, nodes=["db1", "web1"])])

        assert genuine is base_of(recorded)
        assert changed.reason == "its list of nodes was changed after signing"
        with pytest.raises(RunError, match="its record is unverified: its list of nodes was changed"):
            base_of(replace(recorded, judged=changed))
        author = require_author(verifier, genuine, lambda _: "")
        assert author is not None
        assert author.name == "dan"
        with pytest.raises(RunError, match="its record is unverified"):
            require_author(verifier, changed, lambda _: "")
        without = Verifier(SignersList(number=2, issued=0), lambda: 0)
        with pytest.raises(RunError, match="dan is no longer in the signers list"):
            require_author(without, genuine, lambda _: "")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"request": {"protocol": "io.choria.ccm.v1.node.ping.request"}}, "specifies no request"),
        ({"subjects": []}, "specifies no scope"),
        ({"subjects": [request_subject(MANIFEST_APPLY, WEB)]}, f"may not apply on {WEB}"),
    ],
)
def test_a_record_that_names_no_request_or_no_scope_is_not_sent(
    change: dict[str, object], reason: str
) -> None:
    dan = Signer(name="dan", key="", apply=(DB,))
    record = Fleets().launch("dan", MANIFEST_APPLY, DB).record

    assert refuse_request(dan, replace(record, **change)) == reason


@pytest.mark.parametrize(
    ("rights", "reason"),
    [
        ({"maintain": (DB,), "data": True}, ""),
        ({"maintain": (DB,)}, "may not write the secret mail"),
        ({"maintain": (WEB,), "data": True}, f"may not rotate on {DB}"),
    ],
)
def test_a_rotation_of_an_operator_without_its_rights_is_not_continued_by_another(
    rights: dict[str, Any], reason: str
) -> None:
    record = RunRecord(
        run="r",
        action="rotate",
        name="mail",
        subjects=[request_subject(NODE_CONVERGE, DB)],
        request={"protocol": NODE_CONVERGE},
        secret=SecretStage(name="mail", revision=2),
    )

    assert refuse_request(Signer(name="dan", key="", **rights), record) == reason
    assert digest_record(record, []) != digest_record(replace(record, secret=None), [])
