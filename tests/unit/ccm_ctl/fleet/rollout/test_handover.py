"""What a rollout server drives: rollouts that an operator handed over who may send the request."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ccm_agent.bus.signatures.signing import SignatureError
from ccm_agent.bus.signatures.trust import EVERYWHERE, Trust
from ccm_agent.bus.subjects import encode_token, request_subject
from ccm_agent.model.errors import ProtocolError, RunError, UsageError
from ccm_agent.model.ids import new_id
from ccm_agent.model.records.rollout_records import Phase, RolloutPlan, RolloutState, Wave
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import (
    MANIFEST_APPLY,
    RESOURCE_EXEC,
    AssignmentStage,
    ExecRequest,
    ManifestRequest,
    Request,
)
from ccm_agent.testing.memory_bus import MemoryBroker, MemoryBus
from ccm_ctl.fleet.ports import Fleet
from ccm_ctl.fleet.rollout.handover import VALID_MS, check_handover, hand_over
from ccm_ctl.fleet.runs.history import History, Recorded, RunState
from tests.support.controller import NOW, StillClock, fleet_on
from tests.support.signing import OWN, Keyring

RUN = new_id(NOW)
NODES = ["web1", "web2"]
PLAN = RolloutPlan(waves=(Wave(name="all", nodes=2, slots=1),))
APPLY = ManifestRequest(protocol=MANIFEST_APPLY, name="site")
EXEC = ExecRequest(protocol=RESOURCE_EXEC, argv=["true"])
ASSIGN = ManifestRequest(
    protocol=MANIFEST_APPLY, name="site", stage=AssignmentStage(key="fact.role.web.site", number=7)
)


class _Clock(StillClock):
    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def now(self) -> datetime:
        return self._moment


class Hands:
    """Operators with rights on role=web, on all nodes, and with none; one of another fleet; and a server."""

    def __init__(self) -> None:
        self.keyring = Keyring(at_now)
        self.operators = {
            "bob": self.keyring.operator("bob", apply=("fact.role.web",)),
            "sue": self.keyring.operator("sue", exec=("fact.role.web",)),
            "all": self.keyring.operator("all", apply=(EVERYWHERE,), exec=(EVERYWHERE,)),
            "lou": self.keyring.operator("lou"),
            "server": self.keyring.operator("server", apply=(EVERYWHERE,)),
            "eve": Keyring(at_now).operator("eve"),
        }
        self.trust = self.keyring.trust()

    def fleet(self, name: str, trust: Trust | None = None) -> Fleet:
        signatory = self.operators.get(name)
        bus = MemoryBus(MemoryBroker(), name, signatory)
        return replace(fleet_on(bus, trust or self.trust), signatory=signatory)

    def server(self, trust: Trust | None = None, days: int = 0) -> Fleet:
        return replace(self.fleet("server", trust), clock=_Clock(NOW + timedelta(days=days)))


def at_now() -> int:
    return int(NOW.timestamp() * 1000)


@pytest.fixture
def hands() -> Hands:
    return Hands()


def recorded(request: Request = APPLY, action: str = "apply", scope: str = "fact.role.web") -> Recorded:
    told = msgspec.json.decode(msgspec.json.encode(request))
    record = RunRecord(
        run=RUN,
        action=action,
        name="site",
        time=NOW,
        nodes=2,
        targets=["role=web"],
        subjects=[request_subject(request.protocol, scope)],
        request=told,
    )
    return Recorded(record=record, state=RunState(run=RUN), nodes=NODES, offline=[], ends={})


def handed(hands: Hands, name: str, run: Recorded) -> RolloutState:
    return hand_over(hands.fleet(name), RolloutState(run=RUN, plan=PLAN), run.record, run.nodes, base=OWN)


@pytest.mark.parametrize(
    ("name", "run", "request_", "may_send_directly"),
    [
        ("bob", recorded(), APPLY, False),
        ("all", recorded(), APPLY, True),
        ("all", recorded(scope="all"), APPLY, True),
        ("sue", recorded(EXEC, "exec"), EXEC, False),
        ("bob", recorded(ASSIGN, "assign"), ASSIGN, False),
    ],
    ids=["apply", "apply on all", "apply on scope all", "exec", "assign"],
)
async def test_server_drives_what_an_operator_may_do(
    hands: Hands, name: str, run: Recorded, request_: Request, may_send_directly: bool
) -> None:
    state = handed(hands, name, run)

    assert state.is_detached
    assert await check_handover(hands.server(), state, run, request_) is may_send_directly


@pytest.mark.parametrize(
    ("name", "run", "request_", "reason"),
    [
        ("bob", recorded(scope="all"), APPLY, "bob handed it over, but may not apply on all"),
        ("bob", recorded(scope="node.db1"), APPLY, "may not apply on node.db1"),
        ("bob", recorded(EXEC, "exec"), EXEC, "bob handed it over, but may not exec on fact.role.web"),
        ("sue", recorded(), APPLY, "sue handed it over, but may not apply"),
        ("lou", recorded(), APPLY, "lou handed it over, but may not apply"),
        ("eve", recorded(), APPLY, "which is not in the signers list"),
        (
            "bob",
            recorded(replace(ASSIGN, stage=AssignmentStage(key="all.site", number=7)), "assign"),
            replace(ASSIGN, stage=AssignmentStage(key="all.site", number=7)),
            "bob handed it over, but may not assign all.site",
        ),
    ],
    ids=["wider scope", "other node", "exec", "apply", "look only", "unknown key", "other assignment"],
)
async def test_server_refuses_what_the_operator_may_not_do(
    hands: Hands, name: str, run: Recorded, request_: Request, reason: str
) -> None:
    state = handed(hands, name, run)

    with pytest.raises(SignatureError, match=reason) as caught:
        await check_handover(hands.server(), state, run, request_)
    assert f"`ccmctl run resume {RUN[:8]} --detach` hands it over again" in str(caught.value)


CHANGED_WAVES = RolloutPlan(waves=(Wave(name="all", nodes=2, slots=2),))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda state: replace(state, signature=""), "it is not signed"),
        (lambda state: replace(state, plan=CHANGED_WAVES), "the content was changed after signing"),
        (lambda state: replace(state, record_digest="0" * 64), "the content was changed after signing"),
        (lambda state: replace(state, deadline_s=9.0), "the content was changed after signing"),
        (lambda state: replace(state, start_at=NOW), "the content was changed after signing"),
        (lambda state: replace(state, run=new_id(NOW)), "the signature is for"),
    ],
    ids=["removed", "waves", "record", "deadline", "time", "run"],
)
async def test_server_refuses_a_rollout_that_was_changed_since(
    hands: Hands, change: Callable[[RolloutState], RolloutState], reason: str
) -> None:
    state = change(handed(hands, "bob", recorded()))

    with pytest.raises(SignatureError, match=reason):
        await check_handover(hands.server(), state, recorded(), APPLY)


async def test_orders_and_progress_do_not_change_what_was_signed(hands: Hands) -> None:
    state = handed(hands, "bob", recorded())
    state = replace(state, phase=Phase.BAKING, wave=1, asked=2, by="ana", returned=("web3",), time=NOW)

    assert await check_handover(hands.server(), state, recorded(), APPLY) is False


async def test_a_handover_ends_after_a_month(hands: Hands) -> None:
    days = VALID_MS // 86_400_000
    state = replace(handed(hands, "bob", recorded()), asked=1, time=NOW + timedelta(days=days))

    assert await check_handover(hands.server(days=days), state, recorded(), APPLY) is False
    with pytest.raises(SignatureError, match="the signature has expired"):
        await check_handover(hands.server(days=days + 1), state, recorded(), APPLY)


async def test_a_rollout_that_nobody_has_driven_for_a_day_is_not_driven(hands: Hands) -> None:
    state = handed(hands, "bob", recorded())
    later = RolloutState(run=RUN, plan=PLAN, start_at=NOW + timedelta(days=5))
    later = hand_over(hands.fleet("bob"), later, recorded().record, NODES, base=OWN)
    driven = replace(state, asked=1, time=NOW + timedelta(days=5))

    for one, days in ((state, 1), (later, 6), (driven, 6)):
        assert await check_handover(hands.server(days=days), one, recorded(), APPLY) is False
        with pytest.raises(RunError, match="no process has driven it for more than a day"):
            await check_handover(hands.server(days=days + 1), one, recorded(), APPLY)


async def test_a_record_that_was_exchanged_is_not_handed_over(hands: Hands) -> None:
    state = handed(hands, "bob", recorded())
    other = recorded(replace(APPLY, name="other"))

    with pytest.raises(RunError, match="its record was replaced after the start"):
        hand_over(hands.fleet("all"), state, other.record, other.nodes, base=OWN)


async def test_while_unsigned_messages_count_an_unsigned_apply_is_driven_and_a_command_is_not(
    hands: Hands,
) -> None:
    until = int((NOW + timedelta(days=1)).timestamp() * 1000)
    lenient = hands.keyring.trust(allow_unsigned_until=until)
    state = RolloutState(run=RUN, plan=PLAN, is_detached=True)

    assert await check_handover(hands.server(lenient), state, recorded(), APPLY)
    with pytest.raises(SignatureError, match="no operator in the signers list signed it"):
        await check_handover(hands.server(lenient), state, recorded(EXEC, "exec"), EXEC)


@pytest.mark.parametrize(("request_", "action"), [(EXEC, "exec"), (ASSIGN, "assign")])
async def test_without_signatures_commands_and_assignments_are_not_handed_over(
    request_: Request, action: str
) -> None:
    fleet, run = fleet_on(MemoryBus(MemoryBroker(), "op")), recorded(request_, action)
    state = RolloutState(run=RUN, plan=PLAN, is_detached=True)

    with pytest.raises(UsageError, match="only for operators who sign"):
        hand_over(fleet, state, run.record, run.nodes, base=OWN)
    with pytest.raises(ProtocolError, match="in a fleet without signatures"):
        await check_handover(fleet, state, run, request_)


async def test_without_signatures_an_apply_is_handed_over_and_driven() -> None:
    fleet, run = fleet_on(MemoryBus(MemoryBroker(), "op")), recorded()

    state = hand_over(fleet, RolloutState(run=RUN, plan=PLAN), run.record, run.nodes, base=OWN)

    assert (state.is_detached, state.signature) == (True, "")
    assert await check_handover(fleet, state, run, APPLY)


@pytest.mark.parametrize(
    ("ender", "state", "is_refused"),
    [
        ("bob", "running", True),
        ("server", "done", True),
        ("sue", "done", True),
        ("lou", "done", False),
        ("eve", "running", False),
    ],
    ids=["stopped by an operator", "ended for a server", "seen to end", "look only", "not in the list"],
)
async def test_a_rollout_that_was_stopped_or_has_ended_is_not_driven_again(
    hands: Hands, ender: str, state: str, is_refused: bool
) -> None:
    """An operator who may write rollouts opens it again. An operator who may only look cannot end it for servers."""
    server = hands.server()
    signed = handed(hands, "bob", recorded())
    bucket = server.runs
    told = RunState(run=RUN, state=state, stopped_by=ender if state == "running" else "")
    await bucket.put(f"{encode_token(ender)}.{RUN}.state", msgspec.json.encode(told))

    if is_refused:
        with pytest.raises(RunError, match=f"{ender} has stopped it or recorded its end"):
            await check_handover(server, signed, recorded(), APPLY)
    else:
        assert await check_handover(server, signed, recorded(), APPLY) is False


async def test_a_server_that_may_not_stop_a_run_knows_those_that_it_has_seen_end(hands: Hands) -> None:
    for name in ("server", "lou"):
        hands.operators[name] = hands.keyring.operator(f"narrow {name}")
    server = replace(hands.server(hands.keyring.trust()), operator="narrow server")
    signed, told = handed(hands, "bob", recorded()), msgspec.json.encode(RunState(run=RUN, state="done"))

    await server.runs.put(f"{encode_token('narrow lou')}.{RUN}.state", told)
    assert await check_handover(server, signed, recorded(), APPLY) is False
    await server.runs.put(f"{encode_token('narrow server')}.{RUN}.state", told)

    with pytest.raises(RunError, match="narrow server has stopped it or recorded its end"):
        await check_handover(server, signed, recorded(), APPLY)


async def test_who_aborts_a_rollout_is_on_record_under_a_key_of_that_operator() -> None:
    fleet = fleet_on(MemoryBus(MemoryBroker(), "ana"))

    await History(fleet).mark_stopped(RUN, "ana")

    assert await History(fleet).ended_by(RUN) == [encode_token("ana")]
