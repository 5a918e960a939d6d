"""Every row of the group type's decision table, every name it refuses, and what undoes a change."""

from __future__ import annotations

from typing import Any

import pytest

from ccm_agent.model.errors import PropertyError
from ccm_agent.model.records.undo import EarlierFile
from ccm_agent.model.resource_diff import PropertyChange
from ccm_agent.resources.contract import Decision, DecisionContext, HostAccess
from ccm_agent.resources.group.model import GroupProperties, GroupState
from ccm_agent.resources.group.providers.shadow import state
from ccm_agent.resources.group.resource import check, decide, reach
from ccm_agent.resources.group.undo import earlier, identify

ABSENT = state("web", None)
WEB = state("web", ["web", "x", "900", "bob,alice"])


def group(**properties: Any) -> GroupProperties:
    return GroupProperties(**{"name": "web", "ensure": "present", **properties})


@pytest.mark.parametrize(
    ("wanted", "found", "steps"),
    [
        (group(), ABSENT, ["Would have created the group"]),
        (group(gid=900), ABSENT, ["Would have created the group"]),
        (group(members=["bob"]), ABSENT, ["Would have created the group", "Would have added members"]),
        (group(members=[]), ABSENT, ["Would have created the group"]),
        (group(), WEB, []),
        (group(gid=900, members=["bob"]), WEB, []),
        (group(gid=901), WEB, ["Would have changed the gid to 901"]),
        (group(members=["carol"]), WEB, ["Would have added members"]),
        (group(members=["bob", "alice"], members_exclusive=True), WEB, []),
        (group(members=["bob"], members_exclusive=True), WEB, ["Would have set the members"]),
        (group(members=[], members_exclusive=True), WEB, ["Would have set the members"]),
        (group(ensure="absent"), WEB, ["Would have removed the group"]),
        (group(ensure="absent"), ABSENT, []),
    ],
)
def test_a_difference_is_a_step(wanted: GroupProperties, found: GroupState, steps: list[str]) -> None:
    check(wanted)

    decision = decide(wanted, found, DecisionContext())

    assert [step.noop for step in decision.steps] == steps
    assert decision.error is None
    assert bool(decision.changes) is bool(steps)


def test_the_diff_shows_number_and_members() -> None:
    decision = decide(group(gid=901, members=["carol"]), WEB, DecisionContext())

    assert decision.changes == (
        PropertyChange(property="gid", before="900", after="901"),
        PropertyChange(property="members", before="alice,bob", after="alice,bob,carol"),
    )
    assert (
        decision.reason
        == "gid mismatch: found 900, wanted 901; members mismatch: found alice,bob, wanted alice,bob,carol"
    )


@pytest.mark.parametrize(
    ("wanted", "what"),
    [
        (group(name="root", ensure="absent"), "removed"),
        (group(name="root", gid=5), "given another number"),
    ],
)
def test_the_group_of_root_is_left_alone(wanted: GroupProperties, what: str) -> None:
    decision = decide(wanted, state("root", ["root", "x", "0", ""]), DecisionContext())

    assert decision.steps == ()
    assert str(decision.error) == f"the group root has gid 0, so it is not {what}"


HOSTILE = [
    *(
        "-g",
        "--root",
        "-",
        "",
        " ",
        "a b",
        "a\tb",
        "web\n",
        "web\nroot:x:0:",
        "web:x",
        "a,b",
        "a/b",
        "../etc",
    ),
    *("..", "a\0", "ü", "a;b", "$(id)", "`id`", "*", "web$$", "0", "1234", "x" * 33, "x" * 1_000_000),
]


@pytest.mark.parametrize("name", HOSTILE, ids=[repr(name)[:20] for name in HOSTILE])
@pytest.mark.parametrize("field", ["name", "members"])
def test_hostile_names_are_refused_with_their_place(name: str, field: str) -> None:
    wanted = group(**{field: name if field == "name" else ["alice", name]})

    with pytest.raises(PropertyError) as caught:
        check(wanted)

    assert caught.value.place is not None
    assert caught.value.place.path == f"$.{field}"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["web", "_apt", "systemd-network", "a.b", "machine$", "3proxy", "x" * 32])
def test_names_of_real_groups_are_accepted(name: str) -> None:
    check(group(name=name, members=[name]))


def test_all_errors_are_reported_at_once() -> None:
    wanted = group(name="-x", gid=0, members_exclusive=True)

    with pytest.raises(PropertyError) as caught:
        check(wanted)

    places = [one.place.path for one in (caught.value, *caught.value.others) if one.place]
    assert places == ["$.name", "$.gid", "$.members_exclusive"]


def test_a_list_that_no_argument_can_hold_is_refused() -> None:
    with pytest.raises(PropertyError, match=r"its 5000 names have more than 100000 characters"):
        check(group(members=[f"user-with-a-long-name-{number:05}" for number in range(5000)]))


def test_the_policy_sees_the_account_files() -> None:
    assert reach(group()) == HostAccess(paths=("/etc/group", "/etc/gshadow"))
    assert reach(group(gid=9)) == HostAccess(paths=("/etc/group", "/etc/gshadow", "/etc/passwd"))


async def keep(path: str, *, with_content: bool) -> EarlierFile:
    raise AssertionError("a group has no files to keep")


@pytest.mark.parametrize("before", [ABSENT, WEB, state("web", ["web", "x", "7", ""])])
@pytest.mark.parametrize("now", [ABSENT, WEB, state("web", ["web", "x", "8", "carol"])])
async def test_the_earlier_state_is_stable_once_it_is_there(before: GroupState, now: GroupState) -> None:
    kept = await earlier(group(), before, Decision(), keep)

    wanted = group(**kept.properties)
    check(wanted)
    assert decide(wanted, before, DecisionContext()).steps == ()
    assert bool(decide(wanted, now, DecisionContext()).steps) is (identify(now) != identify(before))
