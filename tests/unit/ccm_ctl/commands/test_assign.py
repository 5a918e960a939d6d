"""`ccmctl assign`: what is stored, what is pinned, what is asked, and what is refused before anything is."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.records.stamped import Stamped
from ccm_agent.model.wire import Assignment
from tests.support.controller import BEFORE, NOW, Desk, FakeNode

MOTD = """\
ccm:
  resources:
    - file:
        - /etc/motd: {ensure: present, content: hello, owner: root, group: root, mode: "0644"}
"""
OTHER = MOTD.replace("hello", "goodbye")
ISSUE = MOTD.replace("/etc/motd", "/etc/issue")


def fleet() -> Desk:
    return Desk(
        FakeNode("web1", {"role": "web", "env": "prod"}),
        FakeNode("web2", {"role": "web", "env": "test"}, is_present=False),
        FakeNode("db1", {"role": "db", "env": "prod"}),
    )


def write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


@pytest.fixture
def motd(tmp_path: Path) -> str:
    return write(tmp_path / "motd.yaml", MOTD)


def put_data(desk: Desk, tmp_path: Path, text: str = "data: {}\n") -> None:
    assert desk.ccmctl("data", "put", "common", write(tmp_path / "common.yaml", text)).code == 0


def stored(desk: Desk) -> dict[str, Stamped]:
    """What stands, by key."""
    newest = {write.subject: write.body for write in desk.broker.buckets["CCM_ASSIGNMENTS"]}
    return {key: msgspec.json.decode(body, type=Stamped) for key, body in newest.items() if body}


def test_a_manifest_is_pinned_with_the_data_and_represents_the_role(motd: str, tmp_path: Path) -> None:
    desk = fleet()
    put_data(desk, tmp_path)

    said = desk.ccmctl(
        "assign", "web", motd, "-t", "role=web", "--interval", "30m", "-d", "kv://CCM_DATA/common", "--yes"
    )

    [document] = stored(desk).values()
    [digest] = desk.broker.objects["CCM_MANIFESTS"]
    assert (document.bucket, document.key, document.number, document.count) == (
        "CCM_ASSIGNMENTS",
        "fact.role.web.web",
        BEFORE + 1,
        1,
    )
    found = msgspec.convert(document.body, Assignment)
    assert found == Assignment(
        name="web",
        scope="fact.role.web",
        bundle=msgspec.structs.replace(found.bundle, digest=digest, manifest="manifest.yaml"),
        targets=["role=web"],
        manifest="motd",
        data=["kv://CCM_DATA/common"],
        data_revision=1,
        data_numbers={"common": BEFORE + 1},
        interval_s=1800,
        requester="op",
        time=NOW,
    )
    assert (said.code, said.out) == (
        0,
        "web: assigned, revision 1, for 2 nodes\n  check progress:  ccmctl assignment status web\n",
    )


@pytest.mark.parametrize(
    ("targets", "scope"),
    [
        (["--all"], "all"),
        (["-t", "node=web1"], "node.web1"),
        (["-t", "node in (web1,db1)"], "all"),
        (["-t", "env=prod,role=web"], "fact.env.prod"),
        (["-t", "role=web,node in (web1,web2)"], "fact.role.web"),
        (["-t", "role=web", "-t", "role=db"], "all"),
        (["-t", "role!=web"], "all"),
        (["-w", "Facts.role == 'web'"], "all"),
    ],
)
def test_an_assignment_has_one_scope(motd: str, targets: list[str], scope: str) -> None:
    desk = fleet()

    assert desk.ccmctl("assign", "web", motd, *targets, "--yes").code == 0

    assert list(stored(desk)) == [f"{scope}.web"]


def test_replaced_assignments_are_shown_and_confirmed(motd: str, tmp_path: Path) -> None:
    desk = fleet()
    put_data(desk, tmp_path)
    arguments = ("assign", "web", motd, "-t", "role=web", "--data", "kv://CCM_DATA/common")
    desk.ccmctl(*arguments, "--yes")
    put_data(desk, tmp_path, "data: {a: 1}\n")
    Path(motd).write_text(OTHER)

    asked = desk.ccmctl(*arguments)

    comparison, _, lines = asked.out.partition("--- web 1: manifest.yaml\n+++ web (new): manifest.yaml\n")
    assert (asked.code, len(stored(desk))) == (1, 1)
    assert asked.err == (
        "nodes: web[1-2], 1 of them offline\n"
        'ccmctl: cannot ask "assign web to 2 nodes?" without a terminal; use --yes\n'
    )
    assert [line.split(":")[0] for line in comparison.splitlines()] == [
        "--- web 1", "+++ web (new)", "@@ -1,8 +1,8 @@", " targets", " manifest", "-bundle", "+bundle",
        " data", "-data revision", "-  common", "+data revision", "+  common", " mode", " interval",
    ]  # fmt: skip
    assert "+data revision: 2" in comparison
    changed = [line for line in lines.splitlines() if line[0] in "+-"]
    assert [line[0] for line in changed] == ["-", "+"]
    assert changed[1][1:] in OTHER.splitlines()


def test_the_same_again_is_not_written(motd: str) -> None:
    desk = fleet()
    desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes")

    desk.broker.objects["CCM_MANIFESTS"].clear()
    again = desk.ccmctl("assign", "web", motd, "-t", "role=web")
    record = desk.ccmctl("assign", "web", motd, "-t", "role=web", "--json").records[-1]

    assert (again.code, again.out) == (0, "web: unchanged, revision 1\n")
    assert (record["changed"], record["revision"], record["nodes"]) == (False, 1, 2)
    assert len(desk.broker.buckets["CCM_ASSIGNMENTS"]) == 1
    assert len(desk.broker.objects["CCM_MANIFESTS"]) == 1


def test_data_can_be_followed_and_a_deadline_set(motd: str) -> None:
    desk = fleet()

    said = desk.ccmctl(
        "assign",
        "web",
        motd,
        "--all",
        "--follow-data",
        "--deadline",
        "8h",
        "--mode",
        "plan",
        "--yes",
        "--json",
    )

    [record] = said.records
    assert (record["data_revision"], record["deadline"], record["mode"], record["changed"]) == (
        0,
        "2026-11-21T20:00:00Z",
        "plan",
        True,
    )


def test_a_document_that_is_missing_is_refused(motd: str, tmp_path: Path) -> None:
    desk = fleet()
    arguments = ("assign", "web", motd, "--all", "--yes", "-d", "kv://CCM_DATA/common")
    refusal = (
        "ccmctl: kv://CCM_DATA/common: no such document; store it with `ccmctl data put common FILE`, "
        "or use --follow-data to assign it without the document\n"
    )

    empty = desk.ccmctl(*arguments)
    desk.ccmctl("data", "put", "other", write(tmp_path / "other.yaml", "data: {}\n"))
    other = desk.ccmctl(*arguments)
    followed = desk.ccmctl(*arguments, "--follow-data")

    assert (empty.err, other.err, followed.code) == (refusal, refusal, 0)


def test_an_assignment_to_another_role_is_moved_or_kept_beside(motd: str) -> None:
    desk = fleet()
    desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes")

    refused = desk.ccmctl("assign", "web", motd, "-t", "role=db", "--yes")
    beside = desk.ccmctl("assign", "web", motd, "-t", "role=db", "--beside", "--yes")
    both = list(stored(desk))
    again = desk.ccmctl("assign", "web", motd, "-t", "role=db", "--interval", "10m", "--yes")
    moved = desk.ccmctl("assign", "web", motd, "-t", "env=prod", "--move", "--yes")

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: web: already assigned to role=web, and would now be for role=db; "
        "use --move to remove it there, or --beside to keep both\n",
    )
    assert beside.err == "web revision 1 (role=web) stays in effect on web[1-2]\n"
    assert both == ["fact.role.web.web", "fact.role.db.web"]
    assert (again.code, again.err) == (0, "web revision 1 (role=web) stays in effect on web[1-2]\n")
    assert moved.err == (
        "removing web revision 3 (role=db)\n"
        "removing web revision 1 (role=web)\n"
        "replacing another assignment named web on 2 nodes: db1, web1\n"
    )
    assert {key: (document.number, document.count) for key, document in stored(desk).items()} == {
        "fact.env.prod.web": (BEFORE + 4, 4)
    }


def test_a_nodes_own_assignment_wins_over_the_roles_and_all(motd: str) -> None:
    desk = fleet()
    desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes")

    own = desk.ccmctl("assign", "web", motd, "-t", "node=web1", "--mode", "plan", "--yes")
    everybodys = desk.ccmctl("assign", "web", motd, "--all", "--yes")

    assert (own.err, own.out.splitlines()[0]) == (
        "web revision 1 (role=web) stays in effect on web2\n"
        "replacing another assignment named web on 1 node: web1\n",
        "web: assigned, revision 2, for 1 node",
    )
    assert (everybodys.err, everybodys.out.splitlines()[0]) == (
        "web revision 2 (node=web1) stays in effect on web1\nweb revision 1 (role=web) stays in effect on web2\n",
        "web: assigned, revision 3, for 1 node",
    )


def test_a_resource_that_another_assignment_manages_is_refused_and_both_are_named(
    motd: str, tmp_path: Path
) -> None:
    desk = fleet()
    desk.ccmctl("assign", "base", motd, "-t", "env=prod", "--yes")

    refused = desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes")
    elsewhere = desk.ccmctl("assign", "web", motd, "-t", "node=web2", "--yes")
    apart = desk.ccmctl("assign", "web", write(tmp_path / "issue.yaml", ISSUE), "-t", "role=web", "--yes")

    assert (refused.code, refused.err) == (
        1,
        "ccmctl: web: the assignment base also manages file#/etc/motd on web1, "
        "and agents would refuse both; remove the resource from one of them\n",
    )
    assert (elsewhere.code, apart.code) == (0, 0)


def test_a_plan_manages_nothing_and_conflicts_with_nothing(motd: str) -> None:
    desk = fleet()
    desk.ccmctl("assign", "base", motd, "-t", "env=prod", "--yes")

    plan = desk.ccmctl("assign", "trial", motd, "-t", "role=web", "--noop", "--yes")
    desk.ccmctl("unassign", "base", "--yes")
    beside_a_plan = desk.ccmctl("assign", "base", motd, "-t", "env=prod", "--yes")

    assert (plan.code, plan.err, beside_a_plan.code, beside_a_plan.err) == (0, "", 0, "")
    assert desk.ccmctl("assignment", "list", "--json").records[-1]["mode"] == "plan"


def test_names_that_only_a_node_knows_are_left_to_the_node(tmp_path: Path) -> None:
    desk = fleet()
    path = write(tmp_path / "home.yaml", MOTD.replace("/etc/motd", "\"{{ lookup('facts.home') }}/motd\""))
    desk.ccmctl("assign", "base", path, "-t", "env=prod", "--yes")

    said = desk.ccmctl("assign", "web", path, "-t", "role=web", "--yes")

    assert (said.code, said.err) == (
        0,
        "file#{{ lookup('facts.home') }}/motd: the assignment base has a resource of the same name on web1; "
        "agents refuse both if it is the same resource\n",
    )


def test_an_operator_is_reported_where_the_broker_does_not_let_it_assign(motd: str) -> None:
    desk = fleet()
    desk.broker.deny("op", "$KV.CCM_ASSIGNMENTS.fact.role.db.*")

    said = desk.ccmctl("assign", "db", motd, "-t", "role=db", "--yes")

    assert (said.code, said.err) == (
        1,
        "ccmctl: db: op may not change assignments for role=db; the first `fact=value` of --targets determines "
        "this scope, and `ccmctl operator add --apply` grants it\n",
    )
    assert desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes").code == 0


def test_the_current_one_is_brought_forward_to_the_data_of_now(motd: str, tmp_path: Path) -> None:
    desk = fleet()
    put_data(desk, tmp_path)
    desk.ccmctl("assign", "web", motd, "-t", "role=web", "-d", "kv://CCM_DATA/common", "--yes")
    before = stored(desk)["fact.role.web.web"].body

    put_data(desk, tmp_path, "data: {a: 1}\n")
    said = desk.ccmctl("assign", "web", "--refresh", "--yes")

    after = stored(desk)["fact.role.web.web"].body
    renewed = {"data_revision": 2, "data_numbers": {"common": before["data_numbers"]["common"] + 1}}
    assert (said.code, after) == (0, before | renewed)
    assert desk.ccmctl("assign", "web", "--refresh", "--yes").out == "web: unchanged, revision 2\n"


def test_storing_data_lists_the_assignments_that_stay_pinned(motd: str, tmp_path: Path) -> None:
    desk = fleet()
    put_data(desk, tmp_path)
    for name, *options in (("web", "-d", "kv://CCM_DATA/{{ lookup('facts.layer') }}"), ("db",)):
        desk.ccmctl("assign", name, motd, "-t", f"role={name}", *options, "--yes")
    desk.ccmctl("assign", "free", motd, "-t", "node=web9", "-d", "kv://CCM_DATA/common", "--follow-data")

    path = write(tmp_path / "common.yaml", "data: {a: 1}\n")

    assert desk.ccmctl("data", "put", "common", path).err == (
        "the assignment web still uses its revision 1; update it with `ccmctl assign web --refresh`\n"
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["a.b", "x"], "'a.b': not a valid name for an assignment; use letters, digits, `-` and `_`"),
        (["web"], "no manifest given; name a file or directory, or use --refresh"),
        (["web", "x", "--move", "--beside"], "--move and --beside are mutually exclusive"),
        (["web", "x", "--refresh"], "--refresh re-pins the existing assignment to the current data; omit FILE and targets"),
        (["web", "--refresh", "--noop"], "--refresh re-pins the existing assignment to the current data; omit FILE and targets"),
        (["web", "x", "--mode", "apply", "--noop"], "--mode and --noop are mutually exclusive"),
        (["web", "--refresh", "--all"], "--refresh re-pins the existing assignment to the current data; omit FILE and targets"),
        (["web", "--refresh"], "web: there is no such assignment; see `ccmctl assignment list`"),
        (["web", "x", "--scope", "all"], "--scope works only with --refresh; use --targets to select the nodes"),
        (["web", "--refresh", "--scope", "x"], "x: not a scope; write all, node=NAME or a fact such as role=web"),
    ],
)  # fmt: skip
def test_contradictory_options_are_refused(arguments: list[str], sentence: str) -> None:
    said = fleet().ccmctl("assign", *arguments)

    assert (said.code, said.err) == (1, f"ccmctl: {sentence}\n")


def test_a_manifest_that_does_not_fit_is_refused_as_apply_refuses_it(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.yaml", "ccm: {resorces: []}\n")
    desk = fleet()

    assigned = desk.ccmctl("assign", "web", path, "--all", "--yes")

    assert (assigned.code, assigned.err) == (1, desk.ccmctl("apply", path, "--all", "--yes").err)
    assert desk.broker.buckets.get("CCM_ASSIGNMENTS", []) == []


def test_a_pattern_is_assigned_once_every_agent_knows_patterns(motd: str) -> None:
    older = FakeNode("db1", {"role": "db"})
    newer = FakeNode("web1", {"role": "web"}, record={"selector_patterns": True})

    refused = Desk(newer, older).ccmctl("assign", "web", motd, "-t", "role!=d*", "--yes")
    desk = Desk(newer)
    taken = desk.ccmctl("assign", "web", motd, "-t", "role!=d*", "--yes")

    assert (refused.code, taken.code) == (1, 0)
    assert (
        "db1: the agent is too old for `*`, `?` or list values in the targets of an assignment" in refused.err
    )
    assert stored(desk)["all.web"].body["targets"] == ["role!=glob(d*)"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(
            ("--batch", "1"), "web1: the agent is too old for an assignment in waves", id="an older agent"
        ),
        pytest.param(("--batch", "1", "--noop"), "--mode plan changes nothing", id="a plan"),
        pytest.param(("--batch", "1", "--move"), "--move removes the assignment", id="a move"),
    ],
)
def test_waves_that_cannot_be_are_refused_before_anything_is_stored(
    motd: str, options: tuple[str, ...], message: str
) -> None:
    desk = Desk(
        FakeNode("web1", {"role": "web"}),
        FakeNode("web2", {"role": "web"}, record={"staged_assignments": True}),
    )

    said = desk.ccmctl("assign", "web", motd, "-t", "role=web", "--yes", *options)

    assert (said.code, message in said.err) == (1, True), said.err
    assert "CCM_ASSIGNMENTS" not in desk.broker.buckets or not desk.broker.buckets["CCM_ASSIGNMENTS"]
