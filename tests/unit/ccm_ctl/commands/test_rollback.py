"""`ccmctl rollback` and `ccmctl unassign`: back to what was assigned, and no more of it."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import msgspec
import pytest

from ccm_agent.model.records.stamped import Stamped
from ccm_agent.testing.memory_bus import MemoryBus
from tests.support.controller import Desk, FakeNode

MANIFEST = """\
ccm:
  resources:
    - file:
        - /etc/motd: {{ensure: present, content: '{}', owner: root, group: root, mode: "0644"}}
"""
COMMON = "kv://CCM_DATA/common"


def digest_of(word: str) -> str:
    return hashlib.sha256(MANIFEST.format(word).encode()).hexdigest()[:12]


class Site:
    """A manifest and its data at a desk, as they change."""

    def __init__(self, folder: Path) -> None:
        self.desk = Desk(
            FakeNode("web1", {"role": "web"}), FakeNode("web2", {"role": "web"}, is_present=False)
        )
        self.manifest, self._data = folder / "motd.yaml", folder / "common.yaml"

    def assign(self, word: str, *options: str) -> None:
        self.manifest.write_text(MANIFEST.format(word))
        self._data.write_text(f"data: {{word: {word}}}\n")
        assert self.desk.ccmctl("data", "put", "common", str(self._data)).code == 0
        arguments = ("assign", "web", str(self.manifest), "-t", "role=web", "-d", COMMON, "--yes", *options)
        said = self.desk.ccmctl(*arguments)
        assert said.code == 0, said.err

    @property
    def stands(self) -> tuple[int, str, int, int]:
        """Revision, bundle, data revision, and what it took the place of by a rollback."""
        written = self.desk.broker.buckets["CCM_ASSIGNMENTS"][-1].body
        document = msgspec.json.decode(written, type=Stamped)
        body = document.body
        return (
            document.count,
            body["bundle"]["digest"],
            body["data_revision"],
            body.get("rolled_back_from", 0),
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    for word in ("one", "two", "three"):
        site.assign(word)
    return site


def test_manifest_and_data_go_back_together_as_a_new_revision(site: Site) -> None:
    _, second, third = site.desk.broker.objects["CCM_MANIFESTS"]

    said = site.desk.ccmctl("rollback", "web", "--yes")

    assert site.stands == (4, second, 2, 3)
    assert said.out.splitlines()[:10] == [
        "--- web 3",
        "+++ web (new)",
        "@@ -1,8 +1,8 @@",
        " targets: role=web",
        " manifest: motd",
        f"-bundle: {third[:12]}",
        f"+bundle: {second[:12]}",
        f" data: {COMMON}",
        "-data revision: 3",
        "-  common: 3",
    ]
    assert [line for line in said.out.splitlines() if "manifest.yaml" in line] == [
        "--- web 3: manifest.yaml",
        "+++ web (new): manifest.yaml",
    ]
    assert said.out.endswith(
        "web: rolled back to revision 2, revision 4, for 2 nodes\n"
        "  check progress:  ccmctl assignment status web\n"
    )


def test_message_of_a_rollback_is_kept_with_its_revision(site: Site) -> None:
    site.desk.ccmctl("rollback", "web", "--yes", "--message", "the pool is too small")

    newest = site.desk.ccmctl("assignment", "history", "web", "--json").records[0]
    assert (newest["revision"], newest["message"]) == (4, "the pool is too small")


def test_repeated_rollbacks_go_further_back(site: Site) -> None:
    first, second, _ = site.desk.broker.objects["CCM_MANIFESTS"]

    stood = []
    for _ in range(2):
        site.desk.ccmctl("rollback", "web", "--yes")
        stood.append(site.stands)
    end = site.desk.ccmctl("rollback", "web", "--yes")

    assert stood == [(4, second, 2, 3), (5, first, 1, 4)]
    assert (end.code, end.err) == (1, "ccmctl: web: no different verified revision before 5 is stored\n")


def test_a_revision_is_gone_back_to_by_its_number(site: Site) -> None:
    first, *_ = site.desk.broker.objects["CCM_MANIFESTS"]

    named = site.desk.ccmctl("rollback", "web", "--to", "1", "--yes")
    unknown = site.desk.ccmctl("rollback", "web", "--to", "9", "--yes")

    assert (named.code, site.stands) == (0, (4, first, 1, 3))
    assert unknown.err == "ccmctl: web: revision 9 is not stored; stored revisions: 1, 2, 3, 4\n"


def test_a_rollback_is_confirmed_first(site: Site) -> None:
    said = site.desk.ccmctl("rollback", "web")

    assert (said.code, said.err, site.stands[0]) == (
        1,
        "nodes: web[1-2], 1 of them offline\n"
        'ccmctl: cannot ask "roll web back to revision 2 on 2 nodes?" without a terminal; use --yes\n',
        3,
    )


def test_a_revision_that_cannot_be_restored_is_refused(site: Site, tmp_path: Path) -> None:
    desk = site.desk
    first, *_ = desk.broker.objects["CCM_MANIFESTS"]
    del desk.broker.objects["CCM_MANIFESTS"][first]
    for number in range(20):
        (tmp_path / "next.yaml").write_text(f"data: {{word: {number}}}\n")
        desk.ccmctl("data", "put", "common", str(tmp_path / "next.yaml"))

    bundle = desk.ccmctl("rollback", "web", "--to", "1", "--yes")
    data = desk.ccmctl("rollback", "web", "--to", "2", "--yes")

    assert bundle.err == (
        f"ccmctl: web: revision 1 cannot be restored: its bundle {first[:12]} is no longer in CCM_MANIFESTS; "
        "assign it from its files\n"
    )
    assert data.err == (
        "ccmctl: web: revision 2 cannot be restored: common as of data revision 2 is no longer stored; "
        "store it again, and assign the manifest from its files\n"
    )
    assert site.stands[0] == 3


def test_a_deadline_that_has_passed_does_not_come_back(site: Site) -> None:
    site.assign("four", "--deadline", "1h")
    site.assign("five")
    write = site.desk.broker.buckets["CCM_ASSIGNMENTS"][3]
    write.body = write.body.replace(b"2026-11-21T13:00:00Z", b"2026-11-21T11:00:00Z")

    said = site.desk.ccmctl("rollback", "web", "--yes", "--json")

    assert (said.code, said.records[-1].get("deadline")) == (0, None)


def test_an_assignment_ends_and_nothing_is_undone(site: Site) -> None:
    said = site.desk.ccmctl("unassign", "web")

    assert (said.code, said.out) == (
        0,
        "web: unassigned for role=web; 2 nodes stop converging on it; nothing is undone\n"
        "  restore:  ccmctl rollback web --scope role=web\n",
    )
    assert site.desk.ccmctl("assignment", "list", "--json").records == []


def test_a_rollback_restores_an_unassigned_assignment(site: Site) -> None:
    *_, third = site.desk.broker.objects["CCM_MANIFESTS"]
    site.desk.ccmctl("unassign", "web")

    said = site.desk.ccmctl("rollback", "web", "--scope", "role=web", "--yes")
    history = site.desk.ccmctl("assignment", "history", "web")

    assert (said.code, site.stands) == (0, (4, third, 3, 3))
    assert [line.split()[:2] for line in history.out.splitlines()] == [
        ["REV", "DIGEST"],
        ["4", third[:12]],
        ["unassigned", history.out.splitlines()[2].split()[1]],
        ["3", third[:12]],
        *[
            [str(number), line.split()[1]]
            for number, line in zip((2, 1), history.out.splitlines()[4:], strict=True)
        ],
    ]


def test_a_name_that_represents_several_wants_a_scope(site: Site) -> None:
    desk = site.desk
    desk.ccmctl("assign", "web", str(site.manifest), "-t", "node=web1", "--yes")

    which = desk.ccmctl("unassign", "web")
    other = desk.ccmctl("unassign", "web", "--scope", "role=db")
    asked = desk.ccmctl("unassign", "web", "--scope", "node=web1")
    agreed = desk.ccmctl("unassign", "web", "--scope", "node=web1", "--yes")

    assert (
        which.err
        == "ccmctl: web: assigned to 2 scopes; choose one with --scope node=web1 or --scope role=web\n"
    )
    assert other.err == "ccmctl: web: is not assigned to role=db; `ccmctl assignment list` lists its scopes\n"
    assert (asked.code, asked.err) == (
        1,
        "web1: falls back to another assignment `web`\n"
        "nodes: web1\n"
        'ccmctl: cannot ask "unassign web for node=web1 and so change 1 node?" without a terminal; use --yes\n',
    )
    assert (agreed.code, agreed.out.splitlines()[0]) == (
        0,
        "web: unassigned for node=web1; 1 node now uses another assignment `web`",
    )


def test_an_operator_cannot_unassign_without_permission_to_assign(site: Site) -> None:
    site.desk.operator = "ann"
    site.desk.broker.deny("ann", "$KV.CCM_ASSIGNMENTS.fact.role.web.web")

    said = site.desk.ccmctl("unassign", "web")

    assert (said.code, said.err.split(";")[0]) == (
        1,
        "ccmctl: web: ann may not change assignments for role=web",
    )


def test_a_rollback_that_causes_a_conflict_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "motd.yaml").write_text(MANIFEST.format("x").replace("motd", "issue"))
    site.desk.ccmctl("assign", "web", str(tmp_path / "motd.yaml"), "-t", "role=web", "--yes")
    (tmp_path / "base.yaml").write_text(MANIFEST.format("y"))
    assert (
        site.desk.ccmctl("assign", "base", str(tmp_path / "base.yaml"), "-t", "role=web", "--yes").code == 0
    )

    said = site.desk.ccmctl("rollback", "web", "--yes")

    assert (said.code, said.err) == (
        1,
        "ccmctl: web: the assignment base also manages file#/etc/motd on web[1-2], "
        "and agents would refuse both; remove the resource from one of them\n",
    )


def test_the_history_says_who_removed_an_assignment_and_why(site: Site) -> None:
    removed = site.desk.ccmctl("unassign", "web", "--message", "moved to\x1b[2J k8s")
    screen = site.desk.ccmctl("assignment", "history", "web", "--scope", "role=web")
    told = site.desk.ccmctl("assignment", "history", "web", "--scope", "role=web", "--json").named(
        "assignment"
    )

    assert removed.code == 0, removed.err
    assert " unassigned " in screen.out.splitlines()[1]
    assert "  op " in screen.out.splitlines()[1]
    assert screen.out.splitlines()[1].endswith("moved to\\x1b[2J k8s")
    assert {name: told[0][name] for name in ("removed", "written_by", "message")} == {
        "removed": True,
        "written_by": "op",
        "message": "moved to\x1b[2J k8s",
    }


def test_a_removal_by_an_older_ccmctl_has_no_author(site: Site) -> None:
    asyncio.run(MemoryBus(site.desk.broker, "op").bucket("CCM_ASSIGNMENTS").delete("fact.role.web.web"))

    told = site.desk.ccmctl("assignment", "history", "web", "--scope", "role=web", "--json").named(
        "assignment"
    )

    assert (told[0]["removed"], told[0].get("written_by"), told[0].get("message")) == (True, None, None)
