"""Which orders about a rollout a driver obeys, in whatever order a broker delivers them."""

from __future__ import annotations

import msgspec
import pytest

from ccm_agent.bus.layout import RUNS
from ccm_agent.bus.signatures.signatory import Signatory
from ccm_agent.bus.signatures.verified import Unverified, Verified, Verifier
from ccm_agent.bus.subjects import encode_token, key_subject, request_subject
from ccm_agent.model.ids import new_id
from ccm_agent.model.ports import KeyValueEntry
from ccm_agent.model.records.rollout_records import (
    GivenOrder,
    OrderKind,
    Phase,
    RolloutOrder,
    RolloutPlan,
    RolloutState,
    Wave,
)
from ccm_agent.model.records.run_records import RunRecord
from ccm_agent.model.wire import MANIFEST_APPLY
from ccm_ctl.fleet.rollout.judge import KEPT, RolloutJudge, contain, name_author, obey
from tests.support.controller import NOW
from tests.support.signing import OWN, Keyring

RUN = new_id(NOW)
NODES = ["web1", "web2"]
STATE = RolloutState(run=RUN, plan=RolloutPlan(waves=(Wave(name="all", nodes=2, slots=1),)))


def given(token: str, number: int, kind: OrderKind, halts: int | None = None) -> GivenOrder:
    return GivenOrder(
        token=token, number=number, order=RolloutOrder(run=RUN, order=kind, halts=halts), by=token
    )


@pytest.mark.parametrize("kind", [OrderKind.RESUME, OrderKind.PROMOTE])
@pytest.mark.parametrize(
    ("halts", "phase"),
    [(0, Phase.PAUSED), (1, Phase.RUNNING), (None, Phase.RUNNING)],
    ids=["before the pause", "after the pause", "of an older controller"],
)
def test_only_who_saw_a_pause_ends_it(kind: OrderKind, halts: int | None, phase: Phase) -> None:
    paused = obey(STATE, [given("ann", 1, OrderKind.PAUSE)], NODES, {})
    found = obey(paused, [given("bob", 1, kind, halts)], NODES, {})

    assert (found.phase, found.is_promoted) == (
        phase,
        kind is OrderKind.PROMOTE and phase is Phase.RUNNING,
    )
    assert found.orders == {"ann": 1, "bob": 1}


@pytest.mark.parametrize(
    ("kind", "phase"),
    [
        (OrderKind.ABORT, Phase.ABORTED),
        (OrderKind.PAUSE, Phase.PAUSED),
        (OrderKind.RESUME, Phase.RUNNING),
    ],
)
def test_a_halt_counts_that_comes_after_a_later_order_of_the_same_operator(
    kind: OrderKind, phase: Phase
) -> None:
    promoted = obey(STATE, [given("bob", 2, OrderKind.PROMOTE, 0)], NODES, {})
    assert promoted.phase is Phase.RUNNING

    found = obey(promoted, [given("bob", 1, kind, 0)], NODES, {})

    assert found.phase is phase
    assert found.orders == {"bob": 2}


def test_a_pause_counts_once() -> None:
    orders = [given("bob", 2, OrderKind.PROMOTE, 0), given("bob", 1, OrderKind.PAUSE, 0)]
    paused = obey(STATE, orders, NODES, {})
    orders.append(given("bob", 3, OrderKind.RESUME, 1))
    resumed = obey(paused, orders, NODES, {})

    assert (paused.phase, resumed.phase) == (Phase.PAUSED, Phase.RUNNING)
    assert resumed.missing == {}
    assert obey(resumed, orders, NODES, {}) == resumed


def test_numbers_that_are_left_out_do_not_fill_the_state() -> None:
    found = contain(STATE, "bob", 999_999_999)

    assert found.missing == {"bob": tuple(range(999_999_999 - KEPT, 999_999_999))}
    assert len(contain(found, "bob", 1_999_999_999).missing["bob"]) == KEPT


NOW_MS = int(NOW.timestamp() * 1000)
WEB = "fact.role.web"
RECORD = RunRecord(
    run=RUN,
    action="apply",
    name="site",
    time=NOW,
    subjects=[request_subject(MANIFEST_APPLY, WEB)],
    request={"protocol": MANIFEST_APPLY, "name": "site"},
    nodes=2,
)


class Judged:
    """A rollout of role=web: ann may drive it, sue may only stop runs there, and pat may only plan."""

    def __init__(self, record: RunRecord | None = RECORD) -> None:
        keys = Keyring(lambda: NOW_MS)
        self.operators: dict[str, Signatory] = {
            "ann": keys.operator("ann", apply=(WEB,)),
            "sue": keys.operator("sue", exec=(WEB,)),
            "pat": keys.operator("pat", plan=(WEB,)),
            "eve": keys.operator("eve", apply=("fact.role.db",)),
        }
        self.operators["stranger"] = Keyring(lambda: NOW_MS).operator("ann", apply=(WEB,))
        self.judge = RolloutJudge(Verifier(keys.listed(), lambda: NOW_MS), record)

    def order(
        self, by: str, kind: OrderKind, *, name: str = "", run: str = RUN, place: str = RUN, number: str = "1"
    ) -> KeyValueEntry:
        """An order as an operator stores it, under the name of that operator unless another one is given."""
        body = msgspec.json.encode(RolloutOrder(run=run, order=kind))
        key = f"{encode_token(name or by)}.{place}.order.{number}"
        signature = self.operators[by].order(key_subject(RUNS, key), body, OWN)
        return KeyValueEntry(key=key, value=body, revision=1, created=NOW, signature=signature)

    def reasons(self, *entries: KeyValueEntry) -> list[str]:
        return [one.reason for one in self.judge.orders(entries)]

    def state(self, by: str) -> Verified[RolloutState] | Unverified[RolloutState]:
        """The state as an operator stores it."""
        body, key = msgspec.json.encode(STATE), f"=rollouts.{RUN}"
        signature = self.operators[by].record(key_subject(RUNS, key), body, OWN)
        entry = KeyValueEntry(key=key, value=body, revision=1, created=NOW, signature=signature)
        return self.judge.state(entry, STATE)


@pytest.mark.parametrize("kind", OrderKind)
def test_an_order_counts_if_its_author_may_drive_the_rollout_or_only_ends_it_and_may_stop_the_run(
    kind: OrderKind,
) -> None:
    one = Judged()

    assert one.reasons(one.order("ann", kind)) == [""]
    assert (one.reasons(one.order("sue", kind)) == [""]) is kind.is_halt
    for other in ("pat", "eve"):
        (reason,) = one.reasons(one.order(other, kind))
        assert reason.startswith(f"{other} ")
    assert "not in the signers list" in one.reasons(one.order("stranger", kind, name="ann"))[0]


def test_an_order_under_the_key_of_another_operator_counts_for_nobody() -> None:
    one = Judged()

    assert one.reasons(one.order("ann", OrderKind.ABORT, name="pat")) == [
        "ann signed it, under the key of another operator"
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"run": new_id(NOW)}, id="of another run"),
        pytest.param({"number": "x"}, id="without a number"),
        pytest.param({"number": "1" * 10}, id="with a number that is too long"),
        pytest.param({"number": "١"}, id="with other digits"),
    ],
)
def test_an_order_that_does_not_fit_its_key_is_left_out(wrong: dict[str, str]) -> None:
    one = Judged()

    assert one.reasons(one.order("ann", OrderKind.ABORT, **wrong), one.order("ann", OrderKind.PAUSE)) == [""]
    assert (
        one.judge.orders([KeyValueEntry(key=f"x.{RUN}.order.1", value=b"{", revision=1, created=NOW)]) == []
    )


def test_a_rollout_without_a_record_obeys_nobody() -> None:
    one = Judged(record=None)

    assert one.reasons(one.order("ann", OrderKind.ABORT)) == ["ann has no record"]
    assert one.state("ann").reason == "ann signed it, but has no record"


def test_a_state_counts_if_its_author_may_drive_the_rollout() -> None:
    one = Judged()

    assert isinstance(one.state("ann"), Verified)
    for other in ("sue", "pat", "eve", "stranger"):
        assert isinstance(one.state(other), Unverified), other
    assert one.state("pat").reason.startswith("pat signed it, but ")


@pytest.mark.parametrize("reason", ["", "pat may not"])
def test_an_order_that_does_not_count_changes_nothing(reason: str) -> None:
    one = msgspec.structs.replace(given("pat", 1, OrderKind.ABORT), reason=reason)

    assert (obey(STATE, [one], NODES, {}) == STATE) is bool(reason)


def test_an_order_for_an_earlier_wave_changes_no_later_one() -> None:
    paused = obey(STATE, [given("ann", 1, OrderKind.PAUSE)], NODES, {})
    later = msgspec.structs.replace(paused, wave=1)
    resume = given("ann", 2, OrderKind.RESUME, 1)

    assert obey(paused, [resume], NODES, {}).phase is Phase.RUNNING
    assert obey(later, [resume], NODES, {}).phase is Phase.PAUSED


def test_author_is_named_with_the_user_of_a_dashboard() -> None:
    assert [name_author("ann", user) for user in ("", "ann", "bob")] == [
        "ann",
        "ann (dashboard)",
        "bob (dashboard of ann)",
    ]
